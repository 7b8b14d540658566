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
};

void label_write(const struct label *l, struct buf *to);

#endif
