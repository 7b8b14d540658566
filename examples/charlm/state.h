/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that training goes on from, and nothing else: what a checkpoint
 * holds, and what every worker has the same bits of.
 */
#ifndef CHARLM_STATE_H
#define CHARLM_STATE_H

#include "adam.h"
#include "history.h"
#include "text.h"
#include "weights.h"

struct state {
    struct shape shape;
    uint8_t symbols[256]; /* of the text; the first shape.vocab count */
    uint64_t seed;
    uint32_t batch;
    uint64_t step; /* steps done */
    real *values;  /* weights, then Adam's two averages */
    size_t n_weights;
    struct history history; /* whole at worker 0, which saves it */
};

/* A state before the first step, for `shape` (checked) and `text`. */
int state_create(struct state *ret, struct shape shape,
                 const struct text *text, uint64_t seed, uint32_t batch,
                 struct failure *f);
void state_release(struct state *s);

struct adam state_adam(const struct state *s);

#endif
