/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "gelu.h"
#include "vector.h"

static const real slope = (real)0.79788456080286535588; /* sqrt(2 / pi) */
static const real cubic = (real)0.044715;

enum { BLOCK = 256 };

/* tanh of what is inside the bracket, by e^2u: 1 - 2 / (e^2u + 1). The limits
 * of vector_exp() make it +-1 where u is large. */
VECTOR_CLONES
static void bend(real *restrict out, const real *restrict in, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        out[i] = 2 * slope * (in[i] + cubic * in[i] * in[i] * in[i]);
    }
    vector_exp(out, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        out[i] = 1 - 2 / (out[i] + 1);
    }
}

VECTOR_CLONES
static void forward_block(real *restrict out, const real *restrict in,
                          size_t n)
{
    bend(out, in, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        out[i] = in[i] / 2 * (1 + out[i]);
    }
}

VECTOR_CLONES
static void backward_block(real *restrict grad, const real *restrict in,
                           size_t n)
{
    real t[BLOCK];

    bend(t, in, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        real inner = slope * (1 + 3 * cubic * in[i] * in[i]);

        grad[i] *= (1 + t[i]) / 2 + in[i] / 2 * (1 - t[i] * t[i]) * inner;
    }
}

/* In blocks, so that what passes between the loops stays in the cache. */
void gelu_forward(real *restrict out, const real *restrict in, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK) {
        forward_block(out + i, in + i, n - i < BLOCK ? n - i : BLOCK);
    }
}

void gelu_backward(real *restrict grad, const real *restrict in, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK) {
        backward_block(grad + i, in + i, n - i < BLOCK ? n - i : BLOCK);
    }
}
