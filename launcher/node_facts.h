/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this node has for workers: CPUs by affinity mask and cgroup quota (v1 and
 * v2), GPUs by their device files and what the environment makes visible.
 */
#ifndef MUSTER_LAUNCHER_NODE_FACTS_H
#define MUSTER_LAUNCHER_NODE_FACTS_H

#include "base/str.h"
#include "spec/procs.h"

/* `env` is the user's; may be NULL. ret->visible is borrowed from it or from
 * this process's environment. Never fails: what cannot be found out is not
 * there. */
void node_facts(const struct strlist *env, struct procs_node *ret);

/* The tightest CPU quota that the groups of `self` (a /proc/PID/cgroup) have
 * under `root` (the cgroup file system). */
void node_facts_quota(const char *self, const char *root,
                      struct procs_node *n);

#endif
