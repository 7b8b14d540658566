/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/split.h"

#include <errno.h>
#include <stdlib.h>

enum { KILL_MS = 5, MAX_UNANSWERED = 2 };

/* --- the arbiter: views/ in a directory that all see --- */

static void ask(struct split *s, struct split_agent *a, const struct view *v,
                bool for_lead)
{
    uint64_t at_ms = s->now_ms + split_pick(s, 0, 40);

    if (view_copy(&a->ask, v) < 0) {
        abort();
    }
    if (at_ms < s->hung_until_ms) {
        at_ms = s->hung_until_ms + split_pick(s, 0, 40);
    }
    a->asks = true;
    a->for_lead = for_lead;
    a->ask_tag++;
    split_trace(s, "node %u: claims view %u%s", split_rank(s, a), v->number,
                v->has_verdict ? ", with the end" : "");
    split_push(s, (struct split_event){
        .at_ms = at_ms, .seq = ++s->seq, .type = SP_ASK,
        .to = split_rank(s, a), .tag = a->ask_tag});
    split_post(s, s->now_ms + SPLIT_ASK_MS, SP_ANSWER, split_rank(s, a),
               a->ask_tag);
}

/* Who has made the first view does not hear of that: it is killed; or stopped until the
 * run of the others is over, and finds that nobody has answered. */
static bool meet_creator(struct split *s, struct split_agent *a)
{
    if (s->met_creator || (s->which != SPLIT_CREATE && s->which != SPLIT_UNTOLD)) {
        return false;
    }
    s->met_creator = true;
    if (s->which == SPLIT_CREATE) {
        split_kill(s, a);
    } else {
        split_post(s, s->now_ms, SP_PAUSE, split_rank(s, a), SPLIT_LATE_MS);
    }
    return true;
}

/* link(): a claim is carried out, perhaps after nobody waits for it any more. */
void split_on_ask(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    struct view *file = &s->files[a->ask.number % SPLIT_VIEWS];

    if (a->ask_tag != e->tag || (!a->alive && split_chance(s, 500))) {
        return;
    }
    if (s->arbiter_lies && !file->number && split_chance(s, 100)) {
        split_trace(s, "view %u of node %u is forgotten", a->ask.number, e->to);
        return; /* link() has succeeded, and there is nothing to read */
    }
    if (!file->number) {
        split_trace(s, "view %u is of node %u", a->ask.number, e->to);
        if (a->ask.has_verdict && a->ask.status != RUN_RESUMABLE) {
            s->has_end = true;
            s->end_status = a->ask.status;
            s->end_generation = a->lead ? lead_generation(a->lead) : s->ran;
        }
        if (view_copy(file, &a->ask) < 0) {
            abort();
        }
        if (meet_creator(s, a)) {
            return;
        }
    }
    if (s->arbiter_bad && split_chance(s, 200) &&
        !(s->is_patient && a->n_unanswered >= MAX_UNANSWERED)) {
        a->n_unanswered++;
        return; /* the answer is lost; or what is read back is stale */
    }
    a->n_unanswered = 0;
    split_post(s, s->now_ms + split_pick(s, 0, 20), SP_ANSWER, e->to,
               e->tag | 1u << 31);
}

static bool is_own(const struct split *s, const struct split_agent *a,
                   const struct view *file)
{
    bool same = file->lead == split_rank(s, a) &&
                file->has_verdict == a->ask.has_verdict &&
                file->n_out == a->ask.n_out;

    for (uint32_t i = 0; same && i < s->n; i++) {
        same = view_has(file, i) == view_has(&a->ask, i);
    }
    return same;
}

/* Those that followed it go to another one meanwhile. */
static void stop_loser(struct split *s, struct split_agent *a)
{
    if (s->which == SPLIT_LOST && !s->stopped_loser) {
        s->stopped_loser = true;
        split_post(s, s->now_ms + 1, SP_PAUSE, split_rank(s, a),
                   (uint32_t)split_pick(s, s->lease_ms, s->lease_ms * 2));
    }
}

void split_on_answer(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    bool is_real = e->tag >> 31;
    const struct view *file = &s->files[a->ask.number % SPLIT_VIEWS];
    struct view other = *file; /* borrowed */
    enum heir_outcome outcome = !is_real            ? HEIR_UNKNOWN
                                : is_own(s, a, file) ? HEIR_WON
                                                     : HEIR_LOST;

    if (!a->alive || !a->asks || a->ask_tag != (e->tag & ~(1u << 31))) {
        return;
    }
    if (is_real && s->arbiter_lies && split_chance(s, 100)) {
        other.lead = (uint32_t)split_pick(s, 0, s->n - 1);
        outcome = other.lead == e->to ? outcome : HEIR_LOST;
        file = other.lead == e->to ? file : &other;
    }
    a->asks = false;
    split_trace(s, "node %u: view %u: %s", e->to, a->ask.number,
                outcome == HEIR_WON ? "won" : outcome == HEIR_LOST ? "lost"
                                                                   : "unknown");
    if (!a->for_lead) {
        split_heir(s, a, (struct heir_event){
            .type = HEIR_CLAIMED, .outcome = outcome, .found = file});
        if (outcome == HEIR_LOST) {
            stop_loser(s, a);
        }
        return;
    }
    if (a->lead) {
        split_lead(s, a, (struct lead_event){.type = LEAD_CLAIMED,
                                             .outcome = outcome});
    }
    if (outcome == HEIR_LOST && a->alive) {
        split_heir(s, a, (struct heir_event){.type = HEIR_DEPOSED,
                                             .found = file});
    }
}

/* --- agents --- */

static void end_agent(struct split *s, struct split_agent *a)
{
    a->alive = false;
    a->died_ms = s->now_ms;
    split_agent_gone(s, a);
    for (uint32_t i = 0; i < SPLIT_MAX; i++) {
        a->child[i].linked = false;
    }
    if (a->worker) {
        split_stop_worker(s, a, true);
    }
}

void split_kill(struct split *s, struct split_agent *a)
{
    if (a->alive) {
        split_trace(s, "node %u: the agent is killed", split_rank(s, a));
        a->disturbed = true;
        end_agent(s, a);
    }
}

static void wake(struct split *s, struct split_agent *a, uint32_t which,
                 uint64_t wake_ms)
{
    uint64_t at_ms;

    if (wake_ms == SPLIT_NEVER || wake_ms == a->wake_ms[which]) {
        return;
    }
    a->wake_ms[which] = wake_ms;
    at_ms = split_when(s, a, wake_ms);
    split_post(s, at_ms > s->now_ms ? at_ms : s->now_ms + 1, SP_WAKE,
               split_rank(s, a), which);
}

static void start_lead(struct split *s, struct split_agent *a,
                       const struct heritage *h)
{
    struct lead_config config = split_lead_config(s, a, h);

    a->ordered_run = 0;
    a->untold_ms = 0;
    if (lead_create(&config, split_clock(s, a), &a->lead, NULL) < 0) {
        abort();
    }
}

/* Returns whether the order or word is for the member. */
static bool step_heir(struct split *s, struct split_agent *a,
                      struct heir_event *event)
{
    struct heir_actions do_;
    _buf_ struct buf follow = {0};
    _view_ struct view claim = {0};
    _order_ struct order end = {0};
    _buf_ struct buf found = {0};
    uint32_t left = heir_view(a->heir)->number;
    bool obey, leads;

    event->now_ms = split_clock(s, a);
    if (heir_step(a->heir, event, &do_) == -ENOMEM) {
        abort();
    }
    obey = do_.obey;
    leads = do_.lead != NULL;
    if (do_.follow) {
        follow_encode(do_.follow, &follow);
    }
    if ((do_.claim && view_copy(&claim, do_.claim) < 0) ||
        (do_.order && order_copy(&end, do_.order) < 0)) {
        abort();
    }
    wake(s, a, 0, do_.wake_ms);
    if (do_.quit && a->lead) {
        split_trace(s, "node %u: leads no more", split_rank(s, a));
        lead_destroy(a->old_lead);
        a->old_lead = a->lead;
        a->lead = NULL;
        split_dial_soon(s, a, 1);
    }
    if (leads) {
        split_trace(s, "node %u: takes the lead, view %u, clear at %llu",
                    split_rank(s, a), do_.lead->view.number,
                    (unsigned long long)split_when(s, a, do_.lead->clear_ms));
        split_check_camp(s, a, do_.lead, left);
        start_lead(s, a, do_.lead);
    }
    if (do_.seek != HEIR_NO_RANK) {
        a->seek = do_.seek;
        a->next_dial = 0;
    }
    if (do_.floor) {
        split_member(s, a, (struct member_event){
            .type = MEMBER_PROMISE, .floor = do_.floor,
            .heard_ms = do_.heard_ms});
    }
    if (follow.len) {
        split_trace(s, "node %u: follows, from view %u", split_rank(s, a),
                    heir_view(a->heir)->number);
        split_send_up(s, a, FR_FOLLOW, split_rank(s, a), &follow);
    }
    if (do_.claim) {
        ask(s, a, &claim, false);
    }
    if (leads && a->alive) {
        split_lead(s, a, (struct lead_event){.type = LEAD_TICK});
        split_become_root(s, a);
    }
    if (end.serial) {
        order_encode(&end, &found);
        if (end.serial > a->order_serial) {
            a->order_serial = end.serial;
            split_send_below(s, a, &found);
        }
        split_member(s, a, (struct member_event){.type = MEMBER_ORDER,
                                                 .order = &end});
    }
    if (do_.leave) {
        split_trace(s, "node %u: has to leave: %s", split_rank(s, a),
                    do_.leave);
        split_member(s, a, (struct member_event){.type = MEMBER_LEAVE,
                                                 .text = do_.leave});
    }
    return obey;
}

void split_heir(struct split *s, struct split_agent *a,
                struct heir_event event)
{
    if (!a->alive) {
        return;
    }
    if (step_heir(s, a, &event) && event.type == HEIR_WORD && a->alive) {
        split_member(s, a, (struct member_event){.type = MEMBER_WORD,
                                                 .age_ms = event.age_ms});
    }
}

void split_take_order(struct split *s, struct split_agent *a,
                      const struct buf *bytes)
{
    _order_ struct order order = {0};
    struct heir_event event = {.type = HEIR_ORDER, .order = &order};
    bool obey;

    if (!a->alive) {
        return;
    }
    if (order_decode(bytes->data, bytes->len, &order, NULL) < 0) {
        split_fail(s, "an order does not parse");
        return;
    }
    split_miss(s, a, &order);
    obey = step_heir(s, a, &event);

    if (!a->alive) {
        return;
    }
    /* Those below judge for themselves. */
    if (order.serial > a->order_serial) {
        a->order_serial = order.serial;
        split_send_below(s, a, bytes);
    }
    if (obey) {
        split_member(s, a, (struct member_event){.type = MEMBER_ORDER,
                                                 .order = &order});
    }
}

void split_lead(struct split *s, struct split_agent *a,
                struct lead_event event)
{
    struct lead_actions *do_;
    _buf_ struct buf bytes = {0};
    _view_ struct view claim = {0};

    if (!a->alive || !a->lead) {
        return;
    }
    do_ = calloc(1, sizeof(*do_));
    event.now_ms = split_clock(s, a);
    event.adrift = !heir_is_in_office(a->heir, event.now_ms);
    event.loose = !heir_has_hold(a->heir, event.now_ms);
    if (!do_ || lead_step(a->lead, &event, do_) < 0) {
        split_fail(s, "the lead refused an event of type %d", event.type);
    }
    for (size_t i = 0; i < do_->n_notes; i++) {
        split_trace(s, "lead %u: %s: %s", split_rank(s, a),
                    lead_note_name(do_->notes[i].type), do_->notes[i].text);
    }
    if (do_->order) {
        split_trace(s, "lead %u: order %llx: %s %u, view %u, status %u",
                    split_rank(s, a), (unsigned long long)do_->order->serial,
                    order_step_name(do_->order->step), do_->order->generation,
                    do_->order->view.number, do_->order->status);
        split_check_order(s, a, do_->order);
        a->ordered_run = do_->order->step == ORDER_RUN ? do_->order->generation
                                                       : a->ordered_run;
        order_encode(do_->order, &bytes);
    }
    split_check_told(s, a);
    if (do_->claim && view_copy(&claim, do_->claim) < 0) {
        abort();
    }
    if (do_->wake_ms <= event.now_ms) {
        split_fail(s, "the lead %u (%s) has no rest", split_rank(s, a),
                   lead_phase_name(a->lead));
    }
    wake(s, a, 2, do_->wake_ms);
    if (do_->claim) {
        ask(s, a, &claim, true);
    }
    if (do_->finished && !a->told) {
        split_post(s, s->now_ms + 500, SP_KILL, split_rank(s, a), 1);
    }
    free(do_);
    if (bytes.len) {
        split_take_order(s, a, &bytes);
    }
}

/* --- workers --- */

void split_stop_worker(struct split *s, struct split_agent *a, bool kill)
{
    uint64_t at_ms = s->now_ms + split_pick(s, 0, kill ? KILL_MS : 300);

    a->signalled = true;
    if (a->worker && at_ms < a->die_ms) {
        a->die_ms = at_ms;
        a->ended_well = false;
        split_post(s, at_ms, SP_DIE, split_rank(s, a), a->generation);
    }
}

static void spawn(struct split *s, struct split_agent *a)
{
    uint32_t rank = split_rank(s, a);
    bool fails = split_chance(s, s->p_fail);

    if (!a->alive || !a->starting) {
        return;
    }
    a->worker = true;
    a->starting = false;
    a->ended_well = !fails;
    a->die_ms = s->now_ms + (fails ? split_pick(s, 0, s->duration_ms)
                                   : s->duration_ms);
    split_post(s, a->die_ms, SP_DIE, rank, a->generation);
    if (split_chance(s, 500)) {
        split_post(s, s->now_ms + split_pick(s, 1, 2000), SP_SAVE, rank,
                   a->generation);
    }
    if (a->signalled) {
        split_stop_worker(s, a, true);
    }
    split_member(s, a, (struct member_event){.type = MEMBER_STARTED,
                                             .generation = a->generation});
}

/* The agent reaps its worker. */
static void reap(struct split *s, struct split_agent *a)
{
    struct failure f = {.kind = FAILURE_EXIT, .exit_code = 3,
                        .generation = a->generation, .pid = 7,
                        .wall_ns = split_rnd(s), /* wall clocks jump */
                        .killed_by_us = a->signalled};

    split_member(s, a, (struct member_event){
        .type = MEMBER_EXITED, .generation = a->generation,
        .failure = a->ended_well ? NULL : &f});
    split_member(s, a, (struct member_event){.type = MEMBER_GONE,
                                             .generation = a->generation});
}

static void save(struct split *s, struct split_agent *a)
{
    if (a->worker) {
        split_post(s, s->now_ms + split_pick(s, 1, 2000), SP_SAVE,
                   split_rank(s, a), a->generation);
        split_member(s, a, (struct member_event){
            .type = MEMBER_SAVED, .generation = a->generation, .text = "saved",
            .step = (int64_t)s->now_ms});
        split_on_saved(s, a);
    }
}

void split_on_work(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];

    if (a->generation != e->tag) {
        return;
    }
    if (e->type == SP_SPAWNED) {
        spawn(s, a);
    } else if (e->type == SP_SAVE) {
        save(s, a);
    } else if (e->type == SP_GONE) {
        reap(s, a);
    } else if (a->worker && a->die_ms <= s->now_ms) {
        split_trace(s, "node %u: the worker of %u ends%s", e->to, e->tag,
                    a->ended_well ? " well" : "");
        a->worker = false;
        split_post(s, s->now_ms + 1, SP_GONE, e->to, e->tag);
    }
}

void split_member(struct split *s, struct split_agent *a,
                  struct member_event event)
{
    struct member_actions do_;
    _buf_ struct buf report = {0};
    uint32_t rank = split_rank(s, a);

    if (!a->alive) {
        return;
    }
    event.now_ms = split_clock(s, a);
    (void)member_step(a->member, &event, &do_);
    if (do_.stop != MEMBER_STOP_NONE) {
        split_stop_worker(s, a, do_.stop == MEMBER_STOP_KILL);
    }
    if (do_.open_store) {
        split_post(s, s->now_ms + 3, SP_STORE, rank, do_.open_store);
    }
    if (do_.start) {
        split_trace(s, "node %u: starts %u", rank, do_.start->generation);
        split_check_start(s, a, do_.start);
        a->generation = do_.start->generation;
        a->view = do_.start->view.number;
        a->starting = true;
        a->signalled = false;
        split_post(s, s->now_ms + split_pick(s, 0, 10), SP_SPAWNED, rank,
                   a->generation);
    }
    wake(s, a, 1, do_.wake_ms);
    if (do_.send) {
        split_trace(s, "node %u: report %llu: %s %u, floor %u", rank,
                    (unsigned long long)do_.send->serial,
                    report_state_name(do_.send->state), do_.send->generation,
                    do_.send->floor);
        report_encode(do_.send, &report);
    }
    if (do_.leave && !a->told) {
        a->told = true;
        a->status = member_status(a->member);
        split_trace(s, "node %u: leaves, status %u: %s", rank, a->status,
                    member_reason(a->member));
        split_post(s, s->now_ms + (a->lead ? 500 : 1), SP_KILL, rank, 1);
    }
    if (report.len) {
        buf_clear(&a->below[rank].report);
        buf_append(&a->below[rank].report, report.data, report.len);
        if (a->lead) {
            struct report r;

            (void)report_decode(report.data, report.len, &r, NULL);
            split_lead(s, a, (struct lead_event){.type = LEAD_REPORT,
                                                 .report = &r});
        } else {
            split_send_up(s, a, FR_REPORT, rank, &report);
        }
    }
}
