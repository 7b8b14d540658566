/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's end of the worker socket. Made for living inside somebody else's
 * program: no threads, no signals (SIGPIPE included), descriptors close on exec,
 * every wait has a deadline. One thread at a time, but for client_snap_fill() and
 * client_snap_send().
 */
#ifndef MUSTER_COMM_CLIENT_H
#define MUSTER_COMM_CLIENT_H

#include "base/error.h"
#include "comm/worker_proto.h"

struct client;

/* Connects and says hello. -ECONNREFUSED: no agent there, or it hung up;
 * -EPROTO: one of another version, or no agent at all; -ETIMEDOUT. */
int client_connect(const char *path, struct client **ret, struct error *e);

/* Hangs up. NULL is allowed. */
void client_destroy(struct client *c);

/* That of a program's connection; NULL without an agent. */
struct muster;
struct client *client_of(struct muster *m);

/* Who this worker is; valid as long as `c`. */
const struct worker_welcome *client_welcome(const struct client *c);

/* The socket, to poll for a hangup. */
int client_fd(const struct client *c);

/* A place for who uses the connection by several handles: `gone` is called with what is
 * there when it ends. Empty at first. */
struct client_place {
    void *data;
    void (*gone)(void *data);
};
struct client_place *client_place(struct client *c);

/* What one of several handles has on its way, and has to be handed over before another one
 * asks for memory: the agent has taken none of it for done. NULL: nothing is. */
struct client_pending {
    void (*hand)(void *arg);
    void *arg;
};
struct client_pending *client_pending(struct client *c);

/* Asks to be let into collectives. The caller owns both descriptors. */
int client_join(struct client *c, int *ret_segment_fd, int *ret_event_fd,
                struct error *e);

/* The newest state, without waiting. -ECONNABORTED: the agent is gone. */
int client_state(struct client *c, struct worker_state *ret, struct error *e);

/* Sends without waiting: a report that finds the socket full is left out. */
int client_report(struct client *c, const struct worker_report *report,
                  struct error *e);

/* Asks for memory for a snapshot. The answer is the next thing to be asked of the client. */
int client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                      struct error *e);
/* Waits for that, whose descriptor the caller owns. -EBUSY: others are on their way;
 * -ENOMEM, -ENOSPC: there is not so much; -ENOTSUP. */
int client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                       struct error *e);
/* It is being filled. From any thread, as the next one. */
int client_snap_fill(struct client *c, const struct worker_snap_fill *fill, struct error *e);
/* It is filled. With `want` the agent is told before, in one go, how far it is to get:
 * NULL, not at once. From any thread, while another one may be in any other call. */
int client_snap_send(struct client *c, const struct worker_snap_done *done,
                     const struct worker_snap_want *want, struct error *e);
/* What was sent so, the agent has when this returns. */
int client_snap_taken(struct client *c, const char *uuid, struct error *e);
/* Where it is to get to: see struct worker_snap_want. */
int client_snap_want(struct client *c, const struct worker_snap_want *want,
                     struct error *e);
/* How far that is, without waiting. -ENOENT: nothing was said of it. */
int client_snap_status(struct client *c, const char *uuid,
                       struct worker_snap_status *ret, struct error *e);
/* 1: checkpoints of the run are taken to a store, and saves reach WORKER_SNAP_REMOTE;
 * 0, or an error. */
int client_has_store(struct client *c, struct error *e);
/* One that is held for that rank, to be read; "": the newest. -ENOENT. */
int client_snap_find(struct client *c, uint32_t rank, const char *uuid,
                     struct worker_snap *ret, int *ret_fd, struct error *e);

/* Likewise. */
int client_save_plan(struct client *c, const struct worker_save_plan *plan,
                     struct error *e);

/* Sends for certain, waiting where the agent is behind. */
int client_checkpoint_saved(struct client *c, const char *path, int64_t step,
                            struct error *e);

/* Likewise: of so many requests for a checkpoint the program has heard; or, with a `uuid`,
 * this process had been told before that save began. */
int client_checkpoint_heard(struct client *c, uint32_t requests, const char *uuid,
                            int64_t step, struct error *e);

#endif
