/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many processes a node runs: pure arithmetic over what the caller found
 * out about the node.
 */
#ifndef MUSTER_SPEC_PROCS_H
#define MUSTER_SPEC_PROCS_H

#include "base/error.h"
#include "spec/job.h"

#include <stdint.h>

struct procs_node {
    uint32_t n_cpus;     /* in the affinity mask */
    int64_t quota_us;    /* of the cgroup's CPU time; below 1: no quota */
    int64_t period_us;
    uint32_t n_gpus;     /* devices that are there */
    uint32_t slots;      /* of the list of hosts, or Slurm's; 0: nothing says */
    const char *visible; /* CUDA_VISIBLE_DEVICES or the like; NULL: not set */
};

/* CPUs that may be used: the mask, or what the quota pays for, rounded up; at
 * least 1. */
uint32_t procs_cpus(const struct procs_node *node);

/* GPUs that may be used: all, or those of the list. As CUDA reads it, the list
 * ends at the first entry that is no device; MIG and UUID names count. */
uint32_t procs_gpus(const struct procs_node *node);

/* 0 and the number; or -ENODEV where `gpu` was asked for and there is none. Slots
 * come before what the node has, but for `gpu`. */
int procs_count(const struct job_procs *procs, const struct procs_node *node,
                uint32_t *ret, struct error *e);

#endif
