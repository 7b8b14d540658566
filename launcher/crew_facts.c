/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "ckpt/step.h"
#include "launcher/agent_snap.h"
#include "launcher/jsonw.h"
#include "launcher/status.h"

#include <string.h>

struct jsonw crew_fact_begin(struct buf *b, const char *kind,
                             const struct crew *c)
{
    struct jsonw w = agent_fact_begin(b, kind);

    jsonw_int(&w, "generation", c->generation);
    return w;
}

void crew_tell_started(struct crew *c)
{
    _buf_ struct buf b = {0};
    struct jsonw w = crew_fact_begin(&b, "started", c);

    jsonw_int(&w, "first", c->layout.first_rank);
    jsonw_array(&w, "pids");
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        jsonw_int(&w, NULL, worker_pid(c->workers, i));
    }
    jsonw_end_array(&w);
    agent_fact_send(c->agent, &w);
}

void crew_tell_exited(struct crew *c, const struct worker_end *end)
{
    _buf_ struct buf b = {0};
    struct jsonw w = crew_fact_begin(&b, "exited", c);

    jsonw_int(&w, "rank", end->rank);
    jsonw_int(&w, "code", end->how.signal ? 0 : end->how.code);
    jsonw_int(&w, "signal", end->how.signal);
    jsonw_int(&w, "cpu_ms", (int64_t)end->how.cpu_ms);
    jsonw_int(&w, "rss_kib", (int64_t)end->how.rss_kib);
    agent_fact_send(c->agent, &w);
}

/* Before there are workers, nobody is of another one. */
static int whose(void *arg, int pid)
{
    const struct crew *c = arg;

    return c->workers ? workers_whose(c->workers, pid) : -1;
}

/* How long a step took, by the time since the last report. */
static void put_pace(struct jsonw *w, struct crew_worker *k, int64_t step)
{
    uint64_t now = clock_mono_ns();

    if (k->reported_ns && step > k->step) {
        double span_s = (double)(now - k->reported_ns) / 1e9;

        jsonw_num(w, "took", span_s / (double)(step - k->step));
        jsonw_num(w, "span", span_s);
    }
    if (!k->reported_ns || step != k->step) {
        k->reported_ns = now;
        k->step = step;
    }
}

static void on_report(void *arg, uint32_t local_rank,
                      const struct worker_report *report)
{
    struct crew *c = arg;
    _buf_ struct buf b = {0};
    struct jsonw w = crew_fact_begin(&b, "report", c);

    crew_hang_report(c, local_rank, report->step);
    jsonw_int(&w, "rank", c->layout.first_rank + local_rank);
    jsonw_int(&w, "step", report->step);
    put_pace(&w, &c->list[local_rank], report->step);
    jsonw_object(&w, "metrics");
    for (size_t i = 0; i < report->n_metrics; i++) {
        jsonw_num(&w, report->metrics[i].name, report->metrics[i].value);
    }
    jsonw_end_object(&w);
    agent_fact_send(c->agent, &w);
}

static void on_save_plan(void *arg, uint32_t local_rank,
                         const struct worker_save_plan *plan)
{
    struct crew *c = arg;
    _buf_ struct buf b = {0};
    struct jsonw w = crew_fact_begin(&b, "save_plan", c);
    const struct status_plan told = {
        .is_assumed = plan->is_assumed, .every_s = plan->every_s,
        .cost_s = plan->cost_s, .mtbf_s = plan->mtbf_s, .ran_s = plan->ran_s,
        .n_failures = plan->n_failures,
    };

    jsonw_int(&w, "rank", c->layout.first_rank + local_rank);
    status_put_plan(&w, &told);
    agent_fact_send(c->agent, &w);
}

/* --- who waits for a checkpoint --- */

/* The newest of the first `n` requests that somebody waits for; NULL: none is, or they are
 * long past. */
static const char *asked_by(const struct crew *c, uint32_t n)
{
    n = n < c->n_checkpoints ? n : c->n_checkpoints;
    for (; n > 0 && c->n_checkpoints - n < CREW_N_ASKED; n--) {
        if (c->asked[n % CREW_N_ASKED][0]) {
            return c->asked[n % CREW_N_ASKED];
        }
    }
    return NULL;
}

/* One worker of a node is enough. */
static bool is_news(struct crew *c, const char *id, const char *uuid)
{
    if (c->told_heard == id && (!uuid[0] || strcmp(c->told_save, uuid) == 0)) {
        return false;
    }
    c->told_heard = id;
    str_copy(c->told_save, sizeof(c->told_save), uuid);
    return true;
}

static void on_checkpoint_heard(void *arg, uint32_t local_rank,
                                const struct worker_heard *heard)
{
    struct crew *c = arg;
    const char *id = asked_by(c, heard->requests);
    char name[STEP_NAME_BYTES];
    _buf_ struct buf b = {0};
    struct jsonw w;

    if (!heard->uuid[0]) {
        c->list[local_rank].n_heard = heard->requests;
    }
    if (!id || !is_news(c, id, heard->uuid)) {
        return;
    }
    w = crew_fact_begin(&b, "ckpt_heard", c);
    jsonw_str(&w, "id", id);
    if (heard->uuid[0]) {
        step_name((uint64_t)heard->step, heard->uuid, name);
        jsonw_int(&w, "step", heard->step);
        jsonw_str(&w, "save", name);
    }
    agent_fact_send(c->agent, &w);
}

static void tell_saved(struct crew *c, uint32_t local_rank, const char *path, int64_t step)
{
    const char *id = asked_by(c, c->list[local_rank].n_heard);
    _buf_ struct buf b = {0};
    struct jsonw w = crew_fact_begin(&b, "ckpt_saved", c);

    jsonw_str(&w, "path", path);
    jsonw_int(&w, "step", step);
    jsonw_opt_str(&w, "id", id);
    agent_fact_send(c->agent, &w);
}

/* The member tells it with its next report. */
static void on_checkpoint_saved(void *arg, uint32_t local_rank,
                                const char *path, int64_t step)
{
    struct crew *c = arg;
    struct member_event event = {.type = MEMBER_SAVED, .text = path,
                                 .step = step, .generation = c->generation};

    agent_member_soon(c->agent, &event);
    tell_saved(c, local_rank, path, step);
}

/* The process that was in collectives is gone, though the worker (a shell around
 * it, say) may live on: unless it had finished, nobody can go on for it. */
static void on_disconnect(void *arg, uint32_t local_rank, bool had_joined,
                          const char *why)
{
    const struct crew *c = arg;

    (void)why;
    if (had_joined && !segment_is_finished(c->world->segment, local_rank)) {
        segment_leave(c->world->segment, local_rank);
    }
}

static void on_snap_begin(void *arg, uint32_t local_rank, uint64_t connection,
                          const struct worker_snap_begin *begin)
{
    agent_snap_begin(arg, local_rank, connection, begin);
}

static void on_snap_find(void *arg, uint32_t local_rank, uint64_t connection,
                         const struct worker_snap_find *find)
{
    agent_snap_find(arg, local_rank, connection, find);
}

static void on_snap_fill(void *arg, uint32_t local_rank,
                         const struct worker_snap_fill *fill)
{
    agent_snap_fill(arg, local_rank, fill);
}

static void on_snap_done(void *arg, uint32_t local_rank,
                         const struct worker_snap_done *done)
{
    agent_snap_done(arg, local_rank, done);
}

static void on_snap_want(void *arg, uint32_t local_rank,
                         const struct worker_snap_want *want)
{
    agent_snap_want(arg, local_rank, want);
}

const struct worker_socket_ops crew_socket_ops = {
    .whose = whose,
    .on_report = on_report,
    .on_checkpoint_saved = on_checkpoint_saved,
    .on_checkpoint_heard = on_checkpoint_heard,
    .on_save_plan = on_save_plan,
    .on_snap_begin = on_snap_begin,
    .on_snap_find = on_snap_find,
    .on_snap_fill = on_snap_fill,
    .on_snap_done = on_snap_done,
    .on_snap_want = on_snap_want,
    .on_disconnect = on_disconnect,
};
