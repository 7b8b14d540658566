/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside a worker socket. Private to worker_socket.c, which listens, and
 * worker_conn.c, which serves one connection.
 */
#ifndef MUSTER_LAUNCHER_WORKER_CONN_H
#define MUSTER_LAUNCHER_WORKER_CONN_H

#include "base/buf.h"
#include "launcher/worker_socket.h"

#include <sys/un.h>

struct connection {
    uv_poll_t poll;
    struct worker_socket *w;
    int fd;
    int pid;
    struct buf in;
    struct buf out;
    bool said_hello;
    bool joined;       /* was let into collectives, and nobody after it */
    bool wants_comm;   /* asked, not answered yet */
    uint64_t id;       /* not given to another connection */
    bool wants_snap;   /* likewise, or the answer is not sent yet */
    bool has_snap;     /* `snap` is the answer */
    struct worker_snap snap;
    int snap_fd;       /* to go with it, or -1 */
    bool state_is_old; /* the newest state was not put into `out` yet */
    bool ends;         /* closed once `out` is sent */
    bool deaf;         /* the peer has closed; what it said before is still read */
    bool closing;
};

struct worker_socket {
    uv_loop_t *loop;
    uv_poll_t listener;
    uv_timer_t pause; /* of accepting, when descriptors run out */
    int fd;
    uint64_t n_connections; /* that ever were */
    int n_handles; /* open, of any kind: the last one frees this */
    bool closing;
    struct worker_welcome welcome;
    struct worker_state state;
    bool has_store;
    const struct worker_socket_ops *ops;
    void *arg;
    const struct segment *segment;
    struct connection *connections[WORKER_SOCKET_CONNECTIONS_MAX];
    struct sockaddr_un addr;
};

/* Sends what there is to say, and sets what to wait for. */
void worker_conn_update(struct connection *c);
/* Puts a message behind those that wait to be sent. */
void worker_conn_tell(struct connection *c, const struct worker_msg *m);
/* Ends a connection; `why` is "" for a plain close. */
void worker_conn_end(struct connection *c, const char *why);

/* A handle of the socket is closed: frees it with the last one. */
void worker_socket_drop(struct worker_socket *w);

#endif
