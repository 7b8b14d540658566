/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events on their way up, each of which is told once. Those that come while there is
 * no parent wait for the next one, in their order; or, where this member leads by then,
 * for itself. With a lead those of ranks that it does not know wait until it does.
 *
 * What was sent lies in a socket until the parent reads it, which one that is stopped,
 * or lost, never does; and one that has read it may be lost before it has passed it on.
 * So each member on the way keeps it until it is told that the lead has heard it, and
 * sends it to the next parent before that: events that came by one link are counted on
 * both sides of it, and the count of those that were heard comes down by it. The lead may
 * have heard it all the same: it knows what it has been told by a number that each member
 * gives its events.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

#include <string.h>

enum {
    /* A lease without a parent fills a part of this. What comes when it is full waits for
     * nobody. */
    MAX_WAITING_BYTES = 1 << 20,
    KNOWN_EVENTS = 64, /* of a member, before its newest */
};

/* By which link of a child an event came, and its number there; 0: by none. */
struct origin {
    uint64_t link;
    uint64_t count;
};

/* What is kept before the frame of each event that waits. */
struct wait {
    struct origin from;
    uint64_t sent; /* its number on the link up, if it was sent */
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

/* Of the event that waits at `at`: what is kept of it, and the bytes of its frame. */
static struct wait get_wait(const struct buf *events, size_t at, size_t *ret_len)
{
    struct wire_reader r = wire_reader(events->data + at + sizeof(struct wait),
                                       events->len - at - sizeof(struct wait));
    struct wait w;

    memcpy(&w, events->data + at, sizeof(w));
    (void)get_event(&r);
    *ret_len = r.at;
    return w;
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

/* --- that they were heard --- */

static struct child *child_of_link(const struct tree *t, uint64_t link)
{
    struct child *c = t->children;

    while (c && c->id != link) {
        c = c->next;
    }
    return c;
}

/* Tells the child that one came from, or nobody: who is gone tells its next parent again.
 * An event counts with all those before it; so one for which there was no room counts with
 * the last one that is kept. */
static void heard(struct tree *t, const struct origin *from, bool was_kept)
{
    struct child *c = child_of_link(t, from->link);
    _buf_ struct buf b = {0};

    if (!c || (!was_kept && c->n_events_kept)) {
        return;
    }
    c->n_events_kept -= was_kept;
    wire_put_u64(&b, c->n_events_kept ? from->count : c->n_events);
    link_send_buf(c->link, TREE_HEARD, &b);
}

void tree_take_heard(struct tree *t, const struct channel_frame *f)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    uint64_t n = wire_get_u64(&r);
    size_t at = 0, len;

    while (!r.bad && at < t->events_sent) {
        struct wait w = get_wait(&t->events, at, &len);

        if (w.sent > n) {
            break;
        }
        at += sizeof(w) + len;
        heard(t, &w.from, true);
    }
    buf_consume(&t->events, at);
    t->events_sent -= at;
}

/* --- on their way --- */

static bool keep_event(struct tree *t, const struct origin *from, const struct buf *frame)
{
    const struct wait w = {.from = *from};
    bool is_kept = false;

    if (!frame->failed && frame->len + sizeof(w) <= MAX_WAITING_BYTES - t->events.len) {
        if (buf_reserve(&t->events, sizeof(w) + frame->len)) {
            buf_append(&t->events, &w, sizeof(w));
            buf_append(&t->events, frame->data, frame->len);
            is_kept = true;
        }
        t->events.failed = false; /* what it has stays */
    }
    return is_kept;
}

/* Above a lead is a front end alone. */
static bool has_way(const struct tree *t)
{
    return t->up_ready && !tree_is_lead(t);
}

static void send_event(struct tree *t, const struct buf *frame)
{
    if (has_way(t)) {
        t->n_events_sent++;
        tree_send_up(t, TREE_EVENT, frame);
    }
}

/* What waits, one after the other. */
static void send_events(struct tree *t)
{
    while (has_way(t) && t->events_sent < t->events.len) {
        char *at = t->events.data + t->events_sent;
        size_t len;
        struct wait w = get_wait(&t->events, t->events_sent, &len);
        _buf_ struct buf b = {0};

        w.sent = t->n_events_sent + 1;
        memcpy(at, &w, sizeof(w));
        buf_append(&b, at + sizeof(w), len);
        t->events_sent += sizeof(w) + len;
        send_event(t, &b);
    }
}

/* `was_kept`: it counts as such with the child that it came from. */
static void pass(struct tree *t, const struct event *e, const struct origin *from,
                 bool was_kept)
{
    struct child *c = child_of_link(t, from->link);
    _buf_ struct buf b = {0};

    if (tree_is_lead(t) && e->rank < t->n_below) {
        tell(t, e);
        heard(t, from, was_kept);
        return;
    }
    put_event(&b, e);
    if (keep_event(t, from, &b)) {
        if (c) {
            c->n_events_kept += !was_kept;
        }
        send_events(t);
        return;
    }
    send_events(t);
    send_event(t, &b);
    heard(t, from, was_kept);
}

void tree_pass_event(struct child *from, uint32_t rank, uint64_t number,
                     const void *json, size_t len)
{
    const struct event e = {rank, number, json, len};
    const struct origin origin = {from->id, ++from->n_events};

    pass(from->tree, &e, &origin, false);
}

void tree_event(struct tree *t, const void *json, size_t len)
{
    static const struct origin here = {0};
    const struct event e = {t->config.rank, ++t->n_events, json, len};

    pass(t, &e, &here, false);
}

/* What is told may bring more of them, or another lead. */
void tree_tell_events(struct tree *t)
{
    _buf_ struct buf events = {0};

    if (!tree_is_lead(t)) {
        send_events(t);
        return;
    }
    events = t->events;
    t->events = (struct buf){0};
    tree_events_unsent(t);
    for (size_t at = 0, len; at < events.len; at += sizeof(struct wait) + len) {
        struct wait w = get_wait(&events, at, &len);
        struct wire_reader r = wire_reader(events.data + at + sizeof(w), len);
        struct event e = get_event(&r);

        pass(t, &e, &w.from, true);
    }
}

void tree_events_unsent(struct tree *t)
{
    t->events_sent = 0;
    t->n_events_sent = 0;
}
