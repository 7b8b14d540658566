/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A linear map of rows: out = in w + bias, with `w` of in.cols x out.cols.
 */
#ifndef CHARLM_LINEAR_H
#define CHARLM_LINEAR_H

#include "matrix.h"

/* Adds `residual` (as large as `out`, row by row) where it is not NULL. */
void linear_forward(struct matrix out, struct matrix in, const real *w,
                    const real *bias, const real *residual);

/* Sets `grad_in`; adds to `grad_w` and `grad_bias`. */
void linear_backward(struct matrix grad_in, struct matrix grad_out,
                     struct matrix in, const real *w, real *grad_w,
                     real *grad_bias);

#endif
