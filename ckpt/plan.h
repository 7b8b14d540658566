/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to read boxes of tensors out of a checkpoint: which blocks of which files, and
 * which bytes of them go where. Each block is read once, as it is verified as a whole;
 * one that has nothing of what is wanted is not read.
 */
#ifndef MUSTER_CKPT_PLAN_H
#define MUSTER_CKPT_PLAN_H

#include "base/error.h"
#include "ckpt/index.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A box that somebody wants: inside the tensor, with as many dimensions. Corner and
 * lengths are the caller's, and stay as they are as long as the plan is used. */
struct plan_want {
    size_t tensor; /* place in the index */
    const uint64_t *at, *len;
    bool is_whole; /* the caller has seen that it is all of the tensor */
};

/* What one chunk gives to one wanted box, as far as it lies in one block. */
struct plan_piece {
    size_t want;         /* place among those wanted */
    size_t chunk;        /* of its tensor */
    uint32_t file;
    uint64_t begin, end; /* the bytes of the file from its first to its last */
    uint64_t to;         /* where they go in the memory of the box, if all of them lie
                            there as they do in the file; else PLAN_APART */
};
#define PLAN_APART UINT64_MAX

/* A block, bytes [begin, end) of a file or as many as it has of them, in which the
 * pieces [first, first + n) lie. */
struct plan_span {
    uint32_t file;
    uint64_t begin, end;
    size_t first, n;
};

struct plan {
    size_t n_pieces, n_spans;
    struct plan_piece *pieces; /* by file and place */
    struct plan_span *spans;   /* the same */
};

/* 0, -EINVAL (a box that does not lie in its tensor, or one of elements smaller than a
 * byte that is not the whole tensor), -ENOMEM. */
int plan_make(const struct index *x, const struct plan_want *wants, size_t n,
              uint64_t block_bytes, struct plan *ret, struct error *e);

void plan_release(struct plan *p);
#define _plan_ __attribute__((cleanup(plan_release)))

/* Copies what a piece has of bytes [begin, end) of its file, which are at `bytes`, into
 * the memory of its wanted box. */
void plan_copy(const struct index *x, const struct plan_want *wants,
               const struct plan_piece *piece, uint64_t begin, uint64_t end,
               const void *bytes, void *to);

#endif
