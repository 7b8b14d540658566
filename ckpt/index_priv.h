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

/* Numbers that n, m and f do not say. */
struct index_numbers {
    size_t name_bytes, shapes, boxes, blocks;
};
/* Makes `data` for as many: encoded, but for what goes into the arrays, which the caller fills.
 * 0, -ENOMEM. */
int index_make_room(struct index *x, const struct index_numbers *numbers);

/* Whether all that is in it fits together. The arrays have the lengths that n, m, f
 * and the ends say. Fills the last three. 0, -ERR_FORMAT, -ENOMEM. */
int index_check(struct index *x, struct error *e);

/* Those that do not lie in `data`. */
void index_free_arrays(struct index *x);

#endif
