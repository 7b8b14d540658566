/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which checkpoint is loaded. Each rank says which is the newest that it can open; as long
 * as they do not say the same, all look for one that is no newer than the oldest that was
 * said. What one of them finds damaged is none for all.
 */
#ifndef MUSTER_CKPT_CKPT_CHOOSE_H
#define MUSTER_CKPT_CKPT_CHOOSE_H

#include "ckpt/save_priv.h"

/* Where a checkpoint stands among all: by step, then by token. */
struct standing {
    uint64_t step, token;
    char name[STEP_NAME_BYTES];
};
struct standing standing_of(const struct step *s);
/* Below all of that step. */
struct standing standing_below(uint64_t step);
/* Less than 0, 0, or more, as strcmp(). */
int standing_compare(const struct standing *a, const struct standing *b);

/* What was passed over, for the caller. */
struct passed {
    int n;
    int n_gone; /* of these: removed meanwhile, and not damaged. Only where one step was
                   asked for, and what was read of it before may be of such a one */
    struct error why; /* of all, and of others that were removed, as far as there is room;
                         text "" if there are none */
};

/* Which one is looked for. */
struct search {
    struct standing bound; /* it is below that, */
    bool or_equal;         /* or that itself */
    int64_t only;          /* of this step; -1: of any */
    int64_t below;         /* what was asked for is below it; MUSTER_CKPT_LATEST: anything.
                              Only to be told, and where `only` is -1 */
    bool is_for_step;      /* to know its step: who then loads that has those of it that are
                              damaged to tell of */
    struct passed before;  /* on the way to the bound, by this rank */
};

void passed_note(struct passed *p, int n, const char *why);

/* By one rank: the newest of those that opens, and what is newer and does not. The caller
 * closes it. -ENOENT: there is none. */
int ckpt_find(struct muster_ckpt *ck, const struct search *w, struct passed *passed,
              struct step *ret, struct error *e);
/* By all ranks: what is looked for; or, where there is none and it was not asked for by its
 * step, below `first` what is avoided: that is better than nothing. */
int ckpt_choose(struct muster_ckpt *ck, const struct search *w, const struct standing *first,
                struct passed *passed, struct step *ret, struct error *e);

/* Says that there is none because all that there are are damaged, and where that is; -ENOENT
 * where all were removed meanwhile. */
int ckpt_none_whole(const struct muster_ckpt *ck, const struct search *w,
                    const struct passed *passed, struct error *e);
/* What all of it came to, for the caller of the API; returns that. */
int ckpt_chosen(struct muster_ckpt *ck, int rc, const struct search *w,
                const struct passed *passed);

#endif
