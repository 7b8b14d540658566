/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/lead.h"

#include "base/buf.h"
#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two clocks that differ by less than this are taken to show the same time. */
#define CLOCKS_AGREE_MS 1000
/* How many nodes a message names before it only counts them. */
#define NAMED_NODES 8
#define NO_RANK UINT32_MAX

enum phase {
    PHASE_GATHER,
    PHASE_PREPARE,
    PHASE_RUN,
    PHASE_END,
    PHASE_OVER,
};

struct lead {
    struct lead_config config;
    uint64_t now_ms;
    enum phase phase;
    uint32_t generation; /* the newest prepared, 0 before the first */
    uint32_t ran;        /* the newest that was ordered to run, or 0 */
    uint64_t ran_at_ms;
    uint64_t limit_ms;   /* when the phase is over even without answers */
    uint64_t hold_ms;    /* PREPARE: not before this */
    uint32_t n_restarts;
    uint32_t n_quick;    /* generations in a row that failed soon */
    struct lead_node *nodes;
    uint32_t n_ready;    /* nodes that have done what the phase waits for */
    uint32_t n_started;  /* RUN: nodes whose workers were started */
    uint16_t *n_procs;   /* scratch for RUN orders */

    bool has_lost;  /* a node, ever */
    bool has_cause; /* of the end of generation `ran`, so far */
    bool judged;    /* it led to a restart, and is only history now */
    struct failure cause;
    uint64_t cause_ms; /* when it happened, by our clock */
    bool has_obstacle; /* to running `generation`: a node could not prepare */
    struct failure obstacle;

    char store_addr[ORDER_ADDR_BYTES]; /* of `generation` */
    uint16_t store_port;
    uint32_t saved_generation; /* who wrote resume_path; 0: an earlier run */
    int64_t resume_step;
    char resume_path[ORDER_PATH_BYTES];

    struct order order; /* the newest; n_procs is borrowed from above */
    struct lead_verdict verdict;
};

static const char *const phase_names[] = {
    [PHASE_GATHER] = "gather", [PHASE_PREPARE] = "prepare",
    [PHASE_RUN] = "run",       [PHASE_END] = "end",
    [PHASE_OVER] = "over",
};

static const char *const note_names[] = {
    [LEAD_NOTE_GATHERED] = "nodes_gathered",
    [LEAD_NOTE_PREPARING] = "generation_preparing",
    [LEAD_NOTE_STARTED] = "generation_started",
    [LEAD_NOTE_RUNNING] = "generation_running",
    [LEAD_NOTE_FAILED] = "worker_failed",
    [LEAD_NOTE_RESTARTING] = "restarting",
    [LEAD_NOTE_LOST] = "node_lost",
    [LEAD_NOTE_STOPPING] = "stopping",
    [LEAD_NOTE_STRAGGLER] = "node_late",
    [LEAD_NOTE_ENDED] = "ended",
    [LEAD_NOTE_SAVED] = "checkpoint_saved",
};

const char *lead_note_name(enum lead_note_type type)
{
    return note_names[type];
}

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
        free(lead);
    }
}

/* a + b, without wrapping. */
static uint64_t later(uint64_t a, uint64_t b)
{
    return a > LEAD_NEVER - b ? LEAD_NEVER : a + b;
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
    if (lead) {
        lead->nodes = calloc(config->n_nodes, sizeof(*lead->nodes));
        lead->n_procs = calloc(config->n_nodes, sizeof(*lead->n_procs));
    }
    if (!lead || !lead->nodes || !lead->n_procs) {
        return error_set(e, ENOMEM, "lead of %u nodes", config->n_nodes);
    }
    lead->config = *config;
    lead->now_ms = now_ms;
    lead->limit_ms = later(now_ms, config->gang_timeout_ms);
    lead->n_restarts = config->n_restarts;
    lead->resume_step = config->resume_step;
    str_copy(lead->resume_path, sizeof(lead->resume_path),
             config->resume_path ? config->resume_path : "");
    lead->config.resume_path = NULL;
    *ret = take_ptr(&lead);
    return 0;
}

/* Notes ------------------------------------------------------------------ */

__attribute__((format(printf, 5, 6))) static void
note(struct lead *lead, struct lead_actions *ret, enum lead_note_type type,
     uint32_t rank, const char *fmt, ...)
{
    struct lead_note *n;
    va_list ap;

    if (ret->n_notes == LEAD_MAX_NOTES) {
        return;
    }
    n = &ret->notes[ret->n_notes++];
    n->type = type;
    n->generation = lead->generation;
    n->rank = rank;
    n->failure = NULL;
    va_start(ap, fmt);
    vsnprintf(n->text, sizeof(n->text), fmt, ap);
    va_end(ap);
}

static void note_failure(struct lead *lead, struct lead_actions *ret,
                         enum lead_note_type type, const char *text)
{
    note(lead, ret, type, lead->cause.node, "%s", text);
    if (ret->n_notes) {
        ret->notes[ret->n_notes - 1].failure = &lead->cause;
        ret->notes[ret->n_notes - 1].generation = lead->cause.generation;
    }
}

/* "n3", or "node 3"; valid until the next call with the same `to`. */
static const char *name_of(const struct lead *lead, uint32_t rank, char *to,
                           size_t size)
{
    const char *const *names = lead->config.names;

    if (names && names[rank] && names[rank][0]) {
        snprintf(to, size, "%s", names[rank]);
    } else {
        snprintf(to, size, "node %u", rank);
    }
    return to;
}

/* What the phase waits for ----------------------------------------------- */

static bool is_ready(const struct lead *lead, const struct lead_node *n)
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

static bool is_started(const struct lead *lead, const struct lead_node *n)
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
        lead->n_ready += is_ready(lead, &lead->nodes[i]);
        lead->n_started += is_started(lead, &lead->nodes[i]);
    }
}

static bool all_ready(const struct lead *lead)
{
    return lead->n_ready >= lead->config.n_nodes - MUTANT(2);
}

/* "n1, n2 and 5 more": the nodes that are not ready. */
static void name_late(const struct lead *lead, char *to, size_t size)
{
    uint32_t n_late = lead->config.n_nodes - lead->n_ready;
    uint32_t n_named = 0;
    _buf_ struct buf b = {0};
    char name[FAILURE_HOST_BYTES];

    for (uint32_t i = 0; i < lead->config.n_nodes && n_named < NAMED_NODES;
         i++) {
        if (!is_ready(lead, &lead->nodes[i])) {
            buf_printf(&b, "%s%s", n_named ? ", " : "",
                       name_of(lead, i, name, sizeof(name)));
            n_named++;
        }
    }
    if (n_late > n_named) {
        buf_printf(&b, " and %u more", n_late - n_named);
    }
    str_copy(to, size, buf_str(&b));
}

/* Orders ----------------------------------------------------------------- */

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

static void prepare(struct lead *lead, struct lead_actions *ret)
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
    enter(lead, PHASE_PREPARE, later(lead->now_ms, stop_ms));
    note(lead, ret, LEAD_NOTE_PREPARING, NO_RANK, "preparing generation %u",
         lead->generation);
}

static uint32_t count_procs(const struct lead *lead)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < lead->config.n_nodes; i++) {
        n += lead->nodes[i].n_procs;
    }
    return n;
}

static void run(struct lead *lead, struct lead_actions *ret)
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
    note(lead, ret, LEAD_NOTE_STARTED, NO_RANK,
         "generation %u: %u process%s on %u node%s", lead->generation,
         count_procs(lead), count_procs(lead) == 1 ? "" : "es",
         order->n_nodes, order->n_nodes == 1 ? "" : "s");
}

/* Publishes END with the verdict that stands. */
static void publish_end(struct lead *lead, struct lead_actions *ret,
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
          MUTANT(11) ? LEAD_NEVER : later(lead->now_ms, wait_ms));
}

/* The verdict. Nothing happens if there is one already. */
static void end(struct lead *lead, struct lead_actions *ret, uint8_t status,
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
    publish_end(lead, ret, stop, grace_ms);
    if (stop != ORDER_STOP_NONE) {
        note(lead, ret, LEAD_NOTE_STOPPING, NO_RANK, "%s", reason);
    }
}

static void leave(struct lead *lead, struct lead_actions *ret)
{
    struct order *order;
    char late[ORDER_TEXT_BYTES / 2];

    if (!all_ready(lead)) {
        name_late(lead, late, sizeof(late));
        note(lead, ret, LEAD_NOTE_STRAGGLER, NO_RANK,
             "no word from %s that all workers are gone", late);
    }
    order = publish(lead, ret, ORDER_LEAVE);
    order->status = lead->verdict.status;
    order->stop = ORDER_STOP_FORCE;
    str_copy(order->reason, sizeof(order->reason), lead->verdict.reason);
    enter(lead, PHASE_OVER, LEAD_NEVER);
    note(lead, ret, LEAD_NOTE_ENDED, NO_RANK, "%s",
         lead->verdict.status ? lead->verdict.reason : "succeeded");
}

/* Judging a failure ------------------------------------------------------ */

/* Whether `f`, which happened at `at_ms` by our clock (late by the time its
 * message took), was before the cause that we have. Clocks of nodes are better
 * than that, where they agree. */
static bool is_earlier(const struct lead *lead, const struct failure *f,
                       uint64_t at_ms)
{
    int64_t ours_ms = (int64_t)(at_ms - lead->cause_ms);
    int64_t theirs_ms = (int64_t)(f->wall_ns - lead->cause.wall_ns) / 1000000;
    int64_t differ_ms = theirs_ms - ours_ms;

    if (differ_ms > -CLOCKS_AGREE_MS && differ_ms < CLOCKS_AGREE_MS) {
        return f->wall_ns < lead->cause.wall_ns;
    }
    return ours_ms < 0;
}

/* A failure of the generation that runs or is just being stopped. */
static void add_cause(struct lead *lead, const struct failure *f)
{
    uint64_t at_ms = lead->now_ms > f->age_ms ? lead->now_ms - f->age_ms : 0;

    if (lead->judged) {
        return;
    }
    if (lead->has_cause && (f->node == lead->cause.node || MUTANT(8) ||
                            !is_earlier(lead, f, at_ms))) {
        return;
    }
    lead->has_cause = true;
    lead->cause = *f;
    lead->cause_ms = at_ms;
}

/* The first word of a failure: stop everybody. What it means is decided when
 * all have stopped, see judge(). */
static void fail(struct lead *lead, struct lead_actions *ret)
{
    const struct restart_policy *policy = &lead->config.restart;
    char what[ORDER_TEXT_BYTES];
    bool quick = lead->now_ms - lead->ran_at_ms < policy->backoff_max_ms;

    failure_describe(&lead->cause, what, sizeof(what));
    note_failure(lead, ret, LEAD_NOTE_FAILED, what);
    lead->n_quick = quick ? lead->n_quick + 1 : 0;
    lead->hold_ms = later(lead->now_ms,
                          restart_backoff_ms(policy, lead->n_quick));
    prepare(lead, ret);
}

/* There would be another generation, but a node cannot do its part in it. */
static void give_up(struct lead *lead, struct lead_actions *ret)
{
    char what[ORDER_TEXT_BYTES];

    failure_describe(&lead->obstacle, what, sizeof(what));
    end(lead, ret, restart_exit_status(&lead->obstacle), what, ORDER_STOP_NONE,
        0);
    lead->verdict.has_cause = true;
    lead->verdict.cause = lead->obstacle;
}

/* All have stopped and told what they saw: the cause is known now. True if
 * another generation may run. */
static bool judge(struct lead *lead, struct lead_actions *ret)
{
    const struct restart_policy *policy = &lead->config.restart;
    char what[ORDER_TEXT_BYTES / 2];
    char text[ORDER_TEXT_BYTES];
    bool allowed = restart_allowed(policy, &lead->cause);

    failure_describe(&lead->cause, what, sizeof(what));
    if (allowed && lead->n_restarts < policy->max + MUTANT(5)) {
        if (lead->has_obstacle) {
            give_up(lead, ret);
            return false;
        }
        lead->n_restarts++;
        lead->judged = true;
        snprintf(text, sizeof(text), "restart %u of %u%s: %s",
                 lead->n_restarts, policy->max,
                 lead->hold_ms > lead->now_ms ? " after a pause" : "", what);
        note_failure(lead, ret, LEAD_NOTE_RESTARTING, text);
        return true;
    }
    if (allowed && policy->max) {
        snprintf(text, sizeof(text), "%s; all %u restarts are used up", what,
                 policy->max);
    } else {
        snprintf(text, sizeof(text), "%s", what);
    }
    end(lead, ret, restart_exit_status(&lead->cause), text, ORDER_STOP_NONE, 0);
    return false;
}

/* Events ----------------------------------------------------------------- */

/* A node is gone for good; that ends the run, resumable. (A view change will
 * come in here: prepare the next generation without it.) */
static void on_lost(struct lead *lead, uint32_t rank, const char *why,
                    struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[rank];
    char name[FAILURE_HOST_BYTES];
    char what[ORDER_TEXT_BYTES / 2];
    char reason[ORDER_TEXT_BYTES];

    if (n->lost) {
        return;
    }
    lead->n_ready -= is_ready(lead, n);
    n->lost = true;
    lead->n_ready += is_ready(lead, n);
    snprintf(reason, sizeof(reason), "lost node %u (%s): %s", rank,
             name_of(lead, rank, name, sizeof(name)),
             why && why[0] ? why : "no word from it");
    lead->has_lost = true;
    note(lead, ret, LEAD_NOTE_LOST, rank, "%s", reason);
    if (lead->has_cause && !lead->judged) {
        size_t len = strlen(reason);

        failure_describe(&lead->cause, what, sizeof(what));
        snprintf(reason + len, sizeof(reason) - len, "; before that %s", what);
    }
    end(lead, ret, RUN_RESUMABLE, reason,
        lead->ran ? ORDER_STOP_GRACE : ORDER_STOP_NONE,
        lead->config.restart_grace_ms);
}

static void keep_store(struct lead *lead, const struct report *r)
{
    if (lead->phase == PHASE_PREPARE && r->state == REPORT_STOPPED &&
        r->generation == lead->generation && r->store_port) {
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
    note(lead, ret, LEAD_NOTE_SAVED, NO_RANK, "%s", lead->resume_path);
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

static void on_failure(struct lead *lead, const struct failure *f,
                       struct lead_actions *ret)
{
    if (f->killed_by_us && !MUTANT(6)) {
        return;
    }
    if (lead->phase == PHASE_RUN && f->generation == lead->ran) {
        add_cause(lead, f);
        fail(lead, ret);
    } else if (lead->phase == PHASE_PREPARE && f->generation == lead->ran &&
               lead->has_cause) {
        add_cause(lead, f);
    } else if (lead->phase == PHASE_PREPARE &&
               f->generation == lead->generation && !lead->has_obstacle) {
        lead->has_obstacle = true;
        lead->obstacle = *f;
    }
}

static void update_node(struct lead *lead, struct lead_node *n,
                        const struct report *r)
{
    lead->n_ready -= is_ready(lead, n);
    lead->n_started -= is_started(lead, n);
    n->serial = r->serial;
    n->generation = r->generation;
    n->state = r->state;
    n->n_procs = r->n_procs;
    n->n_alive = r->n_alive;
    lead->n_ready += is_ready(lead, n);
    lead->n_started += is_started(lead, n);
}

static int on_report(struct lead *lead, const struct report *r,
                     struct lead_actions *ret)
{
    struct lead_node *n;
    bool was_started = lead->n_started == lead->config.n_nodes;

    if (!r || r->rank >= lead->config.n_nodes ||
        r->generation > lead->generation) {
        return -EPROTO;
    }
    n = &lead->nodes[r->rank];
    if (n->lost || r->serial <= n->serial) {
        return 0;
    }
    if (n->serial && r->state == REPORT_JOINED && n->state != REPORT_JOINED) {
        on_lost(lead, r->rank, "its agent was started again", ret);
        return 0;
    }
    update_node(lead, n, r);
    keep_store(lead, r);
    keep_saved(lead, r, ret);
    if (r->failed) {
        on_failure(lead, &r->failure, ret);
    }
    if (!was_started && lead->phase == PHASE_RUN &&
        lead->n_started == lead->config.n_nodes) {
        note(lead, ret, LEAD_NOTE_RUNNING, NO_RANK,
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
};

static void on_stop(struct lead *lead, enum lead_stop stop, bool force,
                    const char *text, struct lead_actions *ret)
{
    enum order_stop how = force ? ORDER_STOP_FORCE : ORDER_STOP_GRACE;

    if (lead->phase == PHASE_END) {
        if (force && lead->order.stop == ORDER_STOP_GRACE) {
            publish_end(lead, ret, ORDER_STOP_FORCE, 0);
            note(lead, ret, LEAD_NOTE_STOPPING, NO_RANK,
                 "killing what is left");
        }
        if (!MUTANT(4)) {
            return;
        }
    }
    end(lead, ret, stops[stop].status,
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
        if (event->rank >= lead->config.n_nodes) {
            return -EPROTO;
        }
        on_lost(lead, event->rank, event->text, ret);
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
    case LEAD_MISFIT:
        end(lead, ret, RUN_FAILED, event->text ? event->text : "misfit",
            lead->ran ? ORDER_STOP_GRACE : ORDER_STOP_NONE,
            lead->config.restart_grace_ms);
        return 0;
    }
    return -EPROTO;
}

/* What answers and time allow -------------------------------------------- */

static void advance_gather(struct lead *lead, struct lead_actions *ret)
{
    char late[ORDER_TEXT_BYTES / 2];
    char reason[ORDER_TEXT_BYTES];
    uint32_t n_nodes = lead->config.n_nodes;

    if (all_ready(lead) && count_procs(lead) == 0) {
        end(lead, ret, RUN_FAILED, "no node has a process to run",
            ORDER_STOP_NONE, 0);
    } else if (all_ready(lead)) {
        note(lead, ret, LEAD_NOTE_GATHERED, NO_RANK, "%u node%s", n_nodes,
             n_nodes == 1 ? "" : "s");
        prepare(lead, ret);
    } else if (lead->now_ms >= lead->limit_ms) {
        name_late(lead, late, sizeof(late));
        snprintf(reason, sizeof(reason),
                 "%u of %u nodes did not join within %llu s: %s",
                 n_nodes - lead->n_ready, n_nodes,
                 (unsigned long long)(lead->config.gang_timeout_ms / 1000),
                 late);
        end(lead, ret, RUN_NO_GANG, reason, ORDER_STOP_NONE, 0);
    }
}

static void advance_prepare(struct lead *lead, struct lead_actions *ret)
{
    char late[ORDER_TEXT_BYTES / 2];
    char reason[ORDER_TEXT_BYTES];

    if (all_ready(lead)) {
        if (lead->has_cause && !lead->judged && !judge(lead, ret)) {
            return;
        }
        if (lead->has_obstacle) {
            give_up(lead, ret);
        } else if (lead->now_ms >= lead->hold_ms) {
            run(lead, ret);
        }
    } else if (lead->now_ms >= lead->limit_ms) {
        name_late(lead, late, sizeof(late));
        snprintf(reason, sizeof(reason),
                 "not ready for generation %u in time: %s", lead->generation,
                 late);
        note(lead, ret, LEAD_NOTE_STRAGGLER, NO_RANK, "%s", reason);
        end(lead, ret, RUN_RESUMABLE, reason, ORDER_STOP_FORCE, 0);
    }
}

/* One move of the machine, if there is one to make. */
static void advance(struct lead *lead, struct lead_actions *ret)
{
    if (lead->phase < PHASE_END && lead->config.deadline_ms &&
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
        if (all_ready(lead)) {
            end(lead, ret, RUN_SUCCEEDED, "", ORDER_STOP_NONE, 0);
        }
        return;
    case PHASE_END:
        if (all_ready(lead) || lead->now_ms >= lead->limit_ms) {
            leave(lead, ret);
        }
        return;
    case PHASE_OVER:
        return;
    }
}

static uint64_t next_wake(const struct lead *lead)
{
    uint64_t wake_ms = lead->limit_ms;

    if (lead->phase == PHASE_OVER) {
        return LEAD_NEVER;
    }
    if (lead->phase == PHASE_PREPARE && all_ready(lead)) {
        wake_ms = lead->hold_ms;
    }
    if (lead->phase < PHASE_END && lead->config.deadline_ms &&
        lead->config.deadline_ms < wake_ms) {
        wake_ms = lead->config.deadline_ms;
    }
    return wake_ms;
}

int lead_step(struct lead *lead, const struct lead_event *event,
              struct lead_actions *ret)
{
    enum phase before;
    int rc = 0;

    ret->order = NULL;
    ret->n_notes = 0;
    if (event->now_ms > lead->now_ms) {
        lead->now_ms = event->now_ms;
    }
    if (lead->phase != PHASE_OVER) {
        rc = on_event(lead, event, ret);
        do {
            before = lead->phase;
            advance(lead, ret);
        } while (lead->phase != before);
    }
    ret->wake_ms = next_wake(lead);
    ret->finished = lead->phase == PHASE_OVER;
    return rc;
}
