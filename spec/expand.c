/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/expand.h"

#include <errno.h>
#include <string.h>

/* Appends what stands for the `$` at `s`; returns how many bytes of it are
 * done. A $ that is only itself is doubled where what comes behind it later
 * could make it more. */
static size_t put_one(struct buf *to, const char *s, expand_lookup_f *lookup,
                      const void *ctx)
{
    const char *end = s[1] == '(' ? strchr(s, ')') : NULL;
    const char *value = end ? lookup(ctx, s + 2, (size_t)(end - s - 2)) : NULL;
    size_t len = end ? (size_t)(end - s) + 1 : s[1] == '$' ? 2 : 1;

    if (value) {
        buf_puts(to, value);
    } else if (!end && (s[1] == '(' || !s[1])) {
        buf_puts(to, "$$");
    } else {
        buf_append(to, s, len);
    }
    return len;
}

int expand_known(struct buf *to, const char *s, size_t max,
                 expand_lookup_f *lookup, const void *ctx)
{
    size_t start = to->len;

    while (*s) {
        size_t plain = strcspn(s, "$");

        buf_append(to, s, plain);
        s += plain;
        if (*s) {
            s += put_one(to, s, lookup, ctx);
        }
        if (to->len - start > max) {
            return -E2BIG;
        }
    }
    return 0;
}

void expand_escape(struct buf *to, const char *s)
{
    for (; *s; s++) {
        buf_putc(to, *s);
        if (*s == '$' && (s[1] == '$' || s[1] == '(' || !s[1])) {
            buf_putc(to, '$');
        }
    }
}
