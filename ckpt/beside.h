/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint that may be gone, and what lies beside it: programs remove what they
 * do not keep, and who was told of one need not have heard of the next.
 *
 * Beside it is what is named like it, with other numbers (step-20.pt, step-40.pt; or
 * step-20/model.pt, step-40/model.pt). Nothing else in its directory can be taken for
 * a checkpoint of the same program. The newest of them counts by its time, because
 * numbers of another run in the same directory may be higher: of those that are known
 * to be whole, where the format is one that tells (ckpt/found.h), and else of all
 * that are not empty.
 */
#ifndef MUSTER_CKPT_BESIDE_H
#define MUSTER_CKPT_BESIDE_H

#include "base/error.h"
#include "ckpt/io.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum beside_state {
    BESIDE_ITSELF = 0, /* it is there */
    BESIDE_OTHER = 1,  /* another one */
    BESIDE_NONE = 2,   /* its directory is there, and nothing that is named like it */
    BESIDE_NO_DIR = 3, /* nor is its directory: which may only not be mounted */
};

/* "itself", "other", "none", "no directory". */
const char *beside_state_name(enum beside_state state);

struct beside {
    enum beside_state state;
    char path[PATH_MAX];
    int64_t step;       /* the number of its name (ckpt/found.h); -1: there is none */
    int64_t changed_ns; /* on the clock of the filesystem */
    bool is_whole;      /* its format says so; false: nobody knows */
};

/* An absolute path. 0; -EINVAL, -ENOMEM, errors of reading. */
int beside_find(struct io *io, const char *path, struct beside *ret,
                struct error *e);

/* As if `path` were gone, from which nobody is to start for now: OTHER is the one of the
 * highest number below its own then, NONE where there is none. Of muster's own it may be
 * another one of its step, which is what programs load then. Nor is it one of `avoided`
 * (ckpt/avoided.h), and those of another run may be there, so that no time counts. */
int beside_older(struct io *io, const char *path, const char *avoided,
                 struct beside *ret, struct error *e);

/* Whether another one in that directory is named like `name` and known to be whole: by
 * its structure, and of no more than 16. */
bool beside_has_whole(struct io *io, int dir, const char *name);

/* Whether two names differ in nothing but their numbers, of which they have some. */
bool beside_is_like(const char *a, const char *b);

#endif
