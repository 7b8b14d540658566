/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "vector.h"

#include <math.h>
#include <stdint.h>

enum { LANES = 8 };

static real sum_lanes(const real lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

VECTOR_CLONES
real vector_sum(const real *x, size_t n)
{
    real lane[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lane[j] += x[i + j];
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        lane[j] += x[i];
    }
    return sum_lanes(lane);
}

VECTOR_CLONES
real vector_dot(const real *x, const real *y, size_t n)
{
    real lane[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lane[j] += x[i + j] * y[i + j];
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        lane[j] += x[i] * y[i];
    }
    return sum_lanes(lane);
}

VECTOR_CLONES
void vector_add(real *restrict to, const real *restrict x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        to[i] += x[i];
    }
}

VECTOR_CLONES
void vector_scale(real *x, real factor, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

#ifdef CHARLM_DOUBLE

void vector_exp(real *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = exp(x[i]);
    }
}

#else

/*
 * e^x = 2^k e^r with k = round(x / ln 2), so |r| <= ln 2 / 2, where the first
 * eight terms of the series are good to 5e-9. ln 2 is subtracted in two parts;
 * k times the first is exact. 2^k is made from its bits. (No clones: gcc 12
 * does not turn the limits into vector code in them.)
 */
void vector_exp(real *x, size_t n)
{
    const float ln2_high = 0.693145751953125f;
    const float ln2_low = 1.42860682030941723212e-6f;

#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float above = x[i] > -87.0f ? x[i] : -87.0f;
        float v = above < 88.0f ? above : 88.0f;
        float doublings = v * 1.44269504088896341f;
        int32_t k = (int32_t)(doublings + copysignf(0.5f, doublings));
        float r = v - (float)k * ln2_high - (float)k * ln2_low;
        float sum = 1.0f / 5040.0f;
        union {
            int32_t bits;
            float number;
        } power = {.bits = (k + 127) << 23};

        sum = sum * r + 1.0f / 720.0f;
        sum = sum * r + 1.0f / 120.0f;
        sum = sum * r + 1.0f / 24.0f;
        sum = sum * r + 1.0f / 6.0f;
        sum = sum * r + 0.5f;
        sum = sum * r + 1.0f;
        sum = sum * r + 1.0f;
        x[i] = sum * power.number;
    }
}

#endif

void vector_softmax(real *x, size_t n)
{
    real max = x[0];

    for (size_t i = 1; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] -= max;
    }
    vector_exp(x, n);
    vector_scale(x, 1 / vector_sum(x, n), n);
}
