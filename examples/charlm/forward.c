/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "attention.h"
#include "gelu.h"
#include "linear.h"
#include "model.h"
#include "vector.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void embed(struct pass *p, const struct weights *w, real *to)
{
    size_t width = p->shape.width;

    for (size_t t = 0; t < p->n_sequences * p->length; t++, to += width) {
        memcpy(to, w->tokens + p->codes[t] * width, width * sizeof(*to));
        vector_add(to, w->positions + t % p->length * width, width);
    }
}

static void forward_layer(struct pass *p, struct pass_layer *l,
                          const struct layer_weights *w, real *output)
{
    size_t width = p->shape.width;
    size_t rows = p->n_sequences * p->length;
    struct matrix qkv = matrix_of(l->qkv, rows, 3 * width);
    struct matrix grown = matrix_of(l->grown, rows, 4 * width);
    struct attention a = {
        .n_sequences = p->n_sequences,
        .length = p->length,
        .width = width,
        .heads = p->shape.heads,
    };

    norm_forward(l->normed1, l->norm1, l->input, w->norm1_gain, w->norm1_bias,
                 rows, width);
    linear_forward(qkv, matrix_of(l->normed1, rows, width), w->qkv,
                   w->qkv_bias, NULL);
    attention_forward(a, l->attended, l->attention, l->qkv);
    linear_forward(matrix_of(l->middle, rows, width),
                   matrix_of(l->attended, rows, width), w->mix, w->mix_bias,
                   l->input);

    norm_forward(l->normed2, l->norm2, l->middle, w->norm2_gain,
                 w->norm2_bias, rows, width);
    linear_forward(grown, matrix_of(l->normed2, rows, width), w->grow,
                   w->grow_bias, NULL);
    gelu_forward(l->active, l->grown, rows * 4 * width);
    linear_forward(matrix_of(output, rows, width),
                   matrix_of(l->active, rows, 4 * width), w->shrink,
                   w->shrink_bias, l->middle);
}

void model_forward(struct pass *p, const struct weights *w,
                   const uint8_t *codes, size_t n_sequences, size_t length)
{
    struct shape s = p->shape;
    size_t rows = n_sequences * length;
    struct matrix tokens = matrix_of(w->tokens, s.vocab, s.width);

    assert(n_sequences <= p->max_sequences && length <= s.context);
    p->codes = codes;
    p->n_sequences = n_sequences;
    p->length = length;
    embed(p, w, p->layers[0].input);
    for (size_t i = 0; i < s.layers; i++) {
        forward_layer(p, &p->layers[i], &w->layers[i],
                      i + 1 < s.layers ? p->layers[i + 1].input : p->last);
    }
    norm_forward(p->final_normed, p->final_norm, p->last, w->final_gain,
                 w->final_bias, rows, s.width);
    matrix_multiply(matrix_of(p->scores, rows, s.vocab),
                    matrix_of(p->final_normed, rows, s.width),
                    matrix_transposed(tokens), false);
}

double model_loss(struct pass *p, const uint8_t *targets, double scale)
{
    size_t vocab = p->shape.vocab;
    double loss = 0;

    for (size_t t = 0; t < p->n_sequences * p->length; t++) {
        real *row = p->scores + t * vocab;

        vector_softmax(row, vocab);
        loss -= log((double)row[targets[t]] + 1e-30);
        row[targets[t]] -= 1;
        vector_scale(row, (real)scale, vocab);
    }
    return loss * scale;
}
