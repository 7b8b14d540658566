/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member: one node's part in the run. A pure state machine; its agent feeds
 * it orders, what happens to its workers, and time, and does what it says. The
 * lead's own agent has one too. No clock, no descriptors, no threads.
 *
 * Rules (rendezvous/sim.c checks them over random schedules):
 *  - Workers of a generation are started only on its RUN order, once, after
 *    this member itself reported STOPPED for it, and with nothing of an older
 *    generation alive here.
 *  - An order that is not newer than the newest seen changes nothing.
 *  - The lease: no word from the lead for lease_ms, and the workers are killed
 *    at once; when they are gone the member leaves with RUN_RESUMABLE (or with
 *    the verdict, if an END came before). Nothing revokes that; but where there is
 *    an heir the member stays, and starts no workers without a lease. It is checked
 *    before each event is looked at, so that messages which lay in a socket
 *    while the agent was stopped do not count as fresh.
 *  - The verdict that a member tells never changes.
 *  - A PREPARE that counts this member as lost kills its workers at once: the
 *    others wait no longer for them than until its lease was over.
 *  - Every stop ends in a kill, every kill is repeated until all are gone, and
 *    LEAVE or the end of the lease is left in bounded time even if they are not
 *    (muster-watch kills what is left then).
 *
 * What is not guaranteed: an agent that is itself stopped (SIGSTOP, a frozen
 * VM) cannot kill its workers; they run on until it wakes or dies, while the
 * others may run a newer generation. That it is not disturbed is for the fencing
 * of each (places of its own to write to, a store of its own).
 *
 * What the agent promises:
 *  - each `start` is answered by STARTED or START_FAILED, by an EXITED for each
 *    worker that was started, in the order in which they were reaped (those
 *    that exit while others are being started may be told before STARTED), and
 *    at last by one GONE, when no worker and no descendant of one is left; also
 *    if stopped in between.
 *  - `stop` acts on all that is alive at that moment and on what is being
 *    started. It may come when nothing is.
 *  - children are reaped before an order is delivered, so that a worker that
 *    died by itself just before a stop is told as such.
 */
#ifndef MUSTER_RENDEZVOUS_MEMBER_H
#define MUSTER_RENDEZVOUS_MEMBER_H

#include "base/cleanup.h"
#include "rendezvous/order.h"

#include <stdbool.h>
#include <stdint.h>

#define MEMBER_NEVER UINT64_MAX

struct member;

struct member_config {
    uint32_t rank;
    uint16_t n_procs;   /* that this node runs */
    const char *host;   /* copied; for failures of the agent itself */
    uint64_t lease_ms;  /* heartbeat.timeout; 0 for none: the lead's own member
                           where nobody else can take the lead */
    bool waits;         /* there is an heir (heir.h), which says when to leave: at
                           the end of the lease only the workers go */
    uint64_t join_ms;   /* the same before the first word or order (gang
                           timeout) */
    uint32_t linger_ms; /* between the exit of the last worker and the kill of
                           descendants that it left behind */
    uint32_t margin_ms; /* from a kill until leaving without waiting longer */
};

enum member_event_type {
    MEMBER_TICK = 0,
    MEMBER_ORDER = 1,        /* order; it may have been on its way for long, so
                                that it says nothing about the lead's life */
    MEMBER_WORD = 2,         /* age_ms: a heartbeat that the lead is behind: how
                                old its word is; 0 for the lead's own */
    MEMBER_STARTED = 3,      /* generation: all local workers run */
    MEMBER_START_FAILED = 4, /* generation, failure */
    MEMBER_EXITED = 5,       /* generation, failure (NULL: exit code 0) */
    MEMBER_GONE = 6,         /* generation: nothing of it is left */
    MEMBER_STORE_OPEN = 7,   /* generation, addr, port */
    MEMBER_STORE_FAILED = 8, /* generation, text */
    MEMBER_UPLINK_LOST = 9,  /* no parent; word may still come another way */
    MEMBER_UPLINK_UP = 10,   /* a parent, perhaps a new one */
    MEMBER_SAVED = 11,       /* generation, text (the path), step */
    MEMBER_LEAVE = 12,       /* text: the agent itself has to go (its own fatal
                                error): as the end of the lease */
    MEMBER_FAILED = 13,      /* generation, failure: a worker has failed and is
                                still alive. It has failed by itself also if it
                                is being stopped by now; its end is told as any
                                other */
    MEMBER_PROMISE = 14,     /* floor, heard_ms: only orders of views from `floor`
                                on come from now on (heir.h decides which do);
                                reports say so, and when a lead of an older one
                                was heard last. Workers stay as they are */
};

/* All pointers are borrowed for the call. */
struct member_event {
    enum member_event_type type;
    uint64_t now_ms; /* monotonic; older than the last counts as the last */
    uint64_t age_ms;
    const struct order *order;
    uint32_t generation;
    const struct failure *failure;
    const char *addr;
    uint16_t port;
    const char *text;
    int64_t step;
    uint32_t floor;
    uint64_t heard_ms; /* by the clock of now_ms; MEMBER_NEVER: never */
};

enum member_stop {
    MEMBER_STOP_NONE = 0,
    MEMBER_STOP_ASK = 1,  /* SIGTERM and "should stop"; a later step orders the
                             kill, `stop_grace_ms` is for texts */
    MEMBER_STOP_KILL = 2, /* SIGKILL all, descendants too */
};

/* To be done in this order. */
struct member_actions {
    enum member_stop stop;
    uint32_t stop_grace_ms;
    uint32_t close_store;      /* close those up to this generation; 0: none */
    uint32_t open_store;       /* generation to open a store for; 0: none */
    const struct order *start; /* the RUN order to start workers by, or NULL;
                                  valid until the next step */
    const struct report *send; /* the report to send up, or NULL; likewise. It
                                  may be dropped while there is no uplink: it
                                  comes again with MEMBER_UPLINK_UP */
    bool has_verdict;          /* in the one step that learns it */
    bool leave;                /* exit now, with member_status(); stays true */
    uint64_t wake_ms;          /* tick then, or MEMBER_NEVER */
};

/* 0, -EINVAL or -ENOMEM. Step a MEMBER_UPLINK_UP (or TICK) to get the first
 * report. */
int member_create(const struct member_config *config, uint64_t now_ms,
                  struct member **ret, struct error *e);
void member_destroy(struct member *m);
DEFINE_CLEANUP(member);

/* One event. `ret` is overwritten. 0; -ENOMEM: the order could not be kept and
 * counts as not received; -EPROTO: an event about a generation that this member
 * does not run: ignored. */
int member_step(struct member *m, const struct member_event *event,
                struct member_actions *ret);

/* The newest order, NULL if none yet. Valid until the next step. */
const struct order *member_order(const struct member *m);

/* The exit status to leave with, and why ("" for success); RUN_RESUMABLE as
 * long as nothing else is known. Valid until the next step. */
uint8_t member_status(const struct member *m);
const char *member_reason(const struct member *m);

#endif
