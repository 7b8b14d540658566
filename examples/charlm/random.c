/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "random.h"

#include <math.h>

/* The finaliser of splitmix64: every bit of the input changes half of those of
 * the output. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

uint64_t random_u64(uint64_t seed, enum random_stream stream, uint64_t index)
{
    return mix(mix(mix(seed) ^ (uint64_t)stream) ^ index);
}

double random_uniform(uint64_t seed, enum random_stream stream,
                      uint64_t index)
{
    return (double)(random_u64(seed, stream, index) >> 11) * 0x1p-53;
}

/* Box and Muller: two uniform numbers make one (and another, not used). */
double random_normal(uint64_t seed, enum random_stream stream, uint64_t index)
{
    double radius = 1 - random_uniform(seed, stream, 2 * index);
    double angle = random_uniform(seed, stream, 2 * index + 1);

    return sqrt(-2 * log(radius)) * cos(2 * 3.14159265358979323846 * angle);
}
