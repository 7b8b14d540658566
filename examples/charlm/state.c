/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int state_create(struct state *ret, struct shape shape,
                 const struct text *text, uint64_t seed, uint32_t batch,
                 struct failure *f)
{
    struct state s = {.shape = shape, .seed = seed, .batch = batch};

    memcpy(s.symbols, text->symbols, text->n_symbols);
    s.n_weights = weights_count(shape);
    s.values = calloc(3 * s.n_weights, sizeof(*s.values));
    if (!s.values) {
        return failure_errno(f, ENOMEM, "a model of %zu weights",
                             s.n_weights);
    }
    weights_init(shape, s.values, seed);
    *ret = s;
    return 0;
}

void state_release(struct state *s)
{
    free(s->values);
    s->values = NULL;
    history_release(&s->history);
}

struct adam state_adam(const struct state *s)
{
    return (struct adam){
        .weights = s->values,
        .mean = s->values + s->n_weights,
        .square = s->values + 2 * s->n_weights,
        .n = s->n_weights,
    };
}
