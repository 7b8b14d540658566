/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control tree as far as it matters here: each agent has one parent of a
 * lower rank, or is a root; what goes up is kept for a parent that comes later.
 */
#include <config.h>

#include "rendezvous/split_priv.h"

void split_keep(struct buf *b, const struct buf *from)
{
    buf_clear(b);
    buf_append(b, from->data, from->len);
}

/* Takes the bytes over. */
void split_transmit(struct split *s, struct split_agent *from, uint32_t to,
                    struct split_event e)
{
    uint32_t rank = split_rank(s, from);
    uint64_t *newest = &s->agents[to].arrives_ms[rank];
    uint64_t at_ms = s->now_ms + split_pick(s, 1, 20);

    at_ms = at_ms < *newest ? *newest : at_ms;
    *newest = at_ms;
    e.type = SP_FRAME;
    e.from = rank;
    e.to = to;
    e.at_ms = at_ms;
    e.seq = ++s->seq;
    split_push(s, e);
}

struct buf split_copy_of(const struct buf *bytes)
{
    struct buf b = {0};

    if (bytes) {
        buf_append(&b, bytes->data, bytes->len);
    }
    return b;
}

void split_send_up(struct split *s, struct split_agent *a,
                   enum split_frame frame, uint32_t rank,
                   const struct buf *bytes)
{
    if (a->up_ready) {
        split_transmit(s, a, a->up, (struct split_event){
            .frame = (uint8_t)frame, .rank = rank, .tag = a->epoch, .up = true,
            .bytes = split_copy_of(bytes)});
    }
}

void split_send_lost_up(struct split *s, struct split_agent *a, uint32_t rank)
{
    const struct split_below *b = &a->below[rank];

    if (a->up_ready) {
        split_transmit(s, a, a->up, (struct split_event){
            .frame = FR_LOST, .rank = rank, .tag = a->epoch, .up = true,
            .dead = b->dead, .quiet_ms = split_clock(s, a) - b->quiet_at_ms});
    }
}

void split_send_down(struct split *s, struct split_agent *a, uint32_t child,
                     struct split_event e)
{
    e.tag = a->child[child].epoch;
    e.up = false;
    split_transmit(s, a, child, e);
}

void split_send_below(struct split *s, struct split_agent *a,
                      const struct buf *bytes)
{
    split_keep(&a->order, bytes);
    for (uint32_t i = 0; i < s->n; i++) {
        if (a->child[i].linked) {
            split_send_down(s, a, i, (struct split_event){
                .frame = FR_ORDER, .bytes = split_copy_of(bytes)});
        }
    }
}

/* --- parents --- */

void split_drop_up(struct split *s, struct split_agent *a)
{
    if (a->up == SPLIT_NONE) {
        return;
    }
    if (a->up_ready) {
        split_transmit(s, a, a->up, (struct split_event){
            .frame = FR_CLOSE, .tag = a->epoch, .up = true});
    }
    a->up = SPLIT_NONE;
    a->up_ready = false;
    a->epoch++;
    a->next_dial = 0;
}

void split_dial_soon(struct split *s, struct split_agent *a, uint64_t ms)
{
    if (!a->dialing && a->alive && !a->lead) {
        a->dialing = true;
        split_post(s, s->now_ms + ms, SP_DIAL, split_rank(s, a), 0);
    }
}

void split_lose_up(struct split *s, struct split_agent *a)
{
    split_drop_up(s, a);
    split_member(s, a, (struct member_event){.type = MEMBER_UPLINK_LOST});
    split_dial_soon(s, a, 1);
}

/* The lead of the view first, if it is known; then from the lowest. */
static uint32_t next_candidate(struct split *s, struct split_agent *a)
{
    uint32_t self = split_rank(s, a), lead = heir_view(a->heir)->lead;
    uint32_t k = a->next_dial++;

    if (k == 0) {
        return a->seek < self ? a->seek : lead < self ? lead : SPLIT_NONE - 1;
    }
    return k - 1 < self ? k - 1 : SPLIT_NONE;
}

static bool is_in_touch(const struct split *s, uint32_t a, uint32_t b)
{
    return s->reach[a][b] && s->reach[b][a];
}

/* So that its host says so: muster-watch has swept up by then. */
bool split_is_gone(const struct split *s, uint32_t from, uint32_t rank)
{
    const struct split_agent *a = &s->agents[rank];

    return is_in_touch(s, from, rank) && a->started && !a->alive &&
           s->now_ms > a->died_ms + 30;
}

void split_on_dial(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    uint32_t to;

    a->dialing = false;
    if (!a->alive || a->up != SPLIT_NONE || a->lead) {
        return;
    }
    to = next_candidate(s, a);
    if (to == SPLIT_NONE) {
        a->next_dial = 0;
        a->seek = SPLIT_NONE;
        split_heir(s, a, (struct heir_event){.type = HEIR_TOP});
        split_dial_soon(s, a, split_pick(s, 100, 400));
        return;
    }
    if (to == SPLIT_NONE - 1) {
        split_dial_soon(s, a, 0);
        return;
    }
    if (!is_in_touch(s, e->to, to) || s->agents[to].paused_until_ms > s->now_ms) {
        split_dial_soon(s, a, split_pick(s, 50, s->lease_ms / 6));
        return;
    }
    if (!s->agents[to].alive) {
        if (split_is_gone(s, e->to, to)) {
            split_heir(s, a, (struct heir_event){.type = HEIR_DEAD,
                                                 .rank = to});
        }
        split_dial_soon(s, a, s->agents[to].started ? 2 : 50);
        return;
    }
    if (!heir_is_free(a->heir) && heir_view(s->agents[to].heir)->number <
                                      heir_view(a->heir)->number) {
        split_dial_soon(s, a, 5);
        return;
    }
    a->up = to;
    a->epoch++;
    a->up_heard_ms = split_clock(s, a);
    split_transmit(s, a, to, (struct split_event){
        .frame = FR_HELLO, .tag = a->epoch, .up = true});
}

static void on_hello(struct split *s, struct split_agent *a,
                     struct split_event *e)
{
    struct split_child *c = &a->child[e->from];

    *c = (struct split_child){.linked = true, .epoch = e->tag,
                              .heard_ms = split_clock(s, a),
                              .word_ms = split_clock(s, a)};
    split_heard_of(s, a, e->from, e->from);
    split_send_down(s, a, e->from, (struct split_event){.frame = FR_WELCOME});
    if (a->order.len) {
        split_send_down(s, a, e->from, (struct split_event){
            .frame = FR_ORDER, .bytes = split_copy_of(&a->order)});
    }
    split_take_here(s, a, e->from);
}

static void on_welcome(struct split *s, struct split_agent *a)
{
    a->up_ready = true;
    split_repeat_all(s, a);
    split_heir(s, a, (struct heir_event){.type = HEIR_NOT_TOP});
    split_member(s, a, (struct member_event){.type = MEMBER_UPLINK_UP});
}

/* --- frames --- */

static void on_up_frame(struct split *s, struct split_agent *a,
                        struct split_event *e)
{
    struct split_child *c = &a->child[e->from];
    struct split_below *b = &a->below[e->rank];
    uint64_t now = split_clock(s, a);

    if (e->frame == FR_HELLO) {
        if (!c->linked || c->epoch < e->tag) {
            on_hello(s, a, e);
        }
        return;
    }
    if (!c->linked || c->epoch != e->tag) {
        return;
    }
    c->heard_ms = now;
    switch (e->frame) {
    case FR_CLOSE:
        split_child_lost(s, a, e->from, e->dead ? 1 : s->timeout_ms);
        if (e->dead && a->below[e->from].due_ms) {
            a->below[e->from].dead = true;
            split_tell_lost(s, a, e->from);
        }
        return;
    case FR_REPORT:
        split_heard_of(s, a, e->rank, e->from);
        split_take_report(s, a, e->rank, &e->bytes);
        return;
    case FR_FOLLOW:
        split_heard_of(s, a, e->rank, e->from);
        split_take_follow(s, a, e->rank, &e->bytes);
        return;
    case FR_HERE:
        split_heard_of(s, a, e->rank, e->from);
        split_take_here(s, a, e->rank);
        return;
    case FR_LOST:
        if (b->other == e->from) {
            b->other = SPLIT_NONE;
        }
        if (b->via != SPLIT_NONE && b->via != e->from) {
            return;
        }
        split_expect_back(s, a, e->rank,
                          a->lead && !e->dead ? SPLIT_RETURN_MS : 1,
                          now > e->quiet_ms ? now - e->quiet_ms : 0);
        if (e->dead && b->due_ms) {
            b->dead = true;
            split_tell_lost(s, a, e->rank);
        }
        return;
    case FR_BEAT:
        split_answer_beat(s, a, e);
        return;
    default:
        return;
    }
}

static void on_down_frame(struct split *s, struct split_agent *a,
                          struct split_event *e)
{
    if (a->up != e->from || a->epoch != e->tag) {
        return;
    }
    a->up_heard_ms = split_clock(s, a);
    switch (e->frame) {
    case FR_WELCOME:
        on_welcome(s, a);
        return;
    case FR_CLOSE:
        if (e->dead) {
            split_heir(s, a, (struct heir_event){.type = HEIR_DEAD,
                                                 .rank = e->from});
        }
        split_lose_up(s, a);
        return;
    case FR_ORDER:
        split_take_order(s, a, &e->bytes);
        return;
    case FR_ANSWER:
        split_take_word(s, a, &e->beat);
        return;
    default:
        return;
    }
}

void split_on_frame(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];

    if (!a->alive) {
        return;
    }
    if (e->up) {
        on_up_frame(s, a, e);
    } else {
        on_down_frame(s, a, e);
    }
}

/* Kernels of hosts that can be reached say so. */
void split_agent_gone(struct split *s, struct split_agent *a)
{
    uint32_t self = split_rank(s, a);

    for (uint32_t i = 0; i < s->n; i++) {
        /* By then muster-watch has swept up. */
        if (s->agents[i].arrives_ms[self] < s->now_ms + 30) {
            s->agents[i].arrives_ms[self] = s->now_ms + 30;
        }
        if (a->child[i].linked) {
            split_send_down(s, a, i, (struct split_event){.frame = FR_CLOSE,
                                                    .dead = true});
        }
    }
    if (a->up != SPLIT_NONE) {
        split_transmit(s, a, a->up, (struct split_event){
            .frame = FR_CLOSE, .tag = a->epoch, .up = true, .dead = true});
    }
}
