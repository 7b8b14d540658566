/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.json: what a checkpoint consists of. Its digest is in COMMIT, and it
 * has those of all other files, so that one true COMMIT vouches for every byte.
 *
 *   {"v": 1, "step": 1200, "uuid": "...", "generation": 3, "token": 8589934593,
 *    "time": 1790000000.123456, "muster": "0.1.0", "ranks": 8, "nodes": 2,
 *    "files": [{"name": "r00000.safetensors", "bytes": 4096, "digest": "..."}],
 *    "index": 8,
 *    "blobs": [{"name": "rng", "kind": "per-rank", "n": 8}],
 *    "state": {...}}
 *
 * `index` is the place in `files` of the index (ckpt/index.h); that of a file is
 * its number there. A blob is a tensor of bytes in the index: of kind `replicated`
 * one, called .blob/NAME, of kind `per-rank` n, called .blob/NAME/RANK. `state` is
 * what the program gave as JSON.
 */
#ifndef MUSTER_CKPT_MANIFEST_H
#define MUSTER_CKPT_MANIFEST_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/commit.h"
#include "ckpt/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_MAX_BYTES (UINT64_C(64) << 20)
#define MANIFEST_MAX_FILES 1000000
#define MANIFEST_NAME_BYTES 256 /* of a file, with its zero byte */

struct manifest_file {
    char name[MANIFEST_NAME_BYTES]; /* no path; see manifest_is_name() */
    uint64_t bytes;
    struct digest digest; /* digest_of_blocks() */
};

struct manifest_blob {
    char *name; /* owned */
    bool is_per_rank;
    uint32_t n; /* of ranks; 1 for one of all */
};

struct manifest {
    uint64_t step;
    char uuid[COMMIT_UUID_BYTES];
    uint32_t generation;
    uint64_t token;
    uint64_t wall_ns; /* when it was made; says nothing about order */
    char version[64]; /* of the muster that made it */
    uint32_t n_ranks, n_nodes;
    size_t n_files;
    struct manifest_file *files; /* owned */
    size_t index; /* place in files */
    size_t n_blobs;
    struct manifest_blob *blobs; /* owned */
    char *state; /* owned; a JSON object, or NULL for none */
};

void manifest_release(struct manifest *m);
#define _manifest_ __attribute__((cleanup(manifest_release)))

/* Whether a file of a checkpoint may be called so: 1 to 255 bytes of letters,
 * digits, '.', '-' and '_', not beginning with a dot, and none that a checkpoint's
 * own files are called. */
bool manifest_is_name(const char *name);

/* 0, -EINVAL (two files of one name, names that are none, a state that is no JSON
 * object, too long), -ENOMEM. */
int manifest_encode(const struct manifest *m, struct buf *b, struct error *e);

/* 0, -ERR_FORMAT, -ERR_VERSION, -ENOMEM; `ret` is only written on success. */
int manifest_decode(const void *data, size_t len, struct manifest *ret,
                    struct error *e);

/* Whether the two belong together: -ERR_FORMAT tells what differs. */
int manifest_check_commit(const struct manifest *m, const struct commit *c,
                          struct error *e);

#endif
