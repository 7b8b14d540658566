/* SPDX-License-Identifier: Apache-2.0 */
/* The front end of the run, which may be gone, come back, or be another one. */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "launcher/agent_record.h"

#include <stdio.h>

enum {
    FRONT_CHECK_MS = 1000,
    TELL_MS = 200, /* who comes is not alone, often */
};

static void on_newcomers(uv_timer_t *t)
{
    struct agent_lead *l = t->data;

    agent_front_tell_all(l->agent);
}

void agent_lead_tell_front(struct agent_lead *l)
{
    if (!uv_is_active((uv_handle_t *)l->newcomers)) {
        uv_timer_start(l->newcomers, on_newcomers, TELL_MS, 0);
    }
}

static void on_front_check(uv_timer_t *t)
{
    struct agent_lead *l = t->data;
    uint64_t gone_ms = tree_front_gone_ms(l->agent->tree);

    if (gone_ms && gone_ms >= l->agent->config.detach_ms && !l->is_stopping) {
        agent_lead_halt(l, LEAD_STOP_PREEMPT, false, "the front end is gone");
    }
}

static void tell_back(struct agent_lead *l)
{
    char text[320];

    snprintf(text, sizeof(text), l->front_name[0]
             ? "%s has taken the run over" : "the front end is back%s",
             l->front_name);
    l->front_name[0] = '\0';
    record_event(l->record, "front_back", lead_generation(l->core), text, NULL,
                 0);
}

void agent_lead_front(struct agent *a, bool up)
{
    struct agent_lead *l = a->lead;

    if (!l) {
        return;
    }
    if (up) {
        if (!record_meet_front(l->record) && l->front_was_there) {
            tell_back(l);
        }
        l->front_was_there = true;
        uv_timer_stop(l->front);
        record_flush(l->record);
    } else if (l->front_was_there && !a->config.by_hand) {
        record_event(l->record, "front_lost",
                     lead_generation(l->core), "the front end is gone", NULL,
                     0);
        uv_timer_start(l->front, on_front_check,
                       a->config.detach_ms < FRONT_CHECK_MS
                           ? a->config.detach_ms : FRONT_CHECK_MS,
                       FRONT_CHECK_MS);
    }
}

/* That of the lead before, which has not heard of this one yet. */
void agent_lead_expect_front(struct agent_lead *l)
{
    record_expect_front(l->record);
    l->front_was_there = true;
    uv_timer_start(l->front, on_front_check, FRONT_CHECK_MS, FRONT_CHECK_MS);
}
