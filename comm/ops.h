/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A way to run collectives. libmuster picks one implementation for a worker
 * and calls nothing but this table afterwards. Arguments were checked by then
 * (types, operations, root, size overflow), and calls come from one thread.
 *
 * All calls return 0, -ECONNABORTED when a member is gone, -EINVAL when the
 * members' calls differ, or another negative errno value.
 */
#ifndef MUSTER_COMM_OPS_H
#define MUSTER_COMM_OPS_H

#include "base/error.h"
#include "muster.h"

/* How to become a member. Descriptors are borrowed. */
struct comm_group {
    int rank;
    int world;
    int local_rank;
    int segment_fd; /* -1 for none */
    int event_fd;   /* -1 for none */
    int agent_fd;   /* its hangup means that the agent is gone */
};

struct comm_ops {
    const char *name;
    /* The caller owns *ret until destroy(). Does not wait for the others. */
    int (*init)(const struct comm_group *group, void **ret, struct error *e);
    int (*allreduce)(void *comm, const void *send, void *recv, size_t count,
                     enum muster_type type, enum muster_op op,
                     struct error *e);
    int (*broadcast)(void *comm, void *data, size_t len, int root,
                     struct error *e);
    int (*barrier)(void *comm, struct error *e);
    /* This process makes no more calls, but another one of the same worker may.
     * After a call that failed there is none to come. */
    void (*finish)(void *comm);
    /* Makes every member's calls fail with -ECONNABORTED, now and later. */
    void (*abort)(void *comm, const char *why);
    void (*destroy)(void *comm);
};

extern const struct comm_ops comm_solo; /* a world of one */
extern const struct comm_ops comm_shm;  /* shared memory, and MPI between nodes */

size_t comm_type_size(enum muster_type type); /* 0 for an unknown one */

#endif
