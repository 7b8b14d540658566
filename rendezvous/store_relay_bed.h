/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of relays and trunks: a store with keys, and nodes whose stores pass
 * requests on to it. What they have to say to each other goes over when the test
 * says so.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_RELAY_BED_H
#define MUSTER_RENDEZVOUS_STORE_RELAY_BED_H

#include "rendezvous/store_bed.h"

enum { N_NODES = 3, WHOLE = 1 << 30 /* a step: all there is */ };

struct relay_node {
    struct store *s;
    struct store_relay *relay;
    struct store_trunk *trunk; /* at the lead */
};

struct relay_bed {
    struct store *lead;
    struct relay_node nodes[N_NODES];
};

void relay_bed_make(struct relay_bed *b, const struct store_limits *limits);

/* With no connection left at the nodes. */
void relay_bed_end(struct relay_bed *b);

/* Node `i`, which has no connection left, is lost, and another in its place. */
void relay_bed_lose(struct relay_bed *b, int i);

/* What a node has to send, and what there is for it, in pieces of `step` bytes; true
 * if that was something. In between answers are collected. */
bool relay_bed_up(struct relay_node *n, size_t step);
void relay_bed_collect(struct relay_bed *b);
bool relay_bed_down(struct relay_node *n, size_t step);

/* Until there is nothing more to send. */
void relay_bed_pump(struct relay_bed *b, size_t step);

/* Asks at node `i`; the answer, once all have come to rest. */
int relay_bed_ask(struct relay_bed *b, int i, struct store_conn *c,
                  struct buf *in, struct buf *out);

void relay_bed_open(struct relay_bed *b, int i, struct store_conn **c, int n);
void relay_bed_close(struct relay_bed *b, int i, struct store_conn **c, int n);

/* What a store has been asked, and what its keys need. */
uint64_t relay_bed_requests(const struct store *s);
size_t relay_bed_used(const struct store *s);

/* Asks what is in `in`; nothing moves. */
void relay_bed_feed(struct relay_bed *b, int i, struct store_conn *c,
                    struct buf *in);
/* Checks that it is answered with `len` bytes, and nothing goes over a trunk for it. */
void relay_bed_is_known(struct relay_bed *b, int i, struct store_conn *c,
                        struct buf *in, size_t len, const char *name);

/* Whether a key has that value. */
bool relay_bed_reads(struct relay_bed *b, int i, struct store_conn *c,
                     const char *key, const char *value);
void relay_bed_set(struct relay_bed *b, int i, struct store_conn *c,
                   const char *key, const char *value);

unsigned relay_bed_random(unsigned *state, unsigned n); /* below n */

#endif
