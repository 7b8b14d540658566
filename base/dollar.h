/* SPDX-License-Identifier: Apache-2.0 */
/*
 * $(NAME) by the rule of Kubernetes: it stands for a value where the name is
 * known and for itself where not; $$ is one $. Nothing else is special, ${NAME}
 * and $NAME are the shell's. This finds them; what takes their place is the
 * caller's to say.
 */
#ifndef MUSTER_BASE_DOLLAR_H
#define MUSTER_BASE_DOLLAR_H

#include "base/buf.h"

#include <stddef.h>

enum dollar_kind {
    DOLLAR_NAME,  /* $(NAME) */
    DOLLAR_TWICE, /* $$ */
    DOLLAR_ALONE, /* a $ that is nothing more */
};

struct dollar {
    enum dollar_kind kind;
    const char *at; /* the $, in the text; `len` bytes are this one's */
    size_t len;
    const char *name; /* not terminated; "" unless DOLLAR_NAME */
    size_t name_len;
};

/* Appends what takes the place of `d`. */
typedef void dollar_put_f(struct buf *to, const struct dollar *d,
                          const void *ctx);

/* Appends `s`, with `put` in place of each $; stops when more than `max` bytes
 * would have been appended. 0 or -E2BIG. Its time is linear in the length of what
 * comes and what goes. */
int dollar_expand(struct buf *to, const char *s, size_t max, dollar_put_f *put,
                  const void *ctx);

#endif
