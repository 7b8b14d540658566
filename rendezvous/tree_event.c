/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events on their way up, each of which is told once. Those that come while there is
 * no parent wait for the next one, in their order; or, where this member leads by then,
 * for itself.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

/* A lease without a parent fills a part of this. What comes when it is full is lost. */
enum { MAX_WAITING_BYTES = 1 << 20 };

static void keep_event(struct tree *t, const struct buf *frame)
{
    struct buf *to = &t->events;

    if (!frame->failed && frame->len <= MAX_WAITING_BYTES - to->len) {
        buf_append(to, frame->data, frame->len);
    }
}

void tree_pass_event(struct tree *t, uint32_t rank, const void *json,
                     size_t len)
{
    _buf_ struct buf b = {0};

    if (tree_is_lead(t)) {
        t->ops.on_event(t->config.ctx, rank, json, len);
        return;
    }
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, json, len);
    if (t->up_ready) {
        tree_send_up(t, TREE_EVENT, &b);
    } else {
        keep_event(t, &b);
    }
}

void tree_event(struct tree *t, const void *json, size_t len)
{
    tree_pass_event(t, t->config.rank, json, len);
}

/* What is told may bring more of them, or another lead. */
void tree_tell_events(struct tree *t)
{
    _buf_ struct buf events = t->events;
    struct wire_reader r = wire_reader(events.data, events.len);

    t->events = (struct buf){0};
    while (r.at < r.len && !r.bad) {
        uint32_t rank = wire_get_u32(&r);
        size_t len;
        const void *json = wire_get_bytes(&r, CHANNEL_MAX_FRAME, &len);

        tree_pass_event(t, rank, json, len);
    }
}
