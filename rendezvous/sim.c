/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/sim.h"

#include "base/str.h"

#include <stdlib.h>

static void plan_faults(struct sim *s)
{
    static const enum sim_event_type kinds[] = {
        EV_LINK_DOWN, EV_LINK_DOWN, EV_LINK_DOWN, EV_PAUSE, EV_KILL, EV_CLOCK,
    };
    uint64_t n = sim_pick(s, 0, 4);

    if (sim_chance(s, 400)) {
        return;
    }
    s->faults_end_ms = sim_pick(s, 1, 20000);
    for (uint64_t i = 0; i < n; i++) {
        enum sim_event_type kind = kinds[sim_rnd(s) % 6];
        uint32_t node = (uint32_t)sim_pick(s, 0, s->n_nodes - 1);

        if (node == 0 && kind == EV_KILL && sim_chance(s, 500)) {
            continue;
        }
        sim_post(s, sim_pick(s, 0, s->faults_end_ms), kind, node, 0);
    }
    if (sim_chance(s, 250)) {
        uint64_t at_ms = sim_pick(s, 0, s->faults_end_ms);
        uint32_t kind = (uint32_t)sim_pick(s, 0, 2);

        sim_post(s, at_ms, EV_STOP, 0, kind | (sim_chance(s, 200) ? 16 : 0));
        if (sim_chance(s, 500)) {
            sim_post(s, at_ms + sim_pick(s, 0, 3000), EV_STOP, 0,
                     (uint32_t)sim_pick(s, 0, 2) | 16);
        }
    }
}

/* Half of the runs outlive losses. Some have agents that share a node, some get
 * newcomers. */
static void plan_elastic(struct sim *s)
{
    struct lead_config *c = &s->lead_config;
    bool paired = s->n_nodes % 2 == 0 && sim_chance(s, 200);
    uint32_t n_nodes = paired ? s->n_nodes / 2 : s->n_nodes;

    for (uint32_t i = 0; i < SIM_MAX_NODES; i++) {
        s->node_of[i] = paired && i < s->n_nodes ? i / 2 * 2 : i;
    }
    if (sim_chance(s, 400)) {
        return;
    }
    c->min_nodes = (uint32_t)sim_pick(s, 1, n_nodes);
    c->max_nodes = (uint32_t)sim_pick(s, c->min_nodes, n_nodes);
    c->max_losses = (uint32_t)sim_pick(s, 0, 3);
    if (sim_chance(s, 300) && s->n_nodes + 2 <= SIM_MAX_NODES) {
        s->n_nodes += (uint32_t)sim_pick(s, 1, 2);
    }
}

static void plan_config(struct sim *s)
{
    static const enum restart_kind kinds[] = {
        RESTART_NEVER, RESTART_ON_FAILURE, RESTART_ALWAYS,
        RESTART_EXIT_CODE};
    struct lead_config *c = &s->lead_config;

    s->n_nodes = (uint32_t)sim_pick(s, 1,
                                    sim_chance(s, 200) ? SIM_MAX_NODES : 5);
    s->lease_ms = sim_pick(s, 1000, 5000);
    s->n_known = s->n_nodes;
    plan_elastic(s);
    c->n_nodes = s->n_known;
    c->node_of = s->node_of;
    c->lease_ms = s->lease_ms;
    c->lease_slack_ms = s->lease_ms / 100 + 100;
    c->restart.kind = kinds[sim_rnd(s) % 4];
    c->restart.max = (uint32_t)sim_pick(s, 0, 4);
    c->restart.backoff_min_ms = sim_pick(s, 0, 1000);
    c->restart.backoff_max_ms = sim_pick(s, 1000, 5000);
    restart_preset(&c->restart, sim_chance(s, 500) ? "t9k" : "kubeflow");
    c->gang_timeout_ms = 20000;
    c->grace_ms = (uint32_t)sim_pick(s, 0, 3000);
    c->restart_grace_ms = (uint32_t)sim_pick(s, 0, 1000);
    c->margin_ms = 5000;
    c->deadline_ms = sim_chance(s, 100) ? sim_pick(s, 1, 30000) : 0;
}

static void plan(struct sim *s)
{
    plan_config(s);
    plan_faults(s);
    sim_plan_grow(s);
    if (lead_create(&s->lead_config, 0, &s->lead, NULL) < 0) {
        abort();
    }
    s->lead_alive = true;
    s->lead_wake_ms = SIM_NEVER;
    s->skewed = sim_chance(s, 300);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct sim_node *n = &s->nodes[i];

        n->wake_ms = SIM_NEVER;
        n->want_procs = (uint16_t)sim_pick(
            s, sim_chance(s, 50) && !s->lead_config.min_nodes && s->node_of[1] ? 0 : 1,
            SIM_MAX_PROCS);
        n->drift_ppm = (int64_t)sim_pick(s, 0, 1000) - 500;
        n->wall_skew_ms = s->skewed ? (int64_t)sim_pick(s, 0, 400) : 0;
        if (i >= s->n_known) {
            sim_post(s, 2000 + i * 1000 + sim_pick(s, 0, 900), EV_JOIN, i, 0);
        } else if (!s->faults_end_ms || i == 0 || !sim_chance(s, 10)) {
            sim_post(s, i ? sim_pick(s, 0, 2000) : 0, EV_JOIN, i, 0);
        } else {
            s->absent = n->absent = true;
        }
    }
    sim_post(s, 0, EV_BEAT, 0, 0);
    sim_lead_do(s, (struct lead_event){.type = LEAD_TICK});
    /* Gathering, every generation at its longest, faults, and the end. */
    s->give_up_ms = 20000 + 2000 + 20000 + 15000 + 3000 + 5000 + 35000 +
                    13 * (8000 + 1000 + 5000 + 5000 + 3000 + 6000);
}

static bool is_over(const struct sim *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct sim_node *n = &s->nodes[i];

        if (n->alive || n->descendant) {
            return false;
        }
        for (uint32_t k = 0; k < n->n_procs; k++) {
            if (n->procs[k].alive && !n->procs[k].stuck) {
                return false;
            }
        }
    }
    return s->now_ms > 2000; /* all that ever start have started */
}

static void sim_release(struct sim *s)
{
    while (s->n_events) {
        buf_release(&s->heap[--s->n_events].bytes);
    }
    free(s->heap);
    lead_destroy(s->lead);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        member_destroy(s->nodes[i].member);
    }
}

bool sim_run(uint64_t seed, char *ret_violation, size_t size, struct buf *log)
{
    struct sim *s = calloc(1, sizeof(*s));
    bool passed;

    if (!s) {
        abort();
    }
    s->rng = seed;
    s->trace = log != NULL;
    plan(s);
    while (s->n_events && !s->violation[0] && !is_over(s)) {
        struct sim_event event = sim_pop(s);

        s->now_ms = event.at_ms;
        if (s->now_ms > s->give_up_ms) {
            sim_check_end(s);
            sim_fail(s, "still going on at the end of time");
        }
        sim_dispatch(s, &event);
    }
    sim_check_end(s);
    if (log) {
        buf_append(log, s->log.data, s->log.len);
        buf_release(&s->log);
    }
    passed = !s->violation[0];
    str_copy(ret_violation, size, s->violation);
    sim_release(s);
    free(s);
    return passed;
}
