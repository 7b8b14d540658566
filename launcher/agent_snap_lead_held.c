/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has a save in memory, as the lead has heard (launcher/snap_tally.h): for agents
 * whose ranks load it (launcher/agent_fetch.c), and for the status.
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/step.h"
#include "launcher/jsonw.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- for agents whose ranks load it --- */

/* "": of none that was heard of. */
static const char *uuid_of(const struct lead_snap *l, const char *path)
{
    const struct lead_save *s = l->saves;

    while (s && !step_is_at(s->root, s->step, s->uuid, path)) {
        s = s->next;
    }
    return s ? s->uuid : "";
}

/* Of those that nobody has, who can make them again (launcher/snap_copy.h: whoever asks
 * waits for that). */
static void put_builders(struct jsonw *w, const struct lead_save *s,
                         const struct snap_now *now, const struct snap_run *r)
{
    uint32_t agent;

    for (uint32_t rank = r->first; rank < r->end; rank++) {
        if (snap_sets_builder(&s->sets, now, rank, &agent)) {
            jsonw_array(w, NULL);
            jsonw_int(w, NULL, rank);
            jsonw_int(w, NULL, 1);
            jsonw_int(w, NULL, agent);
            jsonw_end_array(w);
        }
    }
}

/* Runs of ranks: the first one, how many, and who has them. */
static void put_holders(struct jsonw *w, const struct lead_save *s)
{
    const struct snap_now now = lead_save_now(s);
    struct snap_run r = {0};

    while (snap_tally_next_run(&s->tally, &now, &r)) {
        if (r.n > 0) {
            jsonw_array(w, NULL);
            jsonw_int(w, NULL, r.first);
            jsonw_int(w, NULL, r.end - r.first);
            for (unsigned i = 0; i < r.n; i++) {
                jsonw_int(w, NULL, r.agents[i]);
            }
            jsonw_end_array(w);
        } else {
            put_builders(w, s, &now, &r);
        }
    }
}

/* All nodes of a new generation ask at about the same time, and all hear it. */
static bool was_said(struct lead_snap *l, const char *uuid, json_int_t generation)
{
    uint64_t now = uv_now(&l->agent->loop);
    bool was = strcmp(l->where_uuid, uuid) == 0 &&
               l->where_generation == generation &&
               now - l->where_ms < SNAP_TELL_AGAIN_MS;

    if (!was) {
        str_copy(l->where_uuid, sizeof(l->where_uuid), uuid);
        l->where_generation = generation;
        l->where_ms = now;
    }
    return was;
}

/* What the fact is of; a path is that of a checkpoint which ranks are starting from. */
static const char *wanted(const struct lead_snap *l, const json_t *fact)
{
    const char *uuid = json_string_value(json_object_get(fact, "uuid"));
    const char *path = json_string_value(json_object_get(fact, "path"));

    return uuid ? uuid : path ? uuid_of(l, path) : "";
}

static void put_where(struct jsonw *w, const struct lead_save *s)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX];

    if (s) {
        step_name(s->step, s->uuid, name);
        snprintf(path, sizeof(path), "%s/%s", s->root, name);
        jsonw_str(w, "path", path);
    }
    jsonw_array(w, "ranks");
    if (s) {
        put_holders(w, s);
    }
    jsonw_end_array(w);
}

void lead_snap_want(struct lead_snap *l, const json_t *fact)
{
    const char *uuid = l ? wanted(l, fact) : "";
    json_int_t generation = json_integer_value(json_object_get(fact, "generation"));
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    if (strlen(uuid) != COMMIT_UUID_BYTES - 1 || was_said(l, uuid, generation)) {
        return;
    }
    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "snap_where");
    jsonw_str(&w, "uuid", uuid);
    jsonw_int(&w, "generation", generation);
    put_where(&w, lead_save_find(l, uuid));
    jsonw_end_object(&w);
    if (!b.failed && l->agent->tree) {
        tree_ask(l->agent->tree, b.data, b.len);
        agent_asked(l->agent, b.data, b.len);
    }
}

/* --- for workers that wait for a store --- */

void lead_snap_stored(struct lead_snap *l, const char *path, const char *uuid, int error,
                      const char *why)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    uuid = uuid[0] || !l ? uuid : uuid_of(l, path);
    if (!l || !uuid[0]) {
        return; /* of a program that saves by itself */
    }
    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "snap_stored");
    jsonw_str(&w, "uuid", uuid);
    jsonw_int(&w, "error", error);
    jsonw_str(&w, "why", why);
    jsonw_end_object(&w);
    if (!b.failed && l->agent->tree) {
        tree_ask(l->agent->tree, b.data, b.len);
        agent_asked(l->agent, b.data, b.len);
    }
}

/* --- for people --- */

/* One that all have handed over, and the newest: another lead hears of them in any
 * order. */
static bool is_better(const struct lead_save *a, const struct lead_save *b)
{
    bool a_is_whole = a->tally.n_held == a->tally.n_ranks;
    bool b_is_whole = b->tally.n_held == b->tally.n_ranks;

    if (a_is_whole != b_is_whole) {
        return a_is_whole;
    }
    return lead_save_is_later(a, b);
}

/* NULL: there is none in memory. */
static const struct lead_save *find_held(const struct lead_snap *l)
{
    const struct lead_save *best = NULL;

    for (const struct lead_save *s = l->saves; s; s = s->next) {
        bool is_none = s->is_settled && s->error.code; /* its memory went with it */

        if (!is_none && (!best || is_better(s, best))) {
            best = s;
        }
    }
    return best;
}

static bool has_parity(const struct lead_save *s, const struct snap_run *r)
{
    uint32_t rank = r->first;

    while (rank < r->end && snap_sets_has(&s->sets, rank)) {
        rank++;
    }
    return rank == r->end;
}

void lead_snap_show_held(struct lead_snap *l)
{
    const struct lead_save *s = find_held(l);
    _free_ struct status_held *held = calloc(STATUS_MAX_HELD, sizeof(*held));
    struct snap_run r = {0};
    struct snap_now now;
    size_t n = 0;

    if (!held) {
        return;
    }
    if (s) {
        now = lead_save_now(s);
    }
    while (s && n < STATUS_MAX_HELD && snap_tally_next_run(&s->tally, &now, &r)) {
        if (r.n > 0) {
            held[n++] = (struct status_held){
                .first = r.first, .n = r.end - r.first, .node = (int)r.agents[0],
                .copied_to = r.n > 1 ? (int)r.agents[1] : -1,
                .has_parity = has_parity(s, &r)};
        }
    }
    l->ops->on_held(l->arg, s ? (int64_t)s->step : 0, s ? s->tally.n_ranks : 0, held,
                    n);
}
