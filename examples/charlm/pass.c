/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a pass: one block, handed out twice. The first time there is no
 * block yet and only its size is found.
 */
#include <config.h>

#include "model.h"

#include <stdlib.h>

struct block {
    char *base; /* NULL while measuring */
    size_t used;
};

static void *take(struct block *b, size_t count, size_t size)
{
    void *p = b->base ? b->base + b->used : NULL;

    /* The next piece begins on a cache line of its own. */
    b->used += (count * size + 63) / 64 * 64;
    return p;
}

static void hand_out_layer(struct pass_layer *l, struct shape s,
                           size_t n_sequences, struct block *b)
{
    size_t rows = n_sequences * s.context;
    size_t pairs = n_sequences * s.heads * s.context * s.context;

    l->input = take(b, rows * s.width, sizeof(real));
    l->norm1 = take(b, rows, sizeof(struct norm_row));
    l->normed1 = take(b, rows * s.width, sizeof(real));
    l->qkv = take(b, rows * 3 * s.width, sizeof(real));
    l->attention = take(b, pairs, sizeof(real));
    l->attended = take(b, rows * s.width, sizeof(real));
    l->middle = take(b, rows * s.width, sizeof(real));
    l->norm2 = take(b, rows, sizeof(struct norm_row));
    l->normed2 = take(b, rows * s.width, sizeof(real));
    l->grown = take(b, rows * 4 * s.width, sizeof(real));
    l->active = take(b, rows * 4 * s.width, sizeof(real));
}

static void hand_out(struct pass *p, struct block *b)
{
    struct shape s = p->shape;
    size_t rows = p->max_sequences * s.context;

    for (size_t i = 0; i < s.layers; i++) {
        hand_out_layer(&p->layers[i], s, p->max_sequences, b);
    }
    p->last = take(b, rows * s.width, sizeof(real));
    p->final_norm = take(b, rows, sizeof(struct norm_row));
    p->final_normed = take(b, rows * s.width, sizeof(real));
    p->scores = take(b, rows * s.vocab, sizeof(real));
    p->grad = take(b, rows * s.width, sizeof(real));
    p->grad_branch = take(b, rows * s.width, sizeof(real));
    p->grad_wide = take(b, rows * 4 * s.width, sizeof(real));
    p->scratch = take(b, (size_t)s.context * s.context, sizeof(real));
}

struct pass *pass_create(struct shape s, size_t max_sequences)
{
    struct pass *p = calloc(1, sizeof(*p));
    struct block b = {0};

    if (!p) {
        return NULL;
    }
    p->shape = s;
    p->max_sequences = max_sequences;
    hand_out(p, &b);
    p->memory = aligned_alloc(64, b.used);
    if (!p->memory) {
        pass_destroy(p);
        return NULL;
    }
    b = (struct block){.base = p->memory};
    hand_out(p, &b);
    return p;
}

void pass_destroy(struct pass *p)
{
    if (p) {
        free(p->memory);
        free(p);
    }
}
