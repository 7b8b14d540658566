/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank loads, and another node has in memory: its ranks have saved it, or it
 * keeps a copy. The lead is asked who (it has heard of all that were saved), says it to
 * all, and the node is asked for it (launcher/snap_copy.h), one rank after the other.
 * Whoever waits too long, and whatever nobody has, is read from the disk.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 500,
    WHERE_MS = 3000,  /* for the lead, which may be another one by now */
    FETCH_MS = 30000, /* in all: less than workers wait for an answer */
};

struct fetch {
    struct fetch *next;
    struct snap_question question;
    uint32_t rank;
    char uuid[COMMIT_UUID_BYTES];
    uint64_t since_ms;
    bool is_started;
};

/* --- answers --- */

static void unlink_fetch(struct agent_snap *p, struct fetch *f)
{
    struct fetch **at = &p->fetches;

    while (*at != f) {
        at = &(*at)->next;
    }
    *at = f->next;
    if (!p->fetches) {
        uv_timer_stop(p->fetch_timer);
    }
}

static void answer(struct agent_snap *p, struct fetch *f)
{
    unlink_fetch(p, f);
    agent_snap_hand_out(p->agent, &f->question, f->rank,
                        snap_hold_get(p->copies, f->rank, f->uuid));
    free(f);
}

/* --- who has it --- */

static bool is_where(const struct agent_snap *p, const struct fetch *f)
{
    const char *uuid = json_string_value(json_object_get(p->where, "uuid"));

    return uuid && strcmp(uuid, f->uuid) == 0 &&
           json_integer_value(json_object_get(p->where, "generation")) ==
               f->question.generation;
}

/* PARTNERS_NONE: nobody. */
static uint32_t holder_of(const struct agent_snap *p, uint32_t rank)
{
    const json_t *ranks = json_object_get(p->where, "ranks");
    json_t *run;
    size_t i;

    json_array_foreach(ranks, i, run) {
        json_int_t first = json_integer_value(json_array_get(run, 0));
        json_int_t n = json_integer_value(json_array_get(run, 1));
        json_int_t agent = json_integer_value(json_array_get(run, 2));

        if (rank >= first && rank - first < n && agent >= 0 &&
            agent < p->agent->roster.n && agent != p->agent->rank) {
            return (uint32_t)agent;
        }
    }
    return UINT32_MAX;
}

static void ask_where(struct agent_snap *p, const struct fetch *f)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "snap_want");

    jsonw_str(&w, "uuid", f->uuid);
    jsonw_int(&w, "generation", f->question.generation);
    agent_fact_send(p->agent, &w);
}

/* --- one after the other --- */

static int start(struct agent_snap *p, const struct fetch *f, uint32_t from)
{
    const struct roster_entry *r = &p->agent->roster.entries[from];
    _strlist_ struct strlist addrs = {0};

    for (size_t i = 0; i < r->n_addrs; i++) {
        strlist_add(&addrs, r->addrs[i]);
    }
    return addrs.failed ? -ENOMEM
                        : snap_copy_fetch(p->copy, f->rank, f->uuid, addrs.items,
                                          r->port, NULL);
}

static void start_next(struct agent_snap *p)
{
    for (struct fetch *f = p->fetches, *next; f; f = next) {
        uint32_t from;

        next = f->next;
        if (f->is_started) {
            return;
        }
        if (!is_where(p, f)) {
            continue;
        }
        from = holder_of(p, f->rank);
        if (from != UINT32_MAX && start(p, f, from) == 0) {
            f->is_started = true;
            p->fetched_from = from;
            return;
        }
        answer(p, f);
    }
}

void agent_fetch_told(struct agent *a, const json_t *ask)
{
    struct agent_snap *p = a->snap;

    if (p && p->copy) {
        json_decref(p->where);
        p->where = json_deep_copy(ask);
        start_next(p);
    }
}

void agent_fetch_fetched(void *arg, uint32_t rank, const char *uuid,
                         const struct error *e)
{
    struct agent_snap *p = arg;
    struct fetch *f = p->fetches;

    while (f && (!f->is_started || f->rank != rank || strcmp(f->uuid, uuid) != 0)) {
        f = f->next;
    }
    if (!f) {
        return;
    }
    if (e->code) {
        agent_log(p->agent, "rank %u reads from the disk, for node %u did not send "
                  "what it has in memory: %s", rank, p->fetched_from, e->text);
    } else {
        agent_note(p->agent, "node %u has fetched what rank %u starts from from "
                   "memory of node %u", p->agent->rank, rank, p->fetched_from);
    }
    answer(p, f);
    start_next(p);
}

static void on_timer(uv_timer_t *t)
{
    struct agent_snap *p = t->data;
    uint64_t now = uv_now(&p->agent->loop);

    for (struct fetch *f = p->fetches, *next; f; f = next) {
        next = f->next;
        if (now - f->since_ms >= (is_where(p, f) ? FETCH_MS : WHERE_MS)) {
            if (f->is_started) {
                snap_copy_fetch_forget(p->copy);
            }
            answer(p, f);
        }
    }
    start_next(p);
}

bool agent_fetch_begin(struct agent_snap *p, const struct snap_question *question,
                       uint32_t rank, const char *uuid)
{
    struct fetch **at = &p->fetches, *f;

    if (!p->copy || uuid[0] == '\0' || p->agent->roster.n < 2) {
        return false;
    }
    f = calloc(1, sizeof(*f));
    if (!f) {
        return false;
    }
    f->question = *question;
    f->rank = rank;
    f->since_ms = uv_now(&p->agent->loop);
    str_copy(f->uuid, sizeof(f->uuid), uuid);
    while (*at) {
        at = &(*at)->next;
    }
    *at = f;
    uv_timer_start(p->fetch_timer, on_timer, LOOK_MS, LOOK_MS);
    if (is_where(p, f)) {
        start_next(p);
    } else {
        ask_where(p, f); /* the answer may come at once */
    }
    return true;
}

/* --- life --- */

static void free_timer(uv_handle_t *h)
{
    free(h);
}

int agent_fetch_create(struct agent_snap *p, struct error *e)
{
    p->fetch_timer = calloc(1, sizeof(*p->fetch_timer));
    if (!p->fetch_timer) {
        return error_set(e, ENOMEM, "fetch snapshots");
    }
    uv_timer_init(&p->agent->loop, p->fetch_timer);
    p->fetch_timer->data = p;
    return 0;
}

void agent_fetch_forget(struct agent_snap *p)
{
    while (p->fetches) {
        struct fetch *f = p->fetches;

        unlink_fetch(p, f);
        free(f);
    }
    if (p->copy) {
        snap_copy_fetch_forget(p->copy);
    }
}

void agent_fetch_destroy(struct agent_snap *p)
{
    agent_fetch_forget(p);
    json_decref(p->where);
    p->where = NULL;
    if (p->fetch_timer) {
        uv_close((uv_handle_t *)p->fetch_timer, free_timer);
        p->fetch_timer = NULL;
    }
}
