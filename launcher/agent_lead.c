/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead's side of the agent that leads: hands events to rendezvous/lead.h,
 * publishes its orders, and passes on what is asked of the run.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "launcher/agent_hang.h"
#include "launcher/agent_late.h"
#include "launcher/agent_order.h"
#include "launcher/agent_record.h"
#include "launcher/agent_snap.h"
#include "launcher/agent_watch.h"
#include "launcher/jsonw.h"
#include "rendezvous/lead.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MARGIN_MS = 10000,
    JOURNAL_CLOSE_MS = 5000,
    MAX_RESTART_GRACE_MS = 2000,
    FRONT_CHECK_MS = 1000,
};

struct agent_lead {
    struct agent *agent;
    struct lead *core;
    struct record *record;
    struct agent_order order;
    struct control_watch *watch;
    struct lead_watch *ckpts; /* or NULL */
    struct lead_late *late;   /* likewise */
    struct lead_snap *snaps;
    uint64_t held;         /* the order that waits for a checkpoint */
    struct agent_limit *limit; /* or NULL */
    struct strlist names;  /* of nodes, for the core */
    uv_timer_t *timer;     /* the core's next tick */
    uv_timer_t *front;     /* looks whether the front end has been gone long */
    uv_timer_t *term;      /* mpirun was told to end: by whom? */
    uint64_t lost_ms;      /* when a node was lost last; 0: never */
    uint32_t n_nodes;      /* agents that the core knows */
    char front_name[256];  /* who asked to take over last; "" for nobody */
    bool front_was_there;
    bool is_stopping;
    struct lead_hang *hang;
    uint32_t started;  /* the newest generation; it may be ordered again */
    uint32_t n_quiet;  /* agents that are silent now */
    bool has_warned;
    bool *said_shared; /* agents that see the run directory of all ... */
    uint32_t n_shared; /* ... so many ... */
    uint32_t n_first;  /* ... of these */
};

static void free_handle(uv_handle_t *h)
{
    free(h);
}

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
        warn(l, order);
        record_started(l->record, order);
        lead_hang_ordered(l->hang, order);
    }
    agent_order_publish(&l->order, order);
}

/* No worker is alive when an order to run another generation comes: the time to look
 * at what they have left. */
static void look_and_give(struct agent_lead *l, const struct order *order)
{
    l->held = 0;
    if (order->step == ORDER_RUN && order->generation != l->started &&
        lead_watch_ask(l->ckpts, order->generation, order->past.resume_path,
                       order->past.resume_step)) {
        l->held = order->serial;
    } else {
        give(l, order);
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

/* The next order takes the place of one that waits. */
static void publish(struct agent_lead *l, const struct order *order)
{
    lead_watch_forget(l->ckpts);
    lead_snap_forget(l->snaps);
    if (waits_for_saves(l, order) && lead_snap_ask(l->snaps)) {
        l->held = order->serial;
    } else {
        look_and_give(l, order);
    }
}

static void on_quiet(void *arg)
{
    struct agent_lead *l = arg;
    const struct order *order = lead_order(l->core);

    if (l->held && order && order->serial == l->held) {
        look_and_give(l, order);
    }
}

static void step(struct agent_lead *l, struct lead_event *event)
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
    rc = lead_step(l->core, event, do_);
    if (rc == -EPROTO) {
        agent_log(a, "a report that makes no sense was left aside");
    }
    for (size_t i = 0; i < do_->n_notes; i++) {
        take_note(l, &do_->notes[i]);
    }
    if (do_->order) {
        publish(l, do_->order);
    }
    if (do_->ask_checkpoint) {
        agent_ask_checkpoint(a, lead_generation(l->core));
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
    free(do_);
}

static void on_timer(uv_timer_t *t)
{
    struct lead_event tick = {.type = LEAD_TICK};

    step(t->data, &tick);
}

static void stop(struct agent_lead *l, enum lead_stop kind, bool force,
                 const char *text)
{
    struct lead_event event = {.type = LEAD_STOP, .stop = kind,
                               .force = force, .text = text};

    l->is_stopping = true;
    step(l, &event);
    if (force && lead_snap_forget(l->snaps)) {
        on_quiet(l);
    }
}

/* --- checkpoints that the program writes by itself --- */

static void on_saved(void *arg, const char *path, int64_t step_)
{
    struct agent_lead *l = arg;
    struct lead_event event = {.type = LEAD_SAVED, .text = path, .step = step_};

    lead_late_saved(l->late);
    record_status(l->record)->saved_ns = clock_wall_ns();
    step(l, &event);
}

static void on_chosen(void *arg, const char *path, int64_t step_)
{
    struct agent_lead *l = arg;
    struct lead_event event = {.type = LEAD_CHOSEN, .text = path, .step = step_};
    struct run_status *s = record_status(l->record);
    const struct order *order;

    step(l, &event);
    str_copy(s->resume_path, sizeof(s->resume_path),
             lead_resume(l->core, &s->resume_step));
    order = lead_order(l->core);
    if (l->held && order && order->serial == l->held) {
        l->held = 0;
        give(l, order);
    }
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

static const struct lead_snap_ops snap_ops = {
    .on_saved = on_saved,
    .on_saving = on_saving,
    .started = started,
    .is_lost = is_lost,
    .on_quiet = on_quiet,
};

static const struct lead_watch_ops watch_ops = {
    .on_saved = on_saved,
    .on_chosen = on_chosen,
};

/* --- what comes in --- */

/* Nodes that count their processes by themselves have to agree. */
static void check_fit(struct agent_lead *l, const struct report *r)
{
    const struct agent *a = l->agent;
    const struct lead_node *own = lead_node(l->core, a->rank);
    char text[512];
    struct lead_event event = {.type = LEAD_MISFIT, .text = text};

    if (r->state != REPORT_JOINED || !own->serial ||
        lead_generation(l->core) > 0 ||
        a->config.job->procs.mode == JOB_PROCS_FIXED ||
        (a->roster.entries[r->rank].host_index && !a->run.agent_is_node) ||
        r->n_procs == own->n_procs) {
        return;
    }
    snprintf(text, sizeof(text), "%s would run %u processes and %s %u: set "
             "procsPerNode to a number", a->host, own->n_procs,
             l->names.items[r->rank], r->n_procs);
    step(l, &event);
}

/* Where all see the same run directory it can decide who leads. */
static void take_shares(struct agent_lead *l, uint32_t rank, const json_t *fact)
{
    const struct roster *roster = &l->agent->roster;
    struct lead_event event = {.type = LEAD_SHARED};
    uint32_t n = 0;

    if (rank >= l->n_first || l->said_shared[rank] ||
        !json_is_true(json_object_get(fact, "same"))) {
        return;
    }
    l->said_shared[rank] = true;
    l->n_shared++;
    for (uint32_t i = 0; i < l->n_first; i++) {
        n += roster->entries[i].port != 0;
    }
    if (l->n_shared == n) {
        step(l, &event);
    }
}

static void take_misfit(struct agent_lead *l, const json_t *fact)
{
    const char *text = json_string_value(json_object_get(fact, "text"));
    struct lead_event event = {.type = LEAD_MISFIT,
                               .text = text ? text : "the job does not fit"};

    step(l, &event);
}

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
        step(a->lead, &event);
        check_fit(a->lead, &r);
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
        step(a->lead, &event);
    }
}

void agent_lead_here(struct agent *a, uint32_t rank)
{
    struct lead_event event = {.type = LEAD_HERE, .rank = rank};

    if (a->lead && rank < a->lead->n_nodes) {
        step(a->lead, &event);
    }
}

void agent_lead_exclude(struct agent *a, uint32_t rank, const char *why)
{
    struct lead_event event = {.type = LEAD_EXCLUDE, .rank = rank,
                               .text = why};

    if (a->lead && rank < a->lead->n_nodes) {
        step(a->lead, &event);
    }
}

static int list_nodes(struct agent_lead *l, uint32_t **ret_node_of)
{
    const struct roster *roster = &l->agent->roster;
    uint32_t *node_of = calloc(roster->n + 1, sizeof(*node_of));

    for (uint32_t i = (uint32_t)l->names.n; i < roster->n; i++) {
        strlist_add(&l->names, roster->entries[i].host);
    }
    if (!node_of || l->names.failed) {
        free(node_of);
        return -ENOMEM;
    }
    agent_fit_nodes(l->agent, node_of);
    *ret_node_of = node_of;
    return 0;
}

void agent_lead_grow(struct agent *a)
{
    struct agent_lead *l = a->lead;
    _free_ uint32_t *node_of = NULL;

    if (!l || a->roster.n <= l->n_nodes) {
        return;
    }
    if (list_nodes(l, &node_of) < 0 ||
        lead_add_nodes(l->core, a->roster.n,
                       (const char *const *)l->names.items, node_of) < 0) {
        agent_log(a, "out of memory: a newcomer is not used");
        return;
    }
    l->n_nodes = a->roster.n;
    record_newcomers(l->record);
}

/* To all that may lead once. */
static void tell_front(struct agent_lead *l, const char *front)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "front");
    jsonw_str(&w, "front", front);
    jsonw_end_object(&w);
    if (!b.failed) {
        tree_ask(l->agent->tree, b.data, b.len);
    }
}

/* A front end wants to take the run over. It holds the lock of the run, so that
 * one that seems to be connected still is not: the lead goes to the new one,
 * which has to show that it knows the key. */
static int take_front(struct agent_lead *l, const json_t *body, const char *who,
                      struct error *e)
{
    const char *front = json_string_value(json_object_get(body, "front"));
    _strlist_ struct strlist addrs = {0};
    uint16_t port = 0;
    int rc = addr_ways_parse(front ? front : "", &addrs, &port, e);

    if (rc < 0) {
        return error_wrap(e, "attach");
    }
    str_copy(l->front_name, sizeof(l->front_name), who);
    tell_front(l, front);
    rc = tree_set_front(l->agent->tree, addrs.items, port);
    return rc < 0 ? error_set(e, -rc, "attach") : 0;
}

/* Nobody but the asker's own lead answers: the others read it in the journal. */
static int scale(struct agent_lead *l, const json_t *body, const char *who,
                 struct error *e)
{
    struct lead_event event = {.type = LEAD_SCALE};
    int rc = record_scale(l->record, l->agent, l->core, body, who,
                          &event.n_nodes, e);

    if (rc == 0) {
        step(l, &event);
    }
    return rc;
}

int agent_lead_request(struct agent *a, const char *op, const json_t *body,
                       const char *who, struct error *e)
{
    bool force = json_is_true(json_object_get(body, "force"));
    char text[256];

    if (!a->lead) {
        return error_text(e, EAGAIN, "the run is only being put together");
    }
    if (strcmp(op, "attach") == 0) {
        return take_front(a->lead, body, who, e);
    }
    snprintf(text, sizeof(text), "%s by %s", force ? "forced" : "asked for",
             who);
    if (strcmp(op, "cancel") == 0) {
        stop(a->lead, LEAD_STOP_CANCEL, force, text);
    } else if (strcmp(op, "preempt") == 0) {
        stop(a->lead, LEAD_STOP_PREEMPT, force, text);
    } else if (strcmp(op, "suspend") == 0) {
        snprintf(text, sizeof(text), "suspended by %s", who);
        stop(a->lead, LEAD_STOP_SUSPEND, force, text);
    } else if (strcmp(op, "checkpoint") == 0) {
        return record_ask_checkpoint(a->lead->record, a, a->lead->core, who, e);
    } else if (strcmp(op, "scale") == 0) {
        return scale(a->lead, body, who, e);
    } else {
        return error_text(e, ERR_USAGE, "unknown request '%.60s'", op);
    }
    return 0;
}

/* Where mpirun was started by hand, a SIGTERM to its ranks can mean that the run
 * is to stop, or that mpirun is losing nodes. If none is lost about then, it was
 * meant for the run; what the run has outlived before says nothing. */
static void on_term_timer(uv_timer_t *t)
{
    struct agent_lead *l = t->data;
    uint64_t heartbeat_ms = l->agent->config.job->heartbeat_timeout_ms;

    if (l->lost_ms && uv_now(&l->agent->loop) - l->lost_ms < 2 * heartbeat_ms) {
        return;
    }
    stop(l, LEAD_STOP_PREEMPT, false, "mpirun was told to end");
}

static void take_term(struct agent_lead *l)
{
    if (l->agent->config.by_hand && !uv_is_active((uv_handle_t *)l->term)) {
        uv_timer_start(l->term, on_term_timer,
                       l->agent->config.job->heartbeat_timeout_ms, 0);
    }
}

static void take_stranded(struct agent_lead *l, const json_t *fact)
{
    json_int_t g = json_integer_value(json_object_get(fact, "generation"));

    if (l->agent->config.by_hand && g == lead_generation(l->core)) {
        stop(l, LEAD_STOP_PREEMPT, false, "workers wait in a collective for an "
             "MPI world, which is lost with an mpirun that was started by hand");
    }
}

void agent_lead_fact(struct agent *a, uint32_t rank, const void *json,
                     size_t len)
{
    json_t *fact = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    const char *kind = json_string_value(json_object_get(fact, "fact"));
    const char *op = json_string_value(json_object_get(fact, "op"));
    const char *from = json_string_value(json_object_get(fact, "from"));

    if (!a->lead || !kind) {
        agent_log(a, "a fact of node %u does not parse", rank);
    } else if (strcmp(kind, "misfit") == 0) {
        take_misfit(a->lead, fact);
    } else if (strcmp(kind, "term") == 0) {
        take_term(a->lead);
    } else if (strcmp(kind, "shares") == 0) {
        take_shares(a->lead, rank, fact);
    } else if (strcmp(kind, "notice") == 0) {
        stop(a->lead, LEAD_STOP_PREEMPT, false,
             "a signal to mpirun says that the end is near");
    } else if (strcmp(kind, "stranded") == 0) {
        take_stranded(a->lead, fact);
    } else if (strcmp(kind, "snap") == 0) {
        lead_snap_fact(a->lead->snaps, rank, fact);
    } else if (strcmp(kind, "request") == 0 && op) {
        agent_lead_request(a, op, fact,
                           from ? from : a->roster.entries[rank].host, NULL);
    } else if (!lead_hang_fact(a->lead->hang, rank, kind, fact)) {
        record_fact(a->lead->record, rank, kind, fact);
    }
    json_decref(fact);
}

/* --- the front end --- */

static void on_front_check(uv_timer_t *t)
{
    struct agent_lead *l = t->data;
    uint64_t gone_ms = tree_front_gone_ms(l->agent->tree);

    if (gone_ms && gone_ms >= l->agent->config.detach_ms && !l->is_stopping) {
        stop(l, LEAD_STOP_PREEMPT, false, "the front end is gone");
    }
}

static void tell_back(struct agent_lead *l)
{
    char text[320];

    snprintf(text, sizeof(text), l->front_name[0]
             ? "%s has taken the run over" : "the front end is back%s",
             l->front_name);
    l->front_name[0] = '\0';
    record_event(l->record, "front_back", lead_generation(l->core), text, NULL,
                 0);
}

void agent_lead_front(struct agent *a, bool up)
{
    struct agent_lead *l = a->lead;

    if (!l) {
        return;
    }
    if (up) {
        if (!record_meet_front(l->record) && l->front_was_there) {
            tell_back(l);
        }
        l->front_was_there = true;
        uv_timer_stop(l->front);
        record_flush(l->record);
    } else if (l->front_was_there && !a->config.by_hand) {
        record_event(l->record, "front_lost",
                     lead_generation(l->core), "the front end is gone", NULL,
                     0);
        uv_timer_start(l->front, on_front_check,
                       a->config.detach_ms < FRONT_CHECK_MS
                           ? a->config.detach_ms : FRONT_CHECK_MS,
                       FRONT_CHECK_MS);
    }
}

/* --- life --- */

static int on_file_request(void *arg, const char *op, const json_t *body,
                           struct jsonw *reply, struct error *e)
{
    const char *from = json_string_value(json_object_get(body, "from"));

    (void)reply;
    return agent_lead_request(arg, op, body, from ? from : "a file in control/",
                              e);
}

static struct restart_policy policy_of(const struct job_restart *r)
{
    static const enum restart_kind kinds[] = {
        [JOB_RESTART_NEVER] = RESTART_NEVER,
        [JOB_RESTART_ON_FAILURE] = RESTART_ON_FAILURE,
        [JOB_RESTART_ALWAYS] = RESTART_ALWAYS,
        [JOB_RESTART_EXIT_CODE] = RESTART_EXIT_CODE,
    };
    struct restart_policy p = {
        .kind = kinds[r->policy],
        .max = r->max,
        .max_per_node = r->max_per_node,
        .backoff_min_ms = r->backoff_min_ms,
        .backoff_max_ms = r->backoff_max_ms,
    };

    memcpy(p.retryable, r->retry_codes, sizeof(p.retryable));
    return p;
}

static uv_timer_t *make_timer(struct agent_lead *l)
{
    uv_timer_t *t = calloc(1, sizeof(*t));

    if (t) {
        uv_timer_init(&l->agent->loop, t);
        t->data = l;
    }
    return t;
}

/* The survivors of a failure have nothing to save that a restart would use:
 * what they computed since the last checkpoint is lost with the failed one. */
static uint32_t restart_grace_ms(const struct job *job)
{
    return job->limits.grace_ms < MAX_RESTART_GRACE_MS
               ? (uint32_t)job->limits.grace_ms : MAX_RESTART_GRACE_MS;
}

/* Earlier starts of the run count, the time between them does not. */
uint64_t agent_lead_deadline_ms(const struct agent *a)
{
    uint64_t deadline_ms = a->config.job->limits.deadline_ms;
    uint64_t ran_ms = a->config.ran_ms;

    if (deadline_ms == JOB_OFF) {
        return 0;
    }
    return a->config_ms + (ran_ms < deadline_ms ? deadline_ms - ran_ms : 0);
}

/* What a command wanted before the run was gone on with, where the job, which may
 * be another one now, still allows it. */
static uint32_t want_nodes(const struct run_config *c)
{
    const struct job_nodes *nodes = &c->job->nodes;

    return c->want_nodes >= nodes->min && c->want_nodes <= nodes->max
               ? c->want_nodes : 0;
}

static int create_core(struct agent_lead *l, const uint32_t *node_of,
                       const struct heritage *heritage, struct error *e)
{
    struct agent *a = l->agent;
    const struct job *job = a->config.job;
    uint64_t now = uv_now(&a->loop);
    struct lead_config config = {
        .n_nodes = l->n_nodes,
        .names = (const char *const *)l->names.items,
        .node_of = node_of,
        .min_nodes = job->nodes.min,
        .max_nodes = job->nodes.max,
        .want_nodes = want_nodes(&a->config),
        .grow_interval_ms = job->elastic.grow_interval_ms,
        .max_losses = job->limits.node_failures,
        .lease_ms = agent_lease_ms(a),
        .lease_slack_ms = agent_lease_slack_ms(a),
        .rank = a->rank,
        .rule = agent_view_rule(a),
        .claim_ms = agent_claim_ms(),
        .heritage = heritage,
        .restart = policy_of(&job->restart),
        .n_restarts = a->config.n_restarts,
        .first_generation = a->config.first_generation,
        .resume_path = a->config.resume_path,
        .resume_step = a->config.resume_step,
        .gang_timeout_ms = job->gang_timeout_ms,
        .grace_ms = (uint32_t)job->limits.grace_ms,
        .restart_grace_ms = restart_grace_ms(job),
        .margin_ms = MARGIN_MS,
        .deadline_ms = agent_lead_deadline_ms(a),
    };

    return lead_create(&config, now, &l->core, e);
}

static void on_limit_end(void *arg, uint64_t end_ms)
{
    struct agent_lead *l = arg;

    record_set_limit(l->record, end_ms);
}

static void on_limit_stop(void *arg, const char *text)
{
    stop(arg, LEAD_STOP_PREEMPT, false, text);
}

static void on_late_stop(void *arg, const char *text)
{
    stop(arg, LEAD_STOP_PREEMPT, false, text);
}

static const struct agent_limit_ops limit_ops = {
    .on_end = on_limit_end,
    .on_stop = on_limit_stop,
};

static void tell_start(struct agent_lead *l)
{
    const struct run_config *c = &l->agent->config;
    const char *requeues = strlist_getenv(&c->env, "SLURM_RESTART_COUNT");
    char text[256], span[32];

    if (c->n_starts == 0) {
        return;
    }
    clock_format_span(c->ran_ms, span, sizeof(span));
    snprintf(text, sizeof(text), "start %u of this run, which ran for %s before"
             "%s%.16s%s", c->n_starts + 1, span, requeues ? "; Slurm has "
             "requeued its job " : "", requeues ? requeues : "",
             !requeues ? "" : strcmp(requeues, "1") == 0 ? " time" : " times");
    record_event(l->record, "resumed", c->first_generation, text, NULL, 0);
}

/* What its own node and the front end have to tell it. */
void agent_lead_begin(struct agent *a)
{
    struct agent_lead *l = a->lead;
    struct lead_event tick = {.type = LEAD_TICK};
    struct member_event report = {.type = MEMBER_UPLINK_UP};

    step(l, &tick);
    agent_member_step(a, &report);
    agent_tell_pid(a);
}

/* What was, until the next generation runs: there may be none. */
static void set_past(struct agent_lead *l, const struct past *past)
{
    struct run_status *s = record_status(l->record);

    s->generation = past->ran ? (int)past->ran : s->generation;
    s->restarts = (int)past->n_restarts;
    s->node_failures = (int)past->n_losses;
}

/* That of the lead before, which has not heard of this one yet. */
static void expect_front(struct agent_lead *l)
{
    record_expect_front(l->record);
    l->front_was_there = true;
    uv_timer_start(l->front, on_front_check, FRONT_CHECK_MS, FRONT_CHECK_MS);
}

int agent_lead_start(struct agent *a, const struct heritage *heritage,
                     struct error *e)
{
    struct agent_lead *l = calloc(1, sizeof(*l));
    struct lead_event tick = {.type = LEAD_TICK};
    _free_ uint32_t *node_of = NULL;
    int rc;

    if (!l) {
        return error_set(e, ENOMEM, "lead the run");
    }
    l->agent = a;
    a->lead = l;
    l->n_nodes = l->n_first = a->roster.n;
    l->said_shared = calloc(l->n_first + 1, sizeof(bool));
    l->timer = make_timer(l);
    l->front = make_timer(l);
    l->term = make_timer(l);
    if (list_nodes(l, &node_of) < 0 || !l->timer || !l->front || !l->term ||
        !l->said_shared) {
        return error_set(e, ENOMEM, "lead the run");
    }
    rc = record_create(a, &l->record, e);
    rc = rc < 0 ? rc : lead_hang_create(a, l->record, &l->hang, e);
    rc = rc < 0 ? rc : create_core(l, node_of, heritage, e);
    rc = rc < 0 ? rc : control_watch_create(&a->loop, a->run.dir,
                                            on_file_request, a, &l->watch, e);
    rc = rc < 0 ? rc : agent_limit_create(a, &limit_ops, l, &l->limit, e);
    rc = rc < 0 ? rc : lead_watch_create(a, l->record, &watch_ops, l, &l->ckpts,
                                         e);
    rc = rc < 0 ? rc : lead_late_create(a, l->record, on_late_stop, l, &l->late,
                                        e);
    rc = rc < 0 ? rc : lead_snap_create(a, &snap_ops, l, &l->snaps, e);
    if (rc == 0) {
        agent_lead_good(a);
        record_size(l->record, l->core);
        l->order = (struct agent_order){.agent = a, .record = l->record};
    }
    if (rc == 0 && heritage) {
        set_past(l, &heritage->past);
    }
    if (rc == 0 && heritage && a->run.has_front) {
        expect_front(l);
    }
    if (rc == 0 && !heritage) {
        agent_lead_front(a, tree_has_uplink(a->tree));
        tell_start(l);
        record_touch(l->record);
        step(l, &tick);
    }
    return rc;
}

void agent_lead_claimed(struct agent *a, enum heir_outcome outcome)
{
    struct lead_event event = {.type = LEAD_CLAIMED, .outcome = outcome};

    if (a->lead) {
        step(a->lead, &event);
    }
}

void agent_lead_quiet(struct agent *a, uint32_t n)
{
    struct lead_event event = {.type = LEAD_QUIET, .n_quiet = n};

    if (a->lead && a->lead->n_quiet != n) {
        a->lead->n_quiet = n;
        step(a->lead, &event);
    }
}

void agent_lead_good(struct agent *a)
{
    if (a->lead) {
        record_may_tell(a->lead->record, agent_heir_good_ms(a));
    }
}

uint32_t agent_lead_n_silent(const struct agent *a)
{
    return a->lead ? lead_n_silent(a->lead->core) : 0;
}

static void close_timer(uv_timer_t *t)
{
    if (t) {
        uv_close((uv_handle_t *)t, free_handle);
    }
}

static void destroy(struct agent_lead *l, unsigned journal_ms)
{
    control_watch_destroy(l->watch);
    lead_watch_destroy(l->ckpts);
    lead_late_destroy(l->late);
    lead_snap_destroy(l->snaps);
    lead_hang_destroy(l->hang);
    agent_limit_destroy(l->limit);
    agent_order_release(&l->order);
    record_destroy(l->record, journal_ms);
    close_timer(l->timer);
    close_timer(l->front);
    close_timer(l->term);
    lead_destroy(l->core);
    strlist_release(&l->names);
    free(l->said_shared);
    free(l);
}

void agent_lead_stop(struct agent *a)
{
    struct agent_lead *l = a->lead;

    if (!l) {
        return;
    }
    a->lead = NULL;
    if (l->record && l->core && lead_verdict(l->core)) {
        record_may_tell(l->record, UINT64_MAX); /* nobody leads after an end */
        record_status(l->record)->saving_ranks = 0;
        record_verdict(l->record, l->core);
        record_flush(l->record);
    }
    destroy(l, JOURNAL_CLOSE_MS);
}

/* What is not written yet is of a time when another one led. */
void agent_lead_quit(struct agent *a)
{
    struct agent_lead *l = a->lead;

    if (l) {
        a->lead = NULL;
        record_may_tell(l->record, 0);
        destroy(l, 0);
    }
}
