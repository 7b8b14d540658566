/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of collectives of one node: its workers, each a process; the
 * test is their agent. Under ThreadSanitizer, which sees one process only,
 * workers are threads, and what needs a process to die is left out.
 */
#ifndef MUSTER_COMM_SHM_BED_H
#define MUSTER_COMM_SHM_BED_H

#include "comm/ops.h"
#include "comm/segment.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __SANITIZE_THREAD__
enum { NODE_THREADS = 1 };
#else
enum { NODE_THREADS = 0 };
#endif

enum { N_MAX = 64 };

struct member {
    struct comm_group group;
    _Atomic uint64_t *board; /* shared by all: a place each, 0 at first */
    int arg;
    int (*body)(struct member *m, void *comm);
    int result;
    pid_t pid;
    pthread_t thread;
};

/* A node: segment, members, and what they share with the test. */
struct node {
    struct segment *seg;
    int n;
    int agent_ends[N_MAX];
    _Atomic uint64_t *board;
    struct member members[N_MAX];
};

/* A test that takes 10 minutes from the last one of these on is ended. */
void node_open(struct node *node, int n);
void node_close(struct node *node);
/* All members run `body`, with `arg` in their struct. */
void node_start(struct node *node, int (*body)(struct member *, void *),
                int arg);
/* The result of one member: 0, -errno, or -1000 - signal. */
int node_finish(struct node *node, int i);
/* A test case each. */
void node_finish_all(struct node *node, int want, const char *name);

/* In a member: a call whose values are checked. */
int node_allreduce(struct member *m, void *comm, size_t count,
                   enum muster_type type, enum muster_op op, bool in_place);
/* A body: sums that depend on the order, whose bits it leaves on the board. */
int node_bits(struct member *m, void *comm);

#endif
