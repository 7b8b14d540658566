/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_hang.h"

#include "base/cleanup.h"
#include "base/loop_timer.h"
#include "ckpt/commit.h"
#include "launcher/agent_look.h"
#include "launcher/agent_snap.h"
#include "launcher/asked.h"
#include "launcher/hang.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lead_hang {
    struct agent *agent;
    struct record *record;
    struct hang *core;
    uv_timer_t *timer;
    uint32_t generation; /* ordered */
    uint16_t *n_procs;   /* of it */
    uint32_t n_nodes;
};

/* --- what is asked of all agents --- */

static void told_of_save(struct agent *a, const json_t *ask, const char *why, bool is_store)
{
    const char *uuid = json_string_value(json_object_get(ask, "uuid"));
    struct snap_verdict v = {
        .uuid = uuid,
        .error = (int)json_integer_value(json_object_get(ask, "error")),
        .why = why,
        .stays = json_is_true(json_object_get(ask, "stays")),
        .again = (uint32_t)json_integer_value(json_object_get(ask, "again")),
        .on = (uint32_t)json_integer_value(json_object_get(ask, "on")),
    };

    if (!uuid || strlen(uuid) != COMMIT_UUID_BYTES - 1) {
        return;
    }
    if (is_store) {
        agent_snap_stored(a, uuid, v.error, why);
    } else {
        agent_snap_settled(a, &v);
    }
}

/* Of nodes that are lost, what their partners have. */
static void asked_to_write(struct agent *a, const json_t *ask)
{
    const char *uuid = json_string_value(json_object_get(ask, "uuid"));
    json_t *pair;
    size_t i;

    json_array_foreach(json_object_get(ask, "ranks"), i, pair) {
        json_int_t rank = json_integer_value(json_array_get(pair, 0));
        json_int_t agent = json_integer_value(json_array_get(pair, 1));

        if (uuid && agent == (json_int_t)a->rank) {
            agent_snap_write(a, uuid, (uint32_t)rank);
        }
    }
}

static void told_to_go(struct agent *a, const json_t *ask)
{
    const char *uuid = json_string_value(json_object_get(ask, "uuid"));
    json_int_t levels = json_integer_value(json_object_get(ask, "levels"));

    if (uuid && levels >= 0 && levels < 1 << INTERVAL_N_LEVELS) {
        agent_snap_go(a, uuid, (unsigned)levels);
    }
}

enum { MAX_LOST = 256 }; /* that anybody asks about at once */

/* Of nodes that are lost, what parity makes up for. */
static void asked_to_rebuild(struct agent *a, const json_t *ask)
{
    const char *uuid = json_string_value(json_object_get(ask, "uuid"));
    uint32_t lost[MAX_LOST];
    size_t i, n = 0;
    json_t *one;

    json_array_foreach(json_object_get(ask, "lost"), i, one) {
        if (n < MAX_LOST) {
            lost[n++] = (uint32_t)json_integer_value(one);
        }
    }
    json_array_foreach(json_object_get(ask, "ranks"), i, one) {
        json_int_t rank = json_integer_value(json_array_get(one, 0));
        json_int_t agent = json_integer_value(json_array_get(one, 1));

        if (uuid && strlen(uuid) == COMMIT_UUID_BYTES - 1 && rank >= 0 &&
            rank < UINT32_MAX && agent == (json_int_t)a->rank) {
            agent_snap_rebuild(a, uuid, (uint32_t)rank, lost, n);
        }
    }
}

void agent_asked(struct agent *a, const void *json, size_t len)
{
    json_t *ask = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    const char *what = json_string_value(json_object_get(ask, "ask"));
    const char *why = json_string_value(json_object_get(ask, "why"));
    const char *front = json_string_value(json_object_get(ask, "front"));
    const char *id = json_string_value(json_object_get(ask, "id"));
    uint32_t generation = (uint32_t)json_integer_value(
        json_object_get(ask, "generation"));

    if (!what) {
        agent_log(a, "what the lead asks for does not parse");
    } else if (strcmp(what, "stacks") == 0) {
        crew_hang_dump(a, generation);
    } else if (strcmp(what, "blame") == 0 && why) {
        crew_hang_blame(a, generation,
                        (uint32_t)json_integer_value(
                            json_object_get(ask, "rank")), why);
    } else if (strcmp(what, "checkpoint") == 0 && generation == a->generation) {
        crew_ask_checkpoint(a, id && asked_id_is_valid(id) ? id : "");
    } else if (strcmp(what, "front") == 0 && front) {
        agent_front_learn(a, front, json_integer_value(
                                        json_object_get(ask, "serial")));
    } else if (strcmp(what, "look") == 0) {
        agent_look_asked(a, ask);
    } else if (strcmp(what, "snap_write") == 0) {
        asked_to_write(a, ask);
    } else if (strcmp(what, "snap_go") == 0) {
        told_to_go(a, ask);
    } else if (strcmp(what, "snap_rebuild") == 0) {
        asked_to_rebuild(a, ask);
    } else if (strcmp(what, "snap_where") == 0) {
        agent_fetch_told(a, ask);
    } else if (strcmp(what, "snap") == 0 && why) {
        told_of_save(a, ask, why, false);
    } else if (strcmp(what, "snap_stored") == 0 && why) {
        told_of_save(a, ask, why, true);
    }
    json_decref(ask);
}

static void ask(struct lead_hang *l, const char *what, int64_t rank,
                const char *why)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", what);
    jsonw_int(&w, "generation", hang_generation(l->core));
    if (why) {
        jsonw_int(&w, "rank", rank);
        jsonw_str(&w, "why", why);
    }
    jsonw_end_object(&w);
    if (!b.failed) {
        tree_ask(l->agent->tree, b.data, b.len);
        agent_asked(l->agent, b.data, b.len);
    }
}

/* --- the store knows who waits for what --- */

/* The rank that sets such a key: the number at its end, as gloo and NCCL have
 * it, and muster's own barrier. */
static bool rank_of_key(const char *key, size_t len, uint32_t *ret)
{
    size_t at = len;
    uint32_t rank = 0;

    while (at > 0 && key[at - 1] >= '0' && key[at - 1] <= '9') {
        at--;
    }
    if (at == len || len - at > 7 || at == 0 ||
        !strchr("/:_", key[at - 1])) {
        return false;
    }
    for (size_t i = at; i < len; i++) {
        rank = rank * 10 + (uint32_t)(key[i] - '0');
    }
    *ret = rank;
    return true;
}

static void on_awaited(void *arg, const char *key, size_t len)
{
    struct lead_hang *l = arg;
    uint32_t rank;
    char text[96];

    if (rank_of_key(key, len, &rank)) {
        snprintf(text, sizeof(text), "%.*s", (int)(len < 95 ? len : 95), key);
        hang_missed(l->core, rank, text);
    }
}

/* --- the judgement --- */

static void on_timer(uv_timer_t *t)
{
    struct lead_hang *l = t->data;
    char why[HANG_WHY_BYTES], text[HANG_WHY_BYTES + 64];
    uint32_t rank;

    switch (hang_tick(l->core, uv_now(&l->agent->loop))) {
    case HANG_DUMP:
        hang_word(l->core, why);
        snprintf(text, sizeof(text), "the run hangs: %s; taking the stacks of "
                 "all workers", why);
        record_event(l->record, "hang", hang_generation(l->core), text, NULL,
                     0);
        if (l->agent->store) {
            store_server_awaited(l->agent->store, on_awaited, l);
        }
        ask(l, "stacks", 0, NULL);
        break;
    case HANG_BLAME:
        rank = hang_culprit(l->core, why);
        ask(l, "blame", rank, why);
        break;
    case HANG_NONE:
        break;
    }
}

void lead_hang_ordered(struct lead_hang *l, const struct order *run)
{
    if (!l) {
        return;
    }
    hang_stop(l->core);
    free(l->n_procs);
    l->n_nodes = 0;
    l->n_procs = calloc(run->n_nodes + 1, sizeof(*l->n_procs));
    if (l->n_procs) {
        l->generation = run->generation;
        l->n_nodes = run->n_nodes;
        memcpy(l->n_procs, run->n_procs, run->n_nodes * sizeof(*l->n_procs));
    }
}

/* Some may have ended before the last one was started, and with them all that
 * their node had to tell. */
static void leave_out_ended(struct lead_hang *l)
{
    const struct run_status *s = record_status(l->record);

    for (size_t i = 0; i < s->n_workers; i++) {
        if (s->workers[i].state == STATUS_WORKER_EXITED) {
            hang_end(l->core, (uint32_t)i);
        }
    }
}

void lead_hang_running(struct lead_hang *l)
{
    if (!l || !l->n_nodes) {
        return;
    }
    if (!hang_start(l->core, l->generation, l->n_procs, l->n_nodes,
                    uv_now(&l->agent->loop))) {
        agent_note(l->agent, "out of memory: hangs are not looked for");
        return;
    }
    leave_out_ended(l);
}

void lead_hang_over(struct lead_hang *l)
{
    if (l) {
        hang_stop(l->core);
    }
}

/* --- facts --- */

static int64_t int_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static int64_t item_of(const json_t *array, size_t i)
{
    return json_integer_value(json_array_get(array, i));
}

/* In the order of put_seen() in crew_hang.c. */
static struct hang_seen seen_of(const json_t *one)
{
    int64_t entered = item_of(one, 5);

    return (struct hang_seen){
        .is_alive = item_of(one, 0) != 0,
        .reports = (uint32_t)item_of(one, 1),
        .outputs = (uint32_t)item_of(one, 2),
        .cpu = (uint32_t)item_of(one, 3),
        .step = item_of(one, 4),
        .turns = (uint32_t)item_of(one, 6),
        .entered = entered < 0 ? UINT64_MAX : (uint64_t)entered,
    };
}

static void take_pulse(struct lead_hang *l, uint32_t node, const json_t *fact)
{
    const json_t *workers = json_object_get(fact, "workers");
    size_t n = json_array_size(workers);
    _free_ struct hang_seen *seen = calloc(n + 1, sizeof(*seen));

    if (!seen) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        seen[i] = seen_of(json_array_get(workers, i));
    }
    hang_see(l->core, node, (uint32_t)int_of(fact, "first"), seen, (uint32_t)n,
             json_is_true(json_object_get(fact, "held")),
             uv_now(&l->agent->loop));
}

bool lead_hang_fact(struct lead_hang *l, uint32_t node, const char *kind,
                    const json_t *fact)
{
    bool is_pulse = strcmp(kind, "pulse") == 0;
    bool is_dumped = strcmp(kind, "dumped") == 0;

    if (!l || int_of(fact, "generation") != hang_generation(l->core)) {
        return is_pulse || is_dumped;
    }
    if (is_pulse) {
        take_pulse(l, node, fact);
    } else if (is_dumped) {
        hang_dumped(l->core, (uint32_t)int_of(fact, "rank"),
                    (enum hang_wait)int_of(fact, "wait"));
    } else if (strcmp(kind, "exited") == 0) {
        hang_end(l->core, (uint32_t)int_of(fact, "rank"));
    }
    return is_pulse || is_dumped;
}

/* --- life --- */

int lead_hang_create(struct agent *a, struct record *record,
                     struct lead_hang **ret, struct error *e)
{
    uint64_t timeout_ms = a->config.job->hang_timeout_ms;
    uint64_t ms = hang_interval_ms(timeout_ms);
    struct lead_hang *l;

    if (timeout_ms == JOB_OFF) {
        return 0;
    }
    l = calloc(1, sizeof(*l));
    if (l) {
        l->core = hang_create(timeout_ms);
        l->timer = loop_timer_create(&a->loop, l);
    }
    if (!l || !l->core || !l->timer) {
        lead_hang_destroy(l);
        return error_set(e, ENOMEM, "look for hangs");
    }
    l->agent = a;
    l->record = record;
    uv_timer_start(l->timer, on_timer, ms, ms);
    *ret = l;
    return 0;
}

void lead_hang_destroy(struct lead_hang *l)
{
    if (l) {
        loop_timer_close(l->timer);
        hang_destroy(l->core);
        free(l->n_procs);
        free(l);
    }
}
