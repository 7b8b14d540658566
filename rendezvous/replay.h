/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps the protocol core through a log (steps.h), and compares what it says with what
 * it said then, byte by byte. Then what the logs of all agents of a run say together:
 *
 *  - serials of a lead's orders rise, and its generations do not fall;
 *  - a member starts each generation once, and none after a newer one;
 *  - a view has one lead;
 *  - a generation has one lead, and is of no two views that are led by different ones;
 *  - in a later view no generation runs that ran, or was followed, in an earlier one.
 */
#ifndef MUSTER_RENDEZVOUS_REPLAY_H
#define MUSTER_RENDEZVOUS_REPLAY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An order to run, as it was published by a lead or carried out by a member. */
struct replay_run {
    uint32_t rank; /* of the agent */
    bool started;
    uint32_t view, lead, generation; /* view 0: nobody else can lead */
};

/* What was found in all logs so far; zero at first. */
struct replay {
    struct replay_run *runs; /* owned */
    size_t n_runs, cap_runs;
    uint64_t n_steps;
    uint32_t n_leads; /* that have begun */
};

void replay_release(struct replay *r);

/* One log. 0; -EINVAL, worded, where the core says something else or a rule is
 * broken; what steps_next() gives; -ENOMEM. */
int replay_log(struct replay *r, const void *data, size_t len, struct error *e);

/* When all logs are in: 0 or -EINVAL. */
int replay_check(const struct replay *r, struct error *e);

#endif
