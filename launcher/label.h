/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands before a line of a worker on the screen: the job's prefix
 * (spec/log_prefix.h) with the worker's own values. Pure.
 */
#ifndef MUSTER_LAUNCHER_LABEL_H
#define MUSTER_LAUNCHER_LABEL_H

#include "base/buf.h"
#include "launcher/status.h"

#include <stdbool.h>
#include <stdint.h>

struct label {
    const char *prefix;              /* logs.prefix */
    const char *run;                 /* its id */
    const struct run_status *status; /* the newest, or NULL */
    uint64_t wall_ns;                /* when the line came */
    uint32_t generation, node, rank;
    bool is_err;
    /* Of a line that several ranks printed: their set, and how many they are. */
    const char *ranks; /* NULL: only `rank` did */
    uint32_t n_ranks;
    bool has_many_nodes;
};

/* Values that the ranks of a set do not share are "*". A set whose ranks the prefix
 * does not name has "(x8) " behind it. */
void label_write(const struct label *l, struct buf *to);

#endif
