/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who writes what. Several ranks may hold a box of a tensor (data-parallel replicas,
 * blobs of all): one of them writes it, and all write about as many bytes. Decided
 * by every rank for itself, from the tables of all (ckpt/part.h), to the same end.
 */
#ifndef MUSTER_CKPT_SHARE_H
#define MUSTER_CKPT_SHARE_H

#include "base/error.h"
#include "ckpt/part.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What this rank does with a piece of its table. */
struct share {
    bool is_mine;   /* it writes the piece */
    uint32_t chunk; /* 0: under its tensor's name. Otherwise its number, from 1, in
                       this rank's file: a rank writes several boxes of the tensor,
                       which cannot have one name */
    size_t by_name; /* of another piece: entry i has the place of the i-th one by name,
                       and of one tensor by box */
};

/* What all ranks write together. */
struct share_sum {
    uint64_t bytes;
    bool has_pieces; /* some tensor is in several boxes, whoever writes them */
};

/* `tables` are those of the ranks 0 .. n-1; *ret, which the caller frees, has an
 * entry for each piece of that of `rank`. Boxes of a tensor that are not the same do
 * not overlap, and together they are the tensor. *ret_sum may be NULL. 0;
 * -EINVAL: `e` says which tensor, which ranks, and what; -ENOMEM. */
int share_out(const struct part *tables, uint32_t n, uint32_t rank,
              struct share **ret, struct share_sum *ret_sum, struct error *e);

#endif
