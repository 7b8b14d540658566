/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/lead_files_bed.h"

#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* --- the linker's hand --- */

uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
void __wrap_agent_asked(struct agent *a, const void *json, size_t len);
void __real_reread_gate_hold(struct reread_gate *g, bool held);
void __wrap_reread_gate_hold(struct reread_gate *g, bool held);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + lead_files.passed_ms;
}

void __wrap_reread_gate_hold(struct reread_gate *g, bool held)
{
    lead_files.gives_way = held;
    __real_reread_gate_hold(g, held);
}

void __wrap_agent_asked(struct agent *a, const void *json, size_t len)
{
    struct lead_files *b = &lead_files;

    (void)a;
    b->n_failed += memmem(json, len, UUID_F, sizeof(UUID_F) - 1) &&
                   memmem(json, len, "\"error\":5,", 10);
    if (memmem(json, len, "snap_go", 7) || memmem(json, len, "\"error\":116", 11)) {
        b->n_gone++;
        snprintf(b->gone, sizeof(b->gone), "%.*s", (int)len, (const char *)json);
    }
    if (memmem(json, len, "snap_where", 10)) {
        b->n_said++;
        snprintf(b->where, sizeof(b->where), "%.*s", (int)len, (const char *)json);
    }
    if (memmem(json, len, "snap_rebuild", 12)) {
        snprintf(b->rebuild, sizeof(b->rebuild), "%.*s", (int)len, (const char *)json);
    }
}

/* --- what the lead is answered, and tells --- */

static void on_saved(void *arg, const char *path, int64_t step, uint32_t generation,
                     bool is_new, bool is_later)
{
    struct lead_files *b = arg;

    (void)path, (void)step, (void)generation, (void)is_new, (void)is_later;
    b->n_saved++;
}

static void on_failed(void *arg, const char *name, const char *why)
{
    struct lead_files *b = arg;

    snprintf(b->failed, sizeof(b->failed), "%s", why ? name : "");
}

static void on_saving(void *arg, uint64_t step, uint32_t written, uint32_t ranks)
{
    struct lead_files *b = arg;

    (void)step;
    (void)written;
    b->saving = ranks;
}

static void on_took(void *arg, enum interval_level_id level, double seconds)
{
    struct lead_files *b = arg;

    b->n_took[level] += seconds >= 0;
}

static void on_held(void *arg, int64_t step, uint32_t ranks,
                    const struct status_held *held, size_t n)
{
    struct lead_files *b = arg;

    b->n_shown++;
    b->held_step = step;
    b->held_ranks = ranks;
    b->n_held = n;
    memcpy(b->held, held, (n < 4 ? n : 4) * sizeof(*held));
}

static void on_busy(void *arg, enum interval_level_id level, bool is_busy)
{
    struct lead_files *b = arg;

    b->is_busy[level] = is_busy;
}

static uint64_t every(void *arg, enum interval_level_id level)
{
    const struct lead_files *b = arg;

    (void)level;
    return b->every_ms;
}

static uint32_t started(void *arg)
{
    (void)arg;
    return 1;
}

static bool is_lost(void *arg, uint32_t agent)
{
    const struct lead_files *b = arg;

    return agent == b->lost;
}

static void on_quiet(void *arg)
{
    struct lead_files *b = arg;

    b->n_quiet++;
}

static const char *pinned(void *arg)
{
    (void)arg;
    return "";
}

/* --- life --- */

void lead_files_next(struct lead_files *b)
{
    static const struct lead_snap_ops ops = {
        .on_saved = on_saved, .on_failed = on_failed, .on_saving = on_saving,
        .started = started, .is_lost = is_lost, .pinned = pinned, .on_quiet = on_quiet,
        .on_held = on_held, .on_took = on_took, .every = every, .on_busy = on_busy,
    };
    struct error e = {0};

    lead_snap_destroy(b->lead);
    b->lead = NULL;
    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
}

void lead_files_open(struct lead_files *b)
{
    memset(b, 0, sizeof(*b));
    b->lost = UINT32_MAX;
    lead_bed_make(&b->agent);
    lead_files_next(b);
}

void lead_files_close(struct lead_files *b)
{
    lead_snap_destroy(b->lead);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
}

void lead_files_turn(struct lead_files *b, int n)
{
    for (int i = 0; i < n; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    }
}

void lead_files_look(struct lead_files *b)
{
    b->lead->timer->timer_cb(b->lead->timer);
}

void lead_files_settle(struct lead_files *b)
{
    const struct lead_snap *l = b->lead;

    for (int i = 0; i < 60000 && (b->saving > 0 || l->n_works > 0 || l->check.is_running); i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    is_int((int)b->saving, 0, "no save is on its way any more");
}

/* --- what agents say --- */

void lead_files_say(struct lead_files *b, const char *uuid, uint32_t rank,
                    enum snap_stage stage)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s}",
                             "uuid", uuid, "root", b->agent.run.dir, "step", 10,
                             "generation", 1, "token", 1, "rank", (int)rank,
                             "ranks", 2, "stage", (int)stage, "error",
                             stage == SNAP_STAGE_FAILED ? 5 : 0, "why", "");

    lead_snap_fact(b->lead, rank, fact);
    json_decref(fact);
}

void lead_files_say_of(struct lead_files *b, const char *uuid, int step, uint32_t rank,
                       uint32_t agent, json_int_t from)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}",
                             "uuid", uuid, "root", b->agent.run.dir, "step", step,
                             "generation", 1, "token", 1, "rank", (int)rank,
                             "ranks", 4, "stage", SNAP_STAGE_HELD);

    if (from != NOBODY) {
        json_object_set_new(fact, "from", json_integer(from));
    }
    lead_snap_fact(b->lead, agent, fact);
    json_decref(fact);
}

void lead_files_say_parity(struct lead_files *b, const char *uuid, uint32_t agent,
                           const char *members, int parities)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}",
                             "uuid", uuid, "root", b->agent.run.dir, "step", 60,
                             "generation", 1, "token", 1, "rank", 0,
                             "ranks", 4, "stage", SNAP_STAGE_HELD, "parities",
                             parities);

    json_object_set_new(fact, "members", json_loads(members, 0, NULL));
    lead_snap_parity(b->lead, agent, fact);
    json_decref(fact);
}

void lead_files_want(struct lead_files *b, const char *uuid, int generation)
{
    json_t *fact = json_pack("{s:s, s:i}", "uuid", uuid, "generation", generation);

    uv_update_time(&b->agent.loop);
    lead_snap_want(b->lead, fact);
    json_decref(fact);
}

bool lead_files_is_said(const struct lead_files *b, const char *ranks)
{
    return strstr(b->where, ranks) && strstr(b->where, ranks)[strlen(ranks)] == '}';
}

bool lead_files_is_gone(const struct lead_files *b, const char *uuid, int levels)
{
    char want[128];

    snprintf(want, sizeof(want), "\"uuid\":\"%s\",\"levels\":%d", uuid, levels);
    return strstr(b->gone, want) != NULL;
}
