/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of snap_hold*.c share. */
#ifndef MUSTER_LAUNCHER_SNAP_HOLD_PRIV_H
#define MUSTER_LAUNCHER_SNAP_HOLD_PRIV_H

#include "launcher/snap_hold.h"

enum slot_doing {
    IDLE = 0,
    MAKING,  /* a thread gets its memory */
    WAITING, /* to be written */
    WRITING, /* a thread does */
};

struct slot {
    struct slot *next;
    struct snap_hold *hold;
    uint32_t rank;
    char name[32];
    enum slot_doing doing;
    struct snap *snap; /* NULL: none yet */
    uint64_t turn;     /* who waits longest is written first */
    bool is_dropped;   /* while it waited, or was written: of no use */
    bool is_pinned;    /* somebody reads it */
    bool is_instead;   /* of a node that was lost, which may have begun */

    /* The thread's, while there is one. */
    uv_work_t work;
    uint64_t room;
    struct error error;
    struct digest digest;
    struct drain_progress progress;

    struct snap_head head; /* MAKING: what it will be */
    uint64_t question;
};

struct snap_hold {
    struct snap_hold_config config;
    char *dir_path;
    char *budget_why;
    int dir; /* -1: not made yet */
    struct slot *slots;
    uint64_t n_turns;
    unsigned n_works;
    bool is_dying;
    struct snap_hold *copies; /* see snap_hold_lend() */
    struct snap_hold *lender;
    uint32_t first_rank, n_ranks; /* that save here */
};

/* --- snap_hold.c --- */

/* The one of a rank, which may be made; NULL without it. */
struct slot *snap_hold_slot(struct snap_hold *h, uint32_t rank, unsigned which,
                            bool make);
/* The directory is there, and open. */
int snap_hold_dir(struct snap_hold *h, struct error *e);
bool snap_hold_is_whole(const struct slot *s);
/* The slot that has this save of a rank, which a worker may be filling. */
struct slot *snap_hold_slot_of(const struct snap_hold *h, uint32_t rank,
                               const char *uuid);
void snap_hold_set_state(struct slot *s, enum snap_state state);
/* To the disk with it, when its turn has come. */
void snap_hold_queue(struct slot *s);
/* Slots that nobody needs, and their files, go. */
void snap_hold_drop(struct snap_hold *h,
                    bool (*is_wanted)(void *arg, const struct slot *s), void *arg);
void snap_hold_drop_strays(struct snap_hold *h);

#endif
