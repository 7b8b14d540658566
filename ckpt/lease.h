/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run at a time saves into a directory of checkpoints, and removes some: two that did
 * would take each other's for old ones of their own. Each has a file there while it does,
 *
 *   <root>/.muster-run-ID        ckpt/lease_note.h
 *
 * which it renews. Nobody writes another one's file, so none is ever taken from one who
 * has just come back. Who wants the directory
 *
 *   writes that it wants it; looks at all others: one has it, or wants it and comes first
 *   by its name: it gives up; writes that it has it; looks again, and gives up as before
 *
 * and removes those that are gone only then. Of two at once the one that looks last sees
 * the other one, whatever its place in the order: never do both get it. They may both
 * give up, and try again with their next save. Who was gone for longer than others wait
 * (a host that was stopped) begins at the beginning, whatever its file says.
 *
 * Files come by rename, so none is seen cut; one that is damaged is somebody's as long as it
 * is renewed. The same run, begun again or led by another agent, has the same file.
 * Whoever saves without an agent has none.
 *
 * For one thread at a time; everything blocks.
 */
#ifndef MUSTER_CKPT_LEASE_H
#define MUSTER_CKPT_LEASE_H

#include "base/error.h"
#include "ckpt/io.h"
#include "ckpt/lease_note.h"

#include <stdbool.h>
#include <stdint.h>

#define LEASE_PREFIX ".muster-run-"

enum {
    LEASE_NAME_BYTES = sizeof(LEASE_PREFIX) + COMMIT_WRITER_BYTES + 4,
    LEASE_MAX_OTHERS = 16,
    LEASE_RENEW_MS = 5000,
    LEASE_GOOD_MS = 30000, /* since it was renewed; well before others may think it gone */
};

/* What there is beside files; tests have another one. */
struct lease_world {
    uint64_t (*now_ms)(void *arg); /* goes on while the host sleeps */
    bool (*is_running)(void *arg, int pid, uint64_t start);
    /* False: it has to end. */
    bool (*wait)(void *arg, unsigned ms);
    void *arg;
};

/* The real one. Waiting ends soon after `cancel` was set. */
struct lease_world lease_world(const _Atomic bool *cancel);

/* Another one's, as it was seen. */
struct lease_other {
    char name[LEASE_NAME_BYTES];
    int64_t changed_ns;
    uint64_t first_ms;
    bool is_there, is_gone;
    bool is_watched; /* in this look, which began with ... */
    int64_t begin_ns; /* ... changed_ns being that */
};

struct lease {
    struct lease_world world;
    struct lease_note own;
    char name[LEASE_NAME_BYTES];
    bool is_held;
    uint64_t good_ms; /* it was renewed then, or later */
    struct lease_other others[LEASE_MAX_OTHERS];
    size_t n_others;
};

/* `own` as lease_note_put() made it; state and time are not the caller's. */
void lease_init(struct lease *l, const struct lease_note *own, struct lease_world world);

/* It has the directory, or has it from now on, and nobody else had it meanwhile unless it
 * was let go of: 0. -EBUSY: another run has it, which `e` names; -ECANCELED; -errno. Takes
 * long where another run's process cannot be looked at: as long as one that is alive takes
 * to renew its file; and a minute (LEASE_STALE_MS) where it has died. */
int lease_hold(struct lease *l, struct io *io, int root, struct error *e);
/* The same where it has it, or the run has a file there already, of a lead before this
 * one; else nothing, and 0. To be called every LEASE_RENEW_MS. */
int lease_adopt(struct lease *l, struct io *io, int root, struct error *e);
/* It is over. */
void lease_drop(struct lease *l, struct io *io, int root);

#endif
