/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdlib.h>

static const char *const phase_names[] = {
    [PHASE_GATHER] = "gather", [PHASE_PREPARE] = "prepare",
    [PHASE_RUN] = "run",       [PHASE_CLAIM] = "claim",
    [PHASE_END] = "end",       [PHASE_OVER] = "over",
};

const char *lead_phase_name(const struct lead *lead)
{
    return phase_names[lead->phase];
}

bool lead_gathers_late(const struct lead *lead, uint64_t now_ms)
{
    return lead->phase == PHASE_GATHER && now_ms >= lead->limit_ms;
}

uint32_t lead_generation(const struct lead *lead)
{
    return lead->generation;
}

uint32_t lead_n_restarts(const struct lead *lead)
{
    return lead->n_restarts;
}

bool lead_is_suspended(const struct lead *lead)
{
    return lead->suspended;
}

struct lead_size lead_size(const struct lead *lead)
{
    return (struct lead_size){.min = lead->min_nodes, .max = lead->max_nodes,
                              .want = lead->want_nodes};
}

uint32_t lead_n_losses(const struct lead *lead)
{
    return lead->n_losses;
}

const struct order *lead_order(const struct lead *lead)
{
    return lead->order.serial ? &lead->order : NULL;
}

const char *lead_resume(const struct lead *lead, int64_t *ret_step)
{
    *ret_step = lead->resume_step;
    return lead->resume_path;
}

const struct avoid *lead_avoid(const struct lead *lead)
{
    return &lead->avoid;
}

bool lead_has_moved(const struct lead *lead)
{
    return lead->has_moved;
}

const struct lead_verdict *lead_verdict(const struct lead *lead)
{
    return lead->phase >= PHASE_END ? &lead->verdict : NULL;
}

const struct lead_node *lead_node(const struct lead *lead, uint32_t rank)
{
    return &lead->nodes[rank];
}

void lead_destroy(struct lead *lead)
{
    if (lead) {
        free(lead->nodes);
        free(lead->n_procs);
        free(lead->gone);
        free(lead->whole);
        free(lead->dead);
        free(lead->node_of);
        view_release(&lead->view);
        view_release(&lead->claim);
        free(lead);
    }
}

int lead_create(const struct lead_config *config, uint64_t now_ms,
                struct lead **ret, struct error *e)
{
    _cleanup_(lead) struct lead *lead = NULL;

    if (config->n_nodes < 1 || config->n_nodes > ORDER_MAX_NODES) {
        return error_text(e, EINVAL, "a run of %u nodes, expected 1 to %d",
                          config->n_nodes, ORDER_MAX_NODES);
    }
    lead = calloc(1, sizeof(*lead));
    if (!lead || lead_set_nodes(lead, config->n_nodes, config->node_of) < 0) {
        return error_set(e, ENOMEM, "lead of %u nodes", config->n_nodes);
    }
    lead->config = *config;
    lead->config.node_of = NULL;
    lead->max_nodes = config->max_nodes ? config->max_nodes
                                        : lead_count_left(lead);
    lead->min_nodes = config->min_nodes ? config->min_nodes : lead->max_nodes;
    lead->want_nodes = config->want_nodes ? config->want_nodes
                                          : lead->max_nodes;
    lead->now_ms = now_ms;
    lead->limit_ms = lead_later(now_ms, config->gang_timeout_ms);
    lead->n_restarts = config->n_restarts;
    lead->resume_step = config->resume_step;
    str_copy(lead->resume_path, sizeof(lead->resume_path),
             config->resume_path ? config->resume_path : "");
    lead->config.resume_path = NULL;
    lead->avoid = config->avoid;
    if (lead_begin(lead, config) < 0) {
        return error_set(e, ENOMEM, "lead of %u nodes", config->n_nodes);
    }
    *ret = take_ptr(&lead);
    return 0;
}

/* Events ----------------------------------------------------------------- */

static const struct {
    uint8_t status;
    const char *text;
} stops[] = {
    [LEAD_STOP_CANCEL] = {RUN_CANCELLED, "cancelled"},
    [LEAD_STOP_PREEMPT] = {RUN_RESUMABLE, "preempted"},
    [LEAD_STOP_DEADLINE] = {RUN_DEADLINE, "the deadline has passed"},
    [LEAD_STOP_SUSPEND] = {RUN_RESUMABLE, "suspended"},
};

void lead_on_stop(struct lead *lead, enum lead_stop stop, bool force,
                  const char *text, struct lead_actions *ret)
{
    enum order_stop how = force ? ORDER_STOP_FORCE : ORDER_STOP_GRACE;
    const char *reason = text && text[0] ? text : stops[stop].text;

    lead->suspended = lead->suspended || stop == LEAD_STOP_SUSPEND;
    if (lead->phase == PHASE_END) {
        if (force && lead->order.stop == ORDER_STOP_GRACE) {
            lead_publish_end(lead, ret, ORDER_STOP_FORCE, 0);
            lead_note(lead, ret, LEAD_NOTE_STOPPING, NO_RANK,
                      "killing what is left");
        }
        if (!MUTANT(4)) {
            return;
        }
    }
    if (lead->phase == PHASE_CLAIM && lead->standing_down && !lead->is_stopped) {
        lead->verdict.status = stops[stop].status; /* of no END yet */
        str_copy(lead->verdict.reason, sizeof(lead->verdict.reason), reason);
    }
    lead->is_stopped = true;
    lead_end(lead, ret, stops[stop].status, reason,
             lead->ran ? how : ORDER_STOP_NONE, lead->config.grace_ms);
}

static int on_event(struct lead *lead, const struct lead_event *event,
                    struct lead_actions *ret)
{
    switch (event->type) {
    case LEAD_TICK:
        return 0;
    case LEAD_REPORT:
        return lead_on_report(lead, event->report, ret);
    case LEAD_LOST:
    case LEAD_HERE:
        if (event->rank >= lead->n_nodes) {
            return -EPROTO;
        }
        if (event->type == LEAD_LOST) {
            lead_lose(lead, event->rank, event, ret);
        } else {
            lead_hear_again(lead, event->rank, ret);
        }
        return 0;
    case LEAD_STOP:
        lead_on_stop(lead, event->stop, event->force, event->text, ret);
        return 0;
    case LEAD_SAVED:
        lead_on_saved(lead, event, ret);
        return 0;
    case LEAD_CHOSEN:
        lead_choose_resume(lead, event, ret);
        return 0;
    case LEAD_PROGRESS:
        lead_on_progress(lead, event->step);
        return 0;
    case LEAD_MISFIT:
        if (event->rank >= lead->n_nodes) {
            return -EPROTO;
        }
        lead_on_misfit(lead, event, ret);
        return 0;
    case LEAD_SCALE:
        return lead_scale(lead, event->n_nodes, ret);
    case LEAD_EXCLUDE:
        if (event->rank >= lead->n_nodes) {
            return -EPROTO;
        }
        if (!lead_exclude(lead, event->rank, event->why, event->text, ret)) {
            return -ENOENT;
        }
        if (event->force) {
            lead_ask_change(lead, event->rank);
        }
        return 0;
    case LEAD_READMIT:
        if (event->rank >= lead->n_nodes) {
            return -EPROTO;
        }
        lead_readmit(lead, event->rank, ret);
        return 0;
    case LEAD_CLAIMED:
        lead_on_claimed(lead, event->outcome, ret);
        return 0;
    case LEAD_QUIET:
        lead->n_quiet = event->n_quiet;
        return 0;
    case LEAD_SHARED:
        lead->view.shared = lead->view.shared || !lead->ran;
        return 0;
    }
    return -EPROTO;
}

/* What answers and time allow -------------------------------------------- */

int lead_add_nodes(struct lead *lead, uint32_t n, const char *const *names,
                   const uint32_t *node_of)
{
    lead->config.names = names;
    return lead_set_nodes(lead, n, node_of);
}

/* After LEAVE nothing happens any more. But what was begun before takes effect as long
 * as this lead is in office, which it is not by the word of those that are silent; and a
 * checkpoint that LEAVE has waited for is the run's last one. */
static bool counts_late(const struct lead *lead, const struct lead_event *event)
{
    return lead->phase == PHASE_OVER &&
           ((event->type == LEAD_LOST && !MUTANT(132)) ||
            (event->type == LEAD_SAVED && !lead->retired));
}

int lead_step(struct lead *lead, const struct lead_event *event,
              struct lead_actions *ret)
{
    enum phase before;
    int rc = 0;

    ret->order = NULL;
    ret->claim = NULL;
    ret->n_notes = 0;
    ret->ask_checkpoint = false;
    if (event->now_ms > lead->now_ms) {
        lead->now_ms = event->now_ms;
    }
    lead->adrift = event->adrift;
    lead->loose = event->loose;
    if (counts_late(lead, event)) {
        rc = on_event(lead, event, ret);
    } else if (lead->phase != PHASE_OVER && !lead->retired) {
        if (lead->is_new) {
            lead_take_over(lead, ret);
        }
        rc = on_event(lead, event, ret);
        do {
            before = lead->phase;
            if (!lead->retired) {
                lead_advance(lead, ret);
            }
        } while (lead->phase != before);
        if (!lead->retired) {
            lead_tell_saved(lead, ret);
        }
    }
    ret->wake_ms = lead_next_wake(lead);
    ret->finished = lead->phase == PHASE_OVER;
    return rc;
}
