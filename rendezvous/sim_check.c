/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    LEASE_SLACK_MS = 15, /* two events of one instant, and what clocks differ */
    WAKE_MS = 20,        /* until what an agent kills when it goes on is dead */
};

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

/* What no lead can know of: workers that do not die when they are killed, on a
 * node that cannot tell, as it is gone, or has only read that it is lost, or could not when
 * others were started; or whose agent is stopped, and kills them when it goes on. */
static bool is_beyond(const struct sim *s, const struct sim_node *n)
{
    if (n->paused_until_ms && s->now_ms <= n->paused_until_ms + WAKE_MS) {
        return true;
    }
    for (uint32_t i = 0; i < n->n_procs; i++) {
        if (n->procs[i].alive && n->procs[i].slow &&
            (n->told || !n->alive || sim_is_aside(s, n) ||
             n->aside_with == n->generation)) {
            return true;
        }
    }
    return false;
}

/* How many nodes take part, and whether each does as a whole. */
static uint32_t count_nodes(struct sim *s, const struct order *order)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < order->n_nodes; i++) {
        n += order->n_procs[i] && s->node_of[i] == i;
        if (order->n_procs[i] && !order->n_procs[s->node_of[i]]) {
            sim_fail(s, "RUN(%u) with half of node %u", order->generation,
                     s->node_of[i]);
        }
    }
    return n;
}

static void check_size(struct sim *s, const struct order *order)
{
    const struct lead_config *c = &s->lead_config;
    uint32_t n = count_nodes(s, order);
    uint32_t first = 0;

    if (c->min_nodes && (n < c->min_nodes || n > c->max_nodes)) {
        sim_fail(s, "RUN(%u) on %u nodes, the job wants %u to %u",
                 order->generation, n, c->min_nodes, c->max_nodes);
    }
    while (first < order->n_nodes && !order->n_procs[first]) {
        first++;
    }
    if (first != s->store_node ||
        order->master_port != 20000 + order->generation) {
        sim_fail(s, "RUN(%u) with port %u on node %u, and worker 0 on node %u",
                 order->generation, order->master_port, s->store_node, first);
    }
}

static void check_budgets(struct sim *s)
{
    const struct lead_config *c = &s->lead_config;

    s->n_runs++;
    if (s->n_runs > c->restart.max + s->n_losses + s->n_changes + 1) {
        sim_fail(s, "%u generations, the budget is %u restarts, %u nodes were "
                 "lost, and %u times others came", s->n_runs, c->restart.max,
                 s->n_losses, s->n_changes);
    }
    if (s->n_needed > c->max_losses) {
        sim_fail(s, "goes on after %u losses, of which it may outlive %u",
                 s->n_needed, c->max_losses);
    }
}

static void check_run(struct sim *s, const struct order *order)
{
    if (order->generation <= s->ran) {
        sim_fail(s, "RUN(%u) after RUN(%u)", order->generation, s->ran);
    }
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct sim_node *n = &s->nodes[i];
        bool takes_part = i < order->n_nodes && order->n_procs[i];

        if (takes_part && n->stopped != order->generation) {
            sim_fail(s, "RUN(%u), but node %u never reported STOPPED for it",
                     order->generation, i);
        }
        if (has_workers(n) && !is_beyond(s, n)) {
            sim_fail(s, "RUN(%u) with workers of generation %u on node %u",
                     order->generation, n->generation, i);
        }
    }
    s->ran = order->generation;
    check_size(s, order);
    sim_check_grown(s, order);
    check_budgets(s);
    if (order->past.n_restarts != s->n_restarts) {
        sim_fail(s, "RUN(%u) counts %u restarts, and there were %u",
                 order->generation, order->past.n_restarts, s->n_restarts);
    }
}

bool sim_is_again(const struct sim *s, const struct order *order)
{
    return s->is_retold && order->step == ORDER_RUN && order->generation == s->ran;
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
    if (order->step == ORDER_RUN && !sim_is_again(s, order)) {
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

        if (!has_workers(n) || is_beyond(s, n)) {
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
        if (s->nodes[i].took_part && !s->nodes[i].truth[s->ran].done) {
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

/* How many nodes the lead can count on. */
static uint32_t count_left(const struct sim *s)
{
    bool whole[SIM_MAX_NODES];
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_known; i++) {
        bool is_left = !s->nodes[i].lost && !s->nodes[i].absent &&
                       !s->nodes[i].excluded;

        whole[i] = true;
        whole[s->node_of[i]] = whole[s->node_of[i]] && is_left;
    }
    for (uint32_t i = 0; i < s->n_known; i++) {
        n += whole[i] && s->node_of[i] == i;
    }
    return n;
}

/* A run that could go on does not end. */
static bool may_end_resumable(const struct sim *s)
{
    const struct lead_config *c = &s->lead_config;

    return s->stop_sent[LEAD_STOP_PREEMPT] || s->stuck ||
           (s->disturbed &&
            (count_left(s) < (c->min_nodes ? c->min_nodes : s->n_known) ||
             s->n_losses > c->max_losses ||
             c->restart.kind == RESTART_NEVER));
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
        explained = may_end_resumable(s);
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
