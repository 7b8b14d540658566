/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key-value store that PyTorch's TCPStore clients speak to, as a pure state
 * machine: bytes of a connection in, bytes to connections out. No sockets, no
 * clock; store_server.h puts it on the network.
 *
 * Wire. A request is one byte of command and its fields: a count or length is
 * 64 bits, a key or value is a length and its bytes, all in the byte order of
 * the machine (the protocol was made for machines of one kind). There is no
 * frame around it: where a request ends is known only from its fields, so a
 * length is checked against the limits as soon as it is read.
 *
 * Two dialects are told apart by the first bytes of a connection. Clients since
 * PyTorch 2.1 open with command 0 and a fixed number, then a ping. Older ones
 * (1.13, 2.0) start with their first request, and their commands 0 to 6 have
 * the numbers that became 1 to 7. They also hold a second connection on which
 * they say nothing for ever, and abort when it is closed.
 *
 * Waiting. WAIT (and BARRIER) are answered when the last awaited key appears;
 * timeouts are the client's: it gives up with CANCEL_WAIT (new) or just sends
 * its next request (old). A connection has at most one wait, and any further
 * request on it ends that.
 *
 * What a client gets for what torch's own server answers with a closed
 * connection (unknown command, ADD to something that is not a number) is a
 * closed connection here too.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_CORE_H
#define MUSTER_RENDEZVOUS_STORE_CORE_H

#include "base/cleanup.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero means the default. */
struct store_limits {
    size_t key_bytes;      /* one key: 64 KiB */
    size_t value_bytes;    /* one value as sent: 64 MiB */
    size_t request_bytes;  /* one whole request: 256 MiB */
    size_t request_keys;   /* keys of one request: 128 Ki */
    size_t reply_bytes;    /* answers that a client has not read: 256 MiB */
    size_t memory_bytes;   /* all of it together: 1 GiB */
    size_t pipeline_bytes; /* unread answers from which on a client's further
                              requests wait: 1 MiB */
    size_t kept_bytes;     /* at a relay, of the keys of another: 64 MiB */
};

struct store;
struct store_conn;

/* `seed` keys the hash table: random bytes in production. NULL without memory. */
struct store *store_create(const struct store_limits *limits,
                           const uint8_t seed[16]);

/* NULL is allowed. All connections must have been closed. */
void store_destroy(struct store *s);

DEFINE_CLEANUP(store);

/* Forgets every key, queue and wait; connections stay. There must be no trunk. */
void store_clear(struct store *s);

/* A new connection; `owner` is the caller's. NULL without memory. */
struct store_conn *store_open(struct store *s, void *owner);

/* Forgets a connection and its wait; it must not be used again. */
void store_close(struct store *s, struct store_conn *c);

/* Bytes that came. Answers appear on this and, where it ends their waits, on
 * other connections: see store_next_ready(). On failure (-EPROTO, -EMSGSIZE,
 * -ENOMEM) the caller must close the connection; its answers so far may still
 * be sent. */
int store_feed(struct store *s, struct store_conn *c, const void *data,
               size_t len, struct error *e);

/* Goes on with requests that were held back by unread answers; as
 * store_feed(). */
int store_resume(struct store *s, struct store_conn *c, struct error *e);

/* The next connection that has answers to send, oldest first, or NULL. It is
 * not returned again before new answers come. */
struct store_conn *store_next_ready(struct store *s);

void *store_conn_owner(const struct store_conn *c);

/* The answers (borrowed until the next call on the store), and what of them the
 * network has taken at once. */
const char *store_answers(const struct store_conn *c, size_t *ret_len);
void store_sent_now(struct store *s, struct store_conn *c, size_t len);

/* Takes the answers, to be freed by the caller with free(). They count as
 * unread until store_sent(). NULL if there are none. */
char *store_take(struct store_conn *c, size_t *ret_len);
void store_sent(struct store *s, struct store_conn *c, size_t len);

/* There was no memory for an answer to this connection: close it. */
bool store_conn_broken(const struct store_conn *c);

/* Requests are held back: read no more from it until answers were sent. */
bool store_conn_held(const struct store_conn *c);

/* One that store_next_ready() gave has requests that had to wait, and need not any
 * more: store_resume() is due. */
bool store_conn_due(const struct store_conn *c);

/* The number (from 1) of the request of which some but not all bytes have come;
 * 0 between requests. */
uint64_t store_conn_partial(const struct store_conn *c);

/* Calls `f` for each key that somebody waits for, once for each who does, also
 * where they share a trunk. */
typedef void store_awaited_f(void *arg, const char *key, size_t len);
void store_awaited(const struct store *s, store_awaited_f *f, void *arg);

struct store_stats {
    size_t n_keys;
    size_t n_conns;
    size_t n_waiting; /* connections in a wait */
    size_t used_bytes;
    uint64_t n_requests;
    uint64_t n_frames_in; /* of trunks; and to them */
    uint64_t n_frames_out;
};
void store_get_stats(const struct store *s, struct store_stats *ret);

#endif
