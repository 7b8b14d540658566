/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts: what agents say of their nodes and workers, as they come into the status
 * and the journal; and who of the workers is slow.
 */
#include <config.h>

#include "launcher/agent_record_priv.h"

#include "base/clock.h"
#include "base/str.h"
#include "launcher/jsonw.h"
#include "rendezvous/layout.h"

#include <stdio.h>
#include <string.h>

enum {
    SLOW_MS = 1000, /* between two looks at who is slow */
    MAX_SLOW = 8,   /* that are told in one */
};

static void tell_spare(struct record *r, uint32_t node)
{
    struct run_status *s = r->status;
    char text[ROSTER_HOST_BYTES + 32];

    s->nodes[node].state = STATUS_NODE_SPARE;
    snprintf(text, sizeof(text), "%s waits as a spare", s->nodes[node].host);
    record_event(r, "node_spare", (uint32_t)s->generation, text, NULL, 0);
}

/* A node that has no worker waits for the next generation. */
static void mark_spares(struct record *r, const struct order *run)
{
    struct run_status *s = r->status;

    for (uint32_t i = 0; i < run->n_nodes && i < s->n_nodes; i++) {
        if (s->nodes[i].state == STATUS_NODE_LOST) {
            continue;
        }
        if (run->n_procs[i]) {
            s->nodes[i].state = STATUS_NODE_READY;
        } else if (s->nodes[i].excluded) {
            s->nodes[i].state = STATUS_NODE_EXCLUDED;
        } else if (s->nodes[i].state != STATUS_NODE_SPARE) {
            tell_spare(r, i);
        }
    }
}

void record_started(struct record *r, const struct order *run)
{
    struct run_status *s = r->status;
    struct layout whole = layout_of(run->n_procs, run->n_nodes, 0);

    s->generation = (int)run->generation;
    s->restarts = (int)run->past.n_restarts;
    mark_spares(r, run);
    str_copy(s->resume_path, sizeof(s->resume_path), run->resume_path);
    s->resume_step = run->resume_path[0] ? run->resume_step : -1;
    slow_destroy(r->slow);
    r->slow = slow_create(whole.world);
    slowdown_restart(&r->slowdown);
    if (run_status_set_workers(s, whole.world) < 0) {
        return;
    }
    for (uint32_t rank = 0; rank < whole.world; rank++) {
        uint32_t local;

        s->workers[rank] = (struct status_worker){
            .rank = (int)rank,
            .node = (int)layout_node_of(run->n_procs, run->n_nodes, rank,
                                        &local),
            .state = STATUS_WORKER_WAITING,
        };
    }
}

/* Also of one that seemed to have come and gone unseen; but what else the lead has heard
 * of it holds. */
static void take_newcomer(struct record *r, uint32_t rank, bool is_new, bool is_lost)
{
    struct status_node *n = &r->status->nodes[rank];
    const struct roster_entry *entry = &r->agent->roster.entries[rank];

    if (!is_new && (n->host[0] || roster_is_absent(entry))) {
        return;
    }
    str_copy(n->host, sizeof(n->host), entry->host);
    if (roster_is_absent(entry)) {
        n->state = STATUS_NODE_LOST;
    } else if (is_new || (n->state == STATUS_NODE_LOST && !is_lost)) {
        tell_spare(r, rank);
    }
}

void record_newcomers(struct record *r, const struct lead *core)
{
    size_t n_before = r->status->n_nodes;
    uint32_t n = r->agent->roster.n;

    if (run_status_set_nodes(r->status, n) < 0) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        take_newcomer(r, i, i >= n_before, lead_node(core, i)->lost);
    }
    record_touch(r);
}

static int64_t int_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* What goes into a status has to be what its readers take, whatever a node says:
 * nobody could look at the run any more, or go on with it. */
static int64_t int_up_to(const json_t *v, int64_t max)
{
    int64_t n = json_integer_value(v);

    return n < 0 || n > max ? 0 : n;
}

static int64_t int_in(const json_t *o, const char *key, int64_t max)
{
    return int_up_to(json_object_get(o, key), max);
}

static struct status_worker *worker_of(struct run_status *s, int64_t rank)
{
    return rank >= 0 && (uint64_t)rank < s->n_workers ? &s->workers[rank]
                                                       : NULL;
}

static void take_started(struct record *r, const json_t *fact)
{
    const json_t *pids = json_object_get(fact, "pids");
    int64_t first = int_of(fact, "first");

    for (size_t i = 0; i < json_array_size(pids); i++) {
        struct status_worker *w = worker_of(r->status, first + (int64_t)i);

        if (w && w->state == STATUS_WORKER_WAITING) {
            w->pid = int_up_to(json_array_get(pids, i), INT32_MAX);
            w->state = STATUS_WORKER_RUNNING;
            w->started_ns = clock_wall_ns();
        }
    }
}

static void take_exited(struct record *r, const json_t *fact)
{
    struct status_worker *w = worker_of(r->status, int_of(fact, "rank"));

    if (w) {
        w->state = STATUS_WORKER_EXITED;
        w->exit_code = (int)int_in(fact, "code", UINT8_MAX);
        w->signal = (int)int_in(fact, "signal", UINT8_MAX);
        w->ended_ns = clock_wall_ns();
    }
}

static void tell_slow(struct record *r, const struct slow_change *c)
{
    struct status_worker *w = worker_of(r->status, c->rank);
    char text[ROSTER_HOST_BYTES + 128];

    if (!w) {
        return;
    }
    w->slow_percent = c->percent;
    if (c->percent) {
        snprintf(text, sizeof(text), "rank %u (node %d, %s) is slow: its steps "
                 "take %u.%02u times the median, %.3g s against %.3g s", c->rank,
                 w->node, r->agent->roster.entries[w->node].host,
                 c->percent / 100, c->percent % 100, c->own_s, c->median_s);
    } else {
        snprintf(text, sizeof(text), "rank %u keeps up again", c->rank);
    }
    record_event(r, "slow", (uint32_t)r->status->generation, text, NULL, 0);
}

/* elastic.excludeSlow. Once it is excluded, or cannot be, nothing comes of it. */
static void exclude_slow(struct record *r)
{
    double factor = r->agent->config.job->elastic.exclude_slow;
    struct slow_change worst = slow_worst(r->slow);
    const struct status_worker *w = worker_of(r->status, worst.rank);
    char text[128];

    if (factor >= 1.5 && w && worst.percent >= factor * 100) {
        snprintf(text, sizeof(text), "the steps of rank %u take %u.%02u times "
                 "the median (elastic.excludeSlow)", worst.rank,
                 worst.percent / 100, worst.percent % 100);
        agent_lead_exclude(r->agent, (uint32_t)w->node, EXCLUSION_SLOW, text);
    }
}

/* What a worker says of its step counts more than when it says it. */
static void look_for_slow(struct record *r, uint32_t rank, const json_t *fact)
{
    const json_t *said = json_object_get(json_object_get(fact, "metrics"),
                                         "step_time");
    uint64_t now = clock_mono_ms();
    struct slow_change changes[MAX_SLOW];
    double seconds;
    size_t n;

    if (!r->slow ||
        (!jsonw_read_num(said, &seconds) &&
         !jsonw_read_num(json_object_get(fact, "took"), &seconds))) {
        return;
    }
    slow_add(r->slow, rank, seconds);
    if (now - r->slow_ms < SLOW_MS) {
        return;
    }
    r->slow_ms = now;
    n = slow_look(r->slow, changes, MAX_SLOW);
    for (size_t i = 0; i < n; i++) {
        tell_slow(r, &changes[i]);
    }
    exclude_slow(r);
}

void record_busy(struct record *r, enum interval_level_id level, bool is_busy)
{
    slowdown_turn(&r->slowdown, level, is_busy, clock_mono_ms());
}

void record_storing(struct record *r, const char *path)
{
    if (strcmp(r->status->storing_path, path) != 0) {
        str_copy(r->status->storing_path, sizeof(r->status->storing_path), path);
        record_touch(r);
    }
}

/* Steps of rank 0 stand for all: ranks wait for each other. */
static void look_for_slowdown(struct record *r, const json_t *fact)
{
    struct run_status *s = r->status;
    double seconds, span_s;

    if (!jsonw_read_num(json_object_get(fact, "took"), &seconds) ||
        !jsonw_read_num(json_object_get(fact, "span"), &span_s)) {
        return;
    }
    slowdown_step(&r->slowdown, seconds, span_s, clock_mono_ms());
    for (enum interval_level_id i = 0; i < INTERVAL_N_LEVELS; i++) {
        if (slowdown_of(&r->slowdown, i, &s->slower[i])) {
            s->slower_known |= 1u << i;
        }
    }
}

static void take_report(struct record *r, const json_t *fact)
{
    int64_t step = int_of(fact, "step"), rank = int_of(fact, "rank");
    json_t *metrics = json_object_get(fact, "metrics");
    const char *name;
    json_t *value;

    if (!worker_of(r->status, rank)) {
        return;
    }
    if (rank == 0) {
        r->status->step = step;
        look_for_slowdown(r, fact);
    }
    look_for_slow(r, (uint32_t)rank, fact);
    json_object_foreach(metrics, name, value) {
        double number;

        if (!jsonw_read_num(value, &number)) {
            continue;
        }
        journal_metric(r->journal, clock_wall_ns(), (int)int_of(fact,
                       "generation"), (int)rank, step, name, number);
        run_status_metric(r->status, name, number, step, (int)rank);
    }
}

/* That of rank 0 is everybody's. */
static void take_save_plan(struct record *r, const json_t *fact)
{
    if (int_of(fact, "rank") == 0) {
        status_read_plan(fact, &r->status->save_plan);
    }
}

/* Which MPI worlds there were: a front end that takes over makes a newer one. */
static void take_world(struct record *r, const char *kind, int64_t epoch)
{
    struct run_status *s = r->status;
    uint32_t *newest = strcmp(kind, "mpi_lost") == 0     ? &s->mpi_lost
                       : strcmp(kind, "mpi_joined") == 0 ? &s->mpi_epoch
                       : strcmp(kind, "mpi_late") == 0   ? &s->mpi_late : NULL;

    if (newest && epoch > *newest && epoch <= UINT32_MAX) {
        *newest = (uint32_t)epoch;
        record_touch(r);
    }
}

/* A generation has begun without an MPI world for all of it: as good as lost. One of
 * many who say so is enough, and who only knows an older one says nothing. */
static void take_short_world(struct record *r, const json_t *fact)
{
    const char *host = json_string_value(json_object_get(fact, "host"));
    int64_t epoch = int_of(fact, "epoch");
    char text[ROSTER_HOST_BYTES + 96];

    if (!host || epoch < r->status->mpi_epoch || epoch <= r->status->mpi_lost) {
        return;
    }
    snprintf(text, sizeof(text), "%.*s takes part in generation %lld, and is not "
             "in MPI world %lld", ROSTER_HOST_BYTES - 1, host,
             (long long)int_in(fact, "generation", INT32_MAX), (long long)epoch);
    record_event(r, "mpi_lost", (uint32_t)r->status->generation, text, NULL,
                 epoch);
    take_world(r, "mpi_lost", epoch);
}

/* --- who waits for a checkpoint --- */

static const char *text_of(const json_t *fact, const char *key)
{
    const char *s = json_string_value(json_object_get(fact, key));

    return s ? s : "";
}

static void take_heard(struct record *r, const json_t *fact)
{
    const char *id = text_of(fact, "id"), *name = text_of(fact, "save");
    int64_t step = int_of(fact, "step");

    if (!name[0]) {
        asked_hear(r->status, id);
    } else if (strlen(name) < STEP_NAME_BYTES && step >= 0) {
        asked_begin(&r->asked, r->status, id, step, name);
    }
}

static void take_saved(struct record *r, const json_t *fact)
{
    const char *path = text_of(fact, "path");

    if (path[0] && strlen(path) < PATH_MAX) {
        asked_save(&r->asked, r->status, text_of(fact, "id"), int_of(fact, "step"), path);
    }
}

void record_saved(struct record *r, const char *path, int64_t step)
{
    asked_save(&r->asked, r->status, "", step, path);
    record_touch(r);
}

void record_save_failed(struct record *r, const char *name, const char *why)
{
    asked_fail(r->status, name, why);
    record_touch(r);
}

void record_fact(struct record *r, uint32_t node, const char *kind,
                 const json_t *fact)
{
    const char *text = json_string_value(json_object_get(fact, "text"));

    if (text) { /* "note", "mpi_lost" and the like: for the journal as it is */
        record_event(r, kind, (uint32_t)r->status->generation, text, NULL,
                     int_of(fact, "epoch"));
        take_world(r, kind, int_of(fact, "epoch"));
        return;
    }
    if (strcmp(kind, "agent") == 0 && node < r->status->n_nodes) {
        r->status->nodes[node].agent_pid = int_in(fact, "pid", INT32_MAX);
    } else if (strcmp(kind, "mpi_short") == 0) {
        take_short_world(r, fact);
    } else if (int_of(fact, "generation") != r->status->generation) {
        return; /* of workers that are history */
    } else if (strcmp(kind, "started") == 0) {
        take_started(r, fact);
    } else if (strcmp(kind, "exited") == 0) {
        take_exited(r, fact);
    } else if (strcmp(kind, "report") == 0) {
        take_report(r, fact);
    } else if (strcmp(kind, "save_plan") == 0) {
        take_save_plan(r, fact);
    } else if (strcmp(kind, "ckpt_heard") == 0) {
        take_heard(r, fact);
    } else if (strcmp(kind, "ckpt_saved") == 0) {
        take_saved(r, fact);
    }
    record_touch(r);
}
