/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves a store (store_core.h) over TCP on a libuv loop: what MASTER_ADDR and
 * MASTER_PORT of a generation's workers point to.
 *
 * The protocol has no authentication, so the server takes connections only from
 * addresses that it was told of and closes any other before reading a byte from
 * it. Memory is bounded by the limits of the store; a client that does not read
 * its answers is not read from; a request that was begun must be finished
 * within a deadline. A connection that is silent between requests may stay for
 * ever (that is how the clients use it).
 *
 * Loop rules: everything runs on the loop's thread. Callbacks may call anything
 * here except store_server_destroy().
 */
#ifndef MUSTER_RENDEZVOUS_STORE_SERVER_H
#define MUSTER_RENDEZVOUS_STORE_SERVER_H

#include "base/link.h"
#include "rendezvous/store_core.h"

#include <uv.h>

struct store_upstream {
    char *const *addrs; /* numeric, NULL-terminated; for the call */
    uint16_t port;      /* of a listener for links (base/link.h) */
    const uint8_t *key; /* of the run; borrowed until the server is destroyed */
    uint32_t rank;      /* of this agent, and the generation of its workers: what */
    uint32_t generation; /* that listener is told in a struct store_hello */
};

struct store_config {
    const char *const *addresses; /* numeric, to bind; NULL-terminated. NULL:
                                     every address, IPv6 and IPv4 */
    uint16_t port;                /* 0: any that is free on all addresses */
    /* Where the keys are: this server passes requests on to the one there
     * (store_relay.h), over a trunk. It takes clients while that is not up yet;
     * when it is lost, or was not up in 300 s, it closes them all, and its port.
     * NULL: the keys are here, for clients and for the trunks of others. */
    const struct store_upstream *upstream;
    struct store_limits limits;
    size_t max_conns;             /* 0: 65536 */
    uint64_t request_timeout_ms;  /* 0: 120000; from its first byte */
    /* What a trunk was told to drop others wait for: after so long without an
     * answer, at most twice, it is closed. 0: 30000. */
    uint64_t trunk_timeout_ms;

    /* Told of each connection that the server closed and why (not allowed, too
     * many, broken request); may be NULL. */
    void (*on_refused)(void *ctx, const char *peer, const char *why);
    /* Told once, where there is no trunk after 10 s; may be NULL. */
    void (*on_unreached)(void *ctx, const char *why);
    void *ctx;
};

struct store_server;

/* Binds and listens. Until store_server_set_allowed() nobody may connect.
 * -EADDRINUSE, -EADDRNOTAVAIL, ... as of bind; the caller owns *ret. */
int store_server_create(uv_loop_t *loop, const struct store_config *config,
                        struct store_server **ret, struct error *e);

uint16_t store_server_port(const struct store_server *srv);

/* Numeric addresses of the hosts that may connect, replacing those of before; a
 * host with several addresses needs all from which it may come, and this host
 * its own and the loopback ones. "*" allows everybody. Connections from hosts
 * that are no longer allowed are closed. On failure (-EINVAL: no address) the
 * old ones stay. */
int store_server_set_allowed(struct store_server *srv,
                             const char *const *addresses, size_t n,
                             struct error *e);

/* A link from such a server, whose first frame was a STORE_LINE_HELLO of that rank
 * (store_line.h): takes it over. One of the same rank that was there before is
 * closed. They are neither asked for their address nor counted as connections. */
void store_server_add_trunk(struct store_server *srv, struct link *l,
                            uint32_t rank);
size_t store_server_trunks(const struct store_server *srv);

/* For a new generation: closes all connections and forgets all keys; goes on
 * listening on the same port. */
void store_server_reset(struct store_server *srv);

void store_server_stats(const struct store_server *srv,
                        struct store_stats *ret);

/* As store_awaited(). */
void store_server_awaited(const struct store_server *srv, store_awaited_f *f,
                          void *arg);

/* Closes everything; `done` (may be NULL) is called from the loop when the
 * memory is gone. `srv` must not be used after this call. NULL is allowed and
 * calls `done` at once. */
void store_server_destroy(struct store_server *srv, void (*done)(void *ctx),
                          void *ctx);

#endif
