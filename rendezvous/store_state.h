/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the store: what store_core.c (connections, answers, waits, the stream
 * of requests) and store_commands.c (what each command does) share. Nobody else
 * includes this.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_STATE_H
#define MUSTER_RENDEZVOUS_STORE_STATE_H

#include "base/buf.h"
#include "rendezvous/store_core.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_share.h"
#include "rendezvous/store_table.h"
#include "rendezvous/store_wire.h"

struct store_conn {
    struct store *store;
    void *owner;
    struct store_conn *prev; /* of all connections */
    struct store_conn *next;
    struct store_conn *ready_prev; /* of those with answers to send */
    struct store_conn *ready_next;
    bool is_ready;
    bool broken;
    bool validated;
    enum store_dialect dialect;
    struct buf in; /* from the first byte of the request under `scan` */
    struct store_scan scan;
    uint64_t n_requests;
    struct buf out;
    size_t taken_bytes;
    struct wait *waits; /* the keys of its wait; NULL when it does not wait */
    size_t n_waits;
    size_t n_awaited; /* of them not there yet */
    /* One of a trunk's (store_trunk.h). */
    struct store_trunk *trunk;
    uint32_t channel;
    struct store_conn *control; /* of that trunk */
    uint32_t n_sharing; /* clients that share its one wait; 0: is a client */
    struct relayed *relayed; /* where requests are passed on (store_relay.h) */
    /* Of a trunk, on which its ends say what is kept (store_share.h). */
    bool is_control;
    uint32_t reader; /* that trunk's number */
    /* The next request has to wait until this is not kept any more. */
    struct share *blocked;
    struct store_conn *blocked_prev;
    struct store_conn *blocked_next;
    bool is_due; /* it had to, and does not any more */
};

struct store {
    struct store_limits limits;
    struct table table;
    size_t buffered_bytes; /* in the connections' buffers */
    struct store_conn *conns;
    struct store_conn *ready;
    struct store_conn *last_ready;
    size_t n_conns;
    size_t n_waiting;
    uint64_t n_requests;
    uint64_t n_frames_in;
    uint64_t n_frames_out;
    struct shares shares;      /* of its keys, with the relays of others */
    struct store_relay *relay; /* passes requests on, or NULL */
    struct kept_keys kept;     /* then: the keys here */
};

/* Does what a complete request asks for, answers it, and wakes those who waited
 * for that. The connection waits for nothing when it is called. A failure closes
 * the connection. */
int store_run_command(struct store *s, struct store_conn *c,
                      struct store_request *r, struct error *e);

/* What a request would add must fit into what is left: 0 or -ENOMEM. */
int store_check_room(const struct store *s, size_t n, struct error *e);
int store_no_memory(struct error *e);

/* Adds to the answers of a connection. -EMSGSIZE: it does not read them. */
int store_reply(struct store *s, struct store_conn *c, const void *data,
                size_t len, struct error *e);
/* A word that others wait for, also where the store is full. */
int store_say(struct store *s, struct store_conn *c, const void *data,
              size_t len, struct error *e);
int store_reply_u8(struct store *s, struct store_conn *c, uint8_t v,
                   struct error *e);
int store_reply_i64(struct store *s, struct store_conn *c, int64_t v,
                    struct error *e);
int store_reply_blob(struct store *s, struct store_conn *c, const char *data,
                     size_t len, struct error *e);

/* A wait for at most `n` keys: begun, given its keys, and forgotten (or nothing
 * to forget). False without memory. */
bool store_begin_wait(struct store *s, struct store_conn *c, size_t n);
void store_await(struct store *s, struct store_conn *c, struct slot *slot);
void store_end_wait(struct store *s, struct store_conn *c);

/* There was no memory for an answer: whoever serves the connection closes it. */
void store_break(struct store *s, struct store_conn *c);

/* What had to wait can be done: whoever serves it calls store_resume(). */
void store_make_due(struct store *s, struct store_conn *c);

/* A trunk's channel for words, which counts as no connection. */
struct store_conn *store_open_control(struct store *s, void *owner);

/* The key of a slot is there now: tells all who waited for it; or, for one item
 * of a queue, the first who waits for nothing else. */
void store_wake_all(struct store *s, struct slot *slot);
void store_wake_one(struct store *s, struct slot *slot);

#endif
