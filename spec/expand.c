/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/expand.h"

#include "base/dollar.h"

struct scope {
    expand_lookup_f *lookup;
    const void *ctx;
};

/* A $ that is only itself is doubled where what comes behind it later could make
 * it more. */
static void put_template(struct buf *to, const struct dollar *d,
                         const void *ctx)
{
    const struct scope *scope = ctx;
    const char *value = NULL;

    if (d->kind == DOLLAR_NAME) {
        value = scope->lookup(scope->ctx, d->name, d->name_len);
    }
    if (value) {
        buf_puts(to, value);
    } else if (d->kind == DOLLAR_ALONE && (d->at[1] == '(' || !d->at[1])) {
        buf_puts(to, "$$");
    } else {
        buf_append(to, d->at, d->len);
    }
}

int expand_known(struct buf *to, const char *s, size_t max,
                 expand_lookup_f *lookup, const void *ctx)
{
    struct scope scope = {lookup, ctx};

    return dollar_expand(to, s, max, put_template, &scope);
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
