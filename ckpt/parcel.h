/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a checkpoint consists of as it goes to an object store and comes back: files
 * with their digests, and a seal, an object that is put last. Without a true seal
 * there is no checkpoint.
 *
 *   muster's own    NAME/r00000.safetensors ..., NAME/manifest.json, NAME/COMMIT
 *   of others       NAME-<8 digits>/<their files>, NAME-<8 digits>/.muster-copy
 *
 * COMMIT is the seal of our own. Others have nothing of the kind: .muster-copy lists
 * their files with digests, in one line of JSON, and a second line has the digest of
 * the first. The digits are those of its digest, so that two copies of one name with
 * other bytes (scripts write over their own) never meet.
 */
#ifndef MUSTER_CKPT_PARCEL_H
#define MUSTER_CKPT_PARCEL_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/digest.h"
#include "ckpt/found.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARCEL_COPY ".muster-copy"
#define PARCEL_COMMIT "COMMIT"
#define PARCEL_MANIFEST "manifest.json"
#define PARCEL_NAME_BYTES (FOUND_NAME_BYTES + 16)
#define PARCEL_PATH_BYTES 700
#define PARCEL_MAX_FILES 1000000

struct parcel_item {
    char *path; /* in the checkpoint; its own name for one that is a file */
    uint64_t bytes;
    struct digest digest; /* digest_of_blocks() */
};

struct parcel {
    struct found found;           /* where it came from, or is to go */
    char name[PARCEL_NAME_BYTES]; /* in a store */
    struct parcel_item *items;
    size_t n;
    uint64_t bytes;               /* of all items */
    struct buf seal;
};
void parcel_release(struct parcel *p);
#define _parcel_ __attribute__((cleanup(parcel_release)))

/* Whether it is one file, and no directory. */
bool parcel_is_file(const struct parcel *p);
/* COMMIT, or .muster-copy. */
const char *parcel_seal_name(const struct parcel *p);

/* Adds one; `path` is copied. 0, -ENOMEM, -EINVAL: a path that leads elsewhere. */
int parcel_add(struct parcel *p, const char *path, uint64_t bytes,
               struct digest digest, struct error *e);
/* Whether a path from outside stays where it belongs: relative, and no part of it
 * is "", "." or "..". */
bool parcel_is_path(const char *path);

/* --- the seal of others' checkpoints --- */

/* Makes `seal` and `name` of the rest. 0, -ENOMEM. */
int parcel_seal(struct parcel *p, struct error *e);
/* 0, -ERR_FORMAT, -ERR_VERSION, -ENOMEM. `name` is as in the store. */
int parcel_unseal(const void *data, size_t len, const char *name,
                  struct parcel *ret, struct error *e);

/* --- of our own --- */

/* The seal is COMMIT's bytes; `manifest` those of manifest.json. */
int parcel_from_step(const char *name, const void *commit, size_t commit_len,
                     const void *manifest, size_t manifest_len,
                     struct parcel *ret, struct error *e);

/* --- from a directory --- */

/* One that was found whole in `dir`: reads all of others' files, by `io`, for their
 * digests.
 * -ENOTSUP: a link or a device among them. */
int parcel_pack(struct io *io, int dir, const struct found *f, struct parcel *ret,
                struct error *e);

/* The directory, or the one that holds it where it is a file; the caller closes
 * it. */
int parcel_open_dir(int dir, const struct parcel *p, struct error *e);

#endif
