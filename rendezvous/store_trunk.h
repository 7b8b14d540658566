/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a trunk (store_frame.h) at the store: each channel is a connection
 * of the store, so that it gets what a client of its own would get. Pure, as
 * store_core.h.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_TRUNK_H
#define MUSTER_RENDEZVOUS_STORE_TRUNK_H

#include "rendezvous/store_core.h"
#include "rendezvous/store_patience.h"

struct store_trunk;

/* `owner` owns its connections (store_conn_owner()). NULL without memory. */
struct store_trunk *store_trunk_create(struct store *s, void *owner);
void store_trunk_destroy(struct store_trunk *t); /* NULL is allowed */

/* Bytes that came. On failure (-EPROTO, -EMSGSIZE, -ENOMEM) the caller
 * must destroy it; what a single channel does wrong closes that channel. */
int store_trunk_feed(struct store_trunk *t, const void *data, size_t len,
                     struct error *e);

/* The trunk whose channel a connection is, or NULL. */
struct store_trunk *store_conn_trunk(const struct store_conn *c);

/* Moves the answers of a connection that store_next_ready() gave into the
 * trunk's own, and resumes it where that is due. False without memory: destroy the trunk. */
bool store_trunk_collect(struct store_trunk *t, struct store_conn *c);

/* While it has not dropped what it was told to, others wait for it: who does not
 * answer is to be destroyed. */
struct store_debt store_trunk_debt(const struct store_trunk *t);

/* As store_take() and store_sent(). */
char *store_trunk_take(struct store_trunk *t, size_t *ret_len);
void store_trunk_sent(struct store_trunk *t, size_t len);

/* Its reader is behind: requests are held back, read no more from it. When it
 * has caught up, they are due, if there are any. */
bool store_trunk_held(const struct store_trunk *t);
bool store_trunk_has_held(const struct store_trunk *t);
int store_trunk_resume(struct store_trunk *t, struct error *e);

#endif
