/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nonlinearity between the two linear maps of a layer, in its form with
 * tanh: y = x/2 (1 + tanh(c (x + 0.044715 x^3))), c = sqrt(2/pi).
 */
#ifndef CHARLM_GELU_H
#define CHARLM_GELU_H

#include "real.h"

#include <stddef.h>

void gelu_forward(real *restrict out, const real *restrict in, size_t n);

/* Turns the gradient of the output, in place, into the gradient of `in`. */
void gelu_backward(real *restrict grad, const real *restrict in, size_t n);

#endif
