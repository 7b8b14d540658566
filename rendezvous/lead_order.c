/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

/* Between two orders that only tell of saves. */
#define TELL_MS 250

bool lead_is_ready(const struct lead *lead, const struct lead_node *n)
{
    switch (lead->phase) {
    case PHASE_GATHER:
        return n->serial || n->lost;
    case PHASE_CLAIM:
        return true;
    case PHASE_PREPARE:
        if ((!lead_is_here(n) || !n->awaited) && !MUTANT(24)) {
            return true;
        }
        if (MUTANT(1)) {
            return n->state >= REPORT_STOPPED;
        }
        return n->state == REPORT_STOPPED &&
               n->generation == lead->generation;
    case PHASE_RUN:
        return !n->takes_part ||
               (n->state == REPORT_DONE && n->generation == lead->generation);
    case PHASE_END:
        return !lead_is_here(n) || n->state == REPORT_ENDED;
    case PHASE_OVER:
        break;
    }
    return true;
}

bool lead_is_started(const struct lead *lead, const struct lead_node *n)
{
    return !n->takes_part ||
           (lead->phase == PHASE_RUN && n->generation == lead->generation &&
            (n->state == REPORT_RUNNING || n->state == REPORT_DONE));
}

void lead_uncount(struct lead *lead, const struct lead_node *n)
{
    lead->n_ready -= lead_is_ready(lead, n);
    lead->n_started -= lead_is_started(lead, n);
}

void lead_count(struct lead *lead, const struct lead_node *n)
{
    lead->n_ready += lead_is_ready(lead, n);
    lead->n_started += lead_is_started(lead, n);
}

static void enter(struct lead *lead, enum phase phase, uint64_t limit_ms)
{
    lead->phase = phase;
    lead->limit_ms = limit_ms;
    lead->n_ready = 0;
    lead->n_started = 0;
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        lead_count(lead, &lead->nodes[i]);
    }
}

bool lead_all_ready(const struct lead *lead)
{
    return lead->n_ready >= lead->n_nodes - MUTANT(2);
}

static bool is_marked(const struct lead_node *n, uint32_t rank)
{
    return n->n_causes || (n->excluded && n->node == rank);
}

/* What a node has been found guilty of; who is excluded goes before all others. */
static void keep_marks(const struct lead *lead, struct past *past)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        n += is_marked(&lead->nodes[i], i);
    }
    for (uint32_t i = 0; i < lead->n_nodes && past->n_marks < PAST_MAX_MARKS;
         i++) {
        const struct lead_node *node = &lead->nodes[i];

        if (is_marked(node, i) && (n <= PAST_MAX_MARKS || node->excluded)) {
            past->marks[past->n_marks++] = (struct past_mark){
                .rank = i, .n_causes = node->n_causes,
                .excluded = node->excluded};
        }
    }
}

static void keep_past(const struct lead *lead, struct past *past)
{
    keep_marks(lead, past);
    past->suspended = lead->suspended;
    past->ran = lead->ran;
    past->n_restarts = lead->n_restarts;
    past->n_losses = lead->n_losses;
    past->want_nodes = lead->want_nodes;
    past->saved_generation = lead->saved_generation;
    past->resume_step = lead->resume_step;
    str_copy(past->resume_path, sizeof(past->resume_path), lead->resume_path);
    past->avoid = lead->avoid;
    if (lead->proposing) {
        past->has_end = true;
        past->status = lead->verdict.status;
        str_copy(past->reason, sizeof(past->reason), lead->verdict.reason);
    }
}

/* A fresh order in place of the last. */
static struct order *publish(struct lead *lead, struct lead_actions *ret,
                             enum order_step step)
{
    uint64_t serial = lead->order.serial + !MUTANT(3);
    uint64_t first = (uint64_t)lead->view.number << ORDER_SERIAL_BITS;

    serial = serial > first ? serial : first + (lead->view.number != 0);
    lead->order = (struct order){
        .serial = serial ? serial : 1,
        .generation = lead->generation,
        .step = step,
        .view = lead->view, /* borrowed, as other arrays are */
    };
    keep_past(lead, &lead->order.past);
    lead->is_untold = false;
    lead->told_ms = lead->now_ms;
    ret->order = &lead->order;
    return &lead->order;
}

/* What the survivors of a failure computed is lost with it; those that nothing
 * ails may save. */
static uint32_t stop_grace_ms(const struct lead *lead)
{
    return lead->is_gentle ? lead->config.grace_ms
                           : lead->config.restart_grace_ms;
}

uint64_t lead_stop_limit(const struct lead *lead)
{
    uint64_t ms = lead_later(lead->config.margin_ms, lead->config.lease_ms);

    if (lead->ran) {
        ms = lead_later(ms, stop_grace_ms(lead));
    }
    return lead_later(lead->now_ms, ms);
}

/* PREPARE of the generation that is next, as things stand. */
static void publish_prepare(struct lead *lead, struct lead_actions *ret)
{
    struct order *order = publish(lead, ret, ORDER_PREPARE);

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        lead->nodes[i].awaited = lead_is_here(&lead->nodes[i]) &&
                                 !lead->nodes[i].estranged;
    }
    order->store_rank = lead->store_rank;
    lead_list_gone(lead, order);
    if (lead->ran) {
        order->stop = lead->harsh ? ORDER_STOP_FORCE : ORDER_STOP_GRACE;
        order->grace_ms = lead->harsh ? 0 : stop_grace_ms(lead);
        order->broken = !lead->is_gentle;
    }
    enter(lead, PHASE_PREPARE, lead_stop_limit(lead));
}

void lead_prepare(struct lead *lead, struct lead_actions *ret)
{
    uint32_t first = lead->config.first_generation;

    if (lead->foreign > lead->generation) {
        lead->generation = lead->foreign;
    }
    lead->generation = lead->generation ? lead->generation + 1
                                        : (first ? first : 1);
    lead->store_port = 0;
    lead->store_addr[0] = '\0';
    lead->has_obstacle = false;
    (void)lead_choose(lead, false);
    lead->store_rank = lead_store_rank(lead);
    publish_prepare(lead, ret);
    lead_note(lead, ret, LEAD_NOTE_PREPARING, NO_RANK,
              "preparing generation %u", lead->generation);
}

void lead_prepare_again(struct lead *lead, struct lead_actions *ret)
{
    publish_prepare(lead, ret);
}

/* Those that are chosen take part from now on, and nobody else. */
static void engage(struct lead *lead, uint32_t *ret_nodes, uint32_t *ret_procs)
{
    *ret_nodes = *ret_procs = 0;
    lead->n_part = 0;
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        struct lead_node *n = &lead->nodes[i];

        lead->n_procs[i] = n->chosen ? n->n_procs : 0;
        n->takes_part = lead->n_procs[i] > 0;
        n->may_run = n->takes_part;
        lead->n_part += n->takes_part;
        *ret_nodes += n->chosen;
        *ret_procs += lead->n_procs[i];
    }
}

/* How the last generation ended, for the workers of the next. */
static void word_previous(const struct lead *lead, struct order *order)
{
    if (lead->has_lost) {
        str_copy(order->previous, sizeof(order->previous), lead->loss);
    } else if (lead->has_cause) {
        failure_describe(&lead->cause, order->previous,
                         sizeof(order->previous));
    } else {
        str_copy(order->previous, sizeof(order->previous), lead->change);
    }
}

void lead_run(struct lead *lead, struct lead_actions *ret)
{
    struct order *order = publish(lead, ret, ORDER_RUN);
    uint32_t n_nodes, n_procs;

    engage(lead, &n_nodes, &n_procs);
    order->n_nodes = lead->n_nodes;
    order->n_procs = lead->n_procs;
    str_copy(order->master_addr, sizeof(order->master_addr), lead->store_addr);
    order->master_port = lead->store_port;
    order->max_restarts = lead->config.restart.max;
    word_previous(lead, order);
    order->resume_step = lead->resume_step;
    str_copy(order->resume_path, sizeof(order->resume_path), lead->resume_path);
    lead->harsh = false;
    lead->has_cause = false;
    lead->has_lost = false;
    lead->judged = false;
    lead->is_due = lead->is_gentle = false;
    lead->has_moved = lead->has_step = false;
    lead->change[0] = '\0';
    lead->ran = lead->generation;
    order->past.ran = lead->ran;
    lead->ran_at_ms = lead->now_ms;
    enter(lead, PHASE_RUN, LEAD_NEVER);
    lead_note(lead, ret, LEAD_NOTE_STARTED, NO_RANK,
              "generation %u: %u process%s on %u node%s", lead->generation,
              n_procs, n_procs == 1 ? "" : "es", n_nodes,
              n_nodes == 1 ? "" : "s");
}

void lead_order_again(struct lead *lead, struct lead_actions *ret)
{
    struct order was = lead->order;
    struct order *order = publish(lead, ret, was.step);
    struct order now = *order;

    *order = was;
    order->serial = now.serial;
    order->view = now.view;
    order->past = now.past;
}

/* Who takes the lead starts from what orders say: so a save is told to all at once,
 * and many of them together. Where nobody can take it, that can wait for the next
 * order. */
uint64_t lead_tell_ms(const struct lead *lead)
{
    bool is_due = lead->is_untold && lead->view.number && lead->order.serial &&
                  lead->phase != PHASE_OVER && !MUTANT(120);

    return is_due ? lead_later(lead->told_ms, TELL_MS) : LEAD_NEVER;
}

void lead_tell_saved(struct lead *lead, struct lead_actions *ret)
{
    if (lead->now_ms >= lead_tell_ms(lead)) {
        lead_order_again(lead, ret);
    }
}

void lead_publish_end(struct lead *lead, struct lead_actions *ret,
                      enum order_stop stop, uint32_t grace_ms)
{
    struct order *order = publish(lead, ret, ORDER_END);
    uint64_t wait_ms = lead->config.margin_ms;

    order->stop = stop;
    order->broken = lead->has_cause || lead->has_lost;
    order->status = lead->verdict.status;
    str_copy(order->reason, sizeof(order->reason), lead->verdict.reason);
    if (stop == ORDER_STOP_GRACE) {
        order->grace_ms = grace_ms;
        wait_ms += grace_ms;
    }
    enter(lead, PHASE_END,
          MUTANT(11) ? LEAD_NEVER : lead_later(lead->now_ms, wait_ms));
}

void lead_end(struct lead *lead, struct lead_actions *ret, uint8_t status,
              const char *reason, enum order_stop stop, uint32_t grace_ms)
{
    if (lead->phase >= PHASE_CLAIM && !MUTANT(4)) {
        return;
    }
    lead->verdict.status = status;
    lead->verdict.generation = lead->ran;
    lead->verdict.n_restarts = lead->n_restarts;
    str_copy(lead->verdict.reason, sizeof(lead->verdict.reason), reason);
    if (lead->has_cause && !lead->judged) {
        lead->verdict.has_cause = true;
        lead->verdict.cause = lead->cause;
    }
    if (lead_claim_end(lead, ret, stop, grace_ms)) {
        return;
    }
    lead_publish_end(lead, ret, stop, grace_ms);
    if (stop != ORDER_STOP_NONE) {
        lead_note(lead, ret, LEAD_NOTE_STOPPING, NO_RANK, "%s", reason);
    }
}

void lead_leave(struct lead *lead, struct lead_actions *ret)
{
    struct order *order;
    char late[ORDER_TEXT_BYTES / 2];

    if (!lead_all_ready(lead)) {
        lead_name_late(lead, late, sizeof(late));
        lead_note(lead, ret, LEAD_NOTE_STRAGGLER, NO_RANK,
                  "no word from %s that all workers are gone", late);
    }
    order = publish(lead, ret, ORDER_LEAVE);
    order->status = lead->verdict.status;
    order->stop = ORDER_STOP_FORCE;
    str_copy(order->reason, sizeof(order->reason), lead->verdict.reason);
    enter(lead, PHASE_OVER, LEAD_NEVER);
    lead_note(lead, ret, LEAD_NOTE_ENDED, NO_RANK, "%s",
              lead->verdict.status ? lead->verdict.reason : "succeeded");
}
