/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "attention.h"
#include "matrix.h"
#include "vector.h"

#include <math.h>
#include <string.h>

enum part { QUERY, KEY, VALUE, N_PARTS };

/* One head of one sequence, of query, key or value. */
static struct matrix head_of(struct attention a, real *qkv, size_t sequence,
                             size_t head, enum part part)
{
    size_t rows = a.n_sequences * a.length;
    size_t cols = a.width / a.heads;

    return matrix_block(matrix_of(qkv, rows, N_PARTS * a.width),
                        sequence * a.length, a.length,
                        part * a.width + head * cols, cols);
}

/* The same of rows that hold `width` numbers. */
static struct matrix head_out(struct attention a, real *out, size_t sequence,
                              size_t head)
{
    size_t cols = a.width / a.heads;

    return matrix_block(matrix_of(out, a.n_sequences * a.length, a.width),
                        sequence * a.length, a.length, head * cols, cols);
}

static real score_scale(struct attention a)
{
    return (real)(1 / sqrt((double)(a.width / a.heads)));
}

/* Position t looks at positions 0 .. t: what is right of it weighs nothing. */
static void scores_to_weights(struct matrix scores, real scale)
{
    for (size_t t = 0; t < scores.rows; t++) {
        real *row = scores.data + t * scores.row_step;

        vector_scale(row, scale, t + 1);
        vector_softmax(row, t + 1);
        memset(row + t + 1, 0, (scores.cols - t - 1) * sizeof(*row));
    }
}

/* From the gradient of the weights to that of the scores, in place. */
static void weights_to_scores(struct matrix grad, struct matrix weights,
                              real scale)
{
    for (size_t t = 0; t < grad.rows; t++) {
        real *restrict g = grad.data + t * grad.row_step;
        const real *restrict w = weights.data + t * weights.row_step;
        real dot = vector_dot(g, w, t + 1);

#pragma omp simd
        for (size_t i = 0; i < grad.cols; i++) {
            g[i] = w[i] * (g[i] - dot) * scale;
        }
    }
}

static struct matrix weights_of(struct attention a, real *weights,
                                size_t sequence, size_t head)
{
    size_t at = (sequence * a.heads + head) * a.length * a.length;

    return matrix_of(weights + at, a.length, a.length);
}

void attention_forward(struct attention a, real *out, real *weights,
                       real *qkv)
{
    for (size_t s = 0; s < a.n_sequences; s++) {
        for (size_t h = 0; h < a.heads; h++) {
            struct matrix w = weights_of(a, weights, s, h);
            struct matrix key = head_of(a, qkv, s, h, KEY);

            matrix_multiply(w, head_of(a, qkv, s, h, QUERY),
                            matrix_transposed(key), false);
            scores_to_weights(w, score_scale(a));
            matrix_multiply(head_out(a, out, s, h), w,
                            head_of(a, qkv, s, h, VALUE), false);
        }
    }
}

void attention_backward(struct attention a, real *grad_qkv, real *grad_out,
                        real *weights, real *qkv, real *scratch)
{
    struct matrix g = matrix_of(scratch, a.length, a.length);

    for (size_t s = 0; s < a.n_sequences; s++) {
        for (size_t h = 0; h < a.heads; h++) {
            struct matrix w = weights_of(a, weights, s, h);
            struct matrix out = head_out(a, grad_out, s, h);
            struct matrix value = head_of(a, qkv, s, h, VALUE);

            matrix_multiply(head_of(a, grad_qkv, s, h, VALUE),
                            matrix_transposed(w), out, false);
            matrix_multiply(g, out, matrix_transposed(value), false);
            weights_to_scores(g, w, score_scale(a));
            matrix_multiply(head_of(a, grad_qkv, s, h, QUERY), g,
                            head_of(a, qkv, s, h, KEY), false);
            matrix_multiply(head_of(a, grad_qkv, s, h, KEY),
                            matrix_transposed(g),
                            head_of(a, qkv, s, h, QUERY), false);
        }
    }
}
