/* SPDX-License-Identifier: Apache-2.0 */
/* What the lead hears of saves from all agents: how far each rank is, and who has a copy
 * of what. Facts come from outside, and as often as agents like to say them. */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/str.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RANKS = 1 << 20,
    MAX_AGENTS = STATUS_MAX_NODES,
    KEEP_SETTLED = 16, /* for agents that have not heard */
};

struct lead_save *lead_save_find(struct lead_snap *l, const char *uuid)
{
    struct lead_save *s = l->saves;

    while (s && strcmp(s->uuid, uuid) != 0) {
        s = s->next;
    }
    return s;
}

static int64_t number(const json_t *fact, const char *name)
{
    return json_integer_value(json_object_get(fact, name));
}

static const char *text(const json_t *fact, const char *name)
{
    const char *s = json_string_value(json_object_get(fact, name));

    return s ? s : "";
}

static struct lead_save *add(struct lead_snap *l, const json_t *fact)
{
    struct lead_save *s = calloc(1, sizeof(*s));

    if (!s) {
        return NULL;
    }
    s->lead = l;
    str_copy(s->uuid, sizeof(s->uuid), text(fact, "uuid"));
    str_copy(s->root, sizeof(s->root), text(fact, "root"));
    s->step = (uint64_t)number(fact, "step");
    s->token = (uint64_t)number(fact, "token");
    s->again = (uint32_t)number(fact, "again");
    s->began_ms = uv_now(&l->agent->loop);
    if (snap_tally_init(&s->tally, (uint32_t)number(fact, "generation"),
                        (uint32_t)number(fact, "ranks"),
                        uv_now(&l->agent->loop)) < 0) {
        free(s);
        return NULL;
    }
    s->next = l->saves;
    l->saves = s;
    return s;
}

/* Of those that are settled the newest are remembered. */
static void forget_old(struct lead_snap *l)
{
    unsigned n = 0;

    for (struct lead_save **at = &l->saves; *at;) {
        struct lead_save *s = *at;

        if (s->is_settled && !s->is_working && ++n > KEEP_SETTLED) {
            *at = s->next;
            lead_save_free(s);
        } else {
            at = &s->next;
        }
    }
}

/* Whose copy it is, if it is one. */
static bool is_agent(const json_t *from)
{
    json_int_t agent = json_integer_value(from);

    return !from || (json_is_integer(from) && agent >= 0 && agent < MAX_AGENTS);
}

static bool makes_sense(const json_t *fact)
{
    const char *uuid = text(fact, "uuid");
    int64_t ranks = number(fact, "ranks"), rank = number(fact, "rank");
    int64_t stage = number(fact, "stage");

    return strlen(uuid) == COMMIT_UUID_BYTES - 1 &&
           text(fact, "root")[0] == '/' &&
           strlen(text(fact, "root")) < SNAP_ROOT_BYTES && ranks > 0 &&
           ranks <= MAX_RANKS && rank >= 0 && rank < ranks &&
           stage > SNAP_STAGE_NONE && stage <= SNAP_STAGE_FAILED &&
           number(fact, "step") >= 0 && number(fact, "again") >= 0 &&
           number(fact, "again") <= UINT32_MAX && is_agent(json_object_get(fact, "from"));
}

void lead_save_copied(struct lead_save *s)
{
    if (s->n_copied == s->tally.n_ranks) {
        return;
    }
    while (s->n_copied < s->tally.n_ranks &&
           snap_sets_outlives(&s->sets, &s->tally, s->n_copied)) {
        s->n_copied++;
    }
    if (s->n_copied == s->tally.n_ranks) {
        lead_save_took(s, INTERVAL_PARTNER);
        lead_levels_replace(s->lead);
    }
}

/* False: it speaks of no copy that is whole. */
static bool take_copy(struct lead_save *s, uint32_t agent, const json_t *fact)
{
    const json_t *from = json_object_get(fact, "from");

    if (!from || number(fact, "stage") != SNAP_STAGE_HELD) {
        return false;
    }
    snap_tally_copied(&s->tally, (uint32_t)number(fact, "rank"),
                      (uint32_t)json_integer_value(from), agent,
                      uv_now(&s->lead->agent->loop));
    lead_save_copied(s);
    return true;
}

/* Whoever waits for what is written waits as long as it gets on. */
static void take_move(struct lead_snap *l, const json_t *fact)
{
    if (json_is_true(json_object_get(fact, "moves"))) {
        l->moved_ms = uv_now(&l->agent->loop);
    }
}

static void take_stage(struct lead_save *s, uint32_t agent, const json_t *fact)
{
    uint32_t rank = (uint32_t)number(fact, "rank");
    int64_t stage = number(fact, "stage"), code = number(fact, "error");

    if (stage == SNAP_STAGE_FAILED && s->why.code == 0 && !s->is_working) {
        error_text(&s->why, code > 0 && code <= INT_MAX ? (int)code : EIO,
                   "rank %u: %s", rank, text(fact, "why"));
    }
    if (!take_copy(s, agent, fact)) {
        snap_tally_take(&s->tally, rank, agent, (enum snap_stage)stage,
                        uv_now(&s->lead->agent->loop));
    }
    if (s->tally.n_failed > 0 || s->tally.n_written == s->tally.n_ranks) {
        lead_snap_look(s->lead); /* else in time: it looks at all ranks */
    }
}

/* It has come to nothing on the disk, and is in memory: as if it were saved just now. */
static void begin_again(struct lead_save *s, uint32_t again)
{
    uint64_t now_ms = uv_now(&s->lead->agent->loop);
    struct snap_tally t;

    if (snap_tally_init(&t, s->tally.generation, s->tally.n_ranks, now_ms) < 0) {
        return; /* it is said again */
    }
    snap_tally_release(&s->tally);
    snap_sets_release(&s->sets); /* copies and parity went with the last try */
    s->tally = t;
    s->again = again;
    s->began_ms = now_ms;
    s->waits = s->goes = 0;
    s->n_copied = 0;
    s->is_settled = s->stays = s->is_decided = s->is_wanted = s->is_tidied = false;
    s->is_hopeless = false;
    s->past = s->error;
    s->why = s->error = (struct error){0};
}

/* False: it is of a try that is over. */
static bool is_of_this_try(struct lead_save *s, const json_t *fact)
{
    uint32_t again = (uint32_t)number(fact, "again");

    if (again > s->again && s->is_settled && s->error.code) {
        begin_again(s, again);
    }
    if (again < s->again && s->is_settled && !s->error.code) {
        lead_save_tell_again(s); /* of no try any more: it is a checkpoint */
    } else if (again < s->again && s->past.code) { /* who says so has not heard of that one's end */
        lead_save_tell_past(s, again);
    }
    return again >= s->again;
}

/* Whether it matters that a worker has ended without it: others have handed it over, which is
 * on its way to the disk. What nobody has, ranks may have given up together. */
static bool is_missed(const struct lead_save *s)
{
    return s && !s->is_settled && !lead_save_is_parked(s);
}

void lead_snap_fact(struct lead_snap *l, uint32_t agent, const json_t *fact)
{
    struct lead_save *s;

    if (!l || !makes_sense(fact)) {
        return;
    }
    s = lead_save_find(l, text(fact, "uuid"));
    if (json_is_true(json_object_get(fact, "ended")) && !is_missed(s)) {
        return;
    }
    if (s && !json_object_get(fact, "from") && !is_of_this_try(s, fact)) {
        return;
    }
    if (s && s->is_settled) {
        take_copy(s, agent, fact); /* one that came late */
        lead_save_tell_again(s);
        return;
    }
    s = s ? s : add(l, fact);
    if (s) {
        take_move(l, fact);
        take_stage(s, agent, fact);
        if (!json_object_get(fact, "from")) {
            lead_levels_take(s, fact);
            s = lead_save_find(l, text(fact, "uuid"));
        }
        if (s && s->sets.list && !s->is_settled && !s->is_working &&
            !lead_save_is_parked(s)) {
            lead_save_rescue(s); /* what was made again goes to the disk at once */
        }
        forget_old(l);
        lead_snap_show(l);
    }
}

struct lead_save *lead_save_of(struct lead_snap *l, const json_t *fact)
{
    struct lead_save *s;

    if (!l || !makes_sense(fact)) {
        return NULL;
    }
    s = lead_save_find(l, text(fact, "uuid"));
    return s ? s : add(l, fact);
}
