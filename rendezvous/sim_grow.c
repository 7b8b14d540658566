/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other nodes for a run that is well: commands, nodes that are excluded, and what
 * must hold of both. Newcomers join as all others do (EV_JOIN).
 */
#include <config.h>

#include "rendezvous/sim.h"

void sim_plan_grow(struct sim *s)
{
    struct lead_config *c = &s->lead_config;
    uint64_t n = sim_pick(s, 0, 3);

    c->grow_interval_ms = sim_pick(s, 1, 8000);
    s->want = c->max_nodes;
    if (!c->min_nodes || sim_chance(s, 400)) {
        return;
    }
    if (sim_chance(s, 500)) {
        s->want = c->want_nodes = (uint32_t)sim_pick(s, c->min_nodes,
                                                     c->max_nodes);
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at_ms = sim_pick(s, 0, 15000);

        if (sim_chance(s, 500)) {
            sim_post(s, at_ms, EV_SCALE, 0,
                     (uint32_t)sim_pick(s, c->min_nodes, c->max_nodes));
        } else {
            uint32_t who = (uint32_t)sim_pick(s, 0, s->n_nodes - 1);

            /* Not drawn: seeds that have found something mean what they did. */
            sim_post(s, at_ms, EV_EXCLUDE, who, at_ms % 3 == 0);
            if (at_ms % 2) {
                sim_post(s, at_ms + at_ms * 7919 % 8000, EV_EXCLUDE, who, 2);
            }
            if (at_ms % 5 == 0) {
                sim_post(s, at_ms + at_ms * 6007 % 8000, EV_EXCLUDE, who, 3);
            }
        }
    }
}

void sim_on_scale(struct sim *s, struct sim_event *event)
{
    if (!s->lead_alive || s->has_verdict) {
        return;
    }
    sim_trace(s, "scale to %u", event->tag);
    s->want = event->tag;
    s->is_asked = true;
    s->asked_ms = s->now_ms;
    sim_lead_do(s, (struct lead_event){.type = LEAD_SCALE,
                                       .n_nodes = event->tag});
}

/* That ends the run while all gather, which is no news. */
static void on_misfit(struct sim *s, uint32_t node)
{
    if (lead_generation(s->lead) == 0) {
        return;
    }
    sim_trace(s, "node %u: does not fit", node);
    s->disturbed = true;
    s->is_asked = true;
    s->asked_ms = s->now_ms;
    s->is_retold = true;
    sim_lead_do(s, (struct lead_event){.type = LEAD_MISFIT, .rank = node, .text = "no GPU"});
    s->is_retold = false;
}

/* It is left out with all the agents that it has. Where the others wait for it the
 * lead may stop them at once, as for a command. */
void sim_on_exclude(struct sim *s, struct sim_event *event)
{
    bool is_waited_for = event->tag == 1;

    if (!s->lead_alive || s->has_verdict || event->node >= s->n_known) {
        return;
    }
    if (event->tag == 2) {
        sim_trace(s, "node %u: of use again", event->node);
        sim_lead_do(s, (struct lead_event){.type = LEAD_READMIT, .rank = event->node});
        return;
    }
    if (event->tag == 3) {
        on_misfit(s, event->node);
        return;
    }
    sim_trace(s, "node %u: of no use%s", event->node, is_waited_for ? ", now" : "");
    if (is_waited_for) {
        s->is_asked = true;
        s->asked_ms = s->now_ms;
    }
    sim_lead_do(s, (struct lead_event){.type = LEAD_EXCLUDE, .rank = event->node,
                                       .force = is_waited_for, .text = "slow",
                                       .why = EXCLUSION_SLOW});
}

static void see_exclusion(struct sim *s, uint32_t rank, bool is_out)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (s->node_of[i] == s->node_of[rank]) {
            s->nodes[i].excluded = is_out;
        }
    }
}

/* A generation that is well is stopped. */
static void see_change(struct sim *s)
{
    const struct lead_config *c = &s->lead_config;
    bool is_asked = s->is_asked &&
                    s->now_ms <= s->asked_ms + c->gang_timeout_ms;

    if (c->restart.kind == RESTART_NEVER) {
        sim_fail(s, "a run that is never to restart is stopped");
    }
    if (!is_asked && !s->was_saved) {
        sim_fail(s, "a run that is well is stopped, and has saved nothing");
    }
    if (!is_asked && s->n_changes &&
        s->now_ms < s->changed_ms + c->grow_interval_ms) {
        sim_fail(s, "a run that is well is stopped after %llu ms again",
                 (unsigned long long)(s->now_ms - s->changed_ms));
    }
    s->is_asked = false;
    s->n_changes++;
    s->changed_ms = s->now_ms;
}

void sim_see_grow(struct sim *s, const struct lead_note *note)
{
    if (note->type == LEAD_NOTE_SAVED) {
        s->was_saved = true;
    } else if (note->type == LEAD_NOTE_EXCLUDED) {
        see_exclusion(s, note->rank, true);
    } else if (note->type == LEAD_NOTE_READMITTED) {
        see_exclusion(s, note->rank, false);
    } else if (note->type == LEAD_NOTE_CHANGING) {
        see_change(s);
    }
}

void sim_check_grown(struct sim *s, const struct order *order)
{
    uint32_t n = 0;

    s->was_saved = false;
    for (uint32_t i = 0; i < order->n_nodes; i++) {
        n += order->n_procs[i] && s->node_of[i] == i;
        if (order->n_procs[i] && s->nodes[i].excluded) {
            sim_fail(s, "RUN(%u) with node %u, which is excluded",
                     order->generation, i);
        }
    }
    if (s->want && n > s->want) {
        sim_fail(s, "RUN(%u) on %u nodes, and %u are wanted",
                 order->generation, n, s->want);
    }
}
