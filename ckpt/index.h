/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors a checkpoint has, and where in its files each piece of them lies:
 * tensors by name, and for each its chunks, boxes that tile it. Flat arrays, so
 * that 10^6 chunks are looked through in milliseconds.
 *
 * Its encoded form is a safetensors file (ckpt/safetensors.h), which any reader of
 * that format can look into:
 *
 *   names        U8  [*]     all names, one after the other
 *   name_ends    U64 [n]     where in `names` each ends; by name, rising
 *   dtypes       U8  [n]     enum dtype
 *   n_dims       U8  [n]
 *   shapes       U64 [*]     n_dims lengths a tensor
 *   chunk_ends   U64 [n]     where in the chunks those of each tensor end
 *   chunk_files  U32 [m]     which file
 *   chunk_begins U64 [m]     at which byte of it
 *   chunk_boxes  U64 [*]     of each chunk n_dims corners, then n_dims lengths
 *   block_ends   U64 [f]     where in the blocks those of each file end
 *   blocks       U64 [*]     short digests of each file's blocks (ckpt/digest.h), so
 *                            that a part of a file can be verified by itself
 */
#ifndef MUSTER_CKPT_INDEX_H
#define MUSTER_CKPT_INDEX_H

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "ckpt/box.h"
#include "ckpt/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index;

struct index_tensor {
    const char *name; /* valid as long as the index, as is shape */
    size_t name_len;
    enum dtype dtype;
    uint32_t n_dims;
    const uint64_t *shape;
    size_t first_chunk, n_chunks;
};

struct index_chunk {
    uint32_t file;
    uint64_t begin;      /* its first byte in that file */
    const uint64_t *at;  /* n_dims of the tensor */
    const uint64_t *len;
};

size_t index_n_tensors(const struct index *x);
size_t index_n_files(const struct index *x);
/* The digests of a file's blocks, and how many. */
const uint64_t *index_blocks(const struct index *x, size_t file, size_t *ret_n);
size_t index_n_chunks(const struct index *x);
struct index_tensor index_tensor(const struct index *x, size_t i);
/* Of the tensor at place `i`; `chunk` counts from its first_chunk. */
struct index_chunk index_chunk(const struct index *x,
                               const struct index_tensor *t, size_t i,
                               size_t chunk);
/* The chunks [*ret_first, *ret_end) of that tensor, among which are all that have some
 * of its rows [begin, end): just those, or all, where its chunks are in no order. */
void index_chunks_of_rows(const struct index *x, const struct index_tensor *t, size_t i,
                          uint64_t begin, uint64_t end, size_t *ret_first,
                          size_t *ret_end);
/* What of its tensor a chunk is. */
struct box index_chunk_box(const struct index_tensor *t,
                           const struct index_chunk *c);
/* The place of that tensor, or SIZE_MAX. Faster the closer it is to `near`, which may be
 * any number. */
size_t index_find(const struct index *x, const char *name);
size_t index_find_near(const struct index *x, const char *name, size_t near);

void index_destroy(struct index *x);
DEFINE_CLEANUP(index);

/* --- making one --- */

struct part;

/* Of what `n` ranks say of their files, which are numbered as they are: pieces and blocks.
 * Borrowed for the call. 0; -EINVAL: pieces of a tensor differ in its type or shape, do not
 * tile it, or lie in no block of their file, which `e` tells with the tensor and the place;
 * -ENOMEM. */
int index_create(const struct part *parts, size_t n, struct index **ret, struct error *e);

/* One that was created becomes that of other bytes in the same places: with the digests that
 * these parts have. False, and it is as it was: their files have other numbers of blocks. */
bool index_renew(struct index *x, const struct part *parts, size_t n);

/* Its encoded form, valid as long as it. One that was created begins with a page. */
const char *index_bytes(const struct index *x, size_t *ret_len);
/* 0, -ERR_FORMAT, -ENOMEM. Each index that comes out of it is sound: names rise,
 * chunks tile their tensors and lie in files that it has blocks of, no number
 * overflows. */
int index_decode(const void *data, size_t len, struct index **ret,
                 struct error *e);
/* The same of malloc'ed bytes, which are the index's on success: there may be many. */
int index_take(char *data, size_t len, struct index **ret, struct error *e);

#endif
