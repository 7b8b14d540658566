/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_names[] = {
    [PHASE_GATHER] = "gather", [PHASE_PREPARE] = "prepare",
    [PHASE_RUN] = "run",       [PHASE_CLAIM] = "claim",
    [PHASE_END] = "end",       [PHASE_OVER] = "over",
};

const char *lead_phase_name(const struct lead *lead)
{
    return phase_names[lead->phase];
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
    if (lead_begin(lead, config) < 0) {
        return error_set(e, ENOMEM, "lead of %u nodes", config->n_nodes);
    }
    *ret = take_ptr(&lead);
    return 0;
}

/* Events ----------------------------------------------------------------- */

static void keep_store(struct lead *lead, const struct report *r)
{
    if (lead->phase == PHASE_PREPARE && r->state == REPORT_STOPPED &&
        r->generation == lead->generation && r->rank == lead->store_rank &&
        r->store_port) {
        lead->store_port = r->store_port;
        str_copy(lead->store_addr, sizeof(lead->store_addr), r->store_addr);
    }
}

static void set_resume(struct lead *lead, const char *path, int64_t step,
                       struct lead_actions *ret)
{
    str_copy(lead->resume_path, sizeof(lead->resume_path), path);
    lead->resume_step = step;
    lead->saved_generation = lead->ran;
    lead->was_saved = true;
    lead_note(lead, ret, LEAD_NOTE_SAVED, NO_RANK, "%s", lead->resume_path);
}

/* Only what the newest generation wrote: one that was given up must not move
 * its successor's start. */
static void keep_saved(struct lead *lead, const struct report *r,
                       struct lead_actions *ret)
{
    if (!r->saved_path[0] || !lead->ran || r->saved_generation != lead->ran) {
        return;
    }
    if (lead->saved_generation < lead->ran ||
        r->saved_step > lead->resume_step) {
        set_resume(lead, r->saved_path, r->saved_step, ret);
    }
}

/* No checkpoint was made: nothing that waits for one goes on. */
static void choose_resume(struct lead *lead, const struct lead_event *event)
{
    str_copy(lead->resume_path, sizeof(lead->resume_path),
             event->text ? event->text : "");
    lead->resume_step = event->step;
    if (lead->order.step == ORDER_RUN) {
        str_copy(lead->order.past.resume_path,
                 sizeof(lead->order.past.resume_path), lead->resume_path);
        lead->order.past.resume_step = lead->resume_step;
    }
}

static void on_failure(struct lead *lead, const struct failure *f,
                       struct lead_actions *ret)
{
    if (f->killed_by_us && !MUTANT(6)) {
        return;
    }
    if (lead->phase == PHASE_RUN && f->generation == lead->ran) {
        lead_add_cause(lead, f);
        lead_fail(lead, ret);
    } else if (lead->phase == PHASE_PREPARE && f->generation == lead->ran &&
               lead->has_cause) {
        lead_add_cause(lead, f);
    } else if (lead->phase == PHASE_PREPARE &&
               f->generation == lead->generation && !lead->has_obstacle) {
        lead->has_obstacle = true;
        lead->obstacle = *f;
    }
}

/* Whether nothing that `ran` started can be alive on a node that says this. */
static bool has_stopped(const struct lead *lead, const struct report *r)
{
    return r->state == REPORT_ENDED ||
           (r->state == REPORT_STOPPED && r->generation > lead->ran) ||
           (r->state == REPORT_DONE && r->generation == lead->ran);
}

static void update_node(struct lead *lead, struct lead_node *n,
                        const struct report *r)
{
    lead_uncount(lead, n);
    lead->came_ms = n->serial ? lead->came_ms : lead->now_ms;
    n->serial = r->serial;
    n->expected = false;
    n->n_procs = r->n_procs;
    n->n_alive = r->n_alive;
    if (lead_is_of_view(lead, r)) {
        n->generation = r->generation;
        n->state = r->state;
        n->may_run = n->may_run && !has_stopped(lead, r);
    } else {
        n->generation = 0;
        n->state = REPORT_JOINED;
    }
    lead_count(lead, n);
}

static int on_report(struct lead *lead, const struct report *r,
                     struct lead_actions *ret)
{
    struct lead_node *n;
    bool was_started = lead->n_started == lead->n_nodes;

    if (!r || r->rank >= lead->n_nodes ||
        (r->generation > lead->generation && !lead->config.rule.on)) {
        return -EPROTO;
    }
    n = &lead->nodes[r->rank];
    lead_look_at_floor(lead, r, ret);
    if (!lead_hear_report(lead, r, ret) || r->serial <= n->serial) {
        return 0;
    }
    if (n->serial && r->state == REPORT_JOINED && n->state != REPORT_JOINED) {
        lead_lose(lead, r->rank, &(struct lead_event){
            .dead = true, .text = "its agent was started again"}, ret);
        return 0;
    }
    update_node(lead, n, r);
    if (lead_is_of_view(lead, r)) {
        keep_store(lead, r);
    }
    keep_saved(lead, r, ret);
    if (r->failed && r->failure.node == r->rank) { /* each speaks for itself */
        on_failure(lead, &r->failure, ret);
    }
    if (!was_started && lead->phase == PHASE_RUN &&
        lead->n_started == lead->n_nodes) {
        lead_note(lead, ret, LEAD_NOTE_RUNNING, NO_RANK,
                  "generation %u: all workers were started", lead->generation);
    }
    return 0;
}

static const struct {
    uint8_t status;
    const char *text;
} stops[] = {
    [LEAD_STOP_CANCEL] = {RUN_CANCELLED, "cancelled"},
    [LEAD_STOP_PREEMPT] = {RUN_RESUMABLE, "preempted"},
    [LEAD_STOP_DEADLINE] = {RUN_DEADLINE, "the deadline has passed"},
    [LEAD_STOP_SUSPEND] = {RUN_RESUMABLE, "suspended"},
};

static void on_stop(struct lead *lead, enum lead_stop stop, bool force,
                    const char *text, struct lead_actions *ret)
{
    enum order_stop how = force ? ORDER_STOP_FORCE : ORDER_STOP_GRACE;

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
    lead_end(lead, ret, stops[stop].status,
             text && text[0] ? text : stops[stop].text,
             lead->ran ? how : ORDER_STOP_NONE, lead->config.grace_ms);
}

static int on_event(struct lead *lead, const struct lead_event *event,
                    struct lead_actions *ret)
{
    switch (event->type) {
    case LEAD_TICK:
        return 0;
    case LEAD_REPORT:
        return on_report(lead, event->report, ret);
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
        on_stop(lead, event->stop, event->force, event->text, ret);
        return 0;
    case LEAD_SAVED:
        if (event->text && (!lead->resume_path[0] ||
                            event->step > lead->resume_step)) {
            set_resume(lead, event->text, event->step, ret);
        }
        return 0;
    case LEAD_CHOSEN:
        choose_resume(lead, event);
        return 0;
    case LEAD_MISFIT:
        lead_end(lead, ret, RUN_FAILED, event->text ? event->text : "misfit",
                 lead->ran ? ORDER_STOP_GRACE : ORDER_STOP_NONE,
                 lead->config.restart_grace_ms);
        return 0;
    case LEAD_SCALE:
        return lead_scale(lead, event->n_nodes, ret);
    case LEAD_EXCLUDE:
        if (event->rank >= lead->n_nodes) {
            return -EPROTO;
        }
        return lead_exclude(lead, event->rank, event->text, ret) ? 0 : -ENOENT;
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

static bool has_procs(const struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        if (lead_is_here(&lead->nodes[i]) && lead->nodes[i].n_procs) {
            return true;
        }
    }
    return false;
}

static void end_gather(struct lead *lead, const char *late,
                       struct lead_actions *ret)
{
    char reason[ORDER_TEXT_BYTES];

    snprintf(reason, sizeof(reason),
             "%u of %u nodes did not join within %llu s: %s",
             lead->n_nodes - lead->n_ready, lead->n_nodes,
             (unsigned long long)(lead->config.gang_timeout_ms / 1000), late);
    lead_end(lead, ret, RUN_NO_GANG, reason, ORDER_STOP_NONE, 0);
}

static uint32_t count_here(const struct lead *lead)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        n += lead_is_here(&lead->nodes[i]);
    }
    return n;
}

static void advance_gather(struct lead *lead, struct lead_actions *ret)
{
    bool is_late = lead->now_ms >= lead->limit_ms;
    char late[ORDER_TEXT_BYTES / 2];
    uint32_t n_here;

    if (!lead_all_ready(lead) && !is_late) {
        return;
    }
    lead_name_late(lead, late, sizeof(late));
    if (lead_choose(lead, false) < lead->min_nodes && !MUTANT(2)) {
        end_gather(lead, late, ret);
    } else if (!has_procs(lead)) {
        lead_end(lead, ret, RUN_FAILED, "no node has a process to run",
                 ORDER_STOP_NONE, 0);
    } else {
        n_here = count_here(lead);
        if (!lead_all_ready(lead)) {
            lead_note(lead, ret, LEAD_NOTE_STRAGGLER, NO_RANK,
                      "starting without %s", late);
        }
        lead_note(lead, ret, LEAD_NOTE_GATHERED, NO_RANK, "%u node%s", n_here,
                  n_here == 1 ? "" : "s");
        lead_found(lead);
        lead_prepare(lead, ret);
    }
}

/* All have stopped, and the time for it has come. */
static void start_run(struct lead *lead, struct lead_actions *ret)
{
    if (lead_choose(lead, true) < lead->min_nodes && !MUTANT(20)) {
        lead_end_short(lead, ret);
    } else if (!lead_may_go_on(lead)) {
        lead_end_short(lead, ret);
    } else if (lead_store_rank(lead) != lead->store_rank && !MUTANT(23)) {
        lead_prepare(lead, ret); /* worker 0 will be on another node */
    } else {
        lead_run(lead, ret);
    }
}

uint64_t lead_run_ms(const struct lead *lead)
{
    uint64_t clear_ms = lead_clear_ms(lead);

    return clear_ms > lead->hold_ms ? clear_ms : lead->hold_ms;
}

static void advance_prepare(struct lead *lead, struct lead_actions *ret)
{
    char late[ORDER_TEXT_BYTES / 2];
    char reason[ORDER_TEXT_BYTES];
    bool must_wait = lead_claim_if_needed(lead, ret);

    if (lead_all_ready(lead)) {
        if (lead->has_cause && !lead->judged && !lead->has_lost &&
            !lead_judge(lead, ret)) {
            return;
        }
        if (lead->has_obstacle) {
            lead_give_up(lead, ret);
        } else if (lead->now_ms >= lead_run_ms(lead) && !must_wait) {
            start_run(lead, ret);
        }
    } else if (lead->now_ms >= lead->limit_ms) {
        lead_name_late(lead, late, sizeof(late));
        snprintf(reason, sizeof(reason),
                 "not ready for generation %u in time: %s", lead->generation,
                 late);
        lead_note(lead, ret, LEAD_NOTE_STRAGGLER, NO_RANK, "%s", reason);
        lead_end(lead, ret, RUN_RESUMABLE, reason, ORDER_STOP_FORCE, 0);
    }
}

/* One move of the machine, if there is one to make. */
static void advance(struct lead *lead, struct lead_actions *ret)
{
    if (lead->phase < PHASE_CLAIM && lead->config.deadline_ms &&
        lead->now_ms >= lead->config.deadline_ms) {
        on_stop(lead, LEAD_STOP_DEADLINE, false, NULL, ret);
        return;
    }
    switch (lead->phase) {
    case PHASE_GATHER:
        advance_gather(lead, ret);
        return;
    case PHASE_PREPARE:
        advance_prepare(lead, ret);
        return;
    case PHASE_RUN:
        (void)lead_claim_if_needed(lead, ret);
        if (!lead_may_go_on(lead)) {
            lead_end_short(lead, ret); /* spares, but many of them */
        } else if (lead_all_ready(lead)) {
            lead_succeed(lead, ret);
        } else {
            lead_change(lead, ret);
        }
        return;
    case PHASE_CLAIM:
        lead_advance_claim(lead, ret);
        return;
    case PHASE_END:
        if (lead_all_ready(lead) || lead->now_ms >= lead->limit_ms) {
            lead_leave(lead, ret);
        }
        return;
    case PHASE_OVER:
        return;
    }
}

static uint64_t next_wake(struct lead *lead)
{
    uint64_t wake_ms = lead->limit_ms;

    if (lead->phase == PHASE_OVER || lead->retired) {
        return LEAD_NEVER;
    }
    if (lead->phase == PHASE_PREPARE && lead_all_ready(lead)) {
        wake_ms = lead_run_ms(lead);
        wake_ms = lead->claiming && wake_ms <= lead->now_ms ? LEAD_NEVER
                                                            : wake_ms;
    } else if (lead->phase == PHASE_RUN) {
        wake_ms = lead_change_ms(lead);
    }
    if (lead->phase == PHASE_CLAIM && lead->now_ms < lead->end_claim_ms) {
        wake_ms = lead->end_claim_ms;
    }
    if (lead->phase < PHASE_CLAIM && lead->config.deadline_ms &&
        lead->config.deadline_ms < wake_ms) {
        wake_ms = lead->config.deadline_ms;
    }
    return wake_ms;
}

int lead_add_nodes(struct lead *lead, uint32_t n, const char *const *names,
                   const uint32_t *node_of)
{
    lead->config.names = names;
    return lead_set_nodes(lead, n, node_of);
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
    if (lead->phase != PHASE_OVER && !lead->retired) {
        if (lead->is_new) {
            lead_take_over(lead, ret);
        }
        rc = on_event(lead, event, ret);
        do {
            before = lead->phase;
            if (!lead->retired) {
                advance(lead, ret);
            }
        } while (lead->phase != before);
    }
    ret->wake_ms = next_wake(lead);
    ret->finished = lead->phase == PHASE_OVER;
    return rc;
}
