/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to store*.c.
 *
 *   store.c          names, seals, lists, checks, removing
 *   store_io.c       read by ranges, as if it were a directory
 *   store_push.c     to the store
 *   store_pull.c     from it
 */
#ifndef MUSTER_CKPT_STORE_PRIV_H
#define MUSTER_CKPT_STORE_PRIV_H

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/crowd.h"
#include "ckpt/pieces.h"
#include "base/s3_uri.h"
#include "ckpt/store.h"

#include <stdatomic.h>

/* PREFIX/NAME/PATH; `path` may be "" for what all begin with. -ENOMEM,
 * -ENAMETOOLONG. */
int store_key(const struct store *st, const char *name, const char *path,
              struct buf *to, struct error *e);

/* What lies under a name, looked up by path. */
struct store_there {
    struct s3_listing listing;
    size_t skip; /* bytes of a key before the path */
};
int store_there(const struct store *st, const char *name, struct store_there *ret,
                struct error *e);
void store_there_release(struct store_there *t);
const struct s3_object *store_find(const struct store_there *t, const char *path);

/* Fetches pieces of a parcel, and holds files against their digests: those that
 * are not done. `sink` gets the bytes; `finish` is called for a file once sink() has
 * returned for all of its pieces, and it has its digest. Any thread; both may be NULL. */
struct store_fetch {
    const struct store *st;
    const struct parcel *p;
    struct pieces *pieces;
    int (*sink)(void *arg, const struct piece *piece, const void *data,
                struct error *e);
    int (*finish)(void *arg, struct piece_file *file, struct error *e);
    void *arg;
    atomic_uint_fast64_t done;
};
int store_fetch(struct store_fetch *f, struct error *e);

/* As crowd_run() with the store's threads: after a failure requests that run are
 * cut short. */
int store_crowd(const struct store *st,
                int (*work)(void *arg, size_t i, struct error *e), void *arg,
                size_t n, struct error *e);
void store_progress(const struct store *st, atomic_uint_fast64_t *done,
                    uint64_t more, uint64_t of);
/* One more of something. */
void store_count(const struct store *st, const char *doing, atomic_uint_fast64_t *done,
                 uint64_t of);

#endif
