/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a checkpoint is due: as the program has said, as the job says where the
 * program leaves it open, or because somebody asks for one.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "ckpt/interval.h"
#include "comm/client.h"
#include "muster.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1e9

/* Of the newest saves the last one counts for so much. */
#define COST_WEIGHT 0.3

/* A cost that was measured is not none. */
#define LEAST_COST_S 1e-6

/* Between two plans that are told. */
#define TELL_S 1.0

static double seconds_since(int64_t ns)
{
    return (double)((int64_t)clock_mono_ns() - ns) / NS_PER_S;
}

/* --- what the job says --- */

static int number(const char *name, double *ret, struct error *e)
{
    const char *s = getenv(name);
    char *end;

    *ret = s ? strtod(s, &end) : 0;
    return !s || (end > s && !*end && *ret >= 0 && isfinite(*ret))
               ? 0
               : error_text(e, EINVAL, "environment %s is '%.40s': expected a "
                            "number, as muster sets it", name, s);
}

static int by_steps(struct muster_ckpt *ck, struct error *e)
{
    static const char name[] = "MUSTER_CHECKPOINT_EVERY_STEPS";
    const char *s = getenv(name);
    uint64_t n = 0;

    if (s && (str_to_u64(s, &n) < 0 || n > INT64_MAX)) {
        return error_text(e, EINVAL, "environment %s is '%.40s': expected a number of "
                          "steps, as muster sets it", name, s);
    }
    ck->options.every_steps = (int64_t)n;
    return 0;
}

int ckpt_due_open(struct muster_ckpt *ck, struct error *e)
{
    const char *every = getenv("MUSTER_CHECKPOINT_EVERY");
    struct ckpt_auto *a = &ck->automatic;
    double n_failures = 0;
    int rc;

    a->opened_ns = (int64_t)clock_mono_ns();
    if (!ck->m || ck->options.every_steps > 0 || ck->options.every_seconds > 0) {
        return 0;
    }
    rc = by_steps(ck, e);
    if (rc < 0 || !every) {
        return rc;
    }
    a->is_on = strcmp(every, "auto") == 0;
    if (!a->is_on) {
        return number("MUSTER_CHECKPOINT_EVERY", &ck->options.every_seconds, e);
    }
    rc = number("MUSTER_RAN_SECONDS", &a->ran_s, e);
    rc = rc < 0 ? rc : number("MUSTER_FAILURE_COUNT", &n_failures, e);
    if (rc == 0) {
        a->n_failures = n_failures < UINT32_MAX ? (uint32_t)n_failures
                                                : UINT32_MAX;
    }
    return rc;
}

/* --- whether it is time --- */

/* One save at a time goes to the disk: the next is not due before. */
static bool last_is_there(struct muster_ckpt *ck)
{
    const struct recent *r = &ck->recent[ck->n_saves % CKPT_N_RECENT];

    return ck->n_saves == 0 ||
           ckpt_reached(ck, r, MUSTER_CKPT_DURABLE, 0, NULL) != 0 ||
           (r->way->ops->stays && r->way->ops->stays(r->way->self, r->uuid));
}

static struct interval_facts facts_of(const struct muster_ckpt *ck)
{
    const struct ckpt_auto *a = &ck->automatic;

    return (struct interval_facts){
        .cost_s = a->cost_s,
        .ran_s = a->ran_s + seconds_since(a->opened_ns),
        .n_failures = a->n_failures,
        .n_workers = ck->group.world,
    };
}

static bool is_time(struct muster_ckpt *ck)
{
    struct interval_facts facts = facts_of(ck);
    struct interval chosen;

    interval_choose(&facts, &chosen);
    return seconds_since(ck->last_save_ns) >= chosen.seconds &&
           last_is_there(ck);
}

/* For muster status. One that is not taken is told with the next save. */
static void tell_plan(struct muster_ckpt *ck)
{
    ck->automatic.told_ns = (int64_t)clock_mono_ns();
    struct client *client = ck->automatic.is_on && ck->group.rank == 0
                                ? client_of(ck->m) : NULL;
    struct interval_facts facts = facts_of(ck);
    struct interval chosen;

    ck->automatic.is_told = true;
    if (client) {
        interval_choose(&facts, &chosen);
        client_save_plan(client, &(struct worker_save_plan){
            .every_s = chosen.seconds, .cost_s = chosen.cost_s,
            .mtbf_s = chosen.mtbf_s, .ran_s = facts.ran_s,
            .n_failures = (uint32_t)facts.n_failures,
            .is_assumed = facts.cost_s <= 0,
        }, NULL);
    }
}

/* Of saves that come one upon the other nobody reads each one's. */
static void tell_in_time(struct muster_ckpt *ck)
{
    const struct ckpt_auto *a = &ck->automatic;

    if (!a->is_told && (a->told_ns == 0 || seconds_since(a->told_ns) >= TELL_S)) {
        tell_plan(ck);
    }
}

void ckpt_due_saved(struct muster_ckpt *ck, double cost_s)
{
    struct ckpt_auto *a = &ck->automatic;
    bool is_first = a->cost_s <= 0; /* what was told is assumed */

    cost_s = cost_s > LEAST_COST_S ? cost_s : LEAST_COST_S;
    a->cost_s = a->cost_s > 0
                    ? COST_WEIGHT * cost_s + (1 - COST_WEIGHT) * a->cost_s
                    : cost_s;
    if (is_first) {
        tell_plan(ck);
    } else {
        a->is_told = false;
        tell_in_time(ck);
    }
}

/* Time is that of rank 0 alone. */
static int by_time(struct muster_ckpt *ck)
{
    int reasons = 0;

    if (ck->group.rank != 0) {
        return 0;
    }
    if (ck->options.every_seconds > 0 &&
        seconds_since(ck->last_save_ns) >= ck->options.every_seconds) {
        reasons |= MUSTER_CKPT_BY_SECONDS;
    }
    if (ck->automatic.is_on && is_time(ck)) {
        reasons |= MUSTER_CKPT_AUTO;
    }
    return reasons;
}

static int own_reasons(struct muster_ckpt *ck, int64_t step)
{
    int reasons = by_time(ck);

    if (ck->options.every_steps > 0 && step % ck->options.every_steps == 0) {
        reasons |= MUSTER_CKPT_BY_STEPS;
    }
    if (ck->m && muster_should_stop(ck->m) > 0) {
        reasons |= MUSTER_CKPT_STOPPING;
    }
    return reasons;
}

/* Of a request ranks hear one after the other: the first to hear of it counts. */
static int requested(struct muster_ckpt *ck, const struct opening *all)
{
    uint32_t n = ck->n_answered;

    for (uint32_t r = 0; r < ck->group.world; r++) {
        n = all[r].n_requests > n ? all[r].n_requests : n;
    }
    if (n == ck->n_answered) {
        return 0;
    }
    ck->n_answered = n;
    return MUSTER_CKPT_REQUESTED;
}

/* Steps alone are counted alike everywhere; all else is heard of at one rank
 * first. */
int ckpt_due_all(struct muster_ckpt *ck, int64_t step)
{
    struct opening mine = {.call = CALL_DUE, .step = step};
    _free_ struct opening *all = NULL;
    int reasons = own_reasons(ck, step), rc;

    tell_in_time(ck);
    if (ck->m || ck->options.every_seconds > 0) {
        ck->n_requests += ck->m && muster_checkpoint_requested(ck->m) > 0;
        mine.reasons = reasons;
        mine.n_requests = ck->n_requests;
        rc = ckpt_meet(ck, &mine, 0, &all, &ck->error);
        for (uint32_t r = 0; r < ck->group.world && rc == 0; r++) {
            reasons |= all[r].reasons;
        }
        if (rc < 0) {
            return rc;
        }
        reasons |= requested(ck, all);
    }
    ck->is_stopping = ck->is_stopping || (reasons & MUSTER_CKPT_STOPPING);
    ck->reasons |= reasons;
    return reasons;
}

/* What somebody has asked for goes everywhere. */
void ckpt_due_begins(struct muster_ckpt *ck, struct save_job *job)
{
    job->may_stay = !(job->flags & MUSTER_CKPT_WAIT) && !ck->is_stopping &&
                    !(ck->reasons & (MUSTER_CKPT_REQUESTED | MUSTER_CKPT_STOPPING));
    job->is_chosen = ck->reasons == MUSTER_CKPT_AUTO;
    ck->reasons = 0;
}
