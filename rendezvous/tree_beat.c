/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats. Those that come up tell what each subtree has heard of the lead, and
 * the answers how old the lead's word is: its word is only as good as what comes
 * back of it (heir.h).
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

enum {
    MIN_BEAT_MS = 20,
    MAX_BEAT_MS = 500,
    BEATS_A_LEASE = 20,
    MAX_SUSPECT_MS = 3000,
};

uint64_t tree_beat_ms(const struct tree *t)
{
    uint64_t ms = t->config.lease_ms / BEATS_A_LEASE;

    return ms > MAX_BEAT_MS ? MAX_BEAT_MS : ms < MIN_BEAT_MS ? MIN_BEAT_MS : ms;
}

uint64_t tree_suspect_ms(const struct tree *t)
{
    uint64_t ms = t->config.lease_ms / 3;

    return ms > MAX_SUSPECT_MS ? MAX_SUSPECT_MS : ms;
}

/* --- what was seen --- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool tree_is_bound(const struct tree *t)
{
    struct tree_seen own = {0};

    if (t->ops.own_seen) {
        t->ops.own_seen(t->config.ctx, &own);
    }
    return t->view && own.n_suspect == 0;
}

static uint32_t add_u32(uint32_t a, uint32_t b)
{
    return a < TREE_MAX_SEEN - b ? a + b : TREE_MAX_SEEN;
}

/* What was heard of another lead is nothing of this one. */
static void add_seen(struct tree_seen *to, const struct tree_seen *s,
                     bool is_suspect)
{
    uint32_t n = s->n ? s->n : 1;
    bool is_other = s->view != to->view;

    to->n = add_u32(to->n, n);
    to->n_quiet = add_u32(to->n_quiet, is_suspect ? n : s->n_quiet);
    to->all_ms = is_other ? 0 : min_u64(to->all_ms, s->all_ms);
    if (is_other || is_suspect) {
        to->n_suspect = add_u32(to->n_suspect, n);
    } else {
        to->n_suspect = add_u32(to->n_suspect, s->n_suspect);
        to->live_ms = min_u64(to->live_ms, s->live_ms);
    }
}

/* Those that may find another way here, and of which nobody knows now what they
 * hear; who is given up is not in a sum any more, but the lead's business. */
static void add_missing(const struct tree *t, struct tree_seen *to)
{
    static const struct tree_seen nothing = {.n = 1};

    for (uint32_t i = 0; i < t->n_below; i++) {
        if (t->below[i].due_ms && !t->below[i].dead) {
            add_seen(to, &nothing, true);
        }
    }
}

/* How many are silent with a child that is: of those that it counted last some may
 * have found another way here, and count there. Who counts anywhere was told of before
 * that on the same link (on_welcome()). */
static uint32_t count_behind(const struct tree *t, const struct child *c)
{
    uint32_t said = c->seen.n ? c->seen.n : 1, n = 1;

    for (uint32_t i = 0; i < t->n_below; i++) {
        const struct below *b = &t->below[i];

        if (i != c->rank && b->via == c->rank && !b->lost && !b->due_ms) {
            n = add_u32(n, 1);
        }
    }
    return n < said ? n : said;
}

/* Those of which a child has told since its last beat have heard nothing yet, for all
 * that is known. */
static void add_new(const struct child *c, struct tree_seen *to)
{
    struct tree_seen nothing = {.n = c->n_new};

    if (c->n_new) {
        add_seen(to, &nothing, false);
    }
}

static void add_below(const struct tree *t, struct tree_seen *to)
{
    uint64_t now = tree_now_ms(t);

    for (const struct child *c = t->children; c; c = c->next) {
        struct tree_seen seen = c->seen;
        bool is_suspect =
            now - link_last_heard_ms(c->link) >= tree_suspect_ms(t);

        if (is_suspect) {
            seen.n = count_behind(t, c);
        }
        add_seen(to, &seen, is_suspect);
        add_new(c, to);
    }
    add_missing(t, to);
}

static void look_at_own(const struct tree *t, struct tree_seen *ret)
{
    *ret = (struct tree_seen){.view = t->word.view,
                              .all_ms = t->word.stamp_ms};
    if (t->ops.own_seen) {
        t->ops.own_seen(t->config.ctx, ret);
    }
    ret->n = 1;
    ret->live_ms = ret->n_suspect ? UINT64_MAX : ret->all_ms;
}

void tree_tell_seen(struct tree *t)
{
    uint64_t now = tree_now_ms(t);
    struct tree_seen seen = {.view = t->view, .all_ms = now, .live_ms = now,
                             .n = 1};

    add_below(t, &seen);
    t->ops.on_seen(t->config.ctx, &seen);
}

/* --- up and down --- */

void tree_beat_up(struct tree *t)
{
    _buf_ struct buf b = {0};
    struct tree_seen seen;

    look_at_own(t, &seen);
    add_below(t, &seen);
    wire_put_u64(&b, tree_now_ms(t));
    tree_seen_put(&b, &seen);
    link_send_buf(t->up, TREE_BEAT, &b);
}

static uint64_t word_age(const struct tree *t)
{
    if (tree_is_lead(t)) {
        return t->ops.word_age ? t->ops.word_age(t->config.ctx) : 0;
    }
    return t->has_word ? tree_now_ms(t) - t->word_at_ms : UINT64_MAX;
}

/* Of a child that has shown its clock. */
static void answer(struct child *c)
{
    const struct tree *t = c->tree;
    _buf_ struct buf b = {0};

    wire_put_u64(&b, c->stamp);
    wire_put_u64(&b, word_age(t));
    wire_put_u32(&b, tree_is_lead(t) ? t->view : t->word.view);
    wire_put_u64(&b, tree_is_lead(t) ? tree_now_ms(t) : t->word.stamp_ms);
    link_send_buf(c->link, TREE_BEAT, &b);
}

void tree_push_word(struct tree *t)
{
    uv_update_time(t->config.loop);
    for (struct child *c = t->children; c; c = c->next) {
        if (c->stamp) {
            c->word_ms = tree_now_ms(t);
            answer(c);
        }
    }
}

/* Answered with the same stamp, and how old the lead's word is now. */
bool tree_take_beat(struct child *c, const struct channel_frame *f)
{
    struct tree *t = c->tree;
    struct wire_reader r = wire_reader(f->data, f->len);
    uint64_t stamp = wire_get_u64(&r);
    struct tree_seen seen;

    tree_seen_get(&r, &seen);
    if (!wire_done(&r)) {
        return false;
    }
    c->seen = seen;
    c->n_new = 0;
    c->stamp = stamp;
    /* Not before it was sent, which the loop's time may be. */
    uv_update_time(t->config.loop);
    c->word_ms = tree_now_ms(t);
    if (tree_is_lead(t) && word_age(t) == UINT64_MAX) {
        tree_tell_seen(t); /* it may have its first word now */
        if (word_age(t) != UINT64_MAX) {
            tree_push_word(t);
            return true;
        }
    }
    answer(c);
    return true;
}

static void keep_stamp(struct tree *t, uint32_t view, uint64_t stamp_ms)
{
    if (view > t->word.view) {
        t->word = (struct tree_word){.view = view};
        t->has_word = false;
    }
    if (stamp_ms > t->word.stamp_ms) {
        t->word.stamp_ms = stamp_ms;
    }
}

/* A beat may have lain in a socket, or been on its way, for long: what it says
 * is as old as the stamp of ours that the parent had seen by then. */
void tree_take_word(struct tree *t, const struct channel_frame *f)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    uint64_t stamp = wire_get_u64(&r), age = wire_get_u64(&r);
    uint32_t view = wire_get_u32(&r);
    uint64_t lead_stamp = wire_get_u64(&r);
    uint64_t now = tree_now_ms(t);
    bool had_word = t->has_word, is_new = view > t->word.view;
    struct tree_word word;

    if (tree_is_lead(t) || !wire_done(&r) || stamp > now) {
        return;
    }
    if (view >= t->view) {
        t->fresh_at_ms = now;
    }
    if (view < t->word.view) {
        return; /* of one that knows of no newer lead */
    }
    keep_stamp(t, view, lead_stamp);
    if (age <= stamp && (!t->has_word || stamp - age > t->word_at_ms)) {
        t->has_word = true;
        t->word_at_ms = stamp - age;
    }
    word = t->word;
    word.age_ms = t->has_word ? now - t->word_at_ms : UINT64_MAX;
    t->ops.on_word(t->config.ctx, &word);
    if (is_new && t->up_ready && !tree_is_lead(t)) {
        tree_beat_up(t); /* the lead has no word before that */
    }
    if (is_new || (t->has_word && !had_word)) {
        tree_push_word(t);
    }
}
