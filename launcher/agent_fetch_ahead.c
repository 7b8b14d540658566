/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank is going to load is fetched while its program starts, which takes longer
 * as a rule: the order says which checkpoint that is. Nobody waits for it, so it is only
 * for speed: it gives way to whatever workers ask for.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/str.h"
#include "ckpt/step.h"
#include "launcher/jsonw.h"

#include <string.h>

/* --- is it needed --- */

static bool is_of(const struct snap *s, const char *path)
{
    return s && step_is_at(s->head.root, s->head.step, s->head.uuid, path);
}

/* Of the newest that each rank here has saved; copies are looked at once the uuid is
 * known. */
static bool has_all(struct agent_snap *p, const struct fetch_ahead *ahead)
{
    uint32_t i = 0;

    while (i < ahead->n_local &&
           is_of(snap_hold_find(p->hold, ahead->first_rank + i, ""), ahead->path)) {
        i++;
    }
    return i == ahead->n_local;
}

static void ask(struct agent_snap *p)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "snap_want");

    jsonw_str(&w, "path", p->ahead.path);
    jsonw_int(&w, "generation", p->ahead.generation);
    agent_fact_send(p->agent, &w); /* the answer may come at once */
}

void agent_fetch_ahead(struct crew *c, const char *path)
{
    struct agent *a = c->agent;
    struct fetch_ahead ahead = {.generation = c->generation,
                                .first_rank = c->layout.first_rank,
                                .n_local = c->layout.n_local};

    if (!path[0] || a->roster.n < 2 ||
        !(a->config.job->checkpoint.levels & JOB_LEVEL_PARTNER) ||
        agent_snap_need(a, NULL) < 0) {
        return;
    }
    str_copy(ahead.path, sizeof(ahead.path), path);
    if (!has_all(a->snap, &ahead)) {
        a->snap->ahead = ahead;
        ask(a->snap);
    }
}

/* --- it comes --- */

static bool is_said_of(const json_t *where, const struct fetch_ahead *ahead)
{
    const char *path = json_string_value(json_object_get(where, "path"));

    return path && ahead->path[0] && strcmp(path, ahead->path) == 0 &&
           json_integer_value(json_object_get(where, "generation")) ==
               ahead->generation;
}

static struct fetch *find(const struct agent_snap *p, uint32_t rank, const char *uuid)
{
    struct fetch *f = p->fetches;

    while (f && (f->rank != rank || strcmp(f->uuid, uuid) != 0)) {
        f = f->next;
    }
    return f;
}

static void begin(struct agent_snap *p, uint32_t rank, const char *uuid,
                  uint32_t generation)
{
    struct fetch *f;

    if (snap_hold_find(p->hold, rank, uuid) ||
        snap_hold_get(p->copies, rank, uuid) || find(p, rank, uuid)) {
        return;
    }
    f = agent_fetch_add(p, rank, uuid);
    if (f) {
        f->is_ahead = true;
        f->question.generation = generation;
    }
}

void agent_fetch_ahead_told(struct agent_snap *p)
{
    struct fetch_ahead ahead = p->ahead;
    const char *uuid = json_string_value(json_object_get(p->where, "uuid"));

    if (!uuid || !is_said_of(p->where, &ahead)) {
        return;
    }
    p->ahead.path[0] = '\0';
    for (uint32_t i = 0; i < ahead.n_local; i++) {
        begin(p, ahead.first_rank + i, uuid, ahead.generation);
    }
}

/* --- its rank asks --- */

struct fetch *agent_fetch_ahead_taken(struct agent_snap *p, uint32_t rank,
                                      const char *uuid)
{
    struct fetch *same = find(p, rank, uuid);

    for (struct fetch *f = p->fetches, *next; f; f = next) {
        next = f->next;
        if (f->is_ahead && strcmp(f->uuid, uuid) != 0) {
            agent_fetch_drop(p, f);
        }
    }
    if (!same || !same->is_ahead) {
        return NULL; /* its own question waits for an answer, too */
    }
    same->is_ahead = false;
    return same;
}
