/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal multi-head attention of one or more sequences. A row of `qkv` holds
 * query, key and value of one position, `width` numbers each; head h owns the
 * columns h * width / heads and on of each.
 */
#ifndef CHARLM_ATTENTION_H
#define CHARLM_ATTENTION_H

#include "real.h"

#include <stddef.h>

struct attention {
    size_t n_sequences;
    size_t length; /* positions in a sequence */
    size_t width;
    size_t heads;
};

/* Sets `out` (width numbers a position) and `weights`, for the backward pass:
 * n_sequences * heads matrices of length x length. */
void attention_forward(struct attention a, real *out, real *weights,
                       real *qkv);

/* Sets `grad_qkv`. `scratch` has room for length x length numbers. */
void attention_backward(struct attention a, real *grad_qkv, real *grad_out,
                        real *weights, real *qkv, real *scratch);

#endif
