/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks that save and load together, and how they come to the same end: what
 * any of them fails of, all fail of.
 */
#ifndef MUSTER_CKPT_GROUP_H
#define MUSTER_CKPT_GROUP_H

#include "base/error.h"
#include "muster_ckpt.h"

#include <stddef.h>
#include <stdint.h>

struct muster;

struct group {
    uint32_t rank, world;
    int (*allgather)(void *arg, const void *mine, void *all, size_t len);
    void *arg;
    struct verdict *verdicts; /* owned: room for what all say, so that there is
                                 always some to say that memory is short */
};

/* A copy of what the caller gave; the workers of `m` where that is NULL; a world of
 * one without both. 0, -EINVAL, -ENOMEM. */
int group_make(struct muster *m, const struct muster_ckpt_group *given,
               struct group *ret, struct error *e);
void group_release(struct group *g);

/* `len` bytes of each rank. 0, -ECONNABORTED and others: a rank is gone. */
int group_gather(const struct group *g, const void *mine, void *all, size_t len,
                 struct error *e);

/* How it ended for each: all get the first failure, by rank. `rc` is 0 or a
 * negative code with its text in `e`; so is what is returned. */
int group_agree(const struct group *g, int rc, struct error *e);

/* Bytes of different lengths: those of rank r are *ret_all[ends[r-1], ends[r]). The
 * caller frees both. */
int group_gather_any(const struct group *g, const void *mine, size_t len,
                     char **ret_all, size_t **ret_ends, struct error *e);

#endif
