/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object store that is a directory, for tests: keys are paths in it, and what is deleted
 * is gone from the disk. It takes the place of ckpt/s3*.c; who pushes brings s3_put() and
 * those that send in parts.
 */
#ifndef MUSTER_CKPT_STORE_BED_H
#define MUSTER_CKPT_STORE_BED_H

#include "ckpt/store.h"

/* The directory `path`, which is made where it is missing. One thread, pieces of a block of
 * the digest. False: it cannot be had. */
bool store_bed_open(const char *path, struct store *ret);
void store_bed_close(struct store *st);
#define _store_bed_ __attribute__((cleanup(store_bed_close)))

/* A checkpoint of `dir` as a push leaves it there. */
int store_bed_put(const struct store *st, int dir, const struct found *f);

#endif
