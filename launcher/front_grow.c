/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that are wanted and not there: one that was lost, one that did not answer at
 * the start, one that a command wants. They are asked while the run goes on, all
 * that are due at once; when any answers, the MPI world is made anew, with it. What
 * becomes of the agents that come is the lead's to decide.
 *
 * Not in Slurm: its nodes are Slurm's to give. But where mpirun has hung or failed on one
 * whose agent is well it is tried again.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"

/* A run that is well, with an MPI world that nobody is about to make anew. */
static bool may_look(const struct front *f)
{
    const struct front_config *c = f->config;
    const struct run_status *s = screen_last(f->screen);

    return f->phase == FRONT_RUNNING && f->lead && s &&
           s->state == STATUS_RUNNING && c->mpirun && !c->by_hand &&
           !hosts_all_local(c->plan.hosts) &&
           c->run->job->restart.policy != JOB_RESTART_NEVER &&
           !f->reach->pid && !f->end_mpirun_at_ms && !f->repeat_at_ms;
}

/* Nodes to take part, and spares. */
static size_t count_wanted(const struct front *f)
{
    const struct job *job = f->config->run->job;
    const struct mpirun_plan *plan = &f->config->plan;
    int want = screen_last(f->screen)->want_nodes;
    size_t n = (want ? (size_t)want : job->nodes.max) + job->elastic.spares;

    if (plan->agent_is_node) {
        n = (n + plan->agents_per_host - 1) / plan->agents_per_host;
    }
    return n < plan->hosts->n ? n : plan->hosts->n;
}

void front_tick_grow(struct front *f)
{
    size_t n_there, n_wanted;

    if (!may_look(f)) {
        return;
    }
    n_there = front_count_hosts(f);
    n_wanted = count_wanted(f);
    if (n_there < n_wanted) {
        (void)front_look_for_hosts(f);
    } else {
        f->reach->n_missing = 0;
    }
}

/* Not of those that come at once. */
static void tell_missing(struct front *f)
{
    size_t n_wanted = count_wanted(f), n_there = front_count_hosts(f);
    size_t n = n_wanted > n_there ? n_wanted - n_there : 0;

    if (n && n != f->reach->n_missing &&
        f->config->plan.hosts->source != HOSTS_SLURM) {
        screen_note(f->screen, "%zu host%s wanted and not there: %s now and "
                    "then", n, n == 1 ? " is" : "s are",
                    n == 1 ? "it is asked" : "they are asked");
    }
    f->reach->n_missing = n;
}

void front_take_newcomers(struct front *f)
{
    _buf_ struct buf names = {0};

    if (!may_look(f)) {
        return;
    }
    if (!front_has_newcomers(f, &names)) {
        tell_missing(f);
        return;
    }
    screen_note(f->screen, "%s can be reached: a new MPI world is made for it, "
                "and the workers go on", buf_str(&names));
    f->n_repeats = 0;
    if (f->mpirun_pid > 0) {
        f->end_mpirun_at_ms = front_now_ms(f);
    } else if (f->config->attach && f->old_mpirun.pid) {
        front_old_end(f, 0); /* its nodes tell that their world is lost */
    } else {
        f->repeat_at_ms = front_now_ms(f);
    }
}
