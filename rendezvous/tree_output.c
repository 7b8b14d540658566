/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

enum {
    /* What one child may have in our queue: its window, once more as much from
     * before it reconnected, and the frame that went over. */
    MAX_QUEUED = 2 * TREE_WINDOW_BYTES + 2 * TREE_OUTPUT_MAX,
    MAX_OWN_QUEUED = 2 * TREE_OUTPUT_MAX,
};

static bool nobody_above(const struct tree *t)
{
    return tree_is_lead(t) && !t->up_ready && !t->awaits_front;
}

static void send_output(struct tree *t, const void *data, size_t len)
{
    link_send(t->up, TREE_OUTPUT, data, len);
    t->in_flight += len;
}

static bool window_open(const struct tree *t)
{
    return t->up_ready && t->in_flight < TREE_WINDOW_BYTES;
}

static bool is_waiting(const struct tree *t)
{
    return t->waiting_at < t->waiting.len;
}

/* False when there is no memory for it. */
static bool queue_output(struct tree *t, uint32_t from, const void *data,
                         size_t len)
{
    size_t before = t->waiting.len;

    wire_put_u32(&t->waiting, from);
    wire_put_bytes(&t->waiting, data, len);
    if (t->waiting.failed) {
        t->waiting.failed = false;
        t->waiting.len = before;
        return false;
    }
    return true;
}

/* At once: false where it has to wait. */
static bool send_at_once(struct tree *t, const struct tree_output *o)
{
    struct buf *b = window_open(t) && !is_waiting(t)
                        ? link_begin(t->up, TREE_OUTPUT) : NULL;
    size_t len;

    if (!b) {
        return false;
    }
    len = b->len;
    tree_output_encode(o, b);
    len = b->len - len;
    if (link_end(t->up) == 0) {
        t->in_flight += len;
    }
    return true;
}

/* Own output queues with that of the children, so that neither waits for the
 * other to end. */
bool tree_output(struct tree *t, const struct tree_output *o)
{
    _buf_ struct buf b = {0};

    if (nobody_above(t) || send_at_once(t, o)) {
        return true;
    }
    tree_output_encode(o, &b);
    if (b.failed) {
        return true;
    }
    if (queue_output(t, t->config.rank, b.data, b.len)) {
        t->own_queued += b.len;
    }
    t->blocked = t->own_queued >= MAX_OWN_QUEUED;
    return !t->blocked;
}

static void give_credit(struct link *l, size_t n)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, (uint32_t)n);
    link_send_buf(l, TREE_CREDIT, &b);
}

static size_t less(size_t n, size_t by)
{
    return n > by ? n - by : 0;
}

/* A piece has left the queue. */
static void settle_output(struct tree *t, uint32_t from, size_t len)
{
    struct child *c;

    if (from == t->config.rank) {
        t->own_queued = less(t->own_queued, len);
        return;
    }
    c = tree_child_of(t, from);
    if (c) {
        c->queued = less(c->queued, len);
        give_credit(c->link, len);
    }
}

/* What has gone is dropped only when it is the larger part, so that a long queue
 * is not moved for every piece. */
static void compact_waiting(struct tree *t)
{
    if (t->waiting_at >= t->waiting.len / 2) {
        buf_consume(&t->waiting, t->waiting_at);
        t->waiting_at = 0;
    }
}

/* Sends what waits as far as the window allows, crediting who sent it. */
void tree_pump_output(struct tree *t)
{
    struct wire_reader r = wire_reader(t->waiting.data, t->waiting.len);

    r.at = t->waiting_at;
    while (r.at < r.len && (window_open(t) || nobody_above(t))) {
        uint32_t from = wire_get_u32(&r);
        size_t len;
        const void *data = wire_get_bytes(&r, CHANNEL_MAX_FRAME, &len);

        if (!nobody_above(t)) {
            send_output(t, data, len);
        }
        settle_output(t, from, len);
    }
    t->to_finish = less(t->to_finish, r.at - t->waiting_at);
    t->waiting_at = r.at;
    compact_waiting(t);
    if (t->blocked && t->own_queued < MAX_OWN_QUEUED) {
        t->blocked = false;
        t->ops.on_writable(t->config.ctx);
    }
    tree_look_if_drained(t);
}

static bool has_drained(const struct tree *t)
{
    if (!t->up_ready) {
        return true;
    }
    return t->finishing == TREE_FINISH_OWN ? t->to_finish == 0
                                           : !is_waiting(t) && !t->children;
}

void tree_look_if_drained(struct tree *t)
{
    if (t->finishing && has_drained(t)) {
        t->finishing = 0;
        t->ops.on_drained(t->config.ctx);
    }
}

void tree_finish(struct tree *t, enum tree_finish what)
{
    t->finishing = what;
    t->to_finish = t->waiting.len - t->waiting_at;
    tree_look_if_drained(t);
}

/* False for a child that does not wait for credit. */
bool tree_take_output(struct child *from, const struct channel_frame *f)
{
    struct tree *t = from->tree;

    if (f->len > TREE_OUTPUT_MAX + 64 || from->queued + f->len > MAX_QUEUED ||
        !queue_output(t, from->rank, f->data, f->len)) {
        return false;
    }
    from->queued += f->len;
    tree_pump_output(t);
    return true;
}
