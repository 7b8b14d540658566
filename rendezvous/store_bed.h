/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the store's core: requests, byte for byte as the clients of
 * PyTorch 1.13 (old) and 2.13 (new) send them, and what they are answered.
 * Lengths on the wire are in the byte order of the machine, so they are built
 * here, not spelled.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_BED_H
#define MUSTER_RENDEZVOUS_STORE_BED_H

#include "base/buf.h"
#include "rendezvous/store_core.h"
#include "rendezvous/store_wire.h"

/* As bed_req() wants its numbers. */
#define N(v) ((uint64_t)(v))

void bed_put(struct buf *b, const void *data, size_t len);
void bed_put_u64(struct buf *b, uint64_t v);
void bed_put_blob(struct buf *b, const char *s);
/* A command and its fields: s a key or value, n a 64-bit number, u the number
 * of VALIDATE or PING. */
void bed_req(struct buf *b, int command, const char *fields, ...);

struct store *bed_store(const struct store_limits *limits);
/* A connection that has sent VALIDATE. */
struct store_conn *bed_open(struct store *s);
/* Feeds and empties `in`; the answer is in `out`. Returns what the store
 * does. */
int bed_ask(struct store *s, struct store_conn *c, struct buf *in,
            struct buf *out);
/* Takes what `c` was answered, as if it were sent at once. */
void bed_take(struct store *s, struct store_conn *c, struct buf *to);

/* A test case. */
bool bed_is(const struct buf *got, const struct buf *want, const char *name);

#endif
