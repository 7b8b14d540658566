/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of elements in a program's memory, with any distances between them, as the
 * row-major bytes that a file has. Any part of these is made, or taken, by itself.
 */
#ifndef MUSTER_CKPT_STRIDED_H
#define MUSTER_CKPT_STRIDED_H

#include "ckpt/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct strided {
    enum dtype dtype;
    uint32_t n_dims;
    const uint64_t *len;
    const int64_t *strides; /* in elements; NULL: row-major without gaps, which
                               elements smaller than a byte always are */
    void *data;             /* the first element */
};

uint64_t strided_bytes(const struct strided *s);

/* Whether it lies in memory as it does in the file. */
bool strided_is_dense(const struct strided *s);

/* Bytes [at, at + len) of it into `to`, or from there. */
void strided_get(const struct strided *s, uint64_t at, uint64_t len, void *to);
void strided_put(const struct strided *s, uint64_t at, uint64_t len,
                 const void *from);

#endif
