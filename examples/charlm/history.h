/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model has learnt from: which steps, in which generation of the run, by
 * how many workers. It is part of each checkpoint, so that it is that of this
 * model and of no other course of the run: whoever reads it can tell that no
 * step is missing and none was taken twice.
 */
#ifndef CHARLM_HISTORY_H
#define CHARLM_HISTORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Steps that followed each other, taken by the same workers. */
struct stretch {
    uint32_t generation;
    uint32_t workers;
    uint64_t first; /* step, from 1 */
    uint64_t last;
    uint64_t sequences; /* that went into them, as counted by all workers */
};

struct history {
    struct stretch *stretches; /* the oldest first */
    size_t n;
};

/* One more step. -ENOMEM, and then nothing has changed. */
int history_add(struct history *h, uint32_t generation, uint32_t workers,
                uint64_t step, uint64_t sequences);

void history_release(struct history *h);

/* One line a stretch. */
void history_print(const struct history *h, FILE *to);

#endif
