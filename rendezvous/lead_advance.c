/* SPDX-License-Identifier: Apache-2.0 */
/* What answers and time allow: from one phase to the next. */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "rendezvous/mutant.h"

#include <stdio.h>

static bool has_procs(const struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        if (lead_is_here(&lead->nodes[i]) && lead->nodes[i].n_procs) {
            return true;
        }
    }
    return false;
}

static void end_gather(struct lead *lead, const char *late,
                       struct lead_actions *ret)
{
    char reason[ORDER_TEXT_BYTES];

    snprintf(reason, sizeof(reason),
             "%u of %u nodes did not join within %llu s: %s",
             lead->n_nodes - lead->n_ready, lead->n_nodes,
             (unsigned long long)(lead->config.gang_timeout_ms / 1000), late);
    lead_end(lead, ret, RUN_NO_GANG, reason, ORDER_STOP_NONE, 0);
}

static uint32_t count_here(const struct lead *lead)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        n += lead_is_here(&lead->nodes[i]);
    }
    return n;
}

static void advance_gather(struct lead *lead, struct lead_actions *ret)
{
    bool is_late = lead->now_ms >= lead->limit_ms;
    char late[ORDER_TEXT_BYTES / 2];
    uint32_t n_here;

    if (!lead_all_ready(lead) && !is_late) {
        return;
    }
    lead_name_late(lead, late, sizeof(late));
    if (lead_choose(lead, false) < lead->min_nodes && !MUTANT(2)) {
        end_gather(lead, late, ret);
    } else if (!has_procs(lead)) {
        lead_end(lead, ret, RUN_FAILED, "no node has a process to run",
                 ORDER_STOP_NONE, 0);
    } else {
        n_here = count_here(lead);
        if (!lead_all_ready(lead)) {
            lead_note(lead, ret, LEAD_NOTE_STRAGGLER, NO_RANK,
                      "starting without %s", late);
        }
        lead_note(lead, ret, LEAD_NOTE_GATHERED, NO_RANK, "%u node%s", n_here,
                  n_here == 1 ? "" : "s");
        lead_found(lead);
        lead_prepare(lead, ret);
    }
}

/* All have stopped, and the time for it has come. */
static void start_run(struct lead *lead, struct lead_actions *ret)
{
    if (lead_choose(lead, true) < lead->min_nodes && !MUTANT(20)) {
        lead_end_short(lead, ret);
    } else if (!lead_may_go_on(lead)) {
        lead_end_short(lead, ret);
    } else if (lead_store_rank(lead) != lead->store_rank && !MUTANT(23)) {
        lead_prepare(lead, ret); /* worker 0 will be on another node */
    } else {
        lead_run(lead, ret);
    }
}

uint64_t lead_run_ms(const struct lead *lead)
{
    uint64_t clear_ms = lead_clear_ms(lead);

    return clear_ms > lead->hold_ms ? clear_ms : lead->hold_ms;
}

static void advance_prepare(struct lead *lead, struct lead_actions *ret)
{
    char late[ORDER_TEXT_BYTES / 2];
    char reason[ORDER_TEXT_BYTES];
    bool must_wait = lead_claim_if_needed(lead, ret);

    if (lead_all_ready(lead)) {
        if (lead->has_cause && !lead->judged && !lead->has_lost &&
            !lead_judge(lead, ret)) {
            return;
        }
        if (lead->has_obstacle) {
            lead_give_up(lead, ret);
        } else if (lead->now_ms >= lead_run_ms(lead) && !must_wait) {
            start_run(lead, ret);
        }
    } else if (lead->now_ms >= lead->limit_ms) {
        lead_name_late(lead, late, sizeof(late));
        snprintf(reason, sizeof(reason),
                 "not ready for generation %u in time: %s", lead->generation,
                 late);
        lead_note(lead, ret, LEAD_NOTE_STRAGGLER, NO_RANK, "%s", reason);
        lead_end(lead, ret, RUN_RESUMABLE, reason, ORDER_STOP_FORCE, 0);
    }
}

/* One move of the machine, if there is one to make. */
void lead_advance(struct lead *lead, struct lead_actions *ret)
{
    if (lead->phase < PHASE_CLAIM && lead->config.deadline_ms &&
        lead->now_ms >= lead->config.deadline_ms) {
        lead_on_stop(lead, LEAD_STOP_DEADLINE, false, NULL, ret);
        return;
    }
    switch (lead->phase) {
    case PHASE_GATHER:
        advance_gather(lead, ret);
        return;
    case PHASE_PREPARE:
        advance_prepare(lead, ret);
        return;
    case PHASE_RUN:
        (void)lead_claim_if_needed(lead, ret);
        if (!lead_may_go_on(lead)) {
            lead_end_short(lead, ret); /* spares, but many of them */
        } else if (lead_all_ready(lead)) {
            lead_succeed(lead, ret);
        } else if (!lead->claiming) { /* with the answer all would be asked again */
            lead_change(lead, ret);
        }
        return;
    case PHASE_CLAIM:
        lead_advance_claim(lead, ret);
        return;
    case PHASE_END:
        if ((lead_all_ready(lead) || lead->now_ms >= lead->limit_ms) &&
            !lead_claims_end_again(lead, ret)) {
            lead_leave(lead, ret);
        }
        return;
    case PHASE_OVER:
        return;
    }
}

uint64_t lead_next_wake(struct lead *lead)
{
    uint64_t wake_ms = lead->limit_ms;

    if (lead->phase == PHASE_OVER || lead->retired) {
        return LEAD_NEVER;
    }
    if (lead->phase == PHASE_PREPARE && lead_all_ready(lead)) {
        /* Then it is an answer that it waits for, or a word of who is silent. */
        wake_ms = lead_run_ms(lead);
        wake_ms = wake_ms <= lead->now_ms ? LEAD_NEVER : wake_ms;
    } else if (lead->phase == PHASE_RUN) {
        wake_ms = lead_change_ms(lead);
    }
    if (lead->phase == PHASE_CLAIM && lead->now_ms < lead->end_claim_ms) {
        wake_ms = lead->end_claim_ms;
    }
    if (lead->phase < PHASE_CLAIM && lead->config.deadline_ms &&
        lead->config.deadline_ms < wake_ms) {
        wake_ms = lead->config.deadline_ms;
    }
    return lead_tell_ms(lead) < wake_ms ? lead_tell_ms(lead) : wake_ms;
}
