/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizer: Adam, with the gradient's length bounded and a learning rate
 * that rises, then falls along half a cosine to a tenth of its peak.
 */
#ifndef CHARLM_ADAM_H
#define CHARLM_ADAM_H

#include "real.h"

#include <stddef.h>
#include <stdint.h>

struct schedule {
    double peak;
    uint64_t warmup_steps;
    uint64_t n_steps;
};

/* The learning rate of the step that follows `done` steps. */
double schedule_rate(struct schedule s, uint64_t done);

/* Scales `grad` down to length `limit` if it is longer. Returns the length it
 * had. */
double gradient_clip(real *grad, size_t n, double limit);

/* One step, after `done` earlier ones. */
struct adam {
    real *weights;
    real *mean;   /* running average of the gradient */
    real *square; /* and of its square */
    size_t n;
};

void adam_step(struct adam a, const real *grad, double rate, uint64_t done);

#endif
