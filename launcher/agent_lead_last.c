/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run is over but for its last checkpoint: what the program has saved last by itself is
 * looked at, it is taken to the store, and copied, one after the other. All of that has one
 * limit; who stops the run has said how long it may take.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

enum {
    END_MS = 600 * 1000, /* the front end waits longer than that */
    STOP_MS = 10 * 1000, /* within what a batch system leaves */
};

enum { LAST_LOOK, LAST_STORE, LAST_COPY, LAST_NONE };

static uint64_t limit_ms(const struct agent_lead *l)
{
    uint64_t grace_ms = l->agent->config.job->limits.grace_ms;

    return l->is_forced      ? 0
           : !l->is_stopping ? END_MS
                             : grace_ms < STOP_MS ? grace_ms : STOP_MS;
}

void agent_lead_last_begin(struct agent_lead *l)
{
    l->last = LAST_LOOK;
    l->last_until_ms = uv_now(&l->agent->loop) + limit_ms(l);
}

static bool store(struct agent_lead *l, uint64_t left_ms)
{
    if (lead_avoid(l->core)->n > 0) { /* the newest may be one of those */
        lead_bucket_doubt(l->bucket, false);
    }
    return lead_bucket_finish(l->bucket, left_ms);
}

bool agent_lead_last_next(struct agent_lead *l)
{
    uint64_t now = uv_now(&l->agent->loop);
    uint64_t left_ms = l->last_until_ms > now ? l->last_until_ms - now : 0;
    bool waits = false;

    while (!waits && l->last != LAST_NONE) {
        int next = l->last++;

        waits = next == LAST_LOOK    ? lead_watch_finish(l->ckpts, left_ms)
                : next == LAST_STORE ? store(l, left_ms)
                                     : lead_copy_finish(l->copies, left_ms);
    }
    return waits;
}

bool agent_lead_last_is_awaited(const struct agent_lead *l)
{
    return lead_watch_is_finishing(l->ckpts) || lead_bucket_is_awaited(l->bucket) ||
           lead_copy_is_awaited(l->copies);
}

bool agent_lead_last_forget(struct agent_lead *l)
{
    bool was_look = lead_watch_forget(l->ckpts);
    bool was_store = lead_bucket_forget(l->bucket);

    return lead_copy_forget(l->copies) || was_store || was_look;
}
