/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int failure_set(struct failure *f, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    return -EINVAL;
}

int failure_errno(struct failure *f, int error, const char *fmt, ...)
{
    va_list ap;
    size_t len;

    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    len = strlen(f->text);
    snprintf(f->text + len, sizeof(f->text) - len, ": %s", strerror(error));
    return -error;
}
