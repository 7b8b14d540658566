/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory is looked at as runs, stretches without gaps, all of one length: the
 * innermost dimensions that lie row by row.
 */
#include <config.h>

#include "ckpt/strided.h"

#include "ckpt/box.h"

#include <stdbool.h>
#include <string.h>

struct runs {
    uint64_t bytes;   /* of each */
    uint32_t n_outer; /* dimensions outside of a run */
    size_t size;      /* of an element; 0 where that is less than a byte */
};

uint64_t strided_bytes(const struct strided *s)
{
    struct box box = box_whole(s->n_dims, s->len);
    uint64_t n = 0, bytes = 0;

    return box_volume(&box, &n) && dtype_bytes(s->dtype, n, &bytes) ? bytes : 0;
}

static struct runs find_runs(const struct strided *s)
{
    uint32_t bits = dtype_bits(s->dtype), d = s->n_dims;
    struct runs r = {.size = bits % 8 ? 0 : bits / 8};
    uint64_t n = 1;

    if (!s->strides || r.size == 0) {
        r.bytes = strided_bytes(s);
        return r;
    }
    while (d > 0 && (s->len[d - 1] == 1 || s->strides[d - 1] == (int64_t)n)) {
        n *= s->len[d - 1];
        d--;
    }
    r.bytes = n * r.size;
    r.n_outer = d;
    return r;
}

bool strided_is_dense(const struct strided *s)
{
    struct runs r = find_runs(s);

    return r.n_outer == 0 || strided_bytes(s) == 0;
}

static char *run_at(const struct strided *s, const struct runs *r, uint64_t run)
{
    int64_t offset = 0;

    for (uint32_t d = r->n_outer; d-- > 0;) {
        offset += (int64_t)(run % s->len[d]) * s->strides[d];
        run /= s->len[d];
    }
    return (char *)s->data + offset * (int64_t)r->size;
}

/* Of a fixed size, a copy is one instruction. */
static void copy_element(void *to, const void *from, size_t size)
{
    switch (size) {
    case 1: memcpy(to, from, 1); break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    default: memcpy(to, from, 8); break;
    }
}

/* Runs that are one element: those of a transposed matrix, say. */
static void move_elements(const struct strided *s, const struct runs *r,
                          uint64_t first, uint64_t n, char *packed, bool is_put)
{
    uint32_t d = r->n_outer - 1;
    uint64_t row = s->len[d];
    ptrdiff_t stride = (ptrdiff_t)s->strides[d] * (ptrdiff_t)r->size;

    while (n > 0) {
        char *memory = run_at(s, r, first);
        uint64_t k = row - first % row;

        k = k < n ? k : n;
        first += k;
        n -= k;
        for (; k > 0; k--, packed += r->size, memory += stride) {
            copy_element(is_put ? memory : packed, is_put ? packed : memory,
                         r->size);
        }
    }
}

static void move(const struct strided *s, uint64_t at, uint64_t len,
                 char *packed, bool is_put)
{
    struct runs r = find_runs(s);

    while (len > 0) {
        uint64_t run = at / r.bytes, in = at % r.bytes;
        uint64_t n = r.bytes - in < len ? r.bytes - in : len;

        if (in == 0 && r.bytes == r.size && r.n_outer > 0 && len >= r.size) {
            n = len / r.size * r.size;
            move_elements(s, &r, run, len / r.size, packed, is_put);
        } else {
            char *memory = run_at(s, &r, run) + in;

            memcpy(is_put ? memory : packed, is_put ? packed : memory, n);
        }
        packed += n;
        at += n;
        len -= n;
    }
}

void strided_get(const struct strided *s, uint64_t at, uint64_t len, void *to)
{
    move(s, at, len, to, false);
}

void strided_put(const struct strided *s, uint64_t at, uint64_t len,
                 const void *from)
{
    move(s, at, len, (char *)from, true); /* which is only read */
}
