/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves a kv (kv.h) over HTTP/1.1 on a libuv loop: PUT, GET (404 as long as there
 * is nothing) and DELETE of /SCOPE/KEY. What HOROVOD_GLOO_RENDEZVOUS_ADDR and
 * _PORT of a generation's workers point to.
 *
 * Like the store (store_server.h) it has no authentication: connections come from
 * the addresses that it was told of, others are closed unread. A connection that
 * makes no request for too long, or never ends one, is closed. HTTP itself is
 * libmicrohttpd's work, on the loop's thread, without any file; that library is
 * opened when the first server is made, as few jobs want one.
 */
#ifndef MUSTER_RENDEZVOUS_KV_SERVER_H
#define MUSTER_RENDEZVOUS_KV_SERVER_H

#include "base/error.h"
#include "rendezvous/kv.h"

#include <stdint.h>
#include <uv.h>

struct kv_config {
    const char *address; /* numeric, to bind; NULL: every address, IPv6 and
                            IPv4 */
    uint16_t port;       /* 0: any that is free */
    struct kv_limits limits;
    unsigned max_conns;          /* 0: 16384 */
    unsigned request_timeout_ms; /* 0: 30000; since the connection, or the last
                                    request on it */
};

struct kv_server;

/* Whether this muster was built with libmicrohttpd. */
bool kv_server_is_built(void);

/* Binds and listens; nobody may connect before kv_server_set_allowed(). -ENOTSUP:
 * no libmicrohttpd, in the build or on this host; -EADDRINUSE and others as of
 * bind. The caller owns *ret. */
int kv_server_create(uv_loop_t *loop, const struct kv_config *config,
                     struct kv_server **ret, struct error *e);

uint16_t kv_server_port(const struct kv_server *srv);

/* As store_server_set_allowed(); connections that are there stay. */
int kv_server_set_allowed(struct kv_server *srv, const char *const *addresses,
                          size_t n, struct error *e);

/* Closes everything, frees from the loop. NULL is allowed. */
void kv_server_destroy(struct kv_server *srv);

#endif
