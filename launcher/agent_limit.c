/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time limit of the Slurm job that a run is part of, on the node that leads:
 * asked for now and then, since it can be changed at any time, and always once
 * more before the run is stopped for it. When, says launcher/time_limit.h.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/clock.h"
#include "base/loop_timer.h"
#include "launcher/slurm_ask.h"
#include "launcher/time_limit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct agent_limit {
    struct agent *agent;
    const struct agent_limit_ops *ops;
    void *arg;
    struct time_limit limit;
    uv_timer_t *timer;
    char job[64];
    bool has_complained;
};

static void ask(struct agent_limit *l);

static void on_timer(uv_timer_t *t)
{
    ask(t->data);
}

static void complain(struct agent_limit *l, const char *why)
{
    if (!l->has_complained) {
        l->has_complained = true;
        agent_note(l->agent, "the time limit of Slurm job %s is not known: %s",
                   l->job, why);
    }
}

static void stop_or_wait(struct agent_limit *l)
{
    uint64_t now = uv_now(&l->agent->loop);
    uint64_t stop = time_limit_stop_ms(&l->limit);
    uint64_t end = l->limit.end_ms;
    char text[192], left[32];

    if (stop > now) {
        uv_timer_start(l->timer, on_timer,
                       time_limit_ask_ms(&l->limit, now) - now, 0);
        return;
    }
    clock_format_span(end > now ? end - now : 0, left, sizeof(left));
    snprintf(text, sizeof(text), "%s left of the time limit of Slurm job %s",
             left, l->job);
    l->ops->on_stop(l->arg, text);
}

static void take(struct agent_limit *l, uint64_t left_ms)
{
    time_limit_take(&l->limit, left_ms, uv_now(&l->agent->loop),
                    clock_wall_ns() / 1000000u);
    l->ops->on_end(l->arg, l->limit.end_ms == TIME_LIMIT_NEVER
                               ? 0 : l->limit.end_ms);
}

static void on_answer(void *arg, bool ok, const char *text)
{
    struct agent_limit *l = arg;
    uint64_t left_ms;

    uv_update_time(&l->agent->loop);
    if (ok && time_limit_parse(text, &left_ms)) {
        take(l, left_ms);
    } else {
        complain(l, text[0] ? text : "squeue says nothing");
    }
    stop_or_wait(l);
}

/* What newer ones of Slurm tell a job at its start: better than nothing. */
static bool take_from_env(struct agent_limit *l)
{
    const char *text = strlist_getenv(&l->agent->config.env,
                                      "SLURM_JOB_END_TIME");
    uint64_t now_s = clock_wall_ns() / 1000000000u;
    uint64_t left_ms;

    if (!text || !time_limit_parse_end(text, now_s, &left_ms)) {
        return false;
    }
    take(l, left_ms);
    return true;
}

static void ask(struct agent_limit *l)
{
    char jobs[80];
    const char *const words[] = {"squeue", "--noheader", jobs, "--format=%L",
                                 NULL};
    struct agent *a = l->agent;
    struct error e = {0};

    snprintf(jobs, sizeof(jobs), "--jobs=%s", l->job);
    if (slurm_ask(&a->slurm, &a->loop, a->children, words, &a->config.env,
                  on_answer, l, &e) < 0) {
        if (!l->limit.is_set && !take_from_env(l)) {
            complain(l, e.text);
        }
        stop_or_wait(l);
    }
}

int agent_limit_create(struct agent *a, const struct agent_limit_ops *ops,
                       void *arg, struct agent_limit **ret, struct error *e)
{
    const struct job *job = a->config.job;
    const char *id = strlist_getenv(&a->config.env, "SLURM_JOB_ID");
    struct agent_limit *l;

    *ret = NULL;
    if (!id || job->slurm.margin_ms == JOB_OFF) {
        return 0;
    }
    l = calloc(1, sizeof(*l));
    if (l) {
        l->timer = loop_timer_create(&a->loop, l);
    }
    if (!l || !l->timer) {
        free(l);
        return error_set(e, ENOMEM, "look at the time limit");
    }
    l->agent = a;
    l->ops = ops;
    l->arg = arg;
    l->limit = time_limit_start(job->limits.grace_ms + job->slurm.margin_ms);
    str_copy(l->job, sizeof(l->job), id);
    uv_timer_start(l->timer, on_timer, 0, 0);
    *ret = l;
    return 0;
}

void agent_limit_destroy(struct agent_limit *l)
{
    if (l) {
        slurm_ask_forget(&l->agent->slurm);
        loop_timer_close(l->timer);
        free(l);
    }
}
