/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: each row gets mean 0 and variance 1, then a gain and a
 * bias for each column.
 */
#ifndef CHARLM_NORM_H
#define CHARLM_NORM_H

#include "real.h"

#include <stddef.h>

/* The widest row. */
enum { NORM_MAX_WIDTH = 1024 };

/* What the backward pass needs of one row. */
struct norm_row {
    real mean;
    real inverse; /* 1 / standard deviation */
};

void norm_forward(real *out, struct norm_row *stats, const real *in,
                  const real *gain, const real *bias, size_t rows,
                  size_t width);

/* The gradient side of one norm: what comes in and where results go. */
struct norm_grads {
    real *in;   /* added to */
    real *gain; /* added to */
    real *bias; /* added to */
};

void norm_backward(struct norm_grads to, const real *grad_out,
                   const struct norm_row *stats, const real *in,
                   const real *gain, size_t rows, size_t width);

#endif
