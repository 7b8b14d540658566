/* SPDX-License-Identifier: Apache-2.0 */
/* What a schedule of split.h is of: the job, drawn from the seed, and the faults that
 * its case asks for. */
#include <config.h>

#include "rendezvous/split.h"

static uint32_t pick_mask(struct split *s)
{
    return (uint32_t)split_pick(s, 1, (1u << s->n) - 2);
}

/* Nothing happens before `from_ms`. */
static void plan_random(struct split *s, uint64_t from_ms)
{
    uint64_t n = split_pick(s, 0, 4);

    for (uint64_t i = 0; i < n; i++) {
        static const enum split_type kinds[] = {
            SP_KILL, SP_PAUSE, SP_CUT, SP_CUT, SP_ONE_WAY, SP_HANG};
        enum split_type kind = kinds[split_rnd(s) % 6];
        uint64_t at_ms = split_pick(s, from_ms, s->faults_end_ms);
        uint32_t tag = 0, who = (uint32_t)split_pick(s, 0, s->n - 1);

        who = split_chance(s, 400) ? 0 : who;
        if (kind == SP_CUT || kind == SP_ONE_WAY) {
            if (s->n < 2) {
                continue;
            }
            tag = pick_mask(s);
            if (split_chance(s, 700)) {
                split_post(s, at_ms + split_pick(s, 1, s->lease_ms * 4),
                           SP_HEAL, 0, 0);
            }
        } else if (kind == SP_PAUSE) {
            tag = (uint32_t)split_pick(s, 1, s->lease_ms * 3);
        } else if (kind == SP_HANG) {
            tag = (uint32_t)split_pick(s, 1, 6000);
        }
        split_post(s, at_ms, kind, who, tag);
        if (kind == SP_KILL && split_chance(s, 600)) {
            split_post(s, at_ms + split_pick(s, 50, 6000), SP_ARRIVE, who, 0);
        }
    }
    s->arbiter_bad = split_chance(s, 200);
    s->is_patient = split_chance(s, 500);
    s->arbiter_lies = split_chance(s, 100);
    if (split_chance(s, 150)) {
        split_post(s, split_pick(s, from_ms, s->faults_end_ms), SP_JUMP,
                   (uint32_t)split_pick(s, 0, s->n - 1),
                   (uint32_t)split_pick(s, 1, s->lease_ms * 2));
    }
    if (split_chance(s, 100)) {
        split_post(s, split_pick(s, from_ms, 15000), SP_STOP, 0,
                   (uint32_t)split_pick(s, 0, 2));
    }
}

/* Node 1 leads and is cut off, and so is node 3, when it is about to follow node 2: when
 * all is well again, what it says comes there, but it goes to node 1. */
static void plan_move(struct split *s, uint64_t at_ms)
{
    uint64_t cut_ms = at_ms + s->lease_ms + split_pick(s, 1000, 3000);

    split_post(s, at_ms, SP_KILL, 0, 0);
    split_post(s, cut_ms, SP_CUT, 0, 1u << 1);
    split_post(s, cut_ms + s->lease_ms - split_pick(s, 0, s->lease_ms / 3), SP_CUT, 0,
               1u << 3);
    split_post(s, cut_ms + s->lease_ms + split_pick(s, 0, 1000), SP_HEAL, 0, 0);
}

/* Only node 1 hears that node 0 wants to end the run, and then node 0 is killed. Nodes 2
 * and 3 follow node 1, are cut off from it, and go on with node 4. */
static void plan_proposed(struct split *s, uint64_t at_ms)
{
    uint64_t left_ms = at_ms + split_pick(s, s->lease_ms / 4, s->lease_ms);

    split_post(s, at_ms, SP_CUT, 0, 1u << 0 | 1u << 1);
    split_post(s, at_ms + split_pick(s, 1, 10), SP_STOP, 0, 0);
    split_post(s, at_ms + split_pick(s, 30, 60), SP_KILL, 0, 0);
    split_post(s, at_ms + 70, SP_HEAL, 0, 0);
    split_post(s, at_ms + 70, SP_CUT, 0, 1u << 4);
    split_post(s, left_ms, SP_HEAL, 0, 0);
    split_post(s, left_ms, SP_CUT, 0, 1u << 1);
}

/* It comes twice, so that each part of it may be among those that follow the next. */
static void plan_returns(struct split *s, uint64_t at_ms)
{
    uint32_t who = (uint32_t)split_pick(s, 1, s->n - 1), newcomer = s->n;

    split_post(s, at_ms, SP_KILL, who, 0);
    split_post(s, at_ms + split_pick(s, 50, 1500), SP_ARRIVE, who, 0);
    split_post(s, at_ms + split_pick(s, 1500, 4000), SP_KILL,
               split_chance(s, 700) ? 0 : newcomer, 0);
    split_post(s, at_ms + split_pick(s, 4000, 7000), SP_ARRIVE,
               split_chance(s, 700) ? 0 : newcomer, 0);
    split_post(s, at_ms + split_pick(s, 5000, 12000), SP_KILL,
               split_chance(s, 500) ? newcomer : 1, 0);
}

/* Nodes 1, 2, 5 and 6 hear the lead no more, which does not miss them yet when all leases
 * are over: it claims view 2 for all, to take back those of its own side (its own worker
 * has ended by then). Node 1 is alone when it claims that view, too, for those that
 * followed it, and is stopped when it has lost it (split_on_answer()). */
static void plan_lost(struct split *s, uint64_t at_ms)
{
    uint64_t alone_ms = at_ms + s->lease_ms * split_pick(s, 80, 90) / 100;

    s->p_fail = 0;
    s->max_nodes = s->min_nodes;
    s->duration_ms = at_ms - 1300 + s->lease_ms * split_pick(s, 55, 75) / 100;
    split_post(s, at_ms, SP_ONE_WAY, 0, 1u << 0 | 1u << 3 | 1u << 4);
    split_post(s, alone_ms, SP_HEAL, 0, 0);
    split_post(s, alone_ms, SP_CUT, 0, 1u << 1);
    split_post(s, alone_ms + split_pick(s, 1, 4) * s->lease_ms, SP_HEAL, 0, 0);
}

/* Node 3 comes in the place of node 2, and takes part in a generation that node 1 does not
 * hear of (split_miss()). */
static void plan_missed(struct split *s, uint64_t at_ms)
{
    s->p_fail = 0;
    s->duration_ms = 30000;
    split_post(s, at_ms, SP_KILL, 2, 0);
    split_post(s, at_ms + split_pick(s, 500, 1500), SP_ARRIVE, 2, 0);
}

/* When that is ordered nobody reaches node 1 any more, and soon node 3 is cut off, too.
 * Once it is missed node 1 hears of the view without it, and node 0 is killed. */
void split_miss(struct split *s, struct split_agent *a, const struct order *o)
{
    uint64_t cut_ms = s->now_ms + 40, beat_ms = s->lease_ms / 15;
    uint64_t back_ms = cut_ms + s->timeout_ms + beat_ms + 130;

    if (s->which != SPLIT_MISSED) {
        return;
    }
    if (!s->has_missed && o->step == ORDER_RUN && o->n_nodes > 3 && o->n_procs[3]) {
        s->has_missed = true;
        split_post(s, s->now_ms, SP_ONE_WAY, 0, ~(1u << 1));
        split_post(s, cut_ms, SP_CUT, 0, 1u << 3);
        split_post(s, back_ms, SP_HEAL, 0, 0);
        split_post(s, back_ms, SP_CUT, 0, 1u << 3);
    } else if (s->has_missed && split_rank(s, a) == 1 && !view_has(&o->view, 3)) {
        split_post(s, s->now_ms + 1, SP_KILL, 0, 0);
    }
}

/* One or two come while all is well, and then something happens to any of them. */
static void plan_grown(struct split *s)
{
    uint32_t n_first = s->n, n_new = (uint32_t)split_pick(s, 1, 2);

    s->max_nodes = s->n + n_new;
    for (uint32_t i = 0; i < n_new; i++) {
        split_post(s, split_pick(s, 200, 2500), SP_ARRIVE, 0, 1);
    }
    s->duration_ms += 6000;
    s->faults_end_ms += 3000;
    s->n += n_new;
    plan_random(s, 3000);
    s->n = n_first;
}

void split_plan_case(struct split *s)
{
    uint64_t at_ms = split_pick(s, 1500, 5000);

    switch (s->which) {
    case SPLIT_ANY:
        plan_random(s, 0);
        return;
    case SPLIT_CREATE:
        split_post(s, at_ms, SP_CUT, 0, 1);
        return;
    case SPLIT_EVEN:
        split_post(s, at_ms, SP_CUT, 0, (1u << s->n / 2) - 1);
        return;
    case SPLIT_EEXIST:
        split_post(s, at_ms, SP_KILL, 0, 0);
        s->arbiter_bad = true;
        return;
    case SPLIT_SILENT:
        split_post(s, at_ms, SP_CUT, 0, 1);
        return;
    case SPLIT_KILLED:
        split_post(s, at_ms, SP_KILL, 0, 0);
        split_post(s, at_ms + split_pick(s, 0, 6000), SP_KILL, 1, 0);
        return;
    case SPLIT_PAUSED:
        split_post(s, at_ms, SP_PAUSE, 0,
                   (uint32_t)split_pick(s, s->lease_ms, s->lease_ms * 4));
        return;
    case SPLIT_TURNS:
        split_post(s, at_ms, SP_PAUSE, 0,
                   (uint32_t)split_pick(s, s->lease_ms * 2, s->lease_ms * 4));
        split_post(s, at_ms + s->lease_ms * 2 + split_pick(s, 0, 3000), SP_PAUSE,
                   1, (uint32_t)split_pick(s, s->lease_ms, s->lease_ms * 2));
        return;
    case SPLIT_LATE:
        split_post(s, at_ms, SP_PAUSE, 0, SPLIT_LATE_MS);
        return;
    case SPLIT_MOVES:
        plan_move(s, at_ms);
        return;
    case SPLIT_PROPOSED:
        plan_proposed(s, at_ms);
        return;
    case SPLIT_RETURNS:
        plan_returns(s, at_ms);
        return;
    case SPLIT_LOST:
        plan_lost(s, at_ms);
        return;
    case SPLIT_UNTOLD:
        split_post(s, at_ms, SP_KILL, 0, 0);
        s->wait_ms = 2 * SPLIT_LATE_MS; /* it still wants to lead when it goes on */
        return;
    case SPLIT_MISSED:
        plan_missed(s, at_ms);
        return;
    case SPLIT_GROWN:
        plan_grown(s);
        return;
    case SPLIT_CASES:
        break;
    }
}

void split_plan_job(struct split *s)
{
    s->n = (uint32_t)split_pick(s, 2, SPLIT_FIRST);
    s->shared = split_chance(s, 650);
    s->min_nodes = (uint32_t)split_pick(s, 1, s->n > 2 ? s->n - 2 : 1);
    if (s->which != SPLIT_ANY) {
        s->n = (uint32_t)split_pick(s, 4, SPLIT_FIRST);
        s->shared = true;
        s->min_nodes = (uint32_t)split_pick(s, 1, s->n / 2 - 1);
    }
    if (s->which == SPLIT_MOVES || s->which == SPLIT_PROPOSED) {
        s->n = 5;
        s->shared = false;
    }
    if (s->which == SPLIT_LOST) {
        s->n = SPLIT_FIRST;
        s->min_nodes = 3;
    }
    if (s->which == SPLIT_MISSED) {
        s->n = 3;
        s->min_nodes = 1;
    }
    if (s->which == SPLIT_GROWN) {
        s->n = s->min_nodes = (uint32_t)split_pick(s, 1, 4);
        s->shared = split_chance(s, 650);
    }
    s->timeout_ms = split_pick(s, 1000, 3000);
    s->lease_ms = s->timeout_ms + split_pick(s, 50, 200);
    if (s->which == SPLIT_MISSED) { /* who is missed has its workers for long */
        s->lease_ms = s->timeout_ms * 2;
    }
    s->slack_ms = s->lease_ms / 100 + 100;
    s->duration_ms = split_pick(s, 500, 12000);
    s->p_fail = split_chance(s, 300) ? 200 : 0;
    s->faults_end_ms = split_pick(s, 1000, 20000);
    s->restart = (struct restart_policy){
        .kind = RESTART_ON_FAILURE, .max = (uint32_t)split_pick(s, 0, 3),
        .backoff_min_ms = 100, .backoff_max_ms = 1000};
    s->give_up_ms = 300000;
    s->wait_ms = s->lease_ms * 3 < 10000 ? 10000 : s->lease_ms * 3;
    s->max_nodes = s->n;
    if (s->which == SPLIT_ANY && split_chance(s, 300)) {
        s->max_nodes = (uint32_t)split_pick(s, s->min_nodes, s->n);
    }
}
