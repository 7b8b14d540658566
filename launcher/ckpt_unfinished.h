/* SPDX-License-Identifier: Apache-2.0 */
/* What `muster ckpt prune` does with saves that came to no end (ckpt/unfinished.h): they go
 * where it is known that their program has ended (ckpt/saver.h), and where it is said for how
 * long nobody may have written to them, and stay else. */
#ifndef MUSTER_LAUNCHER_CKPT_UNFINISHED_H
#define MUSTER_LAUNCHER_CKPT_UNFINISHED_H

#include "base/error.h"
#include "ckpt/lease.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UNFINISHED_LEAST_MS = 60 * 1000 }; /* longer than any pause of one that is well */

struct ckpt_unfinished {
    int dir;           /* that they are in; borrowed */
    uint64_t still_ms; /* 0: it was not said, and all stay */
    bool is_dry;       /* nothing is changed: the clock is this host's */

    /* Since ckpt_unfinished_begin(). */
    int64_t now_ns;
    char run[LEASE_NAME_BYTES]; /* whose agents save there; "": nobody's */
    size_t n;                   /* that stay ... */
    uint64_t bytes;             /* ... and what they take */
};

/* 0; the clock cannot be asked, or nobody can tell whether a run saves there. */
int ckpt_unfinished_begin(struct ckpt_unfinished *u, struct error *e);
/* Whether that one goes. One that stays is told; `why` is what is not finished about it. */
bool ckpt_unfinished_may_go(struct ckpt_unfinished *u, const char *name,
                            const struct error *why);
/* Removes it, if nobody has written to it since. As step_remove_all(). */
int ckpt_unfinished_remove(const struct ckpt_unfinished *u, const char *name, struct error *e);
/* Says what those take that stay, where nothing was said of them. */
void ckpt_unfinished_hint(const struct ckpt_unfinished *u);

#endif
