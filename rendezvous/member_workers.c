/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of workers, and of the store. */
#include <config.h>

#include "rendezvous/member_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <string.h>

static void record(struct member *m, const struct failure *f)
{
    struct report *r = &m->report;

    r->failed = true;
    r->failure = *f;
    r->failure.node = m->config.rank;
    m->failed_ms = m->now_ms > f->age_ms ? m->now_ms - f->age_ms : 0;
    m->changed = true;
}

/* Whether `f` was before the failure that is kept of this generation. */
static bool comes_first(const struct member *m, const struct failure *f)
{
    const struct failure *kept = &m->report.failure;

    if (!m->report.failed || kept->generation != m->workers.generation) {
        return true;
    }
    if (f->grade != kept->grade) {
        return f->grade < kept->grade;
    }
    return m->now_ms < member_later(m->failed_ms, f->age_ms);
}

/* A failure that no stop explains: the first of its generation is kept. */
static void on_failure(struct member *m, const struct failure *f)
{
    struct failure failure = *f;

    m->workers.clean = false;
    if ((f->killed_by_us && !MUTANT(6)) || !comes_first(m, f)) {
        return;
    }
    failure.generation = m->workers.generation;
    record(m, &failure);
}

/* The end of a worker, which a stop explains. */
static void on_failed_end(struct member *m, const struct failure *f)
{
    m->workers.clean = false;
    if (m->workers.stop == MEMBER_STOP_NONE || MUTANT(6)) {
        on_failure(m, f);
    }
}

/* The agent's own failure, not one of a worker. */
static void on_own_failure(struct member *m, uint32_t generation,
                           const char *text)
{
    struct failure f = {
        .kind = FAILURE_AGENT,
        .generation = generation,
        .rank = -1,
        .local_rank = -1,
    };

    str_copy(f.host, sizeof(f.host), m->host);
    str_copy(f.text, sizeof(f.text), text ? text : "");
    record(m, &f);
}

static void on_started(struct member *m)
{
    m->workers.started = true;
    m->report.state = REPORT_RUNNING;
    m->report.generation = m->workers.generation;
    m->changed = true;
}

static void on_start_failed(struct member *m, const struct failure *f)
{
    on_failed_end(m, f);
    on_started(m);
    /* What did start is of no use, and need not be asked. */
    if (m->workers.stop < MEMBER_STOP_KILL) {
        m->workers.kill_ms = m->now_ms;
    }
}

static void on_exited(struct member *m, const struct failure *f)
{
    struct workers *w = &m->workers;

    if (w->n_exited < w->n) {
        w->n_exited++;
    }
    if (f) {
        on_failed_end(m, f);
    }
    if (w->n_exited == w->n && w->stop == MEMBER_STOP_NONE) {
        w->by_themselves = true;
        w->kill_ms = member_later(m->now_ms, m->config.linger_ms);
    }
    m->changed = true;
}

static void on_gone(struct member *m)
{
    struct workers *w = &m->workers;

    w->alive = false;
    w->kill_ms = MEMBER_NEVER;
    m->changed = true;
    if (w->n_exited < w->n && w->stop == MEMBER_STOP_NONE && w->clean) {
        w->clean = false;
        on_own_failure(m, w->generation, "workers vanished");
    }
    /* Who is told to stop may well exit with 0, and has not done what it was to do. */
    if (w->clean && w->by_themselves && m->report.state == REPORT_RUNNING) {
        m->report.state = REPORT_DONE;
    }
}

/* Events about workers. */
int member_on_workers(struct member *m, const struct member_event *event)
{
    if (!m->workers.alive || event->generation != m->workers.generation) {
        return -EPROTO;
    }
    switch (event->type) {
    case MEMBER_STARTED:
        on_started(m);
        return 0;
    case MEMBER_START_FAILED:
        if (!event->failure) {
            return -EPROTO;
        }
        on_start_failed(m, event->failure);
        return 0;
    case MEMBER_EXITED:
        on_exited(m, event->failure);
        return 0;
    case MEMBER_FAILED:
        if (!event->failure) {
            return -EPROTO;
        }
        on_failure(m, event->failure);
        return 0;
    default:
        on_gone(m);
        return 0;
    }
}

int member_on_store(struct member *m, const struct member_event *event)
{
    if (!event->generation || event->generation != m->store_asked) {
        return -EPROTO;
    }
    if (event->type == MEMBER_STORE_FAILED) {
        m->store_open = true;
        on_own_failure(m, event->generation, event->text);
        return 0;
    }
    m->store_open = true;
    m->report.store_port = event->port;
    str_copy(m->report.store_addr, sizeof(m->report.store_addr), event->addr);
    return 0;
}

int member_on_saved(struct member *m, const struct member_event *event)
{
    struct report *r = &m->report;
    bool newer;

    if (!event->text || strlen(event->text) >= sizeof(r->saved_path)) {
        return -EPROTO;
    }
    newer = event->generation > r->saved_generation || !r->saved_path[0] ||
            (event->generation == r->saved_generation &&
             (event->step > r->saved_step ||
              (event->step == r->saved_step && strcmp(event->text, r->saved_path) != 0)));
    if (newer) {
        r->saved_generation = event->generation;
        r->saved_step = event->step;
        str_copy(r->saved_path, sizeof(r->saved_path), event->text);
        m->changed = true;
    }
    return 0;
}
