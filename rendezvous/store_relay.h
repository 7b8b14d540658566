/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store without keys, that of an agent with `store: tree`: its clients' requests
 * go over one trunk (store_frame.h) to the store of rank 0's node, and what comes
 * back goes to them. Pure, as store_core.h: the agent's clients are connections
 * of a `struct store`, which asks here instead of doing what they ask for.
 *
 * A client has a channel of its own from the first request on that needs it;
 * VALIDATE and PING are answered here, and what it wants to know of keys that are
 * kept here (store_share.h). Equal waits that begin between two writes
 * to the trunk share one channel. Those that begin later do not join: the answer
 * might be on its way, and older than they. Nor does a client with requests
 * under way, which might overtake them, and others too: they may have to wait.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_RELAY_H
#define MUSTER_RENDEZVOUS_STORE_RELAY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct store;
struct store_conn;
struct store_relay;
struct store_request;

/* From now on `s`, which has no connections yet, passes requests on. NULL without
 * memory. It must be destroyed before the store, when its connections are
 * closed. */
struct store_relay *store_relay_create(struct store *s);
void store_relay_destroy(struct store_relay *relay); /* NULL is allowed */

/* Bytes that came over the trunk. Answers appear on connections of the store
 * (store_next_ready()). On failure (-EPROTO, -ENOMEM) the trunk is of no use. */
int store_relay_feed(struct store_relay *relay, const void *data, size_t len,
                     struct error *e);

/* What is to be sent over the trunk: to be freed by the caller with free(), NULL
 * if there is nothing; and what was sent of it. */
char *store_relay_take(struct store_relay *relay, size_t *ret_len);
void store_relay_sent(struct store_relay *relay, size_t len);

/* So much is not sent yet, or not answered of what this client has asked, that it
 * has to wait with its requests. */
bool store_relay_held(const struct store_relay *relay,
                      const struct store_conn *c);

/* For store_core.c: a request that is complete, `len` bytes long, or a word about
 * what is kept; and the end of a connection. */
int store_relay_request(struct store_relay *relay, struct store_conn *c,
                        struct store_request *r, size_t len, struct error *e);
int store_relay_word(struct store_relay *relay, struct store_request *r,
                     struct error *e);
void store_relay_forget(struct store_relay *relay, struct store_conn *c);

#endif
