/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers without a state: the number at an index is a function of
 * (seed, stream, index), so that any worker can compute any of them, and a
 * restarted one needs nothing from its predecessor.
 */
#ifndef CHARLM_RANDOM_H
#define CHARLM_RANDOM_H

#include <stdint.h>

enum random_stream {
    RANDOM_WEIGHTS = 1,
    RANDOM_BATCH = 2,
    RANDOM_SAMPLE = 3,
    RANDOM_TEST = 4,
};

uint64_t random_u64(uint64_t seed, enum random_stream stream, uint64_t index);

/* In [0, 1). */
double random_uniform(uint64_t seed, enum random_stream stream,
                      uint64_t index);

/* Mean 0, variance 1. */
double random_normal(uint64_t seed, enum random_stream stream, uint64_t index);

#endif
