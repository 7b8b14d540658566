/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events on their way up, each of which is told once. Those that come while there is
 * no parent wait for the next one, in their order; or, where this member leads by then,
 * for itself.
 *
 * What was sent lies in a socket until the parent reads it, which one that is stopped,
 * or lost, never does. So it is kept until an answer to a later heartbeat says that it
 * was read, and is sent again to the next parent before that. It may have been read all
 * the same: the lead knows what it has been told by a number that each member gives
 * its events.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

enum {
    /* A lease without a parent fills a part of this. What comes when it is full waits for
     * nobody. */
    MAX_WAITING_BYTES = 1 << 20,
    KNOWN_EVENTS = 64, /* of a member, before its newest */
};

struct event {
    uint32_t rank; /* whose it is */
    uint64_t number;
    const void *json;
    size_t len;
};

static void put_event(struct buf *b, const struct event *e)
{
    wire_put_u32(b, e->rank);
    wire_put_u64(b, e->number);
    wire_put_bytes(b, e->json, e->len);
}

static struct event get_event(struct wire_reader *r)
{
    struct event e = {.rank = wire_get_u32(r), .number = wire_get_u64(r)};

    e.json = wire_get_bytes(r, CHANNEL_MAX_FRAME, &e.len);
    return e;
}

/* --- the lead --- */

/* Those of one member that come by one way are in order. Two ways may be used one after
 * the other, and the older one may be the slower. */
static bool is_news(struct below *b, uint64_t number)
{
    uint64_t back = b->event - number, ahead = number - b->event;

    if (number > b->event) {
        b->events = ahead < KNOWN_EVENTS ? b->events << ahead | 1 : 1;
        b->event = number;
        return true;
    }
    if (back >= KNOWN_EVENTS || b->events & UINT64_C(1) << back) {
        return false;
    }
    b->events |= UINT64_C(1) << back;
    return true;
}

static void tell(struct tree *t, const struct event *e)
{
    if (is_news(&t->below[e->rank], e->number)) {
        t->ops.on_event(t->config.ctx, e->rank, e->json, e->len);
    }
}

/* --- on their way --- */

static bool keep_event(struct tree *t, const struct buf *frame)
{
    bool is_kept = false;

    if (!frame->failed && frame->len <= MAX_WAITING_BYTES - t->events.len) {
        buf_append(&t->events, frame->data, frame->len);
        is_kept = !t->events.failed;
        t->events.failed = false; /* what it has stays */
    }
    return is_kept;
}

/* What waits, one after the other. */
static void send_events(struct tree *t)
{
    while (t->up_ready && t->events_sent < t->events.len) {
        const char *at = t->events.data + t->events_sent;
        struct wire_reader r = wire_reader(at, t->events.len - t->events_sent);
        _buf_ struct buf b = {0};

        (void)get_event(&r);
        buf_append(&b, at, r.at);
        t->events_sent += r.at;
        tree_send_up(t, TREE_EVENT, &b);
    }
}

static void pass(struct tree *t, const struct event *e)
{
    _buf_ struct buf b = {0};
    bool is_kept;

    if (tree_is_lead(t)) {
        tell(t, e);
        return;
    }
    put_event(&b, e);
    is_kept = keep_event(t, &b);
    send_events(t);
    if (!is_kept) {
        tree_send_up(t, TREE_EVENT, &b);
    }
}

void tree_pass_event(struct tree *t, uint32_t rank, uint64_t number, const void *json,
                     size_t len)
{
    const struct event e = {rank, number, json, len};

    pass(t, &e);
}

void tree_event(struct tree *t, const void *json, size_t len)
{
    tree_pass_event(t, t->config.rank, ++t->n_events, json, len);
}

/* What is told may bring more of them, or another lead. */
void tree_tell_events(struct tree *t)
{
    _buf_ struct buf events = {0};
    struct wire_reader r;

    if (!tree_is_lead(t)) {
        send_events(t);
        return;
    }
    events = t->events;
    t->events = (struct buf){0};
    tree_events_unsent(t);
    r = wire_reader(events.data, events.len);
    while (r.at < r.len && !r.bad) {
        struct event e = get_event(&r);

        pass(t, &e);
    }
}

/* --- whether they were read --- */

void tree_events_unsent(struct tree *t)
{
    t->events_sent = t->events_marked = 0;
}

void tree_events_beat(struct tree *t, uint64_t stamp_ms)
{
    if (!t->events_marked) {
        t->events_marked = t->events_sent;
        t->marked_ms = stamp_ms;
    }
}

/* One of the same millisecond may have been sent before them. */
void tree_events_read(struct tree *t, uint64_t stamp_ms)
{
    if (t->events_marked && stamp_ms > t->marked_ms) {
        buf_consume(&t->events, t->events_marked);
        t->events_sent -= t->events_marked;
        t->events_marked = 0;
    }
}
