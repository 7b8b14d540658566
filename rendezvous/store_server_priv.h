/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the store's server. Nobody else includes this.
 *
 *   store_server.c  clients, and the life of it all
 *   store_listen.c  where clients come from
 *   store_branch.c  trunks that come: many clients of another node each
 *   store_uplink.c  the trunk of a server that has no keys, to where they are
 *   store_line.c    what the two ends of a trunk share: bytes over a link
 */
#ifndef MUSTER_RENDEZVOUS_STORE_SERVER_PRIV_H
#define MUSTER_RENDEZVOUS_STORE_SERVER_PRIV_H

#include "base/addr.h"
#include "rendezvous/allow.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_trunk.h"
#include "rendezvous/store_turn.h"

enum { STORE_READ_BYTES = 64 * 1024, STORE_KEEPALIVE_S = 60 };

struct client {
    uv_tcp_t tcp;
    struct store_server *srv;
    struct store_conn *conn; /* NULL once closing */
    struct client *prev;
    struct client *next;
    bool is_held;      /* not read from */
    uint64_t request;  /* that has begun to come, or 0 */
    uint64_t since_ms; /* when its first byte came */
    char peer[ADDR_MAX];
};

struct listener {
    uv_tcp_t tcp;
    struct store_server *srv;
    struct listener *next;
    bool pending; /* a connection waits, for which there was no memory */
};

struct answer {
    uv_write_t request;
    struct client *client;
    char *data;
    size_t len;
};

struct store_server {
    uv_loop_t *loop;
    struct store *store;
    struct store_config config;
    struct listener *listeners;
    struct client *clients;
    size_t n_held;                 /* of them */
    struct store_branch *branches; /* the trunks that have come */
    struct store_branch *due;      /* of them, who have something to send */
    struct store_uplink *uplink;   /* NULL: this is where the keys are */
    uv_timer_t sweep; /* runs while something is overdue or may become so */
    uv_timer_t patience; /* runs while trunks have to drop something */
    struct store_turn turn; /* when answers are sent */
    uint16_t port;
    struct allow allowed;
    size_t n_handles;       /* libuv still knows of */
    bool destroyed;
    void (*done)(void *ctx);
    void *done_ctx;
    char read_buffer[STORE_READ_BYTES];
};

/* --- store_server.c --- */

/* One handle of the server's is closed. */
void store_server_handle_gone(struct store_server *srv);

/* The callback may close others or reset. */
void store_server_tell_refused(struct store_server *srv, const char *peer,
                               const char *why);

/* Sends what everybody has to be told, and goes on with what was held back until
 * that was sent. For callbacks behind which the loop may wait. */
void store_server_turn(struct store_server *srv);

/* Takes the client who waits there; again soon, where there is no memory for it. */
void store_server_accept(struct listener *listener);

/* The trunk is lost: no client has a store any more. That is no news: it goes at
 * the end of each generation, and with a node, of which others tell. */
void store_server_lost(struct store_server *srv);

/* --- store_listen.c --- */

/* On these, which end with NULL, or, where there is none, on all that this host has. Sets
 * the port. */
int store_listen(struct store_server *srv, const char *const *addresses,
                 struct error *e);
void store_listen_end(struct store_server *srv);

/* --- store_branch.c --- */

/* Answers of one of a trunk's clients are due. */
void store_branch_collect(struct store_branch *b, struct store_conn *conn);

/* Sends what trunks have to be told. True if requests that were held back may have
 * led to more answers. */
bool store_branches_send(struct store_server *srv);

/* Asks which trunks do not answer. */
void store_branches_look(struct store_server *srv);

void store_branches_close(struct store_server *srv);

/* --- store_uplink.c --- */

/* Connects, and tries again until it is connected. */
int store_uplink_open(struct store_server *srv,
                      const struct store_upstream *to, struct error *e);

/* What the clients have asked for since. */
void store_uplink_flush(struct store_uplink *up);

/* After the clients, before the store. NULL is allowed. */
void store_uplink_close(struct store_uplink *up);

#endif
