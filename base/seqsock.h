/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between processes of one user on one host, with descriptors: Unix
 * SOCK_SEQPACKET, so that a message is whole or absent. A message is a 16-bit
 * type and up to SEQSOCK_MAX bytes; what may be larger goes as a memfd.
 */
#ifndef MUSTER_BASE_SEQSOCK_H
#define MUSTER_BASE_SEQSOCK_H

#include "base/buf.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SEQSOCK_MAX = 64 * 1024,
    SEQSOCK_MAX_FDS = 5,
};

/* Each returns a descriptor (O_CLOEXEC; the listener and what it accepts
 * O_NONBLOCK) or a negative code. A stale socket at `path` is replaced: the
 * caller holds the lock that says it is stale. Accepting checks that the peer
 * is this user: -EPERM if not, -EAGAIN when nobody is there. */
int seqsock_listen(const char *path, struct error *e);
int seqsock_connect(const char *path, struct error *e);
int seqsock_accept(int fd, struct error *e);

/* Who connected: its pid as seen from here, 0 for one of another space of pids. */
int seqsock_peer(int fd);

struct seqsock_msg {
    uint16_t type;
    struct buf data;
    int fds[SEQSOCK_MAX_FDS]; /* -1 where there is none; owned */
};

/* Frees the bytes and closes the descriptors that are still there. */
void seqsock_msg_release(struct seqsock_msg *m);
#define _seqsock_msg_ __attribute__((cleanup(seqsock_msg_release)))

/* 0, or -errno; -EAGAIN if the peer does not read. `fds` stay the caller's. */
int seqsock_send(int fd, uint16_t type, const struct buf *data,
                 const int *fds, size_t n_fds);

/* 1 and a message; 0 at the end of the connection; -EAGAIN; -ERR_FORMAT for
 * one that is cut. `m` must be empty (zeroed is not: see seqsock_msg_init). */
int seqsock_recv(int fd, struct seqsock_msg *ret);
void seqsock_msg_init(struct seqsock_msg *m);

/* A sealed memfd with these bytes, and what lies in one (at most `max`). */
int seqsock_blob(const void *data, size_t len, struct error *e);
int seqsock_blob_read(int fd, size_t max, struct buf *ret, struct error *e);

#endif
