/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of what a checkpoint holds: XXH3, which finds every error of disks,
 * memory and networks, but no forgery. 128 bits for files, 64 for blocks of them.
 */
#ifndef MUSTER_CKPT_DIGEST_H
#define MUSTER_CKPT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_TEXT_BYTES 33 /* 32 hexadecimal digits, and a zero byte */

struct digest {
    uint64_t high, low;
};

struct digest digest_of(const void *data, size_t len);
uint64_t digest_short_of(const void *data, size_t len);

/* The short digest of `len` bytes that are given to `take` one after the other, in parts
 * of at most `part_bytes`, while they are near: whoever copies them reads them once. */
uint64_t digest_short_while(const void *data, size_t len, size_t part_bytes,
                            void (*take)(void *arg, size_t at, size_t n), void *arg);

bool digest_equal(struct digest a, struct digest b);

/* As 32 lower-case hexadecimal digits, high ones first: what `xxhsum -H2`
 * prints. */
void digest_format(struct digest d, char to[DIGEST_TEXT_BYTES]);
/* False for anything else. */
bool digest_parse(const char *text, struct digest *ret);

/* --- files in blocks --- */

/* A file is read and checked in blocks of this many bytes, the last one shorter.
 * Its own digest is that of its length (u64, little-endian) and the short digests
 * of all its blocks after it, so that blocks can be made, and checked, in any
 * order. */
#define DIGEST_BLOCK_BYTES (UINT64_C(4) << 20)

uint64_t digest_n_blocks(uint64_t file_bytes);
struct digest digest_of_blocks(const uint64_t *blocks, uint64_t file_bytes);
/* That of a file whose bytes are all there. 0, -ENOMEM. */
int digest_of_file(const void *data, size_t len, struct digest *ret);

#endif
