/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: embedding of characters and positions, layers of attention and a
 * two-step map, each behind a norm and added to its input, a final norm, and
 * the embedding again to score the next character.
 *
 * A `struct pass` holds what the forward pass leaves for the backward one. It
 * is made once, for the largest group of sequences that goes through at once.
 */
#ifndef CHARLM_MODEL_H
#define CHARLM_MODEL_H

#include "norm.h"
#include "weights.h"

struct pass_layer {
    real *input;
    struct norm_row *norm1;
    real *normed1;
    real *qkv;
    real *attention; /* weights of each pair of positions */
    real *attended;
    real *middle; /* between attention and the two-step map */
    struct norm_row *norm2;
    real *normed2;
    real *grown; /* before the nonlinearity */
    real *active;
};

struct pass {
    struct shape shape;
    size_t max_sequences;
    size_t n_sequences; /* of the last forward pass */
    size_t length;
    const uint8_t *codes; /* borrowed: n_sequences * length */
    struct pass_layer layers[MAX_LAYERS];
    struct norm_row *final_norm;
    real *last; /* output of the last layer */
    real *final_normed;
    real *scores; /* vocab numbers a position */
    real *grad, *grad_branch, *grad_wide, *scratch;
    void *memory;
};

/* NULL without memory. */
struct pass *pass_create(struct shape s, size_t max_sequences);
void pass_destroy(struct pass *p);

/* Scores of the next character at every position. `codes` are n_sequences rows
 * of `length` <= context characters (each < vocab), borrowed until the backward
 * pass is done. */
void model_forward(struct pass *p, const struct weights *w,
                   const uint8_t *codes, size_t n_sequences, size_t length);

/* Turns the scores into the gradient of scale * loss, and returns that value:
 * the loss is the sum over positions of -log(probability of the target). */
double model_loss(struct pass *p, const uint8_t *targets, double scale);

/* Adds the gradient of every weight to `grads`, after model_loss(). */
void model_backward(struct pass *p, const struct weights *w,
                    struct weights *grads);

#endif
