/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank has registered to be saved and loaded: boxes of tensors in its memory,
 * and blobs, which are tensors of bytes by another name (ckpt/part.h). A flat range
 * becomes the boxes that it consists of.
 */
#ifndef MUSTER_CKPT_REGISTRY_H
#define MUSTER_CKPT_REGISTRY_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/box.h"
#include "ckpt/part.h"
#include "comm/device.h"
#include "muster_ckpt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reg_piece {
    char *name;
    uint64_t digest; /* of what others know of it; of a blob, but its length */
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t *shape, *at, *len; /* owned by shape */
    int64_t *strides;           /* owned by shape; NULL: row-major */
    void *data;                 /* the caller's */
    const struct device *device; /* that reaches it; NULL: the processor */
};

struct reg_blob {
    char *name;
    enum muster_blob kind;
    size_t piece;     /* place in pieces; SIZE_MAX for JSON */
    const char *json; /* the caller's, of len bytes */
    size_t len;
};

struct registry {
    uint32_t rank;
    size_t n_pieces, room;
    size_t n_on_devices; /* of these */
    struct reg_piece *pieces;
    uint64_t digest; /* of all of them, each in its place; see registry_digest() */
    size_t n_slots;
    size_t *slots; /* of a hash table: places in pieces, plus 1 */
    size_t n_blobs;
    struct reg_blob *blobs;
    uint64_t n_changes; /* of what is in the table, but JSON */
    uint64_t n_calls;   /* that have changed, or moved, anything that a table points to:
                           as long as they are as many, it is true */
    struct device_finder finder;
};

void registry_release(struct registry *r);

/* For a registry of what is asked for once: to look for the driver of GPUs takes longer than
 * all else does. Before it is used, and again before it is released, they exchange what they
 * know of that. */
void registry_exchange_finder(struct registry *a, struct registry *b);

/* 0, -EINVAL, -ENOMEM. */
int registry_tensor(struct registry *r, const struct muster_ckpt_tensor *t,
                    struct error *e);
int registry_blob(struct registry *r, const char *name, void *data, size_t len,
                  enum muster_blob kind, struct error *e);

/* What GPUs were asked to do with what is registered has been done. */
int registry_settle(const struct registry *r, struct error *e);

/* The table of this rank; pieces are borrowed, and the rest is its own. 0,
 * -ENOMEM, -EINVAL (a JSON blob that is none). */
int registry_table(const struct registry *r, uint32_t n_ranks, uint32_t node,
                   struct part *ret, struct error *e);

/* Only what a table has of JSON blobs, which is read anew each time: NULL without any.
 * 0, -ENOMEM, -EINVAL. */
int registry_state(const struct registry *r, char **ret, struct error *e);

/* A digest of the table, but JSON: equal to that of another time where the table is; 0:
 * it could not be made. */
uint64_t registry_digest(const struct registry *r, uint32_t n_ranks, uint32_t node);

/* A digest of all that is to be the same on all ranks: bytes of replicated blobs,
 * and JSON. */
uint64_t registry_common(const struct registry *r);

/* The bytes of a blob, which are the caller's; "" if there are none. */
const void *registry_blob_data(const struct registry *r, const struct reg_blob *b);

/* What a JSON blob came back as, in a manifest's state (which may be NULL); NULL if
 * there is none. The caller frees it. */
char *registry_json_of(const char *state, const char *name);

#endif
