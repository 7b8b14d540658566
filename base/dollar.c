/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/dollar.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* `may_close`: whether there can be a ) behind it. */
static struct dollar read_one(const char *at, bool *may_close)
{
    struct dollar d = {.kind = DOLLAR_ALONE, .at = at, .len = 1, .name = ""};
    const char *end = NULL;

    if (at[1] == '(' && *may_close) {
        end = strchr(at, ')');
        *may_close = end;
    }
    if (end) {
        d.kind = DOLLAR_NAME;
        d.len = (size_t)(end - at) + 1;
        d.name = at + 2;
        d.name_len = d.len - 3;
    } else if (at[1] == '$') {
        d.kind = DOLLAR_TWICE;
        d.len = 2;
    }
    return d;
}

int dollar_expand(struct buf *to, const char *s, size_t max, dollar_put_f *put,
                  const void *ctx)
{
    size_t start = to->len;
    bool may_close = true;

    while (*s) {
        size_t plain = strcspn(s, "$");

        buf_append(to, s, plain);
        s += plain;
        if (*s) {
            struct dollar d = read_one(s, &may_close);

            put(to, &d, ctx);
            s += d.len;
        }
        if (to->len - start > max) {
            return -E2BIG;
        }
    }
    return 0;
}
