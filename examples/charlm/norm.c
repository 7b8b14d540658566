/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "norm.h"
#include "vector.h"

#include <assert.h>
#include <math.h>

VECTOR_CLONES
void norm_forward(real *out, struct norm_row *stats, const real *in,
                  const real *gain, const real *bias, size_t rows,
                  size_t width)
{
    for (size_t t = 0; t < rows; t++, in += width, out += width) {
        real mean = vector_sum(in, width) / (real)width;
        real variance, inverse;

#pragma omp simd
        for (size_t i = 0; i < width; i++) {
            out[i] = in[i] - mean;
        }
        variance = vector_dot(out, out, width) / (real)width;
        inverse = 1 / (real)sqrt((double)variance + 1e-5);
#pragma omp simd
        for (size_t i = 0; i < width; i++) {
            out[i] = out[i] * inverse * gain[i] + bias[i];
        }
        stats[t] = (struct norm_row){.mean = mean, .inverse = inverse};
    }
}

/*
 * With n = (x - mean) * inverse and g the gradient of n, the gradient of x is
 * inverse * (g - average(g) - n * average(g n)).
 */
VECTOR_CLONES
static void backward_row(struct norm_grads to, const real *restrict grad_out,
                         struct norm_row row, const real *restrict in,
                         const real *restrict gain, size_t width)
{
    real *restrict to_in = to.in;
    real *restrict to_gain = to.gain;
    real *restrict to_bias = to.bias;
    real g[NORM_MAX_WIDTH], n[NORM_MAX_WIDTH];
    real average, average_n;

    assert(width > 0 && width <= NORM_MAX_WIDTH);
#pragma omp simd
    for (size_t i = 0; i < width; i++) {
        n[i] = (in[i] - row.mean) * row.inverse;
        g[i] = grad_out[i] * gain[i];
        to_gain[i] += grad_out[i] * n[i];
        to_bias[i] += grad_out[i];
    }
    average = vector_sum(g, width) / (real)width;
    average_n = vector_dot(g, n, width) / (real)width;
#pragma omp simd
    for (size_t i = 0; i < width; i++) {
        to_in[i] += row.inverse * (g[i] - average - n[i] * average_n);
    }
}

void norm_backward(struct norm_grads to, const real *grad_out,
                   const struct norm_row *stats, const real *in,
                   const real *gain, size_t rows, size_t width)
{
    for (size_t t = 0; t < rows; t++) {
        backward_row(to, grad_out, stats[t], in, gain, width);
        to.in += width;
        grad_out += width;
        in += width;
    }
}
