/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/reduce.h"

#include "comm/ops.h"
#include "tests/lib/tap.h"
#include "tests/lib/values.h"

#include <stdlib.h>
#include <string.h>

enum { N = 20011, N_FROM = 5 }; /* several blocks and a rest */

static void *from[N_FROM];

static void test_one(enum muster_type type, enum muster_op op, size_t n_from,
                     size_t n)
{
    size_t size = comm_type_size(type);
    char *to = malloc((n + 1) * size);
    size_t wrong, first = 0;

    memset(to, 0x5a, (n + 1) * size);
    reduce_arrays(to, (const void *const *)from, n_from, n, type, op);
    wrong = values_wrong(to, n, type, op, (int)n_from, &first);
    for (size_t i = 0; i < size; i++) {
        wrong += to[n * size + i] != 0x5a;
    }
    is_int((intmax_t)wrong, 0, "type %d op %d of %zu arrays of %zu", type, op,
           n_from, n);
    free(to);
}

static void test_wrap(void)
{
    int32_t a = INT32_MAX, b = 1, r;
    const void *two[] = {&a, &b};

    reduce_arrays(&r, two, 2, 1, MUSTER_INT32, MUSTER_SUM);
    is_int(r, INT32_MIN, "sums of integers wrap around");
}

int main(void)
{
    static const size_t counts[] = {0, 1, 3, 1024, 2049, N};

    for (int f = 0; f < N_FROM; f++) {
        from[f] = malloc(N * sizeof(double));
    }
    for (int type = MUSTER_FLOAT32; type <= MUSTER_UINT8; type++) {
        for (int f = 0; f < N_FROM; f++) {
            values_fill(from[f], N, (enum muster_type)type, f);
        }
        for (int op = MUSTER_SUM; op <= MUSTER_MAX; op++) {
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                test_one((enum muster_type)type, (enum muster_op)op,
                         1 + c % N_FROM, counts[c]);
            }
        }
    }
    test_wrap();
    is_int((intmax_t)comm_type_size((enum muster_type)5), 0, "unknown type");
    for (int f = 0; f < N_FROM; f++) {
        free(from[f]);
    }
    return tap_done();
}
