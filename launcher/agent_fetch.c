/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank loads, and another node has in memory: its ranks have saved it, or it
 * keeps a copy. The lead is asked who (it has heard of all that were saved), says it to
 * all, and the node is asked for it (launcher/snap_copy.h), one rank after the other;
 * where that does not send it, the next one that has it. Whoever asks has the memory that it
 * comes to as soon as it begins to, and loads what is there meanwhile (snap_await()); whoever
 * waits too long, and whatever nobody has, is read from the disk. What was fetched before its
 * rank has asked (launcher/agent_fetch_ahead.c) stays here until it does.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 500,
    SAY_MS = 1000,    /* without another one: that was all of that save */
    WHERE_MS = 3000,  /* for the lead, which may be another one by now */
    FETCH_MS = 30000, /* until it begins to come: less than workers wait for an answer */
};

static void rest(struct agent_snap *p)
{
    if (!p->fetches && p->fetched.n == 0) {
        uv_timer_stop(p->fetch_timer);
    }
}

/* --- what is said of it: once a save, however many ranks a node has --- */

static void say_fetched(struct agent_snap *p)
{
    const struct fetched *d = &p->fetched;
    char from[32];

    snprintf(from, sizeof(from), "node %u", d->from);
    if (d->n == 1) {
        agent_note(p->agent, "node %u has fetched what rank %u starts from from "
                   "memory of %s", p->agent->rank, d->rank, from);
    } else if (d->n > 1) {
        agent_note(p->agent, "node %u has fetched what %u of its ranks start from from "
                   "memory of %s", p->agent->rank, d->n,
                   d->is_of_several ? "several nodes" : from);
    }
    p->fetched.n = 0;
}

static void add_fetched(struct agent_snap *p, const struct fetch *f)
{
    struct fetched *d = &p->fetched;

    if (strcmp(d->uuid, f->uuid) != 0) {
        say_fetched(p);
        *d = (struct fetched){0};
        str_copy(d->uuid, sizeof(d->uuid), f->uuid);
    }
    d->is_of_several = d->n > 0 && (d->is_of_several || d->from != p->fetched_from);
    d->n++;
    d->rank = f->rank;
    d->from = p->fetched_from;
}

/* --- answers --- */

static void unlink_fetch(struct agent_snap *p, struct fetch *f)
{
    struct fetch **at = &p->fetches;

    while (*at != f) {
        at = &(*at)->next;
    }
    *at = f->next;
    rest(p);
}

void agent_fetch_drop(struct agent_snap *p, struct fetch *f)
{
    if (f->is_started) {
        snap_copy_fetch_forget(p->copy);
        p->idle_ms = uv_now(&p->agent->loop);
    }
    unlink_fetch(p, f);
    free(f);
}

static void answer(struct agent_snap *p, struct fetch *f)
{
    unlink_fetch(p, f);
    if (!f->is_ahead && !f->is_answered) {
        agent_snap_hand_out(p->agent, &f->question, f->rank,
                            snap_hold_get(p->copies, f->rank, f->uuid));
    }
    free(f);
}

/* Whoever has asked need not wait for all of it. */
static void answer_early(struct agent_snap *p, struct fetch *f)
{
    const struct snap *s = f->is_ahead || f->is_answered || f->coming_bytes == 0
                               ? NULL
                               : snap_hold_coming(p->copies, f->rank, f->uuid,
                                                  f->coming_bytes);

    if (s) {
        f->is_answered = true;
        agent_snap_hand_out(p->agent, &f->question, f->rank, s);
    }
}

/* The one that is on its way here, or NULL. */
static struct fetch *find_started(const struct agent_snap *p)
{
    struct fetch *f = p->fetches;

    while (f && !f->is_started) {
        f = f->next;
    }
    return f;
}

/* --- who has it --- */

static bool is_where(const struct agent_snap *p, const struct fetch *f)
{
    const char *uuid = json_string_value(json_object_get(p->where, "uuid"));

    return uuid && strcmp(uuid, f->uuid) == 0 &&
           json_integer_value(json_object_get(p->where, "generation")) ==
               f->question.generation;
}

/* Of that rank, or NULL: see lead_snap_want(). */
static const json_t *run_of(const struct agent_snap *p, uint32_t rank)
{
    json_t *run;
    size_t i;

    json_array_foreach(json_object_get(p->where, "ranks"), i, run) {
        json_int_t first = json_integer_value(json_array_get(run, 0));
        json_int_t n = json_integer_value(json_array_get(run, 1));

        if (first >= 0 && rank >= first && rank - first < n) {
            return run;
        }
    }
    return NULL;
}

static bool was_tried(const struct fetch *f, uint32_t agent)
{
    for (unsigned i = 0; i < f->n_tried; i++) {
        if (f->tried[i] == agent) {
            return true;
        }
    }
    return false;
}

/* The next one that has it. False: there is no other. */
static bool next_holder(const struct agent_snap *p, struct fetch *f, uint32_t *ret)
{
    const json_t *run = run_of(p, f->rank);

    for (size_t i = 2; i < json_array_size(run) && f->n_tried < FETCH_MAX_TRIED; i++) {
        json_int_t agent = json_integer_value(json_array_get(run, i));

        if (agent >= 0 && agent < p->agent->roster.n &&
            !was_tried(f, (uint32_t)agent)) {
            f->tried[f->n_tried++] = *ret = (uint32_t)agent;
            return true;
        }
    }
    return false;
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

static int ask(struct agent_snap *p, const struct fetch *f, uint32_t from)
{
    const struct roster_entry *r = &p->agent->roster.entries[from];
    _strlist_ struct strlist addrs = {0};

    if (from == p->agent->rank) { /* it has parity of it, at most */
        return agent_parity_make(p, f->rank, f->uuid) ? 0 : -ENOENT;
    }
    for (size_t i = 0; i < r->n_addrs; i++) {
        strlist_add(&addrs, r->addrs[i]);
    }
    return addrs.failed ? -ENOMEM
                        : snap_copy_fetch(p->copy, f->rank, f->uuid, addrs.items,
                                          r->port, NULL);
}

/* False: nobody has it, or it is here by now. */
static bool start(struct agent_snap *p, struct fetch *f)
{
    uint32_t from;

    if (snap_hold_get(p->copies, f->rank, f->uuid)) {
        return false; /* asked for twice, say */
    }
    while (next_holder(p, f, &from)) {
        if (ask(p, f, from) == 0) {
            f->is_started = true;
            p->fetched_from = from;
            return true;
        }
    }
    return false;
}

static void start_next(struct agent_snap *p)
{
    for (struct fetch *f = p->fetches, *next; f && !find_started(p); f = next) {
        next = f->next;
        if (is_where(p, f) && !start(p, f)) {
            answer(p, f);
        }
    }
}

/* Again and again: nobody keeps a question for a lead that is none yet, and what the
 * lead says to all at once is not said twice in a row. */
static void ask_next(struct agent_snap *p)
{
    if (p->fetches && !find_started(p)) {
        ask_where(p, p->fetches); /* last: the answer may come at once */
    }
}

void agent_fetch_told(struct agent *a, const json_t *told)
{
    struct agent_snap *p;

    /* Others may ask first: a worker here would ask in vain, so soon after them. */
    if (!a->has_config || a->leaving || agent_snap_need(a, NULL) < 0 ||
        !a->snap->copy) {
        return;
    }
    p = a->snap;
    json_decref(p->where);
    p->where = json_deep_copy(told);
    agent_fetch_ahead_told(p);
    start_next(p);
}

static struct fetch *find_started_of(const struct agent_snap *p, uint32_t rank,
                                     const char *uuid)
{
    struct fetch *f = find_started(p);

    return f && f->rank == rank && strcmp(f->uuid, uuid) == 0 ? f : NULL;
}

void agent_fetch_coming(void *arg, const struct snap_head *head)
{
    struct agent_snap *p = arg;
    struct fetch *f = find_started_of(p, head->rank, head->uuid);

    if (f) {
        f->coming_bytes = head->image_bytes;
        answer_early(p, f);
    }
}

void agent_fetch_fetched(void *arg, uint32_t rank, const char *uuid,
                         const struct error *e)
{
    struct agent_snap *p = arg;
    struct fetch *f = find_started_of(p, rank, uuid);

    if (!f) {
        return;
    }
    f->is_started = false;
    f->coming_bytes = 0;
    p->idle_ms = uv_now(&p->agent->loop);
    if (e->code == 0) {
        add_fetched(p, f);
        answer(p, f);
    } else {
        agent_log(p->agent, "node %u did not send what it has in memory of rank %u: "
                  "%s", p->fetched_from, rank, e->text);
    }
    start_next(p); /* one that failed as well: from another node, or the disk */
    ask_next(p);
}

/* --- who waits too long --- */

/* While one is on its way the others wait for that, and not for the lead. Nobody waits
 * for what is fetched ahead, and whoever has it already sees that it goes on: it may take its
 * time. */
static bool is_late(const struct agent_snap *p, const struct fetch *f)
{
    uint64_t now = uv_now(&p->agent->loop);
    uint64_t since = p->idle_ms > f->since_ms ? p->idle_ms : f->since_ms;

    return (!f->is_ahead && !f->is_answered && now - f->since_ms >= p->fetch_ms) ||
           (!find_started(p) && !is_where(p, f) && now - since >= p->where_ms);
}

static void on_timer(uv_timer_t *t)
{
    struct agent_snap *p = t->data;

    for (struct fetch *f = p->fetches, *next; f; f = next) {
        next = f->next;
        if (!is_late(p, f)) {
            continue;
        }
        if (f->is_started) {
            snap_copy_fetch_forget(p->copy);
            p->idle_ms = uv_now(&p->agent->loop);
        }
        if (!f->is_ahead && !f->is_answered) {
            agent_log(p->agent, "rank %u reads from the disk: nobody has sent what is "
                      "in memory in time", f->rank);
        }
        answer(p, f);
    }
    if (!p->fetches && uv_now(&p->agent->loop) - p->idle_ms >= p->say_ms) {
        say_fetched(p);
        rest(p);
    }
    start_next(p);
    ask_next(p);
}

struct fetch *agent_fetch_add(struct agent_snap *p, uint32_t rank, const char *uuid)
{
    struct fetch **at = &p->fetches;
    struct fetch *f = calloc(1, sizeof(*f));

    if (!f) {
        return NULL;
    }
    f->rank = rank;
    f->since_ms = uv_now(&p->agent->loop);
    str_copy(f->uuid, sizeof(f->uuid), uuid);
    while (*at) {
        at = &(*at)->next;
    }
    *at = f;
    uv_timer_start(p->fetch_timer, on_timer, LOOK_MS, LOOK_MS);
    return f;
}

bool agent_fetch_begin(struct agent_snap *p, const struct snap_question *question,
                       uint32_t rank, const char *uuid)
{
    struct fetch *f;

    if (!p->copy || uuid[0] == '\0' || p->agent->roster.n < 2) {
        return false;
    }
    f = agent_fetch_ahead_taken(p, rank, uuid);
    f = f ? f : agent_fetch_add(p, rank, uuid);
    if (!f) {
        return false;
    }
    f->question = *question;
    f->since_ms = uv_now(&p->agent->loop);
    answer_early(p, f);
    if (is_where(p, f)) {
        start_next(p);
    } else {
        ask_next(p);
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
    p->where_ms = WHERE_MS;
    p->fetch_ms = FETCH_MS;
    p->say_ms = SAY_MS;
    return 0;
}

void agent_fetch_forget(struct agent_snap *p)
{
    p->ahead.path[0] = '\0';
    while (p->fetches) {
        agent_fetch_drop(p, p->fetches);
    }
    say_fetched(p);
    if (p->fetch_timer) {
        rest(p);
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
