/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/reduce.h"

#include "comm/ops.h"

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* -O2 does not vectorise loops of unknown length */
#endif

enum { BLOCK_BYTES = 8192 }; /* of `to`: stays in L1 while inputs pass */

#define ADD(x, y) ((x) + (y))
#define LESS(x, y) ((y) < (x) ? (y) : (x))
#define MORE(x, y) ((y) > (x) ? (y) : (x))

/* One pair of kernels: to = a op b, and to = to op b. */
#define KERNELS(name, type, OP)                                           \
    static void name##_two(void *restrict to_, const void *restrict a_,   \
                           const void *restrict b_, size_t n)             \
    {                                                                     \
        type *restrict to = to_;                                          \
        const type *restrict a = a_;                                      \
        const type *restrict b = b_;                                      \
                                                                          \
        for (size_t i = 0; i < n; i++) {                                  \
            to[i] = (type)OP(a[i], b[i]);                                 \
        }                                                                 \
    }                                                                     \
    static void name##_more(void *restrict to_, const void *restrict b_,  \
                            size_t n)                                     \
    {                                                                     \
        type *restrict to = to_;                                          \
        const type *restrict b = b_;                                      \
                                                                          \
        for (size_t i = 0; i < n; i++) {                                  \
            to[i] = (type)OP(to[i], b[i]);                                \
        }                                                                 \
    }

KERNELS(f32_sum, float, ADD)
KERNELS(f32_min, float, LESS)
KERNELS(f32_max, float, MORE)
KERNELS(f64_sum, double, ADD)
KERNELS(f64_min, double, LESS)
KERNELS(f64_max, double, MORE)
KERNELS(i32_sum, uint32_t, ADD)
KERNELS(i32_min, int32_t, LESS)
KERNELS(i32_max, int32_t, MORE)
KERNELS(i64_sum, uint64_t, ADD)
KERNELS(i64_min, int64_t, LESS)
KERNELS(i64_max, int64_t, MORE)
KERNELS(u8_sum, uint8_t, ADD)
KERNELS(u8_min, uint8_t, LESS)
KERNELS(u8_max, uint8_t, MORE)

struct kernel {
    void (*two)(void *restrict to, const void *restrict a,
                const void *restrict b, size_t n);
    void (*more)(void *restrict to, const void *restrict b, size_t n);
};

#define ROW(name)                                       \
    {                                                   \
        [MUSTER_SUM] = {name##_sum_two, name##_sum_more}, \
        [MUSTER_MIN] = {name##_min_two, name##_min_more}, \
        [MUSTER_MAX] = {name##_max_two, name##_max_more}, \
    }

static const struct kernel kernels[][3] = {
    [MUSTER_FLOAT32] = ROW(f32), [MUSTER_FLOAT64] = ROW(f64),
    [MUSTER_INT32] = ROW(i32),   [MUSTER_INT64] = ROW(i64),
    [MUSTER_UINT8] = ROW(u8),
};

void reduce_arrays(void *to, const void *const *from, size_t n_from,
                   size_t count, enum muster_type type, enum muster_op op)
{
    const struct kernel *k = &kernels[type][op];
    size_t size = comm_type_size(type);
    size_t step = BLOCK_BYTES / size;

    if (n_from == 1) {
        memcpy(to, from[0], count * size);
        return;
    }
    for (size_t at = 0; at < count; at += step) {
        size_t n = count - at < step ? count - at : step;
        char *block = (char *)to + at * size;

        k->two(block, (const char *)from[0] + at * size,
               (const char *)from[1] + at * size, n);
        for (size_t i = 2; i < n_from; i++) {
            k->more(block, (const char *)from[i] + at * size, n);
        }
    }
}
