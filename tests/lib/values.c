/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/values.h"

/* 0 .. 40, and no period that a chunk or a stripe could have. */
static int number(int worker, size_t i)
{
    return (int)((i * 7 + i / 1009 + (size_t)worker * 13) % 41);
}

uint8_t values_byte(int worker, size_t i)
{
    return (uint8_t)(number(worker, i) * 6);
}

/* All of these are exact in a double. */
static double value(int worker, size_t i, enum muster_type type)
{
    double x = number(worker, i) - 20;

    switch (type) {
    case MUSTER_FLOAT32: return x / 8;
    case MUSTER_FLOAT64: return x + x / 1099511627776.0;
    case MUSTER_INT32: return x * 65537;
    case MUSTER_INT64: return x * 4294967297.0;
    case MUSTER_UINT8: return values_byte(worker, i);
    }
    return 0;
}

static void put(void *a, size_t i, enum muster_type type, double v)
{
    switch (type) {
    case MUSTER_FLOAT32: ((float *)a)[i] = (float)v; break;
    case MUSTER_FLOAT64: ((double *)a)[i] = v; break;
    case MUSTER_INT32: ((int32_t *)a)[i] = (int32_t)v; break;
    case MUSTER_INT64: ((int64_t *)a)[i] = (int64_t)v; break;
    case MUSTER_UINT8: ((uint8_t *)a)[i] = (uint8_t)v; break;
    }
}

static double get(const void *a, size_t i, enum muster_type type)
{
    switch (type) {
    case MUSTER_FLOAT32: return (double)((const float *)a)[i];
    case MUSTER_FLOAT64: return ((const double *)a)[i];
    case MUSTER_INT32: return ((const int32_t *)a)[i];
    case MUSTER_INT64: return (double)((const int64_t *)a)[i];
    case MUSTER_UINT8: return ((const uint8_t *)a)[i];
    }
    return 0;
}

static double combined(int n_workers, size_t i, enum muster_type type,
                       enum muster_op op)
{
    double x = value(0, i, type);

    for (int w = 1; w < n_workers; w++) {
        double y = value(w, i, type);

        if (op == MUSTER_SUM) {
            x += y;
        } else if (op == MUSTER_MIN ? y < x : y > x) {
            x = y;
        }
    }
    return type == MUSTER_UINT8 ? (uint8_t)(unsigned)x : x;
}

void values_fill(void *to, size_t n, enum muster_type type, int worker)
{
    for (size_t i = 0; i < n; i++) {
        put(to, i, type, value(worker, i, type));
    }
}

size_t values_wrong(const void *a, size_t n, enum muster_type type,
                    enum muster_op op, int n_workers, size_t *ret_first)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < n; i++) {
        if (get(a, i, type) != combined(n_workers, i, type, op)) {
            *ret_first = n_wrong == 0 ? i : *ret_first;
            n_wrong++;
        }
    }
    return n_wrong;
}
