/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks of one mpirun on several nodes tell each other who is where, without
 * an agent and without MPI: by files in a directory that all nodes see, where
 * mpirun was started or the home directory.
 *
 *   <dir>/.muster-mpi-<launch>/       0700
 *     r<rank>     the first rank of each node: how many there are, its own nonce
 *     all         rank 0, once all are there: where it is, and all nodes
 *     g<rank>     that rank has read it
 *
 * The names of launches come again (PMIx makes them of host and process id), so
 * what a crashed one has left must not be believed. Rank 0 empties the directory
 * before it looks for others, who put back what is missing; the first rank of a
 * node believes a list that has its nonce, the others one that has their daemon
 * with its port. Rank 0 removes the directory once all have read.
 */
#ifndef MUSTER_LAUNCHER_RANK_MEET_H
#define MUSTER_LAUNCHER_RANK_MEET_H

#include "base/addr.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "launcher/rank_env.h"

#include <stdbool.h>
#include <stdint.h>

/* --- the list (pure) --- */

struct meet_node {
    uint32_t rank;    /* its first */
    uint32_t n_ranks; /* on it */
    uint64_t nonce, daemon;
};

/* Zero-initialise; release. */
struct meet_list {
    char addr[ADDR_MAX]; /* of rank 0; "" where that is not told */
    uint16_t port;       /* free there */
    struct meet_node *nodes;
    uint32_t n;
};
void meet_list_release(struct meet_list *l);
#define _meet_list_ __attribute__((cleanup(meet_list_release)))

/* Adds a node, in the order of first ranks. False for a rank that is there, and
 * without memory. */
bool meet_list_add(struct meet_list *l, const struct meet_node *node);
/* How many ranks its nodes have. */
uint64_t meet_list_ranks(const struct meet_list *l);
void meet_list_print(const struct meet_list *l, struct buf *to);
/* -ERR_FORMAT unless it is whole; -ENOMEM. */
int meet_list_parse(const char *text, struct meet_list *ret);

/* --- the meeting --- */

/* Nobody needs one that was made, or written to, so long ago. */
enum { RANK_MEET_OLD_S = 7 * 86400 };

struct rank_meet {
    const struct rank_place *place;
    const struct strlist *dirs; /* rank_meet_dirs() */
    const char *addr;           /* rank 0 alone: where it is */
    uint16_t port;
    uint64_t timeout_ms;
};

struct rank_met {
    uint32_t node, n_nodes;
    char addr[ADDR_MAX];
    uint16_t port;
};

/* The directories of this launch in that where mpirun was started and in the home
 * directory, whether there are any or not. */
void rank_meet_dirs(const struct strlist *env, const struct rank_place *place,
                    struct strlist *to);

/* Waits for the others. -ETIMEDOUT, with what to do. Leaves nothing behind then,
 * and but for rank 0 in no case. */
int rank_meet(const struct rank_meet *m, struct rank_met *ret, struct error *e);

/* Rank 0, before it leaves: waits until all have read, no longer than for the
 * others at first, and removes what is left. */
void rank_meet_end(const struct rank_meet *m);

/* Removes what this rank has left, without waiting for anybody: for who sweeps up
 * after it. */
void rank_meet_clean(const struct rank_meet *m);

/* Removes old meetings of other launches beside `dir`, which was just made. */
void rank_meet_sweep(const char *dir);

#endif
