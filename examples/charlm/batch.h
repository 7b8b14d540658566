/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of one step: a batch of sequences that (seed, step) alone decide,
 * whoever computes them. Worker r of n takes a range of it; the shares of all
 * workers, added up, are the gradient of the whole batch.
 */
#ifndef CHARLM_BATCH_H
#define CHARLM_BATCH_H

#include "model.h"
#include "text.h"

struct batch {
    const struct text *text; /* longer than `length` */
    uint64_t seed;
    uint64_t step;
    uint32_t n_sequences;
    uint32_t length;
};

/* The range of worker `rank`; ranges differ by at most one sequence. */
struct share {
    uint32_t first;
    uint32_t count;
};

struct share batch_share(uint32_t n_sequences, uint32_t rank, uint32_t world);

/* Adds this share's part of the gradient of the mean loss over the batch to
 * `grads`; returns its part of that loss. */
double batch_gradient(struct batch b, struct share share, struct pass *p,
                      const struct weights *w, struct weights *grads);

#endif
