/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the store's server: on loopback, with blocking clients on plain
 * sockets. A client's call lets the loop run until its answer is there.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_NET_BED_H
#define MUSTER_RENDEZVOUS_STORE_NET_BED_H

#include "base/buf.h"
#include "rendezvous/store_server.h"

#include <sys/types.h>

enum { NET_WAIT_MS = 60000 };

static const char net_validate[] = "\0\xce\xf7\x85<";

struct net_refusals {
    int n;
    char why[256];
    struct store_server *reset; /* what the callback does in return */
};

/* On loopback and for it, where `config` does not say. */
struct store_server *net_serve(uv_loop_t *loop, struct store_config *config,
                               struct net_refusals *refusals);

/* Destroys it and ends the loop, two checks. */
void net_stop(uv_loop_t *loop, struct store_server *srv);

int net_dial(const struct store_server *srv);
void net_send(uv_loop_t *loop, int fd, const void *data, size_t len);

/* `want` bytes, or fewer at the end of the connection; -1 without either. */
ssize_t net_receive(uv_loop_t *loop, int fd, char *to, size_t want);
bool net_is_closed(uv_loop_t *loop, int fd);

/* Requests: of a key and a value (or NULL), and a wait for one key. */
void net_put(struct buf *b, char command, const char *key, const char *value);
void net_put_wait(struct buf *b, const char *key);

/* Until `n` connections wait. */
bool net_until_waiting(uv_loop_t *loop, struct store_server *srv, size_t n);

#endif
