/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of the connection to muster-mpi (comm/companion.h): listens in
 * the agent's private directory, keeps the connection of the newest MPI world
 * and closes older ones. On the loop's thread; callbacks may call anything here
 * but companion_link_destroy().
 */
#ifndef MUSTER_LAUNCHER_COMPANION_LINK_H
#define MUSTER_LAUNCHER_COMPANION_LINK_H

#include "base/error.h"
#include "comm/companion.h"
#include "rendezvous/roster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct companion_link;

struct companion_link_ops {
    /* Whether process `pid` (0: not of this space of pids) may come for a newer
     * world than that of the one that is there. NULL, or why not. */
    const char *(*may_come)(void *ctx, int pid,
                            const struct companion_hello *h);
    /* A companion brought its world. Both are borrowed for the call. */
    void (*on_world)(void *ctx, const struct companion_world *w,
                     const struct roster *roster);
    /* The outcome of companion_link_attach(). */
    void (*on_attached)(void *ctx, const struct companion_outcome *o);
    /* mpirun told it to end. */
    void (*on_term)(void *ctx);
    /* mpirun passed on SIGUSR1 or SIGUSR2: the end is near. */
    void (*on_notice)(void *ctx);
    /* The newest companion is gone, and with it its MPI world, that of `epoch`,
     * which it may not have brought yet; or the first one to come is of another
     * build, and was sent away. */
    void (*on_lost)(void *ctx, uint64_t epoch);
};

/* `info` is this agent's encoded roster entry; copied. */
int companion_link_create(uv_loop_t *loop, const char *path,
                          const struct buf *info,
                          const struct companion_link_ops *ops, void *ctx,
                          struct companion_link **ret, struct error *e);

/* Tells companions from now on which place in the run this agent has, of so many
 * that it knows of. */
void companion_link_set_place(struct companion_link *l, uint32_t rank,
                              uint32_t n_known);

/* From now on the connection ends with this process, not before: by that the companion,
 * which has had the last word, sees when the agent is gone. */
void companion_link_keep_open(struct companion_link *l);

/* Removes the socket. NULL is allowed. */
void companion_link_destroy(struct companion_link *l);

bool companion_link_is_up(const struct companion_link *l);

/* Asks the companion to join a group. 0, or -EPIPE where there is none that has brought
 * its world: what is asked before that would be asked again after on_world. */
int companion_link_attach(struct companion_link *l,
                          const struct companion_attach *a, int segment_fd,
                          int event_fd);
void companion_link_detach(struct companion_link *l, uint32_t tag);

/* The last word: the companion leaves with it. */
void companion_link_verdict(struct companion_link *l, uint8_t status,
                            const char *reason);

#endif
