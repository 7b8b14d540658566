/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to read boxes of tensors out of a checkpoint: which bytes of which files,
 * and which elements of them go where. A file is read in spans; what lies between
 * two pieces is read along where that is less than another request costs.
 */
#ifndef MUSTER_CKPT_PLAN_H
#define MUSTER_CKPT_PLAN_H

#include "base/error.h"
#include "ckpt/index.h"

#include <stddef.h>
#include <stdint.h>

/* A box that somebody wants. */
struct plan_want {
    size_t tensor; /* place in the index */
    struct box box; /* inside the tensor */
};

/* What one chunk gives to one wanted box. */
struct plan_piece {
    size_t want;        /* place among those wanted */
    size_t chunk;       /* of its tensor */
    uint32_t file;
    uint64_t begin, end; /* the bytes of the file from its first element to its
                            last */
};

/* Bytes [begin, end) of a file, in which the pieces [first, first + n) lie. */
struct plan_span {
    uint32_t file;
    uint64_t begin, end;
    size_t first, n;
};

struct plan {
    size_t n_pieces, n_spans;
    struct plan_piece *pieces; /* by file and place */
    struct plan_span *spans;   /* the same */
    uint64_t n_wanted_bytes;
    uint64_t n_read_bytes;     /* with what is read along */
};

/* Spans are at most `max_bytes` long, unless one piece alone is longer, and have
 * no gaps longer than `gap_bytes`. 0, -EINVAL (a box that does not lie in its
 * tensor, or one of elements smaller than a byte that is not the whole tensor),
 * -ENOMEM. */
int plan_make(const struct index *x, const struct plan_want *wants, size_t n,
              uint64_t max_bytes, uint64_t gap_bytes, struct plan *ret,
              struct error *e);

void plan_release(struct plan *p);
#define _plan_ __attribute__((cleanup(plan_release)))

/* Copies what a piece gives, out of its span's bytes, into the memory of its
 * wanted box. */
void plan_copy(const struct index *x, const struct plan_want *wants,
               const struct plan_piece *piece, const struct plan_span *span,
               const void *bytes, void *to);

#endif
