/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bed of the tree's tests: a world of members in one process, over real
 * sockets on loopback, that counts what each is told. The tree is
 * 0 -> (1 -> (3, 4), 2 -> (5, 6)), and 0 is the lead.
 */
#ifndef MUSTER_RENDEZVOUS_TREE_BED_H
#define MUSTER_RENDEZVOUS_TREE_BED_H

#include "rendezvous/tree.h"

enum { BED_NODES = 7, BED_ARITY = 2, BED_AGE_MS = 5000 };

/* Nobody is lost who is only slow: under valgrind all of them are. */
unsigned bed_lease_ms(void);

extern const uint8_t bed_key[CHANNEL_KEY_BYTES];

struct node {
    struct world *world;
    struct link_listener *listener;
    struct tree *tree;
    uint32_t rank;
    char order[32];
    char config[32];
    uint64_t age_ms; /* that it came with */
    char asked[32];
    char refused[256];
    int n_uplinks, n_words, n_refused, n_configs, n_drained;
    uint64_t word_age;
    struct tree_word word;
    struct tree_seen seen;
    bool top;
    bool dead[BED_NODES];
    int follows[BED_NODES]; /* each is its rank, as a digit */
    bool blocked;
};

struct world {
    uv_loop_t loop;
    struct roster roster;
    struct node nodes[BED_NODES];
    const char *version; /* of those that join from here on; NULL: "v" */
    int reports[BED_NODES]; /* at the lead, by rank */
    int events[BED_NODES];
    int events_then[BED_NODES]; /* when the newest report of that rank came */
    int lost[BED_NODES];
    struct tree_loss loss[BED_NODES];
    int here[BED_NODES];
    uint16_t front_port;    /* for who joins next; 0: none */
    struct rogue *rogue;    /* the last that has spoken (tree_bed_rogue.h) */
    void *own;              /* what the test's conditions need */
    bool timed_out;
};

/* Listeners for all, but no member yet; the end of all of them, which is a test
 * case: nothing is left behind. */
void bed_open(struct world *w);
void bed_close(struct world *w);

void bed_join(struct world *w, uint32_t rank, const char *run_id);
void bed_leave(struct world *w, uint32_t rank);
/* Members that join before and after, deep ones first; then "config" and
 * "order 1" for all. Two test cases. */
void bed_start_all(struct world *w);

/* Four bytes: the rank. */
void bed_report(struct world *w, uint32_t rank);
void bed_publish(struct world *w, const char *order);

/* Runs the loop; false if that takes a minute. */
bool bed_run_until(struct world *w, bool (*until)(struct world *w));

#endif
