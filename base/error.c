/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (!e) {
        return -code;
    }
    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    if (code > 0 && code < ERR_SPEC) {
        size_t len = strlen(e->text);

        snprintf(e->text + len, sizeof(e->text) - len, ": %s", strerror(code));
    }
    return -code;
}

int error_text(struct error *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (!e) {
        return -code;
    }
    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
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
