/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this node has processes ready for a restart, and when. They are started once
 * all workers of a generation are there, so they make nobody wait, and only where a
 * restart may come and there is nothing better (restart.preload).
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/blanks.h"

static bool is_wanted(const struct crew *c)
{
    const struct agent *a = c->agent;
    const struct job *job = a->config.job;

    return job->restart.policy != JOB_RESTART_NEVER &&
           member_order(a->member)->past.n_restarts < job->restart.max &&
           c->layout.n_local <= BLANKS_MAX &&
           (job->restart.preload.n == 0 || a->warm_is_over) &&
           job->program != JOB_MPI; /* mpirun takes much longer */
}

/* Of a worker's environment what sweeps look for. */
static void put_mark(struct strlist *to, const struct crew *c, const char *name)
{
    const char *value = strlist_getenv(&c->list[0].outfit.env, name);

    if (value) {
        strlist_setenv(to, name, value);
    }
}

static void make(struct crew *c)
{
    struct agent *a = c->agent;
    _strlist_ struct strlist env = {0};
    struct blanks_config config = {
        .loop = &a->loop,
        .children = a->children,
        .exec_path = a->workers_host.exec_path,
    };
    struct error e = {0};

    put_mark(&env, c, "MUSTER_AGENT");
    put_mark(&env, c, "MUSTER_RUN_ID");
    config.envp = env.items;
    if (env.failed || !env.n || blanks_create(&config, &a->blanks, &e) < 0) {
        agent_log(a, "no processes are started ahead: %s", e.text);
    }
}

void crew_blanks_fill(struct crew *c)
{
    struct agent *a = c->agent;
    bool wanted = c->layout.n_local && is_wanted(c);

    if (wanted && !a->blanks) {
        make(c);
    }
    if (a->blanks) {
        blanks_fill(a->blanks, wanted ? c->layout.n_local : 0);
    }
}

void crew_blanks_rest(struct agent *a)
{
    if (a->blanks) {
        blanks_rest(a->blanks);
    }
}

void crew_blanks_end(struct agent *a)
{
    blanks_destroy(take_ptr(&a->blanks));
}
