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
    size_t n, m, f; /* tensors, chunks, files */
    char *data; /* encoded: in which the arrays lie, but those that are not aligned there */
    size_t len;
    char *names;
    uint64_t *name_ends;
    uint8_t *dtypes;
    uint8_t *n_dims;
    uint64_t *shapes;
    uint64_t *chunk_ends;
    uint32_t *chunk_files;
    uint64_t *chunk_begins;
    uint64_t *chunk_boxes;
    uint64_t *block_ends;
    uint64_t *blocks;
    /* Made from the above: where in shapes and chunk_boxes each tensor begins; whether
     * its chunks are cut like slices of a loaf: no row of one begins, or ends, before that
     * of one before it. */
    size_t *shape_at;
    size_t *box_at;
    bool *is_loaf;
};

/* Room for as many of all: n, m and f are set, and the others are given. What is not an array
 * is in place. 0, -ENOMEM. */
struct index_numbers {
    size_t name_bytes, shapes, boxes, blocks;
};
int index_make_room(struct index *x, const struct index_numbers *numbers);

/* Whether all that is in it fits together. The arrays have the lengths that n, m, f
 * and the ends say. Fills the last three. 0, -ERR_FORMAT, -ENOMEM. */
int index_check(struct index *x, struct error *e);

/* But for `data`. */
void index_free_arrays(struct index *x);

#endif
