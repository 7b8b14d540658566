/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

bool lead_is_ready(const struct lead *lead, const struct lead_node *n)
{
    switch (lead->phase) {
    case PHASE_GATHER:
        return n->serial && !n->lost;
    case PHASE_PREPARE:
        if (MUTANT(1)) {
            return n->state >= REPORT_STOPPED;
        }
        return n->state == REPORT_STOPPED &&
               n->generation == lead->generation;
    case PHASE_RUN:
        return n->state == REPORT_DONE && n->generation == lead->generation;
    case PHASE_END:
        return !n->serial || n->lost || n->state == REPORT_ENDED;
    case PHASE_OVER:
        break;
    }
    return true;
}

bool lead_is_started(const struct lead *lead, const struct lead_node *n)
{
    return lead->phase == PHASE_RUN && n->generation == lead->generation &&
           (n->state == REPORT_RUNNING || n->state == REPORT_DONE);
}

static void enter(struct lead *lead, enum phase phase, uint64_t limit_ms)
{
    lead->phase = phase;
    lead->limit_ms = limit_ms;
    lead->n_ready = 0;
    lead->n_started = 0;
    for (uint32_t i = 0; i < lead->config.n_nodes; i++) {
        lead->n_ready += lead_is_ready(lead, &lead->nodes[i]);
        lead->n_started += lead_is_started(lead, &lead->nodes[i]);
    }
}

bool lead_all_ready(const struct lead *lead)
{
    return lead->n_ready >= lead->config.n_nodes - MUTANT(2);
}

/* A fresh order in place of the last. */
static struct order *publish(struct lead *lead, struct lead_actions *ret,
                             enum order_step step)
{
    uint64_t serial = lead->order.serial + !MUTANT(3);

    lead->order = (struct order){
        .serial = serial ? serial : 1,
        .generation = lead->generation,
        .step = step,
    };
    ret->order = &lead->order;
    return &lead->order;
}

/* The node of worker 0. */
static uint32_t store_rank(const struct lead *lead)
{
    uint32_t rank = 0;

    while (rank < lead->config.n_nodes - 1 && !lead->nodes[rank].n_procs) {
        rank++;
    }
    return rank;
}

void lead_prepare(struct lead *lead, struct lead_actions *ret)
{
    struct order *order;
    uint32_t first = lead->config.first_generation;
    uint64_t stop_ms = lead->config.margin_ms;

    lead->generation = lead->generation ? lead->generation + 1
                                        : (first ? first : 1);
    lead->store_port = 0;
    lead->store_addr[0] = '\0';
    lead->has_obstacle = false;
    order = publish(lead, ret, ORDER_PREPARE);
    order->store_rank = store_rank(lead);
    if (lead->ran) {
        order->stop = ORDER_STOP_GRACE;
        order->grace_ms = lead->config.restart_grace_ms;
        order->broken = true;
        stop_ms += order->grace_ms;
    }
    enter(lead, PHASE_PREPARE, lead_later(lead->now_ms, stop_ms));
    lead_note(lead, ret, LEAD_NOTE_PREPARING, NO_RANK,
              "preparing generation %u", lead->generation);
}

uint32_t lead_count_procs(const struct lead *lead)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < lead->config.n_nodes; i++) {
        n += lead->nodes[i].n_procs;
    }
    return n;
}

void lead_run(struct lead *lead, struct lead_actions *ret)
{
    struct order *order = publish(lead, ret, ORDER_RUN);

    order->n_nodes = lead->config.n_nodes;
    order->n_procs = lead->n_procs;
    for (uint32_t i = 0; i < order->n_nodes; i++) {
        lead->n_procs[i] = lead->nodes[i].n_procs;
    }
    str_copy(order->master_addr, sizeof(order->master_addr), lead->store_addr);
    order->master_port = lead->store_port;
    order->n_restarts = lead->n_restarts;
    order->max_restarts = lead->config.restart.max;
    order->resume_step = lead->resume_step;
    str_copy(order->resume_path, sizeof(order->resume_path),
             lead->resume_path);
    if (lead->has_cause) {
        failure_describe(&lead->cause, order->previous,
                         sizeof(order->previous));
    }
    lead->has_cause = false;
    lead->judged = false;
    lead->ran = lead->generation;
    lead->ran_at_ms = lead->now_ms;
    enter(lead, PHASE_RUN, LEAD_NEVER);
    lead_note(lead, ret, LEAD_NOTE_STARTED, NO_RANK,
              "generation %u: %u process%s on %u node%s", lead->generation,
              lead_count_procs(lead), lead_count_procs(lead) == 1 ? "" : "es",
              order->n_nodes, order->n_nodes == 1 ? "" : "s");
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
    if (lead->phase >= PHASE_END && !MUTANT(4)) {
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
