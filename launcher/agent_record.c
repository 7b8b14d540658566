/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_record_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop_timer.h"
#include "base/waker.h"
#include "launcher/journal.h"
#include "launcher/jsonw.h"
#include "launcher/slow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TELL_MS = 200,   /* between two states for journal and front end */
    MAX_TOLD_BYTES = 2 * 1024 * 1024, /* of one state, to the front end */
    PULSE_MS = 5000, /* and at least so often, to show that the lead lives */
};

#define STEADY_NS UINT64_C(2000000000)
#define FAR_MS (UINT64_C(100) * 365 * 86400 * 1000) /* that is as good as never */

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
    if (!r->is_over) {
        r->is_over = s->ended_ns != 0;
        s->elapsed_ms = uv_now(&r->agent->loop) - r->agent->began_ms;
        s->ran_ms = r->agent->config.ran_ms + s->elapsed_ms;
    }
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

static int make_handles(struct record *r, struct error *e)
{
    r->timer = loop_timer_create(&r->agent->loop, r);
    r->patience = loop_timer_create(&r->agent->loop, r);
    if (!r->timer || !r->patience) {
        loop_timer_close(r->timer);
        loop_timer_close(r->patience);
        return error_set(e, ENOMEM, "keep records");
    }
    return waker_create(&r->agent->loop, on_word, r, &r->word, e);
}

/* The job's levels, by the names that plans have for them. */
static unsigned levels_of(const struct job_checkpoint *k)
{
    bool has_memory = k->levels & JOB_LEVEL_MEMORY;
    bool has_partner = has_memory && k->levels & JOB_LEVEL_PARTNER;

    return (unsigned)has_memory << INTERVAL_MEMORY |
           (unsigned)has_partner << INTERVAL_PARTNER | 1u << INTERVAL_DISK |
           (unsigned)(k->store != NULL) << INTERVAL_STORE;
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
    s->levels = levels_of(&a->config.job->checkpoint);
    s->lead = (int)a->rank;
    s->created_ns = s->started_ns = a->began_ns;
    s->mpi_epoch = (uint32_t)a->epoch;
    /* What was before, until this start has a generation of its own: it may end
     * without one. */
    s->generation = (int)a->config.first_generation - 1;
    s->restarts = (int)a->config.n_restarts;
    s->starts = (int)a->config.n_starts + 1;
    s->node_failures = (int)a->config.n_node_failures;
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
    loop_timer_close(r->timer);
    loop_timer_close(r->patience);
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

void record_eventv(struct record *r, const char *event, uint32_t generation,
                   const char *fmt, va_list ap)
{
    _buf_ struct buf text = {0};

    buf_vprintf(&text, fmt, ap);
    record_event(r, event, generation ? generation : (uint32_t)r->status->generation,
                 buf_str(&text), NULL, 0);
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
