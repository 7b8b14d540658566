/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LEASE_SLACK_MS = 3 }; /* two events of one instant */

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (s->violation[0]) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(s->violation, sizeof(s->violation), fmt, ap);
    va_end(ap);
    if (s->trace) {
        buf_printf(&s->log, "%8llu VIOLATION: %s\n",
                   (unsigned long long)s->now_ms, s->violation);
    }
}

/* Whether anything of a generation is alive on a node. */
static bool has_workers(const struct sim_node *n)
{
    for (uint32_t i = 0; i < n->n_procs; i++) {
        if (n->procs[i].alive) {
            return true;
        }
    }
    return n->descendant;
}

/* The same, but for what nobody can kill. */
static bool has_killable_workers(const struct sim_node *n)
{
    for (uint32_t i = 0; i < n->n_procs; i++) {
        if (n->procs[i].alive && !n->procs[i].stuck) {
            return true;
        }
    }
    return n->descendant;
}

static void check_run(struct sim *s, const struct order *order)
{
    if (order->generation <= s->ran) {
        sim_fail(s, "RUN(%u) after RUN(%u)", order->generation, s->ran);
    }
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct sim_node *n = &s->nodes[i];

        if (n->stopped != order->generation) {
            sim_fail(s, "RUN(%u), but node %u never reported STOPPED for it",
                     order->generation, i);
        }
        if (has_workers(n)) {
            sim_fail(s, "RUN(%u) with workers of generation %u on node %u",
                     order->generation, n->generation, i);
        }
    }
    s->ran = order->generation;
    s->n_runs++;
    if (s->n_runs > s->lead_config.restart.max + 1) {
        sim_fail(s, "%u generations, the budget is %u restarts", s->n_runs,
                 s->lead_config.restart.max);
    }
}

void sim_check_order(struct sim *s, const struct order *order)
{
    if (order->serial <= s->serial) {
        sim_fail(s, "serial %llu after %llu",
                 (unsigned long long)order->serial,
                 (unsigned long long)s->serial);
    }
    if (order->generation < s->generation) {
        sim_fail(s, "generation fell from %u to %u", s->generation,
                 order->generation);
    }
    s->serial = order->serial;
    s->generation = order->generation;
    if (s->has_verdict && order->step < ORDER_END) {
        sim_fail(s, "%s after the verdict", order_step_name(order->step));
    }
    if (order->step == ORDER_RUN) {
        check_run(s, order);
    }
    if (order->step >= ORDER_END) {
        if (s->has_verdict && s->verdict != order->status) {
            sim_fail(s, "verdict changed from %u to %u", s->verdict,
                     order->status);
        }
        s->has_verdict = true;
        s->verdict = order->status;
    }
}

void sim_check_workers(struct sim *s)
{
    uint32_t generation = 0;
    uint32_t where = 0;

    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct sim_node *n = &s->nodes[i];

        if (!has_workers(n)) {
            continue;
        }
        if (generation && n->generation != generation) {
            sim_fail(s, "generation %u is alive on node %u and %u on node %u",
                     generation, where, n->generation, i);
        }
        generation = n->generation;
        where = i;
    }
}

/* A cause must be what really came first on its node, and nothing we did. For
 * the final one, if clocks are right and all nodes answered, it is the first of
 * all that members could know. */
void sim_check_cause(struct sim *s, const struct failure *cause, bool final)
{
    const struct sim_truth *t;

    if (cause->node >= s->n_nodes || !cause->generation ||
        cause->generation >= SIM_MAX_GENERATIONS) {
        sim_fail(s, "the cause is on node %u in generation %u", cause->node,
                 cause->generation);
        return;
    }
    if (cause->kind == FAILURE_AGENT) {
        return;
    }
    t = &s->nodes[cause->node].truth[cause->generation];
    if (!t->failed || t->pid != cause->pid) {
        sim_fail(s, "the cause is process %d, but process %d failed first on "
                 "node %u", cause->pid, t->failed ? t->pid : 0, cause->node);
        return;
    }
    for (uint32_t i = 0; final && !s->skewed && i < s->n_nodes; i++) {
        const struct sim_truth *o = &s->nodes[i].truth[cause->generation];

        if (o->failed && o->recorded && o->at_ms < t->at_ms) {
            sim_fail(s, "the cause is on node %u at %llu ms, but node %u "
                     "failed at %llu ms", cause->node,
                     (unsigned long long)t->at_ms, i,
                     (unsigned long long)o->at_ms);
        }
    }
}

/* Nobody who runs goes on for longer than a lease after the lead was alive for
 * the last time, as far as anything that was read can show. */
void sim_check_leases(struct sim *s)
{
    for (uint32_t i = 1; i < s->n_nodes; i++) {
        const struct sim_node *n = &s->nodes[i];
        uint64_t end_ms = n->word_ms + s->lease_ms;

        end_ms = end_ms > n->paused_until_ms ? end_ms : n->paused_until_ms;
        if (n->alive && n->has_word && !n->told &&
            s->now_ms > end_ms + LEASE_SLACK_MS) {
            sim_fail(s, "node %u goes on after its lease", i);
        }
    }
}

void sim_check_verdict(struct sim *s)
{
    const struct lead_verdict *v = lead_verdict(s->lead);

    if (!v) {
        return;
    }
    if (v->status != s->verdict || !s->has_verdict) {
        sim_fail(s, "verdict %u, but %u was published", v->status, s->verdict);
    }
    if (v->has_cause && v->status != RUN_RESUMABLE &&
        v->status != RUN_CANCELLED && v->status != RUN_DEADLINE &&
        v->status != restart_exit_status(&v->cause)) {
        sim_fail(s, "status %u for a cause of %u", v->status,
                 restart_exit_status(&v->cause));
    }
    for (uint32_t i = 0; v->status == 0 && i < s->n_nodes; i++) {
        if (s->nodes[i].want_procs && !s->nodes[i].truth[s->ran].done) {
            sim_fail(s, "success, but node %u did not succeed", i);
        }
    }
}

void sim_check_member(struct sim *s, struct sim_node *n,
                      const struct member_actions *actions)
{
    uint32_t rank = (uint32_t)(n - s->nodes);
    uint8_t status = member_status(n->member);

    if (actions->has_verdict && n->told) {
        sim_fail(s, "node %u was told a second verdict", rank);
    }
    if (actions->has_verdict) {
        n->told = true;
        n->told_status = status;
    }
    if (n->told && n->told_status != status) {
        sim_fail(s, "the verdict of node %u changed from %u to %u", rank,
                 n->told_status, status);
    }
    if (n->told && status != RUN_RESUMABLE &&
        !(s->has_verdict && s->verdict == status)) {
        sim_fail(s, "node %u says %u, which is not the verdict", rank, status);
    }
    if (actions->leave && !n->told) {
        sim_fail(s, "node %u leaves without a verdict", rank);
    }
    if (actions->start && actions->start->generation <= n->generation) {
        sim_fail(s, "node %u starts generation %u after %u", rank,
                 actions->start->generation, n->generation);
    }
    if (actions->start && n->live) {
        sim_fail(s, "node %u starts generation %u on top of %u", rank,
                 actions->start->generation, n->generation);
    }
}

/* Whether there is anything to run at all. */
static bool has_processes(const struct sim *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].want_procs) {
            return true;
        }
    }
    return false;
}

/* No run ends for a reason that the world does not know of. */
static void check_reason(struct sim *s)
{
    const struct lead_verdict *v = s->finished ? lead_verdict(s->lead) : NULL;
    bool explained = true;

    if (!v) {
        return;
    }
    if (v->status == RUN_RESUMABLE) {
        explained = s->disturbed || s->stop_sent[LEAD_STOP_PREEMPT];
    } else if (v->status == RUN_CANCELLED) {
        explained = s->stop_sent[LEAD_STOP_CANCEL];
    } else if (v->status == RUN_DEADLINE) {
        explained = s->stop_sent[LEAD_STOP_DEADLINE] ||
                    s->lead_config.deadline_ms;
    } else if (v->status == RUN_NO_GANG) {
        explained = s->absent || s->disturbed;
    } else if (v->status != RUN_SUCCEEDED) {
        explained = v->has_cause || !has_processes(s);
    }
    if (!explained) {
        sim_fail(s, "nothing explains status %u: %s", v->status, v->reason);
    }
}

void sim_check_end(struct sim *s)
{
    check_reason(s);
    if (s->lead_alive && !s->finished) {
        sim_fail(s, "the lead is still in phase %s", lead_phase_name(s->lead));
    }
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].alive) {
            sim_fail(s, "node %u has not left", i);
        }
        if (has_killable_workers(&s->nodes[i])) {
            sim_fail(s, "workers are left on node %u", i);
        }
    }
}
