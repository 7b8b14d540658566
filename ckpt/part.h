/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank says of what it has: its pieces of tensors, its blobs, and, once it
 * has written them, where in its file each lies and the digests of that file's
 * blocks. Ranks tell each other their tables by it, and whoever commits makes index
 * and manifest from all of them (ckpt/gather.h).
 *
 * Encoded, it is a safetensors file like the index, with a digest of all that behind
 * it (u64, little-endian); arrays as there, and:
 *
 *   begins   U64 [n]   of each piece, in bytes of the file
 *   boxes    U64 [*]   of each piece n_dims corners, then n_dims lengths
 *   blocks   U64 [*]   short digests of the file's blocks
 *
 * and in its metadata step, uuid, rank, ranks, node, bytes, blobs and state.
 */
#ifndef MUSTER_CKPT_PART_H
#define MUSTER_CKPT_PART_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/box.h"
#include "ckpt/commit.h"
#include "ckpt/digest.h"
#include "ckpt/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PART_MAX_BYTES (UINT64_C(1) << 32)
#define PART_NAME_BYTES 32

struct part_piece {
    const char *name; /* borrowed: of the part, or of who makes one */
    enum dtype dtype;
    uint32_t n_dims;
    const uint64_t *shape, *at, *len; /* borrowed */
    uint64_t begin; /* in the file; 0 in a table */
};

/* A blob is a tensor of bytes by another name (part_blob_name); here is its kind. */
struct part_blob {
    char *name; /* owned */
    bool is_per_rank;
};

struct part {
    uint64_t step;
    char uuid[COMMIT_UUID_BYTES]; /* "" in a table */
    uint32_t rank, n_ranks, node;
    uint64_t file_bytes;
    size_t n_pieces;
    struct part_piece *pieces; /* owned */
    size_t n_blobs;
    struct part_blob *blobs;   /* owned */
    size_t n_blocks;
    uint64_t *blocks;          /* owned */
    char *state;               /* owned; a JSON object, or NULL */
    void *memory;              /* owned: what pieces of a decoded one borrow */
};

void part_release(struct part *p);
#define _part_ __attribute__((cleanup(part_release)))

/* Into a buffer that is empty. 0, -EINVAL (a name that is not UTF-8, too many
 * dimensions), -ENOMEM. Not deep: it does not look at whether pieces lie in their
 * tensors. */
int part_encode(const struct part *p, struct buf *b, struct error *e);

/* `b` is an encoded part of the same pieces in the same places, with as many blocks,
 * and becomes this one, once it is sealed. False, and it is not changed: it cannot, as the
 * header is of another length, say. */
bool part_encode_again(const struct part *p, struct buf *b);
/* All of it is read, for its digest. */
void part_seal(struct buf *b);

/* 0, -ERR_FORMAT, -ERR_VERSION, -ENOMEM. What comes out has names, types, and boxes
 * that lie in their tensors; a step's file has pieces that lie in it and as many
 * blocks as it needs. */
int part_decode(const void *data, size_t len, struct part *ret,
                struct error *e);

/* The same of all but its pieces, of which `ret` has none: of those, and of the length of
 * their file, *ret_table is the digest. Where part_decode() has taken one before that has the
 * same, it would make the same pieces again. */
int part_decode_brief(const void *data, size_t len, struct part *ret, struct digest *ret_table,
                      struct error *e);

/* An encoded part, once its file's digests are known: with those in it, in a buffer that
 * was empty. 0, -ERR_FORMAT (cut, damaged, or of a file of another length), -ENOMEM. What
 * else is in it is for part_decode() to check. */
int part_finish(const void *part, size_t len, const uint64_t *blocks,
                size_t n_blocks, struct buf *ret, struct error *e);

/* "r00003.part" and "r00003.safetensors". */
void part_file_name(uint32_t rank, char to[PART_NAME_BYTES]);
void part_data_name(uint32_t rank, char to[PART_NAME_BYTES]);
/* And back; false: it is no such name. */
bool part_data_rank(const char *name, uint32_t *ret);

/* ".blob/NAME", or ".blob/NAME/RANK" of one of each rank. */
void part_blob_name(const char *name, bool is_per_rank, uint32_t rank,
                    struct buf *to);

#endif
