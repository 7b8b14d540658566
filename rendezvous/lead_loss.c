/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that are lost, that come back, and that come new; who of all takes part
 * in the next generation.
 *
 * A node that is lost may still run workers. They are gone at once if its agent
 * is known to be dead (muster-watch sees to that), else when its lease is over:
 * it began at the latest with the last word of ours that it can have had. Until
 * then, and a margin for clocks and for the kill, there is no next generation. A
 * lost node that is heard of again in time has had a word: it is waited for as
 * any other until it says that it has stopped.
 *
 * Nodes are whole or not there: of a node with several agents all take part, or
 * none.
 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lead_is_here(const struct lead_node *n)
{
    return (n->serial || n->expected) && !n->lost;
}

/* --- nodes of several agents --- */

/* For each node, whether all its agents satisfy `test`, into lead->whole; NULL
 * for agents that count as none. */
static void find_whole(struct lead *lead,
                       bool (*test)(const struct lead *lead,
                                    const struct lead_node *n))
{
    memset(lead->whole, 0, lead->n_nodes * sizeof(*lead->whole));
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        if (lead->nodes[i].node == i) {
            lead->whole[i] = true;
        }
    }
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        uint32_t node = lead->nodes[i].node;

        if (node != LEAD_NO_NODE &&
            (!test(lead, &lead->nodes[i]) ||
             (lead->nodes[i].excluded && !MUTANT(27)))) {
            lead->whole[node] = false;
        }
    }
}

static uint32_t count_whole(const struct lead *lead)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        n += lead->whole[i];
    }
    return n;
}

static bool is_left(const struct lead *lead, const struct lead_node *n)
{
    return lead->phase == PHASE_GATHER ? !n->lost : lead_is_here(n);
}

static bool is_here(const struct lead *lead, const struct lead_node *n)
{
    (void)lead;
    return lead_is_here(n);
}

static bool has_stopped(const struct lead *lead, const struct lead_node *n)
{
    return lead_is_here(n) && n->state == REPORT_STOPPED &&
           n->generation == lead->generation;
}

uint32_t lead_count_left(struct lead *lead)
{
    find_whole(lead, is_left);
    return count_whole(lead);
}

/* --- who takes part --- */

/* Of the whole nodes, those that were in the last generation or not, as long as
 * there is room. */
static void choose_some(struct lead *lead, bool were_in, uint32_t *room)
{
    for (uint32_t i = 0; i < lead->n_nodes && *room; i++) {
        if (lead->whole[i] && lead->nodes[i].takes_part == were_in) {
            lead->whole[i] = false;
            lead->nodes[i].chosen = true;
            --*room;
        }
    }
}

/* Those of the last generation stay in the next, then the others by rank. */
uint32_t lead_choose(struct lead *lead, bool have_stopped)
{
    uint32_t most = MUTANT(28) ? lead->max_nodes : lead->want_nodes;
    uint32_t room = most;

    find_whole(lead, have_stopped && !MUTANT(1) && !MUTANT(2) ? has_stopped
                                                              : is_here);
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        lead->nodes[i].chosen = false;
    }
    choose_some(lead, true, &room);
    choose_some(lead, false, &room);
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        uint32_t node = lead->nodes[i].node;

        if (node != LEAD_NO_NODE && node != i) {
            lead->nodes[i].chosen = lead->nodes[node].chosen;
        }
    }
    return most - room;
}

uint32_t lead_store_rank(const struct lead *lead)
{
    uint32_t first = 0;

    for (uint32_t i = lead->n_nodes; i-- > 0;) {
        if (lead->nodes[i].chosen && (lead->nodes[i].n_procs || !first)) {
            first = i;
        }
    }
    return first;
}

uint64_t lead_clear_ms(const struct lead *lead)
{
    uint64_t clear_ms = 0;
    uint64_t old_ms = lead->has_heard && !MUTANT(105)
                          ? lead_later(lead->heard_ms, lead->config.lease_ms +
                                           lead->config.lease_slack_ms)
                          : 0;

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        const struct lead_node *n = &lead->nodes[i];

        if ((n->lost || n->estranged) && n->may_run) {
            clear_ms = n->clear_ms > clear_ms ? n->clear_ms : clear_ms;
            clear_ms = old_ms > clear_ms ? old_ms : clear_ms;
        }
    }
    return MUTANT(15) ? 0 : clear_ms;
}

void lead_list_gone(struct lead *lead, struct order *order)
{
    order->gone = lead->gone;
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        if (lead->nodes[i].lost) {
            lead->gone[order->n_gone++] = i;
        }
    }
}

/* --- losses --- */

/* Why the run cannot go on, into `to`; false if it can. */
bool lead_is_at_end(struct lead *lead, char *to, size_t size)
{
    uint32_t n_left = lead_count_left(lead);
    uint32_t most = lead->config.max_losses;

    if (n_left < lead->min_nodes && !MUTANT(20)) {
        snprintf(to, size, "%u node%s left, and the job needs %u", n_left,
                 n_left == 1 ? " is" : "s are", lead->min_nodes);
        return true;
    }
    if (lead->phase != PHASE_GATHER && !lead_may_go_on(lead)) {
        snprintf(to, size, "more than half of the nodes may go on without us: "
                 "their own run directories tell");
        return true;
    }
    if (lead->ran && lead->config.restart.kind == RESTART_NEVER) {
        snprintf(to, size, "restart.policy is Never");
        return true;
    }
    if (lead->n_losses > most + MUTANT(19)) {
        snprintf(to, size, "a run may lose %u (limits.nodeFailures)", most);
        return true;
    }
    return false;
}

void lead_end_by_loss(struct lead *lead, const char *why,
                        struct lead_actions *ret)
{
    char reason[ORDER_TEXT_BYTES], what[ORDER_TEXT_BYTES / 2];

    if (lead->has_cause && !lead->judged) {
        failure_describe(&lead->cause, what, sizeof(what));
        snprintf(reason, sizeof(reason), "%.300s; before that %s; %s",
                 lead->loss, what, why);
    } else {
        snprintf(reason, sizeof(reason), "%.600s%s%s", lead->loss,
                 lead->loss[0] ? "; " : "", why);
    }
    lead_end(lead, ret, RUN_RESUMABLE, reason,
             lead->ran ? ORDER_STOP_GRACE : ORDER_STOP_NONE,
             lead->config.restart_grace_ms);
}

void lead_end_short(struct lead *lead, struct lead_actions *ret)
{
    char why[ORDER_TEXT_BYTES / 4];

    if (lead_is_at_end(lead, why, sizeof(why))) {
        lead_end_by_loss(lead, why, ret);
    } else {
        lead_end_by_loss(lead, "too few nodes are ready", ret);
    }
}

static void go_on(struct lead *lead, struct lead_actions *ret)
{
    lead->n_restarts += MUTANT(21);
    lead_note(lead, ret, LEAD_NOTE_AGAIN, NO_RANK, "going on: %s", lead->loss);
    lead_prepare(lead, ret);
}

/* A loss while the next generation is being prepared. */
static void prepare_without(struct lead *lead, uint32_t rank,
                            struct lead_actions *ret)
{
    if (rank == lead->store_rank && !MUTANT(23)) {
        lead_prepare(lead, ret);
    } else {
        lead_prepare_again(lead, ret);
    }
}

static bool is_done(const struct lead *lead, const struct lead_node *n)
{
    return n->state == REPORT_DONE && n->generation == lead->ran;
}

/* Whether the generation that runs, or just ended, cannot do without it. */
static bool is_needed(const struct lead *lead, uint32_t rank)
{
    const struct lead_node *n = &lead->nodes[rank];

    if (!lead->ran || !n->takes_part) {
        return false;
    }
    return lead->phase != PHASE_RUN || !is_done(lead, n) ||
           rank == lead->store_rank;
}

/* Where only the workers are lost, and the node `is_here`, it is no failure of a
 * node. */
static void take_loss(struct lead *lead, uint32_t rank, bool is_here,
                      struct lead_actions *ret)
{
    bool is_loss = is_needed(lead, rank);
    char why[ORDER_TEXT_BYTES / 4];

    lead->is_gentle = lead->is_gentle && !is_loss;
    lead->n_losses += is_loss && !is_here;
    lead->has_lost = lead->has_lost || is_loss;
    if (is_loss && !lead->judged) {
        /* It explains what workers of other nodes ended of: no reason to wait. */
        lead->hold_ms = lead->now_ms;
        lead->n_quick = 0;
    }
    /* A spare is no loss while there is no need of it. */
    if ((is_loss || lead->phase != PHASE_RUN) &&
        lead_is_at_end(lead, why, sizeof(why))) {
        lead->has_lost = true;
        lead_end_by_loss(lead, why, ret);
    } else if (lead->phase == PHASE_PREPARE) {
        prepare_without(lead, rank, ret);
    } else if (lead->phase == PHASE_RUN && is_loss) {
        go_on(lead, ret);
    }
}

void lead_lose(struct lead *lead, uint32_t rank, const struct lead_event *event,
               struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[rank];
    uint64_t heard_ms = lead->now_ms > event->quiet_ms
                            ? lead->now_ms - event->quiet_ms : 0;
    uint64_t clear_ms = lead_later(heard_ms, lead->config.lease_ms +
                                                 (MUTANT(16) ? 0
                                                  : lead->config.lease_slack_ms));
    char name[FAILURE_HOST_BYTES];

    if (event->dead && event->type == LEAD_LOST && !n->dead) {
        n->dead = true;
        n->strayed = lead_may_stray(lead, rank) && !MUTANT(118);
    }
    if (n->lost) {
        return;
    }
    lead_uncount(lead, n);
    n->lost = true;
    n->expected = false;
    lead->harsh = lead->harsh || (lead->config.rule.on && !event->dead);
    n->may_run = n->may_run && !event->dead && !MUTANT(22);
    n->clear_ms = clear_ms > n->clear_ms ? clear_ms : n->clear_ms;
    lead_count(lead, n);
    if (lead->phase == PHASE_OVER) {
        return; /* it is silent, and that is all */
    }
    snprintf(lead->loss, sizeof(lead->loss), "lost node %u (%s): %.500s", rank,
             lead_name_of(lead, rank, name, sizeof(name)),
             event->text && event->text[0] ? event->text : "no word from it");
    lead_note(lead, ret, LEAD_NOTE_LOST, rank, "%s", lead->loss);
    if (lead->phase < PHASE_END) {
        take_loss(lead, rank, false, ret);
    }
}

void lead_lose_workers(struct lead *lead, uint32_t rank,
                       struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[rank];
    char name[FAILURE_HOST_BYTES];

    if (lead->phase >= PHASE_END) {
        return;
    }
    lead_uncount(lead, n);
    n->awaited = n->awaited && !n->estranged;
    lead_count(lead, n);
    n->clear_ms = lead_later(lead->now_ms, lead->config.lease_ms +
                                               lead->config.lease_slack_ms);
    lead->harsh = true;
    snprintf(lead->loss, sizeof(lead->loss),
             "node %u (%s) was cut off for a lease, and has no workers any more",
             rank, lead_name_of(lead, rank, name, sizeof(name)));
    lead_note(lead, ret, LEAD_NOTE_LOST, rank, "%s", lead->loss);
    lead_note(lead, ret, LEAD_NOTE_BACK, rank, "node %u (%s) is back", rank,
              lead_name_of(lead, rank, name, sizeof(name)));
    take_loss(lead, rank, true, ret);
}

static void take_back(struct lead *lead, uint32_t rank, bool is_untold,
                      struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[rank];
    char name[FAILURE_HOST_BYTES];

    lead_uncount(lead, n);
    n->lost = false;
    n->untold = is_untold;
    /* A new lead need not have had a report of it, and waits for it all the same. */
    n->expected = n->expected || (n->may_run && !n->serial);
    lead->came_ms = lead->now_ms;
    n->dead = false;
    n->awaited = (n->awaited || n->may_run) && !n->estranged;
    lead_count(lead, n);
    if (lead->phase == PHASE_PREPARE) {
        lead->limit_ms = lead_stop_limit(lead);
    }
    lead_note(lead, ret, LEAD_NOTE_BACK, rank, "node %u (%s) is back", rank,
              lead_name_of(lead, rank, name, sizeof(name)));
}

/* One whose lease is over is there only to go. */
void lead_hear_again(struct lead *lead, uint32_t rank,
                     struct lead_actions *ret)
{
    const struct lead_node *n = &lead->nodes[rank];
    bool is_over = n->may_run && lead->now_ms >= n->clear_ms;

    if (n->lost && lead->phase < PHASE_END && !is_over && !MUTANT(17)) {
        take_back(lead, rank, true, ret);
    }
}

/* It is free of this view, and waits for the next, whose generations it will be in.
 * Where a majority decides it must not have been in a newer one, which may have come
 * to an end that this lead does not know of, and is not told by who claims. */
static bool waits_for_view(const struct lead *lead, const struct report *r)
{
    uint32_t number = lead->view.number;

    return number && r->floor > number &&
           (lead->view.shared || r->floor == number + 1);
}

/* It has stopped for the next generation, or waits for that of another view. */
static bool is_ready_again(const struct lead *lead, const struct report *r)
{
    return (r->state == REPORT_STOPPED && r->generation == lead->generation) ||
           waits_for_view(lead, r);
}

bool lead_hear_report(struct lead *lead, const struct report *r,
                      struct lead_actions *ret)
{
    const struct lead_node *n = &lead->nodes[r->rank];

    if (!n->lost) {
        return true;
    }
    if (r->serial <= n->serial || lead->phase == PHASE_GATHER ||
        lead->phase >= PHASE_END || !is_ready_again(lead, r)) {
        return false;
    }
    take_back(lead, r->rank, false, ret);
    return true;
}

/* --- newcomers --- */

/* Room for `n` nodes. */
static int reserve(struct lead *lead, uint32_t n)
{
    struct lead_node *nodes = reallocarray(lead->nodes, n, sizeof(*nodes));
    uint16_t *n_procs = NULL;
    uint32_t *gone = NULL;
    bool *whole = NULL, *dead = NULL;
    uint32_t *node_of = NULL;

    lead->nodes = nodes ? nodes : lead->nodes;
    n_procs = nodes ? reallocarray(lead->n_procs, n, sizeof(*n_procs)) : NULL;
    lead->n_procs = n_procs ? n_procs : lead->n_procs;
    gone = n_procs ? reallocarray(lead->gone, n, sizeof(*gone)) : NULL;
    lead->gone = gone ? gone : lead->gone;
    whole = gone ? reallocarray(lead->whole, n, sizeof(*whole)) : NULL;
    lead->whole = whole ? whole : lead->whole;
    dead = whole ? reallocarray(lead->dead, n, sizeof(*dead)) : NULL;
    lead->dead = dead ? dead : lead->dead;
    node_of = dead ? reallocarray(lead->node_of, n, sizeof(*node_of)) : NULL;
    lead->node_of = node_of ? node_of : lead->node_of;
    if (lead->order.n_procs) {
        lead->order.n_procs = lead->n_procs;
    }
    if (lead->order.gone) {
        lead->order.gone = lead->gone;
    }
    return node_of ? 0 : -ENOMEM;
}

int lead_set_nodes(struct lead *lead, uint32_t n, const uint32_t *node_of)
{
    if (n > ORDER_MAX_NODES || reserve(lead, n) < 0) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i >= lead->n_nodes) {
            lead->nodes[i] = (struct lead_node){0};
        }
        lead->nodes[i].node = node_of ? node_of[i] : i;
    }
    for (; lead->n_nodes < n; lead->n_nodes++) {
        lead_count(lead, &lead->nodes[lead->n_nodes]);
    }
    return 0;
}
