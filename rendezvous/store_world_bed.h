/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of stores for a test: three nodes, and the store that has the keys. What goes
 * over the trunks is handed on in pieces, when the test says so.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_WORLD_BED_H
#define MUSTER_RENDEZVOUS_STORE_WORLD_BED_H

#include "base/buf.h"
#include "rendezvous/store_history_bed.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_trunk.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    N_NODES = 3,
    PER_NODE = 2,
    N_PLAYERS = N_NODES * PER_NODE + 1, /* the last one where the keys are */
    LEAD = N_NODES,
    PIPELINE = 3,
};

struct node {
    struct store *s;
    struct store_relay *relay;
    struct store_trunk *trunk;
    struct buf up, down; /* on their way */
};

struct player {
    struct store_conn *conn;
    int node;
    unsigned id; /* of a client: another one when its node was lost */
    unsigned pending[PIPELINE]; /* operations that will be answered, in order */
    unsigned n_pending;
    bool waits, cancels;
    struct buf out;
};

struct world {
    struct store *keys;
    struct node nodes[N_NODES];
    struct player players[N_PLAYERS];
    struct history h;
    uint64_t now;
    unsigned state, n_ids;
    int slow; /* a node that is seldom its turn */
};

void world_begin(struct world *w, unsigned seed,
                 const struct store_limits *limits);
/* Whether nothing is left in any store. Players are gone before. */
bool world_end(struct world *w);

/* Less than n, by the seed. */
unsigned world_draw(struct world *w, unsigned n);
/* That of a player. */
struct store *world_store(struct world *w, const struct player *p);

/* What the store with the keys has to say goes into the trunks. */
void world_collect(struct world *w);
/* At most so many bytes, from a node and to it; whether there were any. */
bool world_up(struct node *n, size_t most);
bool world_down(struct node *n, size_t most);
/* A new connection, with what was on its way on the old one lost. */
void world_rejoin(struct world *w, struct node *n);

#endif
