/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control tree as far as it matters here: each agent has one parent of a
 * lower rank, or is a root; what goes up is kept for a parent that comes later.
 */
#include <config.h>

#include "rendezvous/split.h"

#include <string.h>

enum { RETURN_MS = 30 };

static uint64_t suspect_ms(const struct split *s)
{
    return s->lease_ms / 3;
}

static void keep(struct buf *b, const struct buf *from)
{
    buf_clear(b);
    buf_append(b, from->data, from->len);
}

/* Takes the bytes over. */
static void transmit(struct split *s, struct split_agent *from, uint32_t to,
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

static struct buf copy_of(const struct buf *bytes)
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
        transmit(s, a, a->up, (struct split_event){
            .frame = (uint8_t)frame, .rank = rank, .tag = a->epoch, .up = true,
            .bytes = copy_of(bytes)});
    }
}

static void send_lost_up(struct split *s, struct split_agent *a, uint32_t rank)
{
    const struct split_below *b = &a->below[rank];

    if (a->up_ready) {
        transmit(s, a, a->up, (struct split_event){
            .frame = FR_LOST, .rank = rank, .tag = a->epoch, .up = true,
            .dead = b->dead, .quiet_ms = split_clock(s, a) - b->quiet_at_ms});
    }
}

static void send_down(struct split *s, struct split_agent *a, uint32_t child,
                      struct split_event e)
{
    e.tag = a->child[child].epoch;
    e.up = false;
    transmit(s, a, child, e);
}

void split_send_below(struct split *s, struct split_agent *a,
                      const struct buf *bytes)
{
    keep(&a->order, bytes);
    for (uint32_t i = 0; i < s->n; i++) {
        if (a->child[i].linked) {
            send_down(s, a, i, (struct split_event){
                .frame = FR_ORDER, .bytes = copy_of(bytes)});
        }
    }
}

/* --- who is below --- */

static void tell_lost(struct split *s, struct split_agent *a, uint32_t rank)
{
    struct split_below *b = &a->below[rank];

    b->due_ms = 0;
    b->lost = true;
    b->via = SPLIT_NONE;
    b->has_follow = false;
    if (b->dead) {
        split_heir(s, a, (struct heir_event){.type = HEIR_DEAD, .rank = rank});
    }
    split_heir(s, a, (struct heir_event){.type = HEIR_UNFOLLOW, .rank = rank});
    if (a->alive && a->lead) {
        split_lead(s, a, (struct lead_event){
            .type = LEAD_LOST, .rank = rank, .dead = b->dead, .text = "silent",
            .quiet_ms = split_clock(s, a) - b->quiet_at_ms});
    } else if (a->alive) {
        send_lost_up(s, a, rank);
    }
}

static void expect_back(struct split *s, struct split_agent *a, uint32_t rank,
                        uint64_t ms, uint64_t word_ms)
{
    struct split_below *b = &a->below[rank];
    uint64_t due_ms = split_clock(s, a) + ms;

    if (b->lost || (b->due_ms && b->due_ms <= due_ms)) {
        return;
    }
    b->due_ms = due_ms;
    b->dead = false;
    b->quiet_at_ms = word_ms;
    split_post(s, s->now_ms + ms + 1, SP_LOST, split_rank(s, a), rank);
}

void split_on_lost(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    struct split_below *b = &a->below[e->tag];

    if (!a->alive || !b->due_ms) {
        return;
    }
    if (b->due_ms <= split_clock(s, a)) {
        tell_lost(s, a, e->tag);
    } else {
        split_post(s, s->now_ms + 1, SP_LOST, e->to, e->tag);
    }
}

static void heard_of(struct split *s, struct split_agent *a, uint32_t rank,
                     uint32_t via)
{
    struct split_below *b = &a->below[rank];

    (void)s;
    if (via != rank && a->child[rank].linked) {
        return;
    }
    b->via = via;
    b->lost = false;
    b->due_ms = 0;
}

static void child_lost(struct split *s, struct split_agent *a, uint32_t child,
                       uint64_t return_ms)
{
    uint64_t word_ms = a->child[child].word_ms;

    a->child[child].linked = false;
    for (uint32_t i = 0; i < s->n; i++) {
        if (a->below[i].via == child) {
            expect_back(s, a, i, i == child ? return_ms : s->lease_ms, word_ms);
        }
    }
}

static void take_here(struct split *s, struct split_agent *a, uint32_t rank)
{
    if (a->lead) {
        split_lead(s, a, (struct lead_event){.type = LEAD_HERE, .rank = rank});
    } else {
        split_send_up(s, a, FR_HERE, rank, NULL);
    }
}

static void take_report(struct split *s, struct split_agent *a, uint32_t rank,
                        const struct buf *bytes)
{
    struct report r;

    keep(&a->below[rank].report, bytes);
    if (!a->lead) {
        split_send_up(s, a, FR_REPORT, rank, bytes);
    } else if (report_decode(bytes->data, bytes->len, &r, NULL) == 0) {
        split_lead(s, a, (struct lead_event){.type = LEAD_REPORT,
                                             .report = &r});
    }
}

static void take_follow(struct split *s, struct split_agent *a, uint32_t rank,
                        const struct buf *bytes)
{
    struct follow f;

    keep(&a->below[rank].follow, bytes);
    a->below[rank].has_follow = true;
    if (follow_decode(bytes->data, bytes->len, &f, NULL) < 0) {
        split_fail(s, "a follow does not parse");
        return;
    }
    /* Here too: this agent may be the top before it is told again. */
    split_heir(s, a, (struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
    split_send_up(s, a, FR_FOLLOW, rank, bytes);
}

void split_become_root(struct split *s, struct split_agent *a)
{
    split_drop_up(s, a);
    for (uint32_t i = 0; i < s->n && a->lead; i++) {
        struct split_below *b = &a->below[i];
        _buf_ struct buf report = copy_of(&b->report);

        if (i != split_rank(s, a) && b->via != SPLIT_NONE && !b->due_ms) {
            take_here(s, a, i);
        }
        if (a->lead && report.len &&
            (i == split_rank(s, a) || b->via != SPLIT_NONE)) {
            take_report(s, a, i, &report);
        }
    }
}

static void repeat_all(struct split *s, struct split_agent *a)
{
    uint32_t self = split_rank(s, a);

    for (uint32_t i = 0; i < s->n; i++) {
        struct split_below *b = &a->below[i];

        if (i != self && b->lost) {
            send_lost_up(s, a, i);
            continue;
        }
        if (i != self && (b->via == SPLIT_NONE || b->due_ms)) {
            continue;
        }
        if (i != self) {
            split_send_up(s, a, FR_HERE, i, NULL);
        }
        if (b->has_follow && i != self) {
            split_send_up(s, a, FR_FOLLOW, i, &b->follow);
        }
        if (b->report.len) {
            split_send_up(s, a, FR_REPORT, i, &b->report);
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
        transmit(s, a, a->up, (struct split_event){
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

static void lose_up(struct split *s, struct split_agent *a)
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
        if (s->agents[to].started && s->now_ms > s->agents[to].died_ms + 30) {
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
    transmit(s, a, to, (struct split_event){
        .frame = FR_HELLO, .tag = a->epoch, .up = true});
}

static void on_hello(struct split *s, struct split_agent *a,
                     struct split_event *e)
{
    struct split_child *c = &a->child[e->from];

    *c = (struct split_child){.linked = true, .epoch = e->tag,
                              .heard_ms = split_clock(s, a),
                              .word_ms = split_clock(s, a)};
    heard_of(s, a, e->from, e->from);
    send_down(s, a, e->from, (struct split_event){.frame = FR_WELCOME});
    if (a->order.len) {
        send_down(s, a, e->from, (struct split_event){
            .frame = FR_ORDER, .bytes = copy_of(&a->order)});
    }
    take_here(s, a, e->from);
}

static void on_welcome(struct split *s, struct split_agent *a)
{
    a->up_ready = true;
    repeat_all(s, a);
    split_heir(s, a, (struct heir_event){.type = HEIR_NOT_TOP});
    split_member(s, a, (struct member_event){.type = MEMBER_UPLINK_UP});
}

/* --- beats --- */

static bool is_silent(const struct split *s, const struct split_agent *a,
                      const struct split_child *c)
{
    return split_clock(s, a) - c->heard_ms > suspect_ms(s);
}

static struct heir_seen sum_seen(struct split *s, struct split_agent *a)
{
    struct heir_seen sum = heir_seen_own(a->heir);
    uint32_t view = heir_view(a->heir)->number;

    for (uint32_t i = 0; i < s->n; i++) {
        struct split_child *c = &a->child[i];
        struct heir_seen seen = c->beat.seen;

        if (!c->linked) {
            continue;
        }
        if (is_silent(s, a, c) || c->beat.view != view) {
            bool is_quiet = is_silent(s, a, c);

            seen = (struct heir_seen){
                .all_ms = c->beat.view == view ? seen.all_ms : 0,
                .live_ms = HEIR_NEVER};
            for (uint32_t k = 0; k < s->n; k++) {
                seen.n_suspect += a->below[k].via == i;
            }
            seen.n_quiet = is_quiet ? seen.n_suspect : 0;
        }
        heir_seen_add(&sum, &seen);
    }
    for (uint32_t k = 0; k < s->n; k++) {
        const struct split_below *b = &a->below[k];

        /* Neither there nor lost: nobody else speaks for it. */
        if (b->due_ms && b->via != SPLIT_NONE && !a->child[b->via].linked) {
            heir_seen_add(&sum, &(struct heir_seen){
                .live_ms = HEIR_NEVER, .n_suspect = 1, .n_quiet = 1});
        }
    }
    return sum;
}

static void drop_silent(struct split *s, struct split_agent *a)
{
    uint64_t now = split_clock(s, a);

    for (uint32_t i = 0; i < s->n; i++) {
        struct split_child *c = &a->child[i];

        if (c->linked && now - c->heard_ms > s->timeout_ms) {
            send_down(s, a, i, (struct split_event){.frame = FR_CLOSE});
            child_lost(s, a, i, RETURN_MS);
        }
    }
    if (a->up != SPLIT_NONE && now - a->up_heard_ms > suspect_ms(s)) {
        lose_up(s, a);
    }
}

void split_on_beat(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    struct split_beat beat = {.echo_ms = split_clock(s, a)};

    if (!a->alive) {
        return;
    }
    split_post(s, s->now_ms + s->lease_ms / 15, SP_BEAT, e->to, 0);
    drop_silent(s, a);
    if (a->lead) {
        struct heir_seen seen = sum_seen(s, a);

        split_heir(s, a, (struct heir_event){
            .type = HEIR_SEEN, .seen = seen,
            .n_silent = lead_n_silent(a->lead)});
        if (seen.n_quiet != a->n_quiet) {
            a->n_quiet = seen.n_quiet;
            split_lead(s, a, (struct lead_event){.type = LEAD_QUIET,
                                                 .n_quiet = seen.n_quiet});
        }
        split_heir(s, a, (struct heir_event){
            .type = HEIR_WORD, .view = heir_view(a->heir)->number,
            .stamp_ms = split_clock(s, a),
            .age_ms = heir_word_age_ms(a->heir, split_clock(s, a))});
    } else if (a->up_ready) {
        beat.view = heir_view(a->heir)->number;
        beat.seen = sum_seen(s, a);
        transmit(s, a, a->up, (struct split_event){
            .frame = FR_BEAT, .tag = a->epoch, .up = true, .beat = beat});
    }
}

static void answer_beat(struct split *s, struct split_agent *a,
                        struct split_event *e)
{
    struct split_beat beat = {.echo_ms = e->beat.echo_ms, .has_word = true};
    uint64_t now = split_clock(s, a);

    a->child[e->from].beat = e->beat;
    a->child[e->from].word_ms = now;
    if (a->lead) {
        beat.view = heir_view(a->heir)->number;
        beat.stamp_ms = now;
        beat.age_ms = heir_word_age_ms(a->heir, now);
    } else if (a->has_word) {
        beat.view = a->word_view;
        beat.stamp_ms = a->stamp_ms;
        beat.age_ms = a->word_at_ms ? now - a->word_at_ms : HEIR_NEVER;
    } else {
        beat.has_word = false;
    }
    send_down(s, a, e->from, (struct split_event){.frame = FR_ANSWER,
                                                  .beat = beat});
}

/* As old as the stamp of ours that the parent had seen by then. */
static void take_word(struct split *s, struct split_agent *a,
                      const struct split_beat *b)
{
    uint64_t now = split_clock(s, a);
    uint64_t at_ms = b->age_ms == HEIR_NEVER || b->age_ms > b->echo_ms
                         ? 0 : b->echo_ms - b->age_ms;

    if (!b->has_word || b->view < a->word_view) {
        return;
    }
    if (b->view > a->word_view) {
        a->word_view = b->view;
        a->word_at_ms = a->stamp_ms = 0;
    }
    a->has_word = true;
    a->word_at_ms = at_ms > a->word_at_ms ? at_ms : a->word_at_ms;
    a->stamp_ms = b->stamp_ms > a->stamp_ms ? b->stamp_ms : a->stamp_ms;
    split_heir(s, a, (struct heir_event){
        .type = HEIR_WORD, .view = a->word_view, .stamp_ms = a->stamp_ms,
        .age_ms = a->word_at_ms ? now - a->word_at_ms : HEIR_NEVER});
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
        child_lost(s, a, e->from, e->dead ? 1 : s->timeout_ms);
        if (e->dead && a->below[e->from].due_ms) {
            a->below[e->from].dead = true;
            tell_lost(s, a, e->from);
        }
        return;
    case FR_REPORT:
        heard_of(s, a, e->rank, e->from);
        take_report(s, a, e->rank, &e->bytes);
        return;
    case FR_FOLLOW:
        heard_of(s, a, e->rank, e->from);
        take_follow(s, a, e->rank, &e->bytes);
        return;
    case FR_HERE:
        heard_of(s, a, e->rank, e->from);
        take_here(s, a, e->rank);
        return;
    case FR_LOST:
        if (b->via != SPLIT_NONE && b->via != e->from) {
            return;
        }
        expect_back(s, a, e->rank, a->lead && !e->dead ? RETURN_MS : 1,
                    now > e->quiet_ms ? now - e->quiet_ms : 0);
        if (e->dead && b->due_ms) {
            b->dead = true;
            tell_lost(s, a, e->rank);
        }
        return;
    case FR_BEAT:
        answer_beat(s, a, e);
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
        lose_up(s, a);
        return;
    case FR_ORDER:
        split_take_order(s, a, &e->bytes);
        return;
    case FR_ANSWER:
        take_word(s, a, &e->beat);
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
            send_down(s, a, i, (struct split_event){.frame = FR_CLOSE,
                                                    .dead = true});
        }
    }
    if (a->up != SPLIT_NONE) {
        transmit(s, a, a->up, (struct split_event){
            .frame = FR_CLOSE, .tag = a->epoch, .up = true, .dead = true});
    }
}
