/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead's side of the agent that leads: hands events to rendezvous/lead.h, and
 * carries out what that decides.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/clock.h"
#include "base/str.h"
#include "launcher/agent_hang.h"
#include "launcher/agent_late.h"
#include "launcher/agent_record.h"
#include "launcher/agent_steps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- stepping --- */

/* A watch over hangs is for a generation that runs, and nothing else. */
static void take_note(struct agent_lead *l, const struct lead_note *n)
{
    if (n->type == LEAD_NOTE_RUNNING) {
        lead_hang_running(l->hang);
    } else if (n->type == LEAD_NOTE_PREPARING ||
               n->type == LEAD_NOTE_STOPPING || n->type == LEAD_NOTE_ENDED) {
        lead_hang_over(l->hang);
    }
    lead_late_note(l->late, n->type);
    record_note(l->record, l->core, n);
    if (n->type == LEAD_NOTE_SAVED) {
        bool is_own = n->generation >= l->started; /* of the newest workers */

        l->has_saved |= is_own;
        if (l->started && is_own) { /* and this lead has started them */
            lead_bucket_doubt(l->bucket, false);
        }
        lead_bucket_saved(l->bucket, record_status(l->record)->resume_path, true);
    }
}

static void on_timer(uv_timer_t *t);

/* Said at the start: two of a pair cannot tell a loss from a cut. */
static void warn(struct agent_lead *l, const struct order *run)
{
    struct agent *a = l->agent;

    if (a->heir && !run->view.shared && run->n_nodes == 2 && !l->has_warned) {
        l->has_warned = true;
        agent_note(a, "the nodes do not see the same run directory: this run "
                   "does not outlive the loss of %s, which leads it", a->host);
    }
}

static void give(struct agent_lead *l, const struct order *order)
{
    if (order->step == ORDER_RUN && order->generation != l->started) {
        l->started = order->generation;
        l->has_saved = false;
        warn(l, order);
        record_started(l->record, order);
        lead_hang_ordered(l->hang, order);
        log_pruner_start(l->old_logs, order->generation);
    }
    agent_order_publish(&l->order, order);
}

/* The order that waits, as long as it is the newest; or NULL. */
static const struct order *held(const struct agent_lead *l)
{
    const struct order *order = lead_order(l->core);

    return l->held && order && order->serial == l->held ? order : NULL;
}

/* What its workers start from is known: the order goes out. */
static void start_from(struct agent_lead *l, const char *path, int64_t step)
{
    struct lead_event event = {.type = LEAD_CHOSEN, .text = path, .step = step};
    struct run_status *s = record_status(l->record);
    const struct order *order = held(l);

    if (order && (strcmp(order->resume_path, path) != 0 ||
                  avoid_has(lead_avoid(l->core), path))) {
        agent_lead_step(l, &event);
        order = held(l);
    }
    str_copy(s->resume_path, sizeof(s->resume_path),
             lead_resume(l->core, &s->resume_step));
    lead_bucket_saved(l->bucket, s->resume_path, false);
    if (order) {
        l->held = 0;
        give(l, order);
    }
}

/* Where nobody is to start from it, and no older one can be asked for, the core has the
 * last word. */
static void look_for(struct agent_lead *l, const char *path, int64_t step)
{
    const struct order *order = held(l);
    bool is_out = avoid_has(lead_avoid(l->core), path);

    if (order && !lead_look_ask(l->look, order, path, step,
                                is_out ? l->avoided : NULL)) {
        start_from(l, is_out ? "" : path, is_out ? -1 : step);
    }
}

/* No worker is alive when an order to run another generation comes: the time to look
 * at what they have left. What was saved since the order was made counts, too. */
static void look_and_give(struct agent_lead *l, const struct order *order)
{
    char path[ORDER_PATH_BYTES];
    int64_t step;

    l->held = 0;
    if (order->step != ORDER_RUN || order->generation == l->started) {
        give(l, order);
        return;
    }
    l->held = order->serial;
    str_copy(path, sizeof(path), lead_resume(l->core, &step));
    if (l->fetched[0] && !avoid_has(lead_avoid(l->core), l->fetched) &&
        (!path[0] || l->fetched_step > step ||
         lead_bucket_is_damaged(l->bucket, path))) {
        str_copy(path, sizeof(path), l->fetched);
        step = l->fetched_step;
    }
    l->fetched[0] = '\0';
    if (!lead_watch_ask(l->ckpts, order, path, step)) {
        look_for(l, path, step);
    }
}

/* The store is asked before the first workers start, where those before have saved
 * nothing, which may be for what they were to start from, and once all are gone. */
static void ask_store(struct agent_lead *l, const struct order *order)
{
    bool is_asked = false;

    if (order->step == ORDER_RUN && order->generation != l->started) {
        bool is_first = !l->started && !l->is_heir;

        is_asked = (is_first || !l->has_saved) &&
                   lead_bucket_fetch(l->bucket, !is_first);
    } else if (order->step == ORDER_LEAVE) {
        agent_lead_last_begin(l);
        is_asked = agent_lead_last_next(l);
    }
    if (is_asked) {
        l->held = order->serial;
    } else {
        look_and_give(l, order);
    }
}

/* The next workers are to start from the last save of those before them, and a run
 * that has failed is over when that is on the disk. Who stops a run has said how long
 * that may take. */
static bool waits_for_saves(const struct agent_lead *l, const struct order *order)
{
    return order->step == ORDER_RUN ? order->generation != l->started
                                    : order->step == ORDER_LEAVE &&
                                          order->status != RUN_SUCCEEDED &&
                                          !l->is_stopping;
}

/* Who looks at the directory once the run is over finds what stays. */
static bool waits_for_removal(const struct agent_lead *l, const struct order *order)
{
    return order->step == ORDER_LEAVE && !l->is_stopping;
}

static bool has_to_wait(struct agent_lead *l, const struct order *order)
{
    return waits_for_saves(l, order)
               ? lead_snap_ask(l->snaps)
               : waits_for_removal(l, order) && lead_snap_ask_removed(l->snaps);
}

/* The next order takes the place of one that waits. */
static void publish(struct agent_lead *l, const struct order *order)
{
    lead_snap_forget(l->snaps);
    lead_look_forget(l->look);
    agent_lead_last_forget(l);
    if (order->step == ORDER_LEAVE && order->status == RUN_SUCCEEDED) {
        lead_snap_end(l->snaps); /* who goes on may find what is lacking */
    }
    if (order->step == ORDER_LEAVE) {
        lead_snap_leave(l->snaps);
    }
    if (has_to_wait(l, order)) {
        l->held = order->serial;
    } else {
        ask_store(l, order);
    }
}

static void on_quiet(void *arg)
{
    struct agent_lead *l = arg;
    const struct order *order = held(l);

    if (order) {
        ask_store(l, order);
    }
}

static void on_fetched(void *arg, const char *path, int64_t step)
{
    struct agent_lead *l = arg;
    const struct order *order = held(l);

    if (strlen(path) < sizeof(l->fetched)) {
        str_copy(l->fetched, sizeof(l->fetched), path);
        l->fetched_step = step;
    }
    if (order) {
        look_and_give(l, order);
    }
}

void agent_lead_go_on(struct agent_lead *l)
{
    const struct order *order = held(l);

    if (order) {
        look_and_give(l, order);
    }
}

void agent_lead_finished(void *arg)
{
    struct agent_lead *l = arg;

    if (!held(l) || !agent_lead_last_next(l)) {
        agent_lead_go_on(l);
    }
}

static void on_stored(void *arg, const char *path, const char *uuid, int error,
                      const char *why)
{
    struct agent_lead *l = arg;

    lead_snap_stored(l->snaps, path, uuid, error, why);
}

const struct lead_bucket_ops agent_lead_bucket_ops = {
    .on_stored = on_stored,
    .on_fetched = on_fetched,
    .on_finished = agent_lead_finished,
};

void agent_lead_step(struct agent_lead *l, struct lead_event *event)
{
    struct agent *a = l->agent;
    struct lead_actions *do_;
    int rc;

    if (a->leaving) {
        return;
    }
    do_ = calloc(1, sizeof(*do_));
    if (!do_) {
        agent_log(a, "out of memory: an event of the run is lost");
        return;
    }
    uv_update_time(&a->loop);
    event->now_ms = uv_now(&a->loop);
    event->adrift = !agent_heir_in_office(a);
    event->loose = !agent_heir_has_hold(a);
    rc = lead_step(l->core, event, do_);
    agent_steps_lead(a, l->core, event, rc, do_);
    agent_lead_avoid(l);
    if (rc == -EPROTO) {
        agent_log(a, "a report that makes no sense was left aside");
    }
    for (size_t i = 0; i < do_->n_notes; i++) {
        take_note(l, &do_->notes[i]);
    }
    if (do_->ask_checkpoint) {
        agent_ask_checkpoint(a, lead_generation(l->core), "");
    }
    if (do_->claim) {
        agent_heir_claim(a, do_->claim);
    }
    if (do_->wake_ms != LEAD_NEVER) {
        uint64_t now = uv_now(&a->loop);

        uv_timer_start(l->timer, on_timer,
                       do_->wake_ms > now ? do_->wake_ms - now : 0, 0);
    } else {
        uv_timer_stop(l->timer);
    }
    if (do_->order) {
        publish(l, do_->order); /* last: it may step again */
    }
    free(do_);
}

static void on_timer(uv_timer_t *t)
{
    struct lead_event tick = {.type = LEAD_TICK};

    agent_lead_shares(t->data, ROSTER_NO_RANK);
    agent_lead_step(t->data, &tick);
}

void agent_lead_halt(struct agent_lead *l, enum lead_stop kind, bool force,
                     const char *text)
{
    struct lead_event event = {.type = LEAD_STOP, .stop = kind,
                               .force = force, .text = text};
    bool is_over = agent_lead_last_is_awaited(l); /* but for that */

    l->is_stopping = true;
    l->is_forced |= force;
    agent_lead_step(l, &event);
    if (is_over && agent_lead_last_forget(l)) {
        agent_lead_go_on(l);
    }
    if (force && lead_snap_forget(l->snaps)) {
        on_quiet(l);
    }
}

/* --- checkpoints that the program writes by itself --- */

static void take_saved(struct agent_lead *l, struct lead_event *event)
{
    if (event->force) {
        lead_late_saved(l->late);
        record_status(l->record)->saved_ns = clock_wall_ns();
    }
    agent_lead_step(l, event);
}

/* To the core one that was written to is no other one; to a store it is. */
static void on_found_saved(void *arg, const char *path, int64_t step_, bool is_new,
                           bool is_again)
{
    struct agent_lead *l = arg;

    lead_copy_saved(l->copies, path);
    take_saved(l, &(struct lead_event){.type = LEAD_SAVED, .text = path, .step = step_,
                                         .force = is_new});
    if (is_again && strcmp(record_status(l->record)->resume_path, path) == 0) {
        lead_bucket_saved(l->bucket, path, true);
    }
}

static void on_saved(void *arg, const char *path, int64_t step_, uint32_t generation,
                     bool is_new, bool is_later)
{
    struct agent_lead *l = arg;

    if (is_later && lead_watch_has(l->ckpts, path)) { /* where it is found only later */
        lead_copy_saved(l->copies, path);
    }
    take_saved(l, &(struct lead_event){.type = LEAD_SAVED, .text = path, .step = step_,
                                       .generation = generation, .force = is_new,
                                       .is_later = is_later});
    record_saved(l->record, path, step_);
}

static void on_failed(void *arg, const char *name, const char *why)
{
    struct agent_lead *l = arg;

    record_save_failed(l->record, name, why);
}

static void on_chosen(void *arg, const char *path, int64_t step_)
{
    look_for(arg, path, step_);
}

static void on_found(void *arg, const char *path, int64_t step_)
{
    start_from(arg, path, step_);
}

/* Each rank that is there is shown in time; that it begins and ends, now. */
static void on_saving(void *arg, uint64_t step_, uint32_t written, uint32_t ranks)
{
    struct agent_lead *l = arg;
    struct run_status *s = record_status(l->record);
    bool turns = (s->saving_ranks > 0) != (ranks > 0);

    s->saving_step = (int64_t)step_;
    s->saving_written = written;
    s->saving_ranks = ranks;
    if (turns) {
        record_touch(l->record);
    }
}

static void on_took(void *arg, enum interval_level_id level, double seconds)
{
    struct agent_lead *l = arg;

    run_status_took(record_status(l->record), level, seconds);
}

static void on_busy(void *arg, enum interval_level_id level, bool is_busy)
{
    struct agent_lead *l = arg;

    if (level != INTERVAL_PARTNER || run_status_has_partner(record_status(l->record))) {
        record_busy(l->record, level, is_busy);
    }
}

static uint64_t every(void *arg, enum interval_level_id level)
{
    const struct agent_lead *l = arg;
    const struct job_checkpoint *k = &l->agent->config.job->checkpoint;

    return run_status_save_ms(record_status(l->record), level,
                              level == INTERVAL_DISK ? k->disk_every_ms
                                                     : k->partner_every_ms);
}

static void on_held(void *arg, int64_t held_step, uint32_t ranks,
                    const struct status_held *held, size_t n)
{
    struct agent_lead *l = arg;
    struct run_status *s = record_status(l->record);

    if (run_status_set_held(s, n) < 0) {
        run_status_set_held(s, 0);
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        s->held[i] = held[i];
    }
    s->held_step = held_step;
    s->held_ranks = n > 0 ? ranks : 0;
}

static uint32_t started(void *arg)
{
    const struct agent_lead *l = arg;

    return l->started;
}

static bool is_lost(void *arg, uint32_t rank)
{
    const struct agent_lead *l = arg;

    return rank < l->n_nodes && lead_node(l->core, rank)->lost;
}

static const char *pinned(void *arg)
{
    const struct agent_lead *l = arg;

    return lead_bucket_under_way(l->bucket);
}

static const char *copied(void *arg)
{
    const struct agent_lead *l = arg;

    return lead_copy_under_way(l->copies);
}

static const char *source(void *arg)
{
    const struct agent_lead *l = arg;
    const struct order *order = lead_order(l->core);

    return l->started && order && order->step == ORDER_RUN ? order->resume_path : "";
}

static const char *resume(void *arg, int64_t *ret_step)
{
    const struct agent_lead *l = arg;

    return lead_resume(l->core, ret_step);
}

static const char *avoided(void *arg)
{
    const struct agent_lead *l = arg;

    return l->avoided;
}

const struct lead_snap_ops agent_lead_snap_ops = {
    .on_saved = on_saved,
    .on_failed = on_failed,
    .on_saving = on_saving,
    .on_took = on_took,
    .on_busy = on_busy,
    .every = every,
    .on_held = on_held,
    .started = started,
    .is_lost = is_lost,
    .pinned = pinned,
    .copied = copied,
    .source = source,
    .resume = resume,
    .avoided = avoided,
    .on_quiet = on_quiet,
};

const struct lead_look_ops agent_lead_look_ops = {
    .on_found = on_found,
};

const struct lead_watch_ops agent_lead_watch_ops = {
    .on_saved = on_found_saved,
    .on_chosen = on_chosen,
    .on_finished = agent_lead_finished,
};

static void on_reading(void *arg, const char *path)
{
    const struct agent_lead *l = arg;

    lead_watch_hold(l->ckpts, path);
}

const struct lead_copy_ops agent_lead_copy_ops = {
    .on_finished = agent_lead_finished,
    .on_reading = on_reading,
};

/* --- what comes in --- */

void agent_lead_report(struct agent *a, const void *data, size_t len)
{
    struct report r = {0};
    struct lead_event event = {.type = LEAD_REPORT, .report = &r};
    struct error e = {0};

    if (!a->lead) {
        return;
    }
    if (report_decode(data, len, &r, &e) < 0) {
        agent_log(a, "a report does not parse: %s", e.text);
        return;
    }
    if (r.rank < a->lead->n_nodes) {
        record_status(a->lead->record)->nodes[r.rank].n_procs = r.n_procs;
        agent_lead_check_fit(a->lead, &r); /* before it may be made use of */
        agent_lead_step(a->lead, &event);
    }
}

void agent_lead_lost(struct agent *a, uint32_t rank,
                     const struct tree_loss *loss)
{
    struct lead_event event = {.type = LEAD_LOST, .rank = rank,
                               .text = loss->why, .dead = loss->dead,
                               .quiet_ms = loss->quiet_ms};

    if (a->lead && rank < a->lead->n_nodes) {
        a->lead->lost_ms = uv_now(&a->loop);
        agent_lead_shares(a->lead, rank);
        agent_lead_step(a->lead, &event);
    }
}

void agent_lead_here(struct agent *a, uint32_t rank)
{
    struct lead_event event = {.type = LEAD_HERE, .rank = rank};

    if (a->lead && rank < a->lead->n_nodes) {
        agent_lead_tell_front(a->lead);
        agent_lead_step(a->lead, &event);
    }
}

void agent_lead_exclude(struct agent *a, uint32_t rank, enum exclusion why,
                        const char *text)
{
    struct lead_event event = {.type = LEAD_EXCLUDE, .rank = rank,
                               .why = why, .text = text};

    if (a->lead && rank < a->lead->n_nodes) {
        agent_lead_step(a->lead, &event);
    }
}

/* --- life --- */

/* What its own node and the front end have to tell it. */
void agent_lead_begin(struct agent *a)
{
    struct agent_lead *l = a->lead;
    struct lead_event tick = {.type = LEAD_TICK};
    struct member_event report = {.type = MEMBER_UPLINK_UP};

    agent_lead_step(l, &tick);
    agent_member_step(a, &report);
    agent_tell_pid(a);
}

void agent_lead_claimed(struct agent *a, enum heir_outcome outcome)
{
    struct lead_event event = {.type = LEAD_CLAIMED, .outcome = outcome};

    if (a->lead) {
        agent_lead_step(a->lead, &event);
    }
}

void agent_lead_quiet(struct agent *a, uint32_t n)
{
    struct lead_event event = {.type = LEAD_QUIET, .n_quiet = n};

    if (a->lead && a->lead->n_quiet != n) {
        a->lead->n_quiet = n;
        agent_lead_step(a->lead, &event);
    }
}

void agent_lead_good(struct agent *a)
{
    if (a->lead) {
        record_may_tell(a->lead->record, agent_heir_good_ms(a));
        lead_snap_good(a->lead->snaps, agent_heir_good_ms(a));
    }
}

struct heir_rivals agent_lead_rivals(struct agent *a)
{
    return a->lead ? lead_rivals(a->lead->core) : (struct heir_rivals){0};
}
