/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead's word on saves that need not go everywhere (launcher/snap_levels.h): once
 * all ranks have handed one over it is said which levels it goes to, again to whoever
 * has not heard. What stays in memory is dropped when a later one takes its place; and
 * where workers end, the newest goes to the disk, for the next ones start from there.
 *
 * A lead that is new knows of no save that went anywhere: the first one that it hears of
 * goes everywhere, and so does one of which some agent has been told already.
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"

#include <errno.h>

static const unsigned disk = 1u << INTERVAL_DISK;
static const unsigned all = 1u << INTERVAL_DISK | 1u << INTERVAL_PARTNER;

/* What an agent has left may be on the disk although nobody has heard where it goes. */
bool lead_save_is_parked(const struct lead_save *s)
{
    return (s->waits & disk) && !(s->goes & disk) && s->tally.n_written < s->tally.n_ranks;
}

static bool is_whole(const struct lead_save *s)
{
    return s->tally.n_held == s->tally.n_ranks && s->tally.n_failed == 0;
}

/* --- where it goes --- */

/* This agent may answer at once, and others may be settled by that. */
static void say(struct lead_save *s)
{
    struct agent *a = s->lead->agent;
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    s->went_ms = uv_now(&a->loop);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "snap_go");
    jsonw_str(&w, "uuid", s->uuid);
    jsonw_int(&w, "levels", s->goes);
    jsonw_end_object(&w);
    if (!b.failed && a->tree) {
        tree_ask(a->tree, b.data, b.len);
        agent_asked(a, b.data, b.len);
    }
}

static void send_to(struct lead_save *s, unsigned levels)
{
    s->goes |= levels;
    snap_levels_note(&s->lead->levels, s->goes, s->began_ms);
    say(s);
}

static void decide(struct lead_save *s)
{
    struct lead_snap *l = s->lead;
    uint64_t every_ms[INTERVAL_N_LEVELS] = {0};

    s->is_decided = true;
    if (s->waits == 0) {
        snap_levels_note(&l->levels, s->goes, s->began_ms);
        return;
    }
    every_ms[INTERVAL_PARTNER] = l->ops->every(l->arg, INTERVAL_PARTNER);
    every_ms[INTERVAL_DISK] = l->ops->every(l->arg, INTERVAL_DISK);
    send_to(s, s->is_wanted || (s->goes & disk)
                   ? all : snap_levels_choose(&l->levels, s->began_ms, every_ms));
}

static struct snap_standing standing_of(const struct lead_save *s)
{
    return (struct snap_standing){
        .age = lead_save_age(s),
        .is_whole = is_whole(s) && s->is_decided,
        .is_copied = s->tally.n_ranks > 0 && s->n_copied == s->tally.n_ranks,
        .is_on_disk = s->is_settled,
    };
}

/* It was saved in a life of the run that is over, which has gone on from later ones. */
static bool is_past(const struct lead_save *s)
{
    const struct lead_snap *l = s->lead;
    char newest[STEP_NAME_BYTES];
    int64_t step = lead_snap_resume(l, s->root, newest);

    return s->tally.generation < l->agent->config.first_generation && newest[0] &&
           step >= 0 && s->step <= (uint64_t)step;
}

static bool is_replaced(const struct lead_save *s)
{
    const struct snap_standing own = standing_of(s);

    if (is_past(s)) {
        return true;
    }
    for (const struct lead_save *o = s->lead->saves; o; o = o->next) {
        const struct snap_standing other = standing_of(o);

        if (!(o->is_settled && o->error.code) && lead_save_is_beside(o, s) &&
            snap_levels_replaces(&other, &own)) {
            return true;
        }
    }
    return false;
}

static bool read_waits(const json_t *fact, unsigned *ret)
{
    json_int_t waits = json_integer_value(json_object_get(fact, "waits"));

    *ret = waits > 0 && waits < 1 << INTERVAL_N_LEVELS ? (unsigned)waits : 0;
    return json_integer_value(json_object_get(fact, "wanted")) != 0;
}

void lead_levels_take(struct lead_save *s, const json_t *fact)
{
    struct lead_snap *l = s->lead;
    uint64_t now_ms = uv_now(&l->agent->loop);
    unsigned waits;
    bool is_wanted = read_waits(fact, &waits);

    s->is_wanted = s->is_wanted || is_wanted;
    s->waits |= waits;
    s->goes |= all & ~waits;
    if (!is_whole(s)) {
        return;
    }
    if (!s->is_decided) {
        s->is_decided = true;
        if (!lead_save_is_parked(s) || !is_replaced(s)) {
            decide(s);
        }
        lead_levels_replace(l);
    } else if (s->is_wanted && lead_save_is_parked(s)) {
        send_to(s, all);
    } else if ((waits & (s->goes | 1u << INTERVAL_MEMORY)) &&
               now_ms - s->went_ms >= SNAP_TELL_AGAIN_MS) {
        say(s);
    }
}

void lead_levels_failed(struct lead_save *s)
{
    if (s->is_decided && s->error.code != ESTALE) {
        snap_levels_forget(&s->lead->levels, s->goes);
    }
}

/* A copy that nobody makes, for there is no memory, has no end that is told. */
enum { COPIES_MS = 60000 };

void lead_levels_show_busy(const struct lead_snap *l)
{
    uint64_t now_ms = uv_now(&l->agent->loop);
    bool writes = false, copies = false;

    for (const struct lead_save *s = l->saves; s; s = s->next) {
        if (!s->is_settled && s->is_decided) {
            writes = writes || (s->goes & disk);
            copies = copies || ((s->goes & all & ~disk) &&
                                s->n_copied < s->tally.n_ranks &&
                                now_ms - s->began_ms < COPIES_MS);
        }
    }
    l->ops->on_busy(l->arg, INTERVAL_PARTNER, copies);
    l->ops->on_busy(l->arg, INTERVAL_DISK, writes);
}

/* --- which are of no use any more --- */

static struct lead_save *find_replaced(struct lead_snap *l)
{
    for (struct lead_save *s = l->saves; s; s = s->next) {
        if (!s->is_settled && !s->is_working && lead_save_is_parked(s) && is_whole(s) &&
            is_replaced(s)) {
            return s;
        }
    }
    return NULL;
}

void lead_levels_replace(struct lead_snap *l)
{
    struct lead_save *s;

    while ((s = find_replaced(l))) {
        lead_snap_drop(s, ESTALE, "a later one has its place in memory");
    }
}

/* --- the end of workers --- */

static bool can_be(const struct lead_save *s)
{
    const struct snap_now now = lead_save_now(s);

    return s->is_settled ? s->error.code == 0
                         : snap_sets_can_be(&s->sets, &s->tally, &now);
}

/* Of its directory. */
static bool is_newest(const struct lead_save *save)
{
    for (const struct lead_save *s = save->lead->saves; s; s = s->next) {
        if (s != save && lead_save_is_beside(s, save) && can_be(s) && lead_save_is_later(s, save)) {
            return false;
        }
    }
    return true;
}

static struct lead_save *find_to_promote(const struct lead_snap *l)
{
    for (struct lead_save *s = l->saves; s; s = s->next) {
        if (!s->is_settled && !s->is_working && lead_save_is_parked(s) && can_be(s) &&
            is_newest(s)) {
            return s;
        }
    }
    return NULL;
}

/* What is said of one may settle others: so one after the other, from the first again. */
void lead_levels_promote(struct lead_snap *l)
{
    struct lead_save *s;

    while ((s = find_to_promote(l))) {
        s->is_decided = true;
        send_to(s, all);
    }
}
