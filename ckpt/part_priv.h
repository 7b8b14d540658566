/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a part's encoded form share. Private to part_*.c.
 *
 *   part_codec.c  to bytes and back
 *   part_meta.c   its metadata
 *   part_table.c  all of it but its pieces
 */
#ifndef MUSTER_CKPT_PART_PRIV_H
#define MUSTER_CKPT_PART_PRIV_H

#include "ckpt/arrays.h"
#include "ckpt/part.h"

enum { PART_DIGEST_BYTES = 8 }; /* behind all else */

/* The arrays of a file. */
struct part_arrays {
    char *names;
    uint64_t *name_ends;
    uint8_t *dtypes, *n_dims;
    uint64_t *shapes, *boxes, *begins, *blocks;
};

enum {
    PART_NAMES,
    PART_NAME_ENDS,
    PART_DTYPES,
    PART_N_DIMS,
    PART_SHAPES,
    PART_BOXES,
    PART_BEGINS,
    PART_BLOCKS, /* what is before says which pieces there are */
    PART_N_FIELDS,
};
void part_list_fields(struct part_arrays *a, struct array to[PART_N_FIELDS]);

/* Where they lie in an encoded part, of which the digest is right; as arrays_find(), and
 * arrays_free() is called always. */
int part_find(const void *data, size_t len, struct array fields[PART_N_FIELDS],
              struct st_file *ret, struct error *e);

enum { PART_N_META = 9 };
/* False: no memory. The caller frees all values. */
bool part_make_meta(const struct part *p, struct st_meta to[PART_N_META]);
void part_free_meta(struct st_meta meta[PART_N_META]);
/* What it says of the part: 0, -ERR_FORMAT, -ERR_VERSION, -ENOMEM. */
int part_take_meta(const struct st_file *f, struct part *p, struct error *e);
/* Only how long its file is. */
int part_take_bytes(const struct st_file *f, uint64_t *ret, struct error *e);

#endif
