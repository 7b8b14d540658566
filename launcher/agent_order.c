/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_order.h"

#include "base/cleanup.h"

enum { RECORD_MS = 2000 }; /* for the record of a generation to be on disk */

static void give(struct agent *a, struct buf *encoded)
{
    _order_ struct order order = {0};

    if (order_decode(encoded->data, encoded->len, &order, NULL) < 0 ||
        !agent_heir_own_order(a, &order)) {
        agent_log(a, "an order is not published: this node leads no more");
        return;
    }
    tree_publish_order(a->tree, encoded);
}

static void on_written(void *arg, bool is_written)
{
    struct agent_order *o = arg;
    _buf_ struct buf b = o->waiting;

    o->waiting = (struct buf){0};
    o->given = o->waiting_generation;
    if (!is_written) {
        agent_note(o->agent, "the number of a generation could not be written "
                   "to %s in %d ms: it starts without", o->agent->run.dir,
                   RECORD_MS);
    }
    give(o->agent, &b);
}

void agent_order_release(struct agent_order *o)
{
    if (o->waiting.len) {
        record_when_written(o->record, 0, NULL, NULL);
    }
    buf_release(&o->waiting);
}

void agent_order_publish(struct agent_order *o, const struct order *order)
{
    _buf_ struct buf b = {0};
    bool is_first = order->step == ORDER_RUN && order->generation != o->given;

    agent_order_release(o);
    order_encode(order, &b);
    if (b.failed) {
        agent_log(o->agent, "out of memory: an order was not published");
        return;
    }
    if (order->step == ORDER_LEAVE || is_first) {
        record_flush(o->record);
    }
    if (!is_first) {
        give(o->agent, &b);
        return;
    }
    o->waiting = b;
    o->waiting_generation = order->generation;
    b = (struct buf){0};
    record_when_written(o->record, RECORD_MS, on_written, o);
}
