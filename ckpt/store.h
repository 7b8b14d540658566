/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in an object store, under one prefix (ckpt/parcel.h says as what). The
 * rule is that of a directory: files first, the seal last; removing takes the seal
 * first. So whoever is killed, at whatever request, leaves a checkpoint that is
 * whole or none, and doing it again goes on where it was cut: objects and parts that
 * are there with their length and digest are not sent twice, files not fetched
 * twice.
 *
 * Two who push the same checkpoint send the same bytes to the same names; the store
 * takes one seal where it knows conditions.
 */
#ifndef MUSTER_CKPT_STORE_H
#define MUSTER_CKPT_STORE_H

#include "ckpt/parcel.h"
#include "ckpt/s3.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store {
    struct s3 *s3;
    const char *bucket; /* for messages */
    const char *prefix; /* "" for none */
    size_t n_threads;
    uint64_t part_bytes;
    bool is_dry;        /* look, change nothing */
    /* Bytes that are done, of how many; any thread. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t of);
    /* Likewise of what has no bytes: "removing files". May be NULL. */
    void (*count)(void *arg, const char *doing, uint64_t done, uint64_t of);
    void *arg;
};

struct store_facts {
    uint64_t n_moved, bytes_moved; /* to be moved, in a dry run */
    uint64_t n_kept, bytes_kept;   /* that were there */
};

/* Sends what was packed from `dir`. */
int store_push(const struct store *st, int dir, const struct parcel *p,
               struct store_facts *ret, struct error *e);

/* What lies under a name. -ENOENT: it has no seal: it was never finished, or is
 * none; -ERR_FORMAT: damaged. */
int store_open(const struct store *st, const char *name, struct parcel *ret,
               struct error *e);
/* Whether all its objects are there with their lengths, and with `is_deep` all
 * their bytes right: -ENOENT never, -ERR_FORMAT. */
int store_check(const struct store *st, const struct parcel *p, bool is_deep,
                struct error *e);

/* Brings it into `dir`, on the disk when this returns. One of ours is a checkpoint
 * from the moment on when all of it is there; others come under another name
 * (.NAME.muster-part) and get theirs at the end. -EEXIST: there is another one of
 * that name. -EBUSY: somebody else fetches it there, or holds it (ckpt/held.h). In a dry
 * run `dir` is negative where it is not there yet. */
int store_pull(const struct store *st, const struct parcel *p, int dir,
               struct store_facts *ret, struct error *e);

/* Makes it no checkpoint, then removes all objects under its name. */
int store_remove(const struct store *st, const char *name, struct error *e);

/* Its files as those of a directory are read (ckpt/io.h), by ranges: found_check()
 * without all bytes, and contents_open(), with 0 as the directory that it is in. Only
 * reads. `st` and `p` stay the caller's. */
int store_io_open(const struct store *st, const struct parcel *p, struct io **ret,
                  struct error *e);
/* What the first request that failed has failed of; NULL: none has. */
const struct error *store_io_failure(struct io *io);
void store_io_close(struct io *io);

struct store_entry {
    char name[PARCEL_NAME_BYTES];
    bool has_seal;
    struct found found; /* with a seal; else only what the name says */
    uint64_t bytes, n_files;
    bool is_above; /* a prefix of what was pushed: in no list */
    int rc; /* of store_open() and store_check() */
    struct error why;
};
/* As a list has them: the highest step first, of one step muster's own, as step_compare()
 * has them, and of what was pushed by one name what has most files. */
int store_newest_first(const void *a, const void *b);
/* All names, highest step first; looked into. The caller frees *ret. */
int store_list(const struct store *st, bool is_deep, struct store_entry **ret,
               size_t *ret_n, struct error *e);
/* Whether that `rc` says what it is: whole, unfinished or damaged. Else it could not be
 * looked at, and may be any of them. */
bool store_is_known(int rc);
/* As found_metric(). */
int store_metric(const struct store *st, const struct store_entry *entry,
                 const char *name, double *ret, struct error *e);

#endif
