/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each worker of a job will be given, worked out before anything is
 * started, by the code that gives it (outfit.h). What only the start decides is
 * a word in capitals, such as RUN-DIR, or ENV_AT_START.
 */
#ifndef MUSTER_LAUNCHER_ENV_PLAN_H
#define MUSTER_LAUNCHER_ENV_PLAN_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/contract.h"
#include "launcher/hosts.h"
#include "spec/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV_AT_START "<at the start>"

/* All borrowed. */
struct env_plan_spec {
    const struct job *job;
    const struct strlist *env; /* the user's */
    const struct host_list *hosts;
    unsigned agents_per_host, n_agents;
    bool agent_is_node;
    const char *ranks;  /* whose: rank_set.h */
    bool shows_secrets; /* else they are JOB_HIDDEN, also within other values */
};

struct env_var {
    char *name, *value;
    enum contract_origin origin;
};

struct env_worker {
    uint32_t rank, node, local_rank;
    char host[HOSTS_NAME_BYTES];
    struct env_var *vars; /* muster's first, then by name */
    size_t n_vars;
    struct strlist argv;
};

struct env_plan {
    struct env_worker *workers;
    size_t n_workers;
    uint32_t world;
    struct strlist lost; /* NAME=WHY: of the user's, reaches no worker */
};

/* -ERR_USAGE where there is no such rank. */
int env_plan_make(const struct env_plan_spec *spec, struct env_plan *ret,
                  struct error *e);
void env_plan_release(struct env_plan *p);
#define _env_plan_ __attribute__((cleanup(env_plan_release)))

/* Whether all workers have this variable of the first one, with this value. */
bool env_plan_is_common(const struct env_plan *p, const struct env_var *v);

#endif
