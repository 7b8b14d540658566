/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0)))
static void put_text(struct error *e, int code, const char *fmt, va_list ap)
{
    if (e) {
        e->code = code;
        vsnprintf(e->text, sizeof(e->text), fmt, ap);
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
