/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

__attribute__((format(printf, 3, 0)))
static void put_text(struct error *e, int code, const char *fmt, va_list ap)
{
    if (e) {
        e->code = code;
        vsnprintf(e->text, sizeof(e->text), fmt, ap);
    }
}

/* That a disk or a program is at its end is not what these say: who has set the limit may
 * set it higher. Where there is no limit of a file's size the filesystem has one. */
static void add_limit(struct error *e, int code)
{
    bool is_files = code == EMFILE;
    size_t len = strlen(e->text);
    struct rlimit l;

    if ((is_files || code == EFBIG) &&
        getrlimit(is_files ? RLIMIT_NOFILE : RLIMIT_FSIZE, &l) == 0 &&
        l.rlim_cur != RLIM_INFINITY) {
        snprintf(e->text + len, sizeof(e->text) - len, is_files
                     ? " (this process may have %llu open: ulimit -n)"
                     : " (this process may write files of %llu bytes: ulimit -f)",
                 (unsigned long long)l.rlim_cur);
    }
}

int error_set(struct error *e, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_text(e, code, fmt, ap);
    va_end(ap);
    if (e && code > 0 && code < ERR_SPEC) {
        size_t len = strlen(e->text);

        snprintf(e->text + len, sizeof(e->text) - len, ": %s", strerror(code));
        add_limit(e, code);
    }
    return -code;
}

int error_text(struct error *e, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_text(e, code, fmt, ap);
    va_end(ap);
    return -code;
}

int error_wrap(struct error *e, const char *fmt, ...)
{
    char inner[sizeof(e->text)];
    va_list ap;
    size_t len;

    if (!e) {
        return -EIO;
    }
    memcpy(inner, e->text, sizeof(inner));
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    len = strlen(e->text);
    snprintf(e->text + len, sizeof(e->text) - len, ": %s", inner);
    return -e->code;
}
