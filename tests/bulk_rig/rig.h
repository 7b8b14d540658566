/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of bulk_rig. */
#ifndef MUSTER_TESTS_BULK_RIG_RIG_H
#define MUSTER_TESTS_BULK_RIG_RIG_H

#include "base/error.h"

#include <stdint.h>

enum {
    NODES_MAX = 16,
    WORKERS_MAX = 16, /* on a node */
    LIFE_S = 180,
    ATTACH_S = 20,
    BODY_UNBORN = -1, /* the last worker dies before it joins */
    BODY_QUITS = -2,  /* a node without workers leaves the group at once */
};

struct worker {
    int rank;
    int world;
    int node;
    int local_rank;
    int n_local;
    int n_nodes;
    const char *dir;
    const struct body *body;
    void *comm;
};

/* What all workers of a rig do. */
struct body {
    const char *name;
    int (*run)(struct worker *w, struct error *e);
    int arg;
};

const struct body *body_find(const char *name); /* NULL: none */

int node_main(const char *dir, int node, const char *layout,
              const struct body *body);

/* What became of a worker, for the test. */
void node_write_result(const struct worker *w, int rc, const char *text);

/* One group after the other, under consecutive tags; NULL ends them. */
int mover_main(char **dirs, uint32_t tag);

/* From now on calls of MPI are counted. */
void fault_arm(int node);

#endif
