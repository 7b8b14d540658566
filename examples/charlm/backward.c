/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass in reverse. p->grad is the gradient of what flows along the
 * residual path: a branch adds its share to it on the way back to the input.
 */
#include <config.h>

#include "attention.h"
#include "gelu.h"
#include "linear.h"
#include "model.h"
#include "vector.h"

#include <string.h>

/* The two-step map: from the output of the layer to its middle. */
static void backward_map(struct pass *p, struct pass_layer *l,
                         const struct layer_weights *w,
                         struct layer_weights *grads)
{
    size_t width = p->shape.width;
    size_t rows = p->n_sequences * p->length;
    struct matrix grown = matrix_of(p->grad_wide, rows, 4 * width);
    struct norm_grads to = {
        .in = p->grad,
        .gain = grads->norm2_gain,
        .bias = grads->norm2_bias,
    };

    linear_backward(grown, matrix_of(p->grad, rows, width),
                    matrix_of(l->active, rows, 4 * width), w->shrink,
                    grads->shrink, grads->shrink_bias);
    gelu_backward(p->grad_wide, l->grown, rows * 4 * width);
    linear_backward(matrix_of(p->grad_branch, rows, width), grown,
                    matrix_of(l->normed2, rows, width), w->grow, grads->grow,
                    grads->grow_bias);
    norm_backward(to, p->grad_branch, l->norm2, l->middle, w->norm2_gain,
                  rows, width);
}

/* Attention: from the middle of the layer to its input. */
static void backward_attention(struct pass *p, struct pass_layer *l,
                               const struct layer_weights *w,
                               struct layer_weights *grads)
{
    size_t width = p->shape.width;
    size_t rows = p->n_sequences * p->length;
    struct matrix branch = matrix_of(p->grad_branch, rows, width);
    struct attention a = {
        .n_sequences = p->n_sequences,
        .length = p->length,
        .width = width,
        .heads = p->shape.heads,
    };
    struct norm_grads to = {
        .in = p->grad,
        .gain = grads->norm1_gain,
        .bias = grads->norm1_bias,
    };

    linear_backward(branch, matrix_of(p->grad, rows, width),
                    matrix_of(l->attended, rows, width), w->mix, grads->mix,
                    grads->mix_bias);
    attention_backward(a, p->grad_wide, p->grad_branch, l->attention, l->qkv,
                       p->scratch);
    linear_backward(branch, matrix_of(p->grad_wide, rows, 3 * width),
                    matrix_of(l->normed1, rows, width), w->qkv, grads->qkv,
                    grads->qkv_bias);
    norm_backward(to, p->grad_branch, l->norm1, l->input, w->norm1_gain, rows,
                  width);
}

static void backward_embedding(struct pass *p, struct weights *grads)
{
    size_t width = p->shape.width;
    const real *from = p->grad;

    for (size_t t = 0; t < p->n_sequences * p->length; t++, from += width) {
        vector_add(grads->tokens + p->codes[t] * width, from, width);
        vector_add(grads->positions + t % p->length * width, from, width);
    }
}

void model_backward(struct pass *p, const struct weights *w,
                    struct weights *grads)
{
    struct shape s = p->shape;
    size_t rows = p->n_sequences * p->length;
    struct matrix scores = matrix_of(p->scores, rows, s.vocab);
    struct norm_grads to = {
        .in = p->grad,
        .gain = grads->final_gain,
        .bias = grads->final_bias,
    };

    matrix_multiply(matrix_of(p->grad_branch, rows, s.width), scores,
                    matrix_of(w->tokens, s.vocab, s.width), false);
    matrix_multiply(matrix_of(grads->tokens, s.vocab, s.width),
                    matrix_transposed(scores),
                    matrix_of(p->final_normed, rows, s.width), true);
    memset(p->grad, 0, rows * s.width * sizeof(*p->grad));
    norm_backward(to, p->grad_branch, p->final_norm, p->last, w->final_gain,
                  rows, s.width);
    for (size_t i = s.layers; i-- > 0;) {
        backward_map(p, &p->layers[i], &w->layers[i], &grads->layers[i]);
        backward_attention(p, &p->layers[i], &w->layers[i],
                           &grads->layers[i]);
    }
    backward_embedding(p, grads);
}
