/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the store's server: what store_server.c (clients) and store_uplink.c
 * (the trunk to where the keys are) share. Nobody else includes this.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_SERVER_PRIV_H
#define MUSTER_RENDEZVOUS_STORE_SERVER_PRIV_H

#include "base/addr.h"
#include "rendezvous/allow.h"
#include "rendezvous/store_frame.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_trunk.h"

enum { STORE_READ_BYTES = 64 * 1024, STORE_KEEPALIVE_S = 60 };

struct client {
    uv_tcp_t tcp;
    struct store_server *srv;
    struct store_conn *conn; /* NULL once closing */
    struct store_trunk *trunk; /* many clients in one, or NULL */
    struct client *next_due;   /* of the trunks that have something to send */
    bool is_due;
    bool is_known; /* to be a trunk or not, by its first bytes: */
    char hello[STORE_TRUNK_HELLO_BYTES];
    size_t n_hello;
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
    struct client *due;
    struct store_uplink *uplink; /* NULL: this is where the keys are */
    uv_timer_t sweep; /* runs while something is overdue or may become so */
    uv_check_t answers; /* sends them once a turn of the loop has read */
    uint16_t port;
    struct allow allowed;
    size_t n_handles;       /* libuv still knows of */
    bool destroyed;
    void (*done)(void *ctx);
    void *done_ctx;
    char read_buffer[STORE_READ_BYTES];
};

/* One handle of the server's is closed. */
void store_server_handle_gone(struct store_server *srv);

/* Requests that were held back by the uplink are due. */
void store_server_go_on(struct store_server *srv);

/* The uplink is lost: no client has a store any more. That is no news: it goes at
 * the end of each generation, and with a node, of which others tell. */
void store_server_lost(struct store_server *srv);

/* Connects, and tries again until it is connected. */
int store_uplink_open(struct store_server *srv, const char *address,
                      uint16_t port, struct error *e);

/* What the clients have asked for since. */
void store_uplink_flush(struct store_uplink *up);

/* NULL is allowed. */
void store_uplink_close(struct store_uplink *up);

/* When all handles are gone and all clients closed. NULL is allowed. */
void store_uplink_free(struct store_uplink *up);

#endif
