/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "adam.h"
#include "vector.h"

#include <math.h>

static const double keep_mean = 0.9;
static const double keep_square = 0.99;

double schedule_rate(struct schedule s, uint64_t done)
{
    double position;

    if (done < s.warmup_steps) {
        return s.peak * (double)(done + 1) / (double)s.warmup_steps;
    }
    if (done >= s.n_steps) {
        return s.peak / 10;
    }
    position = (double)(done - s.warmup_steps) /
               (double)(s.n_steps - s.warmup_steps);
    return s.peak * (0.55 + 0.45 * cos(3.14159265358979323846 * position));
}

double gradient_clip(real *grad, size_t n, double limit)
{
    double length = sqrt((double)vector_dot(grad, grad, n));

    if (length > limit) {
        vector_scale(grad, (real)(limit / length), n);
    }
    return length;
}

VECTOR_CLONES
static void step(real *restrict weights, real *restrict mean,
                 real *restrict square, const real *restrict grad, size_t n,
                 real rate, real unbias)
{
    const real b1 = (real)keep_mean;
    const real b2 = (real)keep_square;

#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        real g = grad[i];

        mean[i] = b1 * mean[i] + (1 - b1) * g;
        square[i] = b2 * square[i] + (1 - b2) * g * g;
#ifdef CHARLM_DOUBLE
        weights[i] -= rate * mean[i] / (sqrt(square[i] * unbias) + 1e-8);
#else
        weights[i] -= rate * mean[i] / (sqrtf(square[i] * unbias) + 1e-8f);
#endif
    }
}

void adam_step(struct adam a, const real *grad, double rate, uint64_t done)
{
    double n = (double)(done + 1);

    step(a.weights, a.mean, a.square, grad, a.n,
         (real)(rate / (1 - pow(keep_mean, n))),
         (real)(1 / (1 - pow(keep_square, n))));
}
