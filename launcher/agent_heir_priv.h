/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the heir's agent share. Private to agent_heir*.c.
 *
 *   agent_heir.c       its begin and end; what the core wants, and what the run
 *                      directory answers
 *   agent_heir_tree.c  what the tree brings
 */
#ifndef MUSTER_LAUNCHER_AGENT_HEIR_PRIV_H
#define MUSTER_LAUNCHER_AGENT_HEIR_PRIV_H

#include "launcher/agent.h"

struct arbiter;

struct agent_heir {
    struct agent *agent;
    struct heir *core;
    struct arbiter *arbiter;
    uv_timer_t *timer; /* the core's next tick */
    uv_timer_t *again; /* a claim that failed at once */
    bool claim_is_lead; /* the newest claim is that of our lead */
    bool is_checked;    /* whether the run directory is shared */
    uint64_t good_ms;   /* this agent's word was good then; 0: it never led */
};

/* Whether what the event brings is for the member. */
bool agent_heir_step(struct agent_heir *h, struct heir_event *event);

#endif
