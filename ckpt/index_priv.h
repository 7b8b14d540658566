/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of an index share. Private to index*.c.
 *
 *   index.c         looking into one
 *   index_create.c  making one of pieces
 *   index_codec.c   its encoded form
 *   index_check.c   whether one is sound
 */
#ifndef MUSTER_CKPT_INDEX_PRIV_H
#define MUSTER_CKPT_INDEX_PRIV_H

#include "ckpt/index.h"

struct index {
    size_t n, m; /* tensors, chunks */
    char *names; /* followed by a zero byte */
    uint64_t *name_ends;
    uint8_t *dtypes;
    uint8_t *n_dims;
    uint64_t *shapes;
    uint64_t *chunk_ends;
    uint32_t *chunk_files;
    uint64_t *chunk_begins;
    uint64_t *chunk_boxes;
    /* Made from the above: where in shapes and chunk_boxes each tensor begins. */
    size_t *shape_at;
    size_t *box_at;
};

/* Whether all that is in it fits together; `n_files` as for index_decode(). The
 * arrays have the lengths that n, m and the ends say. Fills shape_at and box_at.
 * 0, -ERR_FORMAT, -ENOMEM. */
int index_check(struct index *x, uint32_t n_files, struct error *e);

#endif
