/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_record.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/waker.h"
#include "launcher/journal.h"
#include "launcher/jsonw.h"
#include "launcher/slow.h"
#include "rendezvous/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TELL_MS = 200,   /* between two states for journal and front end */
    MAX_EARLY = 64, /* events kept for a front end that is on its way */
    MAX_TOLD_BYTES = 2 * 1024 * 1024, /* of one state, to the front end */
    SLOW_MS = 1000,  /* between two looks at who is slow */
    MAX_SLOW = 8,    /* that are told in one */
    PULSE_MS = 5000, /* and at least so often, to show that the lead lives */
};

#define STEADY_NS UINT64_C(2000000000)
#define FAR_MS (UINT64_C(100) * 365 * 86400 * 1000) /* that is as good as never */

struct record {
    struct agent *agent;
    struct journal *journal;
    struct run_status *status;
    uv_timer_t *timer;
    struct waker *word; /* the journal's thread has something to tell */
    uv_mutex_t mutex; /* guards what it tells */
    char trouble[1024];
    int written; /* the newest generation on disk; -1: none of this start */
    uv_timer_t *patience; /* with who waits for that */
    record_written_f *on_written;
    void *on_written_arg;
    bool dirty;
    uint64_t started_ms;  /* all of them on the loop's clock */
    uint64_t deadline_ms; /* 0: none */
    uint64_t limit_ms;    /* of the batch system; 0: none */
    struct slow *slow; /* of this generation; NULL without memory */
    uint64_t slow_ms;  /* the last look at it */
    uint64_t until_ms; /* another may lead from then on, on the loop's clock */
    bool keeps_early;  /* the front end of the lead before is looked for */
    struct buf early[MAX_EARLY];
    size_t n_early;
};

/* The wall clock's time of `at_ms`, which is on a clock that cannot jump. It moves
 * by the milliseconds that two clocks are read apart: no news for anybody. */
static void set_time(struct record *r, uint64_t at_ms, uint64_t *to_ns)
{
    uint64_t now_ms = uv_now(&r->agent->loop);
    uint64_t ns = clock_wall_ns() + (at_ms - now_ms) * 1000000u;

    if (!at_ms || (at_ms > now_ms && at_ms - now_ms > FAR_MS)) {
        *to_ns = 0;
    } else if (ns > *to_ns ? ns - *to_ns > STEADY_NS : *to_ns - ns > STEADY_NS) {
        *to_ns = ns;
    }
}

static void set_times(struct record *r)
{
    struct run_status *s = r->status;

    uv_update_time(&r->agent->loop);
    s->ran_ms = r->agent->config.ran_ms + uv_now(&r->agent->loop) -
                r->started_ms;
    set_time(r, r->deadline_ms, &s->deadline_ns);
    set_time(r, r->limit_ms, &s->time_limit_ns);
}

/* The verdict has to reach the front end whatever the size of the run. */
static void leave_out_workers(struct run_status *s, struct buf *b)
{
    size_t n = s->n_workers;

    buf_clear(b);
    s->n_workers = 0;
    run_status_to_json(s, b);
    s->n_workers = n;
}

static bool may_tell(const struct record *r)
{
    return uv_now(&r->agent->loop) < r->until_ms;
}

static void tell(struct record *r)
{
    _buf_ struct buf b = {0};

    r->dirty = false;
    if (!may_tell(r)) {
        return;
    }
    r->status->updated_ns = clock_wall_ns();
    set_times(r);
    journal_status(r->journal, run_status_copy(r->status));
    run_status_to_json(r->status, &b);
    if (b.len > MAX_TOLD_BYTES) {
        leave_out_workers(r->status, &b);
    }
    if (!b.failed) {
        tree_tell_front(r->agent->tree, TREE_STATUS, &b);
    }
}

static void on_tell(uv_timer_t *t)
{
    record_flush(t->data);
}

void record_touch(struct record *r)
{
    if (!r->dirty) {
        r->dirty = true;
        uv_timer_start(r->timer, on_tell, TELL_MS, 0);
    }
}

void record_set_limit(struct record *r, uint64_t at_ms)
{
    r->limit_ms = at_ms;
    record_touch(r);
}

void record_flush(struct record *r)
{
    tell(r);
    uv_timer_start(r->timer, on_tell, PULSE_MS, 0);
}

struct run_status *record_status(struct record *r)
{
    return r->status;
}

/* On the journal's thread. */
static void on_journal_error(void *arg, const char *text)
{
    struct record *r = arg;

    uv_mutex_lock(&r->mutex);
    str_copy(r->trouble, sizeof(r->trouble), text);
    uv_mutex_unlock(&r->mutex);
    waker_send(r->word);
}

/* Likewise. */
static void on_journal_generation(void *arg, int generation)
{
    struct record *r = arg;

    uv_mutex_lock(&r->mutex);
    r->written = generation;
    uv_mutex_unlock(&r->mutex);
    waker_send(r->word);
}

static void tell_written(struct record *r, bool is_written)
{
    record_written_f *f = r->on_written;

    uv_timer_stop(r->patience);
    r->on_written = NULL;
    if (f) {
        f(r->on_written_arg, is_written);
    }
}

static void on_word(void *arg)
{
    struct record *r = arg;
    char trouble[sizeof(r->trouble)];
    int written;

    uv_mutex_lock(&r->mutex);
    str_copy(trouble, sizeof(trouble), r->trouble);
    r->trouble[0] = '\0';
    written = r->written;
    uv_mutex_unlock(&r->mutex);
    if (trouble[0]) {
        agent_note(r->agent, "the run's records cannot be written: %s",
                   trouble);
    }
    if (written >= r->status->generation) {
        tell_written(r, true);
    }
}

static void on_patience_end(uv_timer_t *t)
{
    tell_written(t->data, false);
}

void record_when_written(struct record *r, unsigned timeout_ms,
                         record_written_f *f, void *arg)
{
    r->on_written = f;
    r->on_written_arg = arg;
    if (f) {
        uv_timer_start(r->patience, on_patience_end, timeout_ms, 0);
        waker_send(r->word); /* it may have been told before */
    } else {
        uv_timer_stop(r->patience);
    }
}

static int fill_nodes(struct record *r, struct error *e)
{
    const struct roster *roster = &r->agent->roster;

    if (run_status_set_nodes(r->status, roster->n) < 0) {
        return error_set(e, ENOMEM, "list nodes");
    }
    for (uint32_t i = 0; i < roster->n; i++) {
        str_copy(r->status->nodes[i].host, sizeof(r->status->nodes[i].host),
                 roster->entries[i].host);
        r->status->nodes[i].rank = (int)i;
    }
    return 0;
}

static void free_handle(uv_handle_t *h)
{
    free(h);
}

static int make_handles(struct record *r, struct error *e)
{
    r->timer = calloc(1, sizeof(*r->timer));
    r->patience = calloc(1, sizeof(*r->patience));
    if (!r->timer || !r->patience) {
        free(r->timer);
        free(r->patience);
        return error_set(e, ENOMEM, "keep records");
    }
    uv_timer_init(&r->agent->loop, r->timer);
    uv_timer_init(&r->agent->loop, r->patience);
    r->timer->data = r;
    r->patience->data = r;
    return waker_create(&r->agent->loop, on_word, r, &r->word, e);
}

int record_create(struct agent *a, struct record **ret, struct error *e)
{
    struct record *r = calloc(1, sizeof(*r));
    struct journal_config config = {.run_dir = a->run.dir,
                                    .on_error = on_journal_error,
                                    .on_generation = on_journal_generation,
                                    .arg = r};
    struct run_status *s = run_status_create();
    int rc;

    if (!r || !s) {
        free(r);
        run_status_destroy(s);
        return error_set(e, ENOMEM, "keep records");
    }
    r->agent = a;
    r->status = s;
    r->written = -1;
    r->until_ms = UINT64_MAX;
    uv_mutex_init(&r->mutex);
    rc = make_handles(r, e);
    rc = rc < 0 ? rc : fill_nodes(r, e);
    config.wake_fd = rc < 0 ? 0 : waker_fd(r->word);
    rc = rc < 0 ? rc : journal_create(&config, &r->journal, e);
    if (rc < 0) {
        return rc; /* the agent leaves, and the process with it */
    }
    str_copy(s->id, sizeof(s->id), a->run.id);
    str_copy(s->name, sizeof(s->name), a->config.job->name);
    str_copy(s->version, sizeof(s->version), PACKAGE_VERSION);
    str_copy(s->run_dir, sizeof(s->run_dir), a->run.dir);
    str_copy(s->resume_path, sizeof(s->resume_path), a->config.resume_path);
    s->resume_step = a->config.resume_path[0] ? a->config.resume_step : -1;
    s->state = STATUS_JOINING;
    s->step = -1;
    s->max_restarts = (int)a->config.job->restart.max;
    s->lead = (int)a->rank;
    s->created_ns = s->started_ns = a->config_ns;
    s->mpi_epoch = (uint32_t)a->epoch;
    /* What was before, until this start has a generation of its own: it may end
     * without one. */
    s->generation = (int)a->config.first_generation - 1;
    s->restarts = (int)a->config.n_restarts;
    s->starts = (int)a->config.n_starts + 1;
    s->node_failures = (int)a->config.n_node_failures;
    r->started_ms = a->config_ms;
    r->deadline_ms = agent_lead_deadline_ms(a);
    *ret = r;
    return 0;
}

void record_destroy(struct record *r, unsigned timeout_ms)
{
    struct error e = {0};

    if (!r) {
        return;
    }
    if (journal_close(r->journal, timeout_ms, &e) < 0) {
        agent_log(r->agent, "the journal: %s", e.text);
    }
    uv_close((uv_handle_t *)r->timer, free_handle);
    uv_close((uv_handle_t *)r->patience, free_handle);
    waker_destroy(r->word);
    run_status_destroy(r->status);
    slow_destroy(r->slow);
    for (size_t i = 0; i < r->n_early; i++) {
        buf_release(&r->early[i]);
    }
    uv_mutex_destroy(&r->mutex);
    free(r);
}

/* --- events --- */

static void put_failure(struct jsonw *w, const struct failure *f)
{
    char reason[512], name[64];

    jsonw_object(w, "failure");
    jsonw_int(w, "rank", f->rank);
    jsonw_int(w, "node", f->node);
    jsonw_str(w, "host", f->host);
    jsonw_int(w, "pid", f->pid);
    if (f->signal) {
        jsonw_int(w, "signal", f->signal);
    } else {
        jsonw_int(w, "exit_code", f->exit_code);
    }
    jsonw_time(w, "t", f->wall_ns);
    failure_describe(f, reason, sizeof(reason));
    jsonw_str(w, "reason", reason);
    jsonw_opt_str(w, "advice", failure_advice(f));
    if (f->has_file) {
        agent_error_name(f->generation, (uint32_t)f->rank, name, sizeof(name));
        jsonw_str(w, "error_file", name);
    }
    jsonw_opt_str(w, "lines", failure_has_lines(f) ? f->text : NULL);
    jsonw_end_object(w);
}

static void put_event(struct jsonw *w, const char *text,
                      const struct failure *failure, int64_t epoch)
{
    jsonw_str(w, "text", text);
    if (epoch) {
        jsonw_int(w, "epoch", epoch);
    }
    if (failure) {
        put_failure(w, failure);
    }
}

void record_event(struct record *r, const char *event, uint32_t generation,
                  const char *text, const struct failure *failure,
                  int64_t epoch)
{
    _buf_ struct buf line = {0};
    _buf_ struct buf front = {0};
    struct jsonw w = journal_event_begin(&line, clock_wall_ns(), event,
                                         (int)generation);

    put_event(&w, text, failure, epoch);
    journal_event_end(r->journal, &w);
    w = jsonw_start(&front);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "event", event);
    jsonw_int(&w, "generation", generation);
    put_event(&w, text, failure, epoch);
    jsonw_end_object(&w);
    if (front.failed) {
        return;
    }
    if ((r->keeps_early || !may_tell(r)) && r->n_early < MAX_EARLY) {
        r->early[r->n_early++] = front;
        front = (struct buf){0};
        return;
    }
    tree_tell_front(r->agent->tree, TREE_EVENT, &front);
}

void record_expect_front(struct record *r)
{
    r->keeps_early = true;
}

static void send_early(struct record *r)
{
    if (r->keeps_early || !may_tell(r)) {
        return;
    }
    for (size_t i = 0; i < r->n_early; i++) {
        tree_tell_front(r->agent->tree, TREE_EVENT, &r->early[i]);
        buf_release(&r->early[i]);
    }
    r->n_early = 0;
}

bool record_meet_front(struct record *r)
{
    bool was_expected = r->keeps_early;

    r->keeps_early = false;
    send_early(r);
    return was_expected;
}

void record_may_tell(struct record *r, uint64_t until_ms)
{
    if (!r) {
        return;
    }
    r->until_ms = until_ms;
    journal_may_write(r->journal, until_ms > UINT64_MAX / 1000000
                                      ? UINT64_MAX : until_ms * 1000000);
    send_early(r);
}

/* --- facts --- */

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
        } else if (s->nodes[i].why[0]) {
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

void record_newcomers(struct record *r)
{
    struct run_status *s = r->status;
    const struct roster *roster = &r->agent->roster;
    size_t n_before = s->n_nodes;

    if (run_status_set_nodes(s, roster->n) < 0) {
        return;
    }
    for (size_t i = n_before; i < roster->n; i++) {
        str_copy(s->nodes[i].host, sizeof(s->nodes[i].host),
                 roster->entries[i].host);
        tell_spare(r, (uint32_t)i);
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
        agent_lead_exclude(r->agent, (uint32_t)w->node, text);
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
    bool is_loss = strcmp(kind, "mpi_lost") == 0;
    uint32_t *newest = is_loss ? &s->mpi_lost : &s->mpi_epoch;

    if ((is_loss || strcmp(kind, "mpi_joined") == 0) && epoch > *newest &&
        epoch <= UINT32_MAX) {
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

void record_fact(struct record *r, uint32_t node, const char *kind,
                 const json_t *fact)
{
    const char *text = json_string_value(json_object_get(fact, "text"));

    if (text) { /* "note", "mpi_lost", "mpi_joined": for the journal as it is */
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
    }
    record_touch(r);
}
