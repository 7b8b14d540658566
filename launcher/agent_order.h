/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead's orders on their way out. Workers of a generation start after its
 * number is on disk, so that whoever starts the run again, however this agent ends,
 * gives it to no other one: logs, checkpoints and error files of a generation are
 * in places of its own. A disk that does not answer holds nothing up for long.
 * Private to agent*.c. On the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_ORDER_H
#define MUSTER_LAUNCHER_AGENT_ORDER_H

#include "base/buf.h"
#include "launcher/agent.h"
#include "launcher/agent_record.h"
#include "rendezvous/order.h"

/* An order to run that waits; `record` is borrowed. */
struct agent_order {
    struct agent *agent;
    struct record *record;
    struct buf waiting; /* encoded; empty: none */
    uint32_t waiting_generation;
    uint32_t given;     /* the newest generation that was given; what is said of it
                           again waits for nothing */
};

/* To all nodes, this one included: now, or once it is recorded. An order that
 * still waits is taken back by the next one. */
void agent_order_publish(struct agent_order *o, const struct order *order);

/* Forgets one that waits. */
void agent_order_release(struct agent_order *o);

#endif
