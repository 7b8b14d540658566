/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COMMIT, the last file of a checkpoint: one that is there and true makes the
 * directory a checkpoint, and nothing else does. Two lines of text:
 *
 *   {"v":1,"step":1200,"uuid":"...","generation":3,"token":8589934593,
 *    "manifest_bytes":5120,"manifest_digest":"...","n_files":9,
 *    "total_bytes":1073741824,"host":"n3","muster":"0.1.0"}   (one line)
 *   xxh3 0123456789abcdef
 *
 * The second has the digest of the first with its newline, so that no change of a
 * bit goes unseen. Who wrote it may be missing, and what a reader does not know does not
 * hinder it.
 */
#ifndef MUSTER_CKPT_COMMIT_H
#define MUSTER_CKPT_COMMIT_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/digest.h"

#include <stddef.h>
#include <stdint.h>

#define COMMIT_MAX_BYTES 4096
#define COMMIT_WRITER_BYTES 65
#define COMMIT_UUID_BYTES 33 /* 32 hexadecimal digits, and a zero byte */

struct commit {
    uint64_t step;
    char uuid[COMMIT_UUID_BYTES]; /* of this save: no two have the same */
    uint32_t generation;          /* of the workers that saved it */
    uint64_t token;               /* fencing: of one step the highest counts */
    uint64_t manifest_bytes;
    struct digest manifest_digest;
    uint64_t n_files;             /* beside COMMIT itself */
    uint64_t total_bytes;         /* of these */
    /* Who wrote it, for people: printable, and "" where it does not say. */
    char host[COMMIT_WRITER_BYTES];
    char version[COMMIT_WRITER_BYTES]; /* of that muster */
};

/* To one of these: what is no printable character of ASCII, or would have to be escaped,
 * becomes an underscore, and what is too long is cut. */
void commit_put_writer(char to[COMMIT_WRITER_BYTES], const char *text);

/* An allocation failure is remembered in `b`. Numbers are below 2^63. */
void commit_encode(const struct commit *c, struct buf *b);

/* 0; -ERR_FORMAT: it is cut, changed or no COMMIT, and is none then;
 * -ERR_VERSION: written by a newer muster; -ENOMEM. `ret` is only written on
 * success. */
int commit_decode(const void *data, size_t len, struct commit *ret,
                  struct error *e);

#endif
