/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of a worker socket: one listening Unix socket a worker, 0600,
 * for connections of this user only. Several connections at a time are served
 * (the program, a tool of it), one of which may join collectives.
 *
 * Everything runs in the loop's thread. Callbacks may call any function here
 * but not uv_run(), and may destroy the socket that calls them. Bytes that do
 * not parse close that connection and nothing else.
 */
#ifndef MUSTER_LAUNCHER_WORKER_SOCKET_H
#define MUSTER_LAUNCHER_WORKER_SOCKET_H

#include "base/error.h"
#include "comm/segment.h"
#include "comm/worker_proto.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { WORKER_SOCKET_CONNECTIONS_MAX = 8 };

struct worker_socket;

/* Any of them may be NULL. Strings and arrays are valid during the call. */
struct worker_socket_ops {
    /* Which worker of this node a process belongs to, -1 where nobody knows. One
     * of another worker is refused: what comes by this socket is said for its
     * worker. NULL: everybody of this user may speak. */
    int (*whose)(void *arg, int pid);
    /* A connection said hello. `pid` is the kernel's word, not the peer's. */
    void (*on_hello)(void *arg, uint32_t local_rank, int pid);
    void (*on_report)(void *arg, uint32_t local_rank,
                      const struct worker_report *report);
    void (*on_checkpoint_saved)(void *arg, uint32_t local_rank,
                                const char *path, int64_t step);
    void (*on_checkpoint_heard)(void *arg, uint32_t local_rank,
                                const struct worker_heard *heard);
    void (*on_save_plan)(void *arg, uint32_t local_rank,
                         const struct worker_save_plan *plan);
    /* Wants a snapshot, by an open connection: worker_socket_answer_snap(), now or
     * later. A connection has one question at a time. */
    void (*on_snap_begin)(void *arg, uint32_t local_rank, uint64_t connection,
                          const struct worker_snap_begin *begin);
    void (*on_snap_find)(void *arg, uint32_t local_rank, uint64_t connection,
                         const struct worker_snap_find *find);
    void (*on_snap_fill)(void *arg, uint32_t local_rank,
                         const struct worker_snap_fill *fill);
    void (*on_snap_done)(void *arg, uint32_t local_rank,
                         const struct worker_snap_done *done);
    void (*on_snap_want)(void *arg, uint32_t local_rank,
                         const struct worker_snap_want *want);
    /* A connection that had said hello is gone. `had_joined`: it was the one in
     * collectives, so those of the others will not complete any more unless it
     * comes back. `why` is "" for a plain close. */
    void (*on_disconnect)(void *arg, uint32_t local_rank, bool had_joined,
                          const char *why);
};

/* Listens at `path`, replacing a stale socket. `welcome` is copied and says who
 * the worker is (its version field is ignored); `ops` and `arg` are borrowed. */
int worker_socket_create(uv_loop_t *loop, const char *path,
                         const struct worker_welcome *welcome,
                         const struct worker_socket_ops *ops, void *arg,
                         struct worker_socket **ret, struct error *e);

/* Closes all, removes the path; the memory goes in the next turns of the loop.
 * No callback comes after this. NULL is allowed. */
void worker_socket_destroy(struct worker_socket *w);

/* What JOIN_COMM is answered with; borrowed until replaced or NULL. Requests
 * that came before it wait for it. */
void worker_socket_set_segment(struct worker_socket *w,
                               const struct segment *segment);

/* Connections in the future are told that there is a store. */
void worker_socket_set_store(struct worker_socket *w);

/* Tells all connections, now and in the future. A connection that does not
 * read is told the newest when it reads again. */
void worker_socket_set_state(struct worker_socket *w, bool should_stop,
                             uint32_t checkpoint_requests);

/* Answers what a connection has asked for, if it is still there. Takes `fd`, -1
 * with an error. */
void worker_socket_answer_snap(struct worker_socket *w, uint64_t connection,
                               const struct worker_snap *snap, int fd);
/* Tells all connections. */
void worker_socket_tell_snap(struct worker_socket *w,
                             const struct worker_snap_status *status);

/* The path, as for MUSTER_SOCKET; valid as long as `w`. */
const char *worker_socket_path(const struct worker_socket *w);

#endif
