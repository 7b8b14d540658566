/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_tally.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int snap_tally_init(struct snap_tally *t, uint32_t generation, uint32_t n_ranks,
                    uint64_t now_ms)
{
    *t = (struct snap_tally){.generation = generation, .n_ranks = n_ranks,
                             .heard_ms = now_ms, .news_ms = now_ms};
    t->stages = calloc((size_t)n_ranks + 1, sizeof(*t->stages));
    t->agents = calloc((size_t)n_ranks + 1, sizeof(*t->agents));
    t->copies = calloc((size_t)n_ranks + 1, sizeof(*t->copies));
    if (!t->stages || !t->agents || !t->copies) {
        snap_tally_release(t);
        return -ENOMEM;
    }
    return 0;
}

void snap_tally_release(struct snap_tally *t)
{
    free(t->stages);
    free(t->agents);
    free(t->copies);
    *t = (struct snap_tally){0};
}

/* Who was to write it instead of one that had not been lost found it there. */
static bool is_in_vain(const struct snap_tally *t, uint32_t rank, uint32_t agent,
                       enum snap_stage stage)
{
    return stage == SNAP_STAGE_FAILED && t->stages[rank] == SNAP_STAGE_WRITTEN &&
           t->agents[rank] != agent;
}

void snap_tally_take(struct snap_tally *t, uint32_t rank, uint32_t agent,
                     enum snap_stage stage, uint64_t now_ms)
{
    if (rank >= t->n_ranks) {
        return;
    }
    t->heard_ms = now_ms;
    if (stage <= t->stages[rank] || is_in_vain(t, rank, agent, stage)) {
        return;
    }
    t->news_ms = now_ms;
    t->n_held += t->stages[rank] == SNAP_STAGE_NONE;
    t->n_written += stage == SNAP_STAGE_WRITTEN;
    t->n_failed += stage == SNAP_STAGE_FAILED;
    t->stages[rank] = (uint8_t)stage;
    t->agents[rank] = agent;
}

void snap_tally_copied(struct snap_tally *t, uint32_t rank, uint32_t from,
                       uint32_t agent, uint64_t now_ms)
{
    if (rank < t->n_ranks) {
        snap_tally_take(t, rank, from, SNAP_STAGE_HELD, now_ms);
        t->copies[rank] = agent + 1;
    }
}

bool snap_tally_rescue(struct snap_tally *t, const struct snap_now *now,
                       uint32_t *at, uint32_t *ret_agent)
{
    for (uint32_t i = *at; i < t->n_ranks; i++) {
        uint32_t copy = t->copies[i] - 1;

        if (t->copies[i] == 0 || t->stages[i] != SNAP_STAGE_HELD ||
            now->is_lost(now->arg, copy) ||
            (t->agents[i] != copy && !now->is_lost(now->arg, t->agents[i]))) {
            continue;
        }
        if (t->agents[i] != copy) {
            t->agents[i] = copy;
            t->news_ms = now->ms;
        }
        *at = i;
        *ret_agent = copy;
        return true;
    }
    *at = t->n_ranks;
    return false;
}

unsigned snap_tally_holders(const struct snap_tally *t, const struct snap_now *now,
                            uint32_t rank, uint32_t ret[SNAP_TALLY_HOLDERS])
{
    unsigned n = 0;

    if (rank >= t->n_ranks || t->stages[rank] == SNAP_STAGE_NONE) {
        return 0;
    }
    if (!now->is_lost(now->arg, t->agents[rank])) {
        ret[n++] = t->agents[rank];
    }
    if (t->copies[rank] > 0 && t->copies[rank] - 1 != t->agents[rank] &&
        !now->is_lost(now->arg, t->copies[rank] - 1)) {
        ret[n++] = t->copies[rank] - 1;
    }
    return n;
}

bool snap_tally_next_run(const struct snap_tally *t, const struct snap_now *now,
                         struct snap_run *r)
{
    uint32_t others[SNAP_TALLY_HOLDERS];

    r->first = r->end;
    if (r->first >= t->n_ranks) {
        return false;
    }
    r->n = snap_tally_holders(t, now, r->first, r->agents);
    for (r->end = r->first + 1; r->end < t->n_ranks; r->end++) {
        if (snap_tally_holders(t, now, r->end, others) != r->n ||
            memcmp(others, r->agents, r->n * sizeof(others[0])) != 0) {
            break;
        }
    }
    return true;
}

/* Whether an agent that is there writes, and whether one that was lost did. */
static void look(const struct snap_tally *t, const struct snap_now *now,
                 bool *ret_writing, bool *ret_lost)
{
    *ret_writing = *ret_lost = false;
    for (uint32_t i = 0; i < t->n_ranks && !*ret_writing; i++) {
        if (t->stages[i] == SNAP_STAGE_HELD) {
            bool lost = now->is_lost(now->arg, t->agents[i]);

            *ret_lost = *ret_lost || lost;
            *ret_writing = *ret_writing || !lost;
        }
    }
}

/* Until nobody will hand it over who has not yet. */
static uint64_t limit_ms(const struct snap_tally *t, const struct snap_now *now)
{
    bool is_over = t->generation < now->started || now->is_passed;

    return now->is_ending ? 0 : is_over ? SNAP_TALLY_SETTLE_MS : SNAP_TALLY_STALE_MS;
}

/* Nothing of it is on the disk. One that is whole stays until a later one takes its
 * place. */
static enum snap_fate judge_parked(const struct snap_tally *t, const struct snap_now *now)
{
    return t->n_failed > 0 || now->ms - t->heard_ms >= SNAP_TALLY_SILENT_MS ||
                   (t->n_held < t->n_ranks && now->ms - t->news_ms >= limit_ms(t, now))
               ? SNAP_FATE_REMOVE
               : SNAP_FATE_WAIT;
}

/* Once all have handed it over all agents hear what becomes of it, and may keep what they
 * have in memory; but nobody waits long for that. */
static bool is_failure_known(const struct snap_tally *t, const struct snap_now *now)
{
    return t->n_held == t->n_ranks || now->is_ending || t->generation < now->started ||
           now->ms - t->news_ms >= SNAP_TALLY_FAILED_MS;
}

enum snap_fate snap_tally_judge(const struct snap_tally *t,
                                const struct snap_now *now)
{
    uint64_t quiet_ms = now->ms - t->news_ms;
    bool writing, lost;

    if (now->is_parked) {
        return judge_parked(t, now);
    }
    if (t->n_failed > 0) {
        return is_failure_known(t, now) ? SNAP_FATE_REMOVE : SNAP_FATE_WAIT;
    }
    if (t->n_written == t->n_ranks ||
        now->ms - t->heard_ms >= SNAP_TALLY_SILENT_MS) {
        return SNAP_FATE_COMMIT;
    }
    look(t, now, &writing, &lost);
    if (writing) {
        return SNAP_FATE_WAIT;
    }
    if (lost && quiet_ms < SNAP_TALLY_LOST_MS && !now->is_ending) {
        return SNAP_FATE_WAIT;
    }
    if (t->n_held < t->n_ranks && quiet_ms < limit_ms(t, now)) {
        return SNAP_FATE_WAIT;
    }
    return SNAP_FATE_COMMIT;
}

bool snap_tally_is_sure(const struct snap_tally *t, const struct snap_now *now)
{
    if (t->n_failed > 0 || t->n_held < t->n_ranks) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_ranks; i++) {
        if (t->stages[i] == SNAP_STAGE_HELD &&
            now->is_lost(now->arg, t->agents[i])) {
            return false;
        }
    }
    return true;
}
