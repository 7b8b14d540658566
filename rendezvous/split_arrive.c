/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents of a simulated run: those of the start, and those that come later, each of a rank
 * of its own: in the place of one that is gone, on the same host, or on a new one.
 */
#include <config.h>

#include "rendezvous/split_priv.h"

#include <stdlib.h>

enum { TELL_MS = 300, AGAIN_MS = 200 };

static void init_agent(struct split *s, struct split_agent *a)
{
    a->up = a->seek = SPLIT_NONE;
    a->drift_ppm = (int64_t)split_pick(s, 0, 1000) - 500;
    a->offset_ms = (int64_t)split_pick(s, 0, 100000);
    a->n_known = s->n;
}

void split_create_agents(struct split *s)
{
    for (uint32_t i = 0; i < SPLIT_MAX; i++) {
        s->node_of[i] = i;
        for (uint32_t k = 0; k < SPLIT_MAX; k++) {
            s->agents[i].below[k].via = SPLIT_NONE;
            s->agents[i].below[k].other = SPLIT_NONE;
        }
    }
    for (uint32_t i = 0; i < s->n; i++) {
        init_agent(s, &s->agents[i]);
        split_post(s, i ? split_pick(s, 0, 1000) : 0, SP_JOIN, i, 0);
    }
}

struct lead_config split_lead_config(const struct split *s,
                                     const struct split_agent *a,
                                     const struct heritage *h)
{
    return (struct lead_config){
        .n_nodes = a->n_known, .node_of = s->node_of, .rank = split_rank(s, a),
        .rule = {.on = true, .min_nodes = s->min_nodes},
        .claim_ms = SPLIT_CLAIM_MS, .heritage = h, .min_nodes = s->min_nodes,
        .max_nodes = s->max_nodes, .max_losses = 1000, .lease_ms = s->lease_ms,
        .lease_slack_ms = s->slack_ms, .restart = s->restart,
        .gang_timeout_ms = 8000, .grace_ms = 500, .restart_grace_ms = 300,
        .margin_ms = 3000};
}

void split_on_join(struct split *s, struct split_agent *a)
{
    uint32_t rank = split_rank(s, a);
    struct heir_config heir = {
        .rank = rank, .n_nodes = a->n_known,
        .rule = {.on = true, .min_nodes = s->min_nodes, .node_of = s->node_of},
        .lease_ms = s->lease_ms, .join_ms = 12000, .slack_ms = s->slack_ms,
        .settle_ms = s->lease_ms / 5,
        .wait_ms = s->wait_ms};
    struct member_config member = {
        .rank = rank, .n_procs = 1, .host = "h", .lease_ms = s->lease_ms,
        .waits = true, .join_ms = 12000, .linger_ms = 200, .margin_ms = 3000};
    struct lead_config lead = split_lead_config(s, a, NULL);
    uint64_t now = split_clock(s, a);

    if (heir_create(&heir, now, &a->heir, NULL) < 0 ||
        member_create(&member, now, &a->member, NULL) < 0 ||
        (rank == 0 && lead_create(&lead, now, &a->lead, NULL) < 0)) {
        abort();
    }
    a->alive = a->started = true;
    split_post(s, s->now_ms + split_pick(s, 1, 50), SP_BEAT, rank, 0);
    split_member(s, a, (struct member_event){.type = MEMBER_UPLINK_UP});
    if (a->lead) {
        split_lead(s, a, (struct lead_event){
            .type = s->shared ? LEAD_SHARED : LEAD_TICK});
    } else {
        split_dial_soon(s, a, 1);
    }
    split_heir(s, a, (struct heir_event){.type = HEIR_TICK});
}

/* It is behind the same switch as the one that is gone. */
static void take_place(struct split *s, uint32_t rank, uint32_t old)
{
    for (uint32_t i = 0; i < SPLIT_MAX; i++) {
        s->reach[rank][i] = s->reach[old][i];
        s->reach[i][rank] = s->reach[i][old];
    }
    s->reach[rank][rank] = s->reach[rank][old] = s->reach[old][rank] = true;
    s->node_of[old] = LEAD_NO_NODE;
}

void split_on_arrive(struct split *s, struct split_event *e)
{
    uint32_t rank = s->n;
    bool is_new = e->tag; /* on a host of its own */

    if (rank == SPLIT_MAX ||
        (!is_new && (s->agents[e->to].alive || !s->agents[e->to].started ||
                     s->node_of[e->to] != e->to))) {
        return;
    }
    s->n++;
    if (is_new) {
        split_trace(s, "node %u: comes", rank);
    } else {
        take_place(s, rank, e->to);
        split_trace(s, "node %u: comes in the place of node %u", rank, e->to);
    }
    init_agent(s, &s->agents[rank]);
    for (uint32_t i = 0; i < rank; i++) {
        split_post(s, s->now_ms + split_pick(s, 0, TELL_MS), SP_GROW, i, 0);
    }
    split_on_join(s, &s->agents[rank]);
}

/* The lead learns of a newcomer that may have been here before it knew it. */
static void meet(struct split *s, struct split_agent *a, uint32_t rank)
{
    struct split_below *b = &a->below[rank];
    _buf_ struct buf report = split_copy_of(&b->report);

    if (a->lead && b->via != SPLIT_NONE && !b->due_ms) {
        split_take_here(s, a, rank);
    }
    if (a->lead && b->via != SPLIT_NONE && report.len) {
        split_take_report(s, a, rank, &report);
    }
}

/* Who is cut off from the newcomer, or has not begun, hears of it later. */
void split_on_grow(struct split *s, struct split_agent *a)
{
    uint32_t self = split_rank(s, a), was = a->n_known;

    if ((a->started && !a->alive) || was == s->n) {
        return;
    }
    if (!a->started || !s->reach[self][s->n - 1] || !s->reach[s->n - 1][self]) {
        split_post(s, s->now_ms + AGAIN_MS, SP_GROW, self, 0);
        return;
    }
    a->n_known = s->n;
    if (heir_grow(a->heir, s->n, s->node_of) < 0 ||
        (a->lead && lead_add_nodes(a->lead, s->n, NULL, s->node_of) < 0)) {
        abort();
    }
    split_heir(s, a, (struct heir_event){.type = HEIR_TICK});
    for (uint32_t i = was; i < a->n_known && a->lead; i++) {
        meet(s, a, i);
    }
}
