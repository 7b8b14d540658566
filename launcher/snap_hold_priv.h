/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of snap_hold*.c share. */
#ifndef MUSTER_LAUNCHER_SNAP_HOLD_PRIV_H
#define MUSTER_LAUNCHER_SNAP_HOLD_PRIV_H

#include "launcher/snap_bin.h"
#include "launcher/snap_hold.h"

enum slot_doing {
    IDLE = 0,
    MAKING,  /* a thread gets its memory */
    AHEAD,   /* a thread writes what is there, as a worker fills it still ... */
    WAITING, /* to be written */
    WRITING, /* ... and a thread does; it is full */
};

struct slot {
    struct slot *next;
    struct snap_hold *hold;
    uint32_t rank;
    char name[32];
    enum slot_doing doing;
    struct snap *snap; /* NULL: none yet, or MAKING */
    uint64_t wanted;   /* bytes that were asked for, or will be */
    bool is_due;       /* to be made ahead, when its turn has come */
    bool is_ahead;     /* was made ahead, or is, and not handed out */
    bool is_asked;     /* MAKING: somebody waits for it */
    bool is_given_up;  /* MAKING: the thread is told to end, and nothing stays */
    uint64_t turn;     /* who waits longest is written first */
    bool is_dropped;   /* while it waited, or was written: of no use */
    bool is_put_off;   /* while it was written: it may be tried again */
    unsigned n_pins;   /* so many read it */
    bool is_instead;   /* of a node that was lost, which may have begun */
    bool was_ahead;    /* WRITING: since it was not full ... */
    bool is_crowded;   /* ... and those that fill it have all processors */

    /* The thread's, while there is one. */
    uv_work_t work;
    struct snap_bin *bin; /* MAKING: what is in it is waited for */
    uint64_t room;     /* only read meanwhile */
    unsigned n_threads;
    bool is_bare;      /* made without memory */
    struct snap *made;
    struct error error;
    struct digest digest;
    struct drain_progress progress;

    struct snap_head head; /* MAKING: what it will be */
    uint64_t question;
};

/* A thread has it on its way to the disk, full or not. */
static inline bool snap_hold_is_written(const struct slot *s)
{
    return s->doing == WRITING || s->doing == AHEAD;
}

struct leftover;

struct snap_hold {
    struct snap_hold_config config;
    char *dir_path;
    char *budget_why;
    int dir; /* -1: not made yet */
    struct slot *slots;
    uint64_t n_turns;
    unsigned n_works;
    bool is_dying;
    bool is_removed; /* no file may stay */
    struct snap_bin *bin;  /* what is no longer needed; while it borrows, the lender's */
    struct snap_hold *copies; /* see snap_hold_lend() */
    struct snap_hold *lender;
    uint64_t beside; /* see snap_hold_beside() */
    uint32_t first_rank, n_ranks; /* that save here */

    /* Of snap_hold_clear.c. */
    struct leftover *pending; /* to be taken from the disk */
    unsigned n_pending;
    struct leftover *clearing; /* the thread's; NULL: there is none */
    uv_work_t clear_work;
};

/* --- snap_hold.c --- */

/* The one of a rank, which may be made; NULL without it. */
struct slot *snap_hold_slot(struct snap_hold *h, uint32_t rank, unsigned which,
                            bool make);
/* The directory is there, and open. */
int snap_hold_dir(struct snap_hold *h, struct error *e);
bool snap_hold_is_served(const struct snap_hold *h, uint32_t rank);
bool snap_hold_is_whole(const struct slot *s);
/* The slot that has this save of a rank, which a worker may be filling. */
struct slot *snap_hold_slot_of(const struct snap_hold *h, uint32_t rank,
                               const char *uuid);
void snap_hold_set_state(struct slot *s, enum snap_state state);
/* Slots that nobody needs, and their files, go. */
void snap_hold_drop(struct snap_hold *h,
                    bool (*is_wanted)(void *arg, const struct slot *s), void *arg);
void snap_hold_drop_strays(struct snap_hold *h);
/* A thread for the slot; `after` begins with snap_hold_work_is_over(), which is true
 * where nothing else may be done: the hold may be no more. */
void snap_hold_work(struct slot *s, enum slot_doing doing, uv_work_cb work,
                    uv_after_work_cb after);
bool snap_hold_work_is_over(struct snap_hold *h);

/* --- snap_hold_make.c --- */

/* Nothing is in it, nor is to be yet: memory for later. */
bool snap_hold_is_spare(const struct slot *s);
void snap_hold_give_up(struct slot *spare);

/* --- snap_hold_room.c --- */

/* For `bytes` bytes in that slot. 0, or -ENOMEM, which says with numbers what there is. */
int snap_hold_has_room(const struct snap_hold *h, const struct slot *s, uint64_t bytes,
                       struct error *e);
/* Bytes that were promised to others, of this hold and what it lends or borrows, and that
 * they have still to take. */
uint64_t snap_hold_promised(const struct snap_hold *h, const struct slot *but);
/* The same as has_room, where others who need theirs less may lose it. */
int snap_hold_make_way(struct snap_hold *h, const struct slot *s, uint64_t bytes,
                       struct error *e);

/* --- snap_hold_disk.c --- */

/* To the disk with it, when its turn has come. */
void snap_hold_queue(struct slot *s);
/* What ranks of before have begun to fill: none of it becomes full. NULL: all. */
void snap_hold_end_all_ahead(struct snap_hold *h, const uint32_t *rank);
/* Whatever is to be done on the disk next, where nothing is being done. */
void snap_hold_write_next(struct snap_hold *h);
/* Something that was on the disk is part of a checkpoint now, or of none. */
void snap_hold_note_settled(struct snap_hold *h);
/* What the files of a rank are called. */
void snap_hold_names(uint32_t rank, char file[32], char part[32]);

/* --- snap_hold_clear.c --- */

/* What this agent has put on the disk of a save that came to nothing goes. */
void snap_hold_clear(struct snap_hold *h, const struct snap_head *head);
/* Where a thread may begin: true if one has. */
bool snap_hold_clear_next(struct snap_hold *h);

/* --- snap_hold_find.c --- */

/* Takes up files of the rank that an agent before this one has left. */
void snap_hold_look_for(struct snap_hold *h, uint32_t rank);

#endif
