/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshots that an agent holds for its workers: two for each rank, files of
 * shared memory (ckpt/snap.h) called snap-AGENT-RANK-0 and -1: a host may have several
 * agents, and ranks move between them. Copies of other nodes' are in a hold of their
 * own, called copy-AGENT-RANK-0 and -1. One is filled while the other one is on its way
 * to the disk. Memory is made, and files are
 * written, by threads; one snapshot at a time goes to the disk.
 *
 * Everything else runs in the loop's thread. Nothing here knows of other nodes:
 * whether all ranks have saved is for who asked (launcher/agent_snap.c).
 */
#ifndef MUSTER_LAUNCHER_SNAP_HOLD_H
#define MUSTER_LAUNCHER_SNAP_HOLD_H

#include "base/error.h"
#include "ckpt/drain.h"
#include "ckpt/snap.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct snap_hold;

/* Who saves. */
struct snap_rank {
    uint32_t rank, n_ranks;
    uint32_t generation;
    uint64_t token;
};

struct snap_hold_config {
    uv_loop_t *loop;
    const char *dir;      /* made with the first snapshot, 0700 */
    unsigned agent;       /* which one of the host: files of others are theirs */
    uint64_t budget;      /* bytes that all snapshots may have together */
    const char *budget_why; /* where that comes from, for who gets none */
    const char *name;     /* that files begin with; NULL: "snap" */
    bool is_elsewhere;    /* copies of other nodes', which write them: these go to the
                             disk only by snap_hold_write() */
    /* How much memory could be had now; NULL: what the budget has. */
    uint64_t (*left)(void *arg);
    /* Who lends this one its budget is short: what snap_hold_beside() has told of is to
     * go. NULL: nothing has. */
    void (*on_short)(void *arg);
    struct io *io;
    int (*finish)(const void *part, size_t len, const uint64_t *blocks,
                  size_t n_blocks, struct buf *ret, struct error *e);

    /* What snap_hold_begin() has asked for. `s` is NULL with an error; else it is
     * borrowed during the call, and may be bare (ckpt/snap.h), but where it is a copy.
     * Comes later than the question, or, of what is no copy and is there, from inside
     * snap_hold_begin(). */
    void (*on_begun)(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e);
    /* A snapshot has got to the disk, or has not (`e->code` is set): then it is in memory
     * still. */
    void (*on_written)(void *arg, const struct snap_head *head,
                       const struct error *e);
    void *arg;
};

/* Strings are copied. */
int snap_hold_create(const struct snap_hold_config *config,
                     struct snap_hold **ret, struct error *e);
/* Waits for threads, which are told to end. The files stay. NULL is allowed. */
void snap_hold_destroy(struct snap_hold *h);
/* The files that this agent holds go, and the directory with the last ones. */
void snap_hold_remove(struct snap_hold *h);

/* These ranks save from now on: memory of others goes, as soon as it is not on its way
 * to the disk. Also that of an agent before this one. */
void snap_hold_serve(struct snap_hold *h, uint32_t first_rank, uint32_t n);

/* Memory for `bytes` bytes, see on_begun(). What is being made ahead is waited for.
 * -EBUSY: both of the rank are on their way; -ENOMEM: the budget, or what the filesystem
 * has left beside what was promised to others, with numbers;
 * on_begun() does not come then. Of copies, the same one once more takes the place of
 * the question before, which is not answered. */
int snap_hold_begin(struct snap_hold *h, const struct snap_rank *who,
                    uint64_t step, const char *uuid, const char *root,
                    uint64_t bytes, uint64_t question, struct error *e);
/* Which was saved later (snap_is_later()). */
bool snap_hold_is_newer(const struct snap_head *a, const struct snap_head *b);
/* What is whole, not on its way to the disk and not known to be part of a checkpoint, nor
 * older than what is: also what an agent of this number had when it ended. Each of those is
 * there from now on, as if it had been saved just now. */
void snap_hold_recall(struct snap_hold *h,
                      void (*found)(void *arg, const struct snap_head *head), void *arg);
/* What ranks of that generation have begun to save, and have not handed over. */
void snap_hold_unfilled(const struct snap_hold *h, uint32_t generation,
                        void (*found)(void *arg, const struct snap_head *head), void *arg);
/* The rank has one, and will want the other: a thread makes that, as large, where the
 * budget has it and as much memory is left again. Silently not done otherwise, or
 * given up for what is asked for. */
void snap_hold_make_ahead(struct snap_hold *h, uint32_t rank);
/* Its image of so many bytes is being filled (ckpt/drain.h): it goes to the disk meanwhile,
 * where nothing else does. That is only for speed: what comes of it is told once it is
 * full, and what does not get there is written anew then. `is_crowded`: those that fill it
 * have all processors. */
void snap_hold_drain_ahead(struct snap_hold *h, uint32_t rank, const char *uuid,
                           uint64_t image_bytes, bool is_crowded);
/* It will not become full. */
void snap_hold_end_ahead(struct snap_hold *h, uint32_t rank, const char *uuid);
/* It is filled, and goes to the disk. -ENOENT, -EINVAL. */
int snap_hold_done(struct snap_hold *h, uint32_t rank, const char *uuid,
                   uint64_t image_bytes, uint64_t part_bytes,
                   struct error *e);
/* The same, but it stays in memory: snap_hold_drain(), called next, or snap_hold_write()
 * sends it to the disk. Its memory is the next to be had where that of the other one is not
 * free. */
int snap_hold_stay(struct snap_hold *h, uint32_t rank, const char *uuid,
                   uint64_t image_bytes, uint64_t part_bytes,
                   struct error *e);
void snap_hold_drain(struct snap_hold *h, uint32_t rank, const char *uuid);
/* The save is part of a checkpoint, or came to nothing: then what is on the disk of it
 * goes, also that which gets there just now, and nothing of it is written any more. */
void snap_hold_settle(struct snap_hold *h, const char *uuid, bool is_kept);
/* It came to nothing on the disk, as above, but may be tried again: what is whole in memory
 * stays there, and is as before it was written, until something newer needs its place. */
void snap_hold_put_off(struct snap_hold *h, const char *uuid);
/* One of this rank: of that save, or "" for the newest that is part of a
 * checkpoint. Borrowed, until the loop turns; NULL if there is none. */
const struct snap *snap_hold_find(struct snap_hold *h, uint32_t rank,
                                  const char *uuid);

/* `copies` has the budget of `h`, as far as what h holds, two of each rank, leaves
 * some; and gives memory back where that of h becomes short. NULL: no more. Both
 * live until then. */
void snap_hold_lend(struct snap_hold *h, struct snap_hold *copies);

/* So much is held beside what is here, in memory that is not the hold's, and counts
 * against its budget as that does. -ENOMEM: more than there was, and it does not fit. */
int snap_hold_beside(struct snap_hold *h, uint64_t bytes, struct error *e);

/* That save of a rank, which is whole, or NULL. Until snap_hold_unpin() nothing takes
 * its memory, though it may come to nothing: ask again with snap_hold_get(). */
const struct snap *snap_hold_pin(struct snap_hold *h, uint32_t rank,
                                 const char *uuid);
void snap_hold_unpin(struct snap_hold *h, uint32_t rank, const char *uuid);
const struct snap *snap_hold_get(const struct snap_hold *h, uint32_t rank,
                                 const char *uuid);
/* For who fills it in this process: one that was begun, or NULL. */
struct snap *snap_hold_fill(const struct snap_hold *h, uint32_t rank,
                            const char *uuid);
/* That, for who reads it meanwhile (snap_await()): so large is it going to be. */
const struct snap *snap_hold_coming(struct snap_hold *h, uint32_t rank, const char *uuid,
                                    uint64_t image_bytes);

/* Of a node that was lost, and may have begun to write it, or one that has stayed here:
 * it goes to the disk, see on_written(). -ENOENT: it is not whole, or came to nothing. */
int snap_hold_write(struct snap_hold *h, uint32_t rank, const char *uuid,
                    struct error *e);
/* What is of a step before that one, and of a rank that is not wanted any more,
 * goes. */
void snap_hold_keep(struct snap_hold *h, uint64_t step,
                    bool (*is_wanted)(void *arg, uint32_t rank), void *arg);

/* Bytes that were handed to the disk of that save of a rank; 0: it is not being written. */
uint64_t snap_hold_n_written(const struct snap_hold *h, uint32_t rank, const char *uuid);
/* How many are on their way to the disk. */
unsigned snap_hold_n_writing(const struct snap_hold *h);

#endif
