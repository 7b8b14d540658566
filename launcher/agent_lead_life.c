/* SPDX-License-Identifier: Apache-2.0 */
/* How the lead of a run begins, with what the job says or another lead has left, and
 * how it ends. */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop_timer.h"
#include "launcher/agent_hang.h"
#include "launcher/agent_late.h"
#include "launcher/agent_record.h"
#include "launcher/agent_steps.h"
#include "launcher/agent_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MARGIN_MS = 10000,
    JOURNAL_CLOSE_MS = 5000,
    MAX_RESTART_GRACE_MS = 2000,
};

/* One that was in no world before has had none. */
static void name_node(struct agent_lead *l, uint32_t rank, const char *host)
{
    char *name;

    if (rank >= l->names.n) {
        strlist_add(&l->names, host);
    } else if (!l->names.items[rank][0] && host[0]) {
        name = strdup(host);
        if (name) {
            free(l->names.items[rank]);
            l->names.items[rank] = name;
        }
    }
}

static int list_nodes(struct agent_lead *l, uint32_t **ret_node_of)
{
    const struct roster *roster = &l->agent->roster;
    uint32_t *node_of = calloc(roster->n + 1, sizeof(*node_of));

    for (uint32_t i = 0; i < roster->n; i++) {
        name_node(l, i, roster->entries[i].host);
    }
    if (!node_of || l->names.failed) {
        free(node_of);
        return -ENOMEM;
    }
    agent_fit_nodes(l->agent, node_of);
    *ret_node_of = node_of;
    return 0;
}

/* Those that have no name yet; NULL where there is no memory. */
static bool *list_news(const struct agent_lead *l)
{
    const struct roster *roster = &l->agent->roster;
    bool *is_new = calloc(roster->n + 1, sizeof(*is_new));

    for (uint32_t i = 0; is_new && i < roster->n; i++) {
        is_new[i] = i >= l->names.n || !l->names.items[i][0];
    }
    return is_new;
}

void agent_lead_grow(struct agent *a)
{
    struct agent_lead *l = a->lead;
    _free_ uint32_t *node_of = NULL;
    _free_ bool *is_new = NULL;
    const char *const *names;
    int rc;

    if (!l) {
        return;
    }
    is_new = list_news(l);
    rc = is_new ? list_nodes(l, &node_of) : -ENOMEM;
    names = (const char *const *)l->names.items;
    if (rc == 0) {
        agent_steps_lead_grows(a, a->roster.n, names, node_of);
        rc = lead_add_nodes(l->core, a->roster.n, names, node_of);
    }
    if (rc < 0) {
        agent_log(a, "out of memory: a newcomer is not used");
        return;
    }
    l->n_nodes = a->roster.n;
    record_newcomers(l->record, l->core);
    agent_lead_outcast(l, is_new);
}

static struct restart_policy policy_of(const struct job_restart *r)
{
    static const enum restart_kind kinds[] = {
        [JOB_RESTART_NEVER] = RESTART_NEVER,
        [JOB_RESTART_ON_FAILURE] = RESTART_ON_FAILURE,
        [JOB_RESTART_ALWAYS] = RESTART_ALWAYS,
        [JOB_RESTART_EXIT_CODE] = RESTART_EXIT_CODE,
    };
    struct restart_policy p = {
        .kind = kinds[r->policy],
        .max = r->max,
        .max_per_node = r->max_per_node,
        .backoff_min_ms = r->backoff_min_ms,
        .backoff_max_ms = r->backoff_max_ms,
    };

    memcpy(p.retryable, r->retry_codes, sizeof(p.retryable));
    return p;
}

/* The survivors of a failure have nothing to save that a restart would use:
 * what they computed since the last checkpoint is lost with the failed one. */
static uint32_t restart_grace_ms(const struct job *job)
{
    return job->limits.grace_ms < MAX_RESTART_GRACE_MS
               ? (uint32_t)job->limits.grace_ms : MAX_RESTART_GRACE_MS;
}

/* Earlier starts of the run count, the time between them does not. */
uint64_t agent_lead_deadline_ms(const struct agent *a)
{
    uint64_t deadline_ms = a->config.job->limits.deadline_ms;
    uint64_t now_ms = uv_now(&a->loop);
    uint64_t ran_ms = a->config.ran_ms + now_ms - a->began_ms;

    if (deadline_ms == JOB_OFF) {
        return 0;
    }
    return now_ms + (ran_ms < deadline_ms ? deadline_ms - ran_ms : 0);
}

/* What a command wanted before the run was gone on with, where the job, which may
 * be another one now, still allows it. */
static uint32_t want_nodes(const struct run_config *c)
{
    const struct job_nodes *nodes = &c->job->nodes;

    return c->want_nodes >= nodes->min && c->want_nodes <= nodes->max
               ? c->want_nodes : 0;
}

static int create_core(struct agent_lead *l, const uint32_t *node_of,
                       const struct heritage *heritage, struct error *e)
{
    struct agent *a = l->agent;
    const struct job *job = a->config.job;
    uint64_t now = uv_now(&a->loop);
    struct lead_config config = {
        .n_nodes = l->n_nodes,
        .names = (const char *const *)l->names.items,
        .node_of = node_of,
        .min_nodes = job->nodes.min,
        .max_nodes = job->nodes.max,
        .want_nodes = want_nodes(&a->config),
        .grow_interval_ms = job->elastic.grow_interval_ms,
        .max_losses = job->limits.node_failures,
        .lease_ms = agent_lease_ms(a),
        .lease_slack_ms = agent_lease_slack_ms(a),
        .rank = a->rank,
        .rule = agent_view_rule(a),
        .claim_ms = agent_claim_ms(),
        .heritage = heritage,
        .restart = policy_of(&job->restart),
        .n_restarts = a->config.n_restarts,
        .first_generation = a->config.first_generation,
        .resume_path = a->config.resume_path,
        .resume_step = a->config.resume_step,
        .avoid_after = job->checkpoint.avoid_after,
        .avoid = a->config.avoid,
        .gang_timeout_ms = job->gang_timeout_ms,
        .grace_ms = (uint32_t)job->limits.grace_ms,
        .restart_grace_ms = restart_grace_ms(job),
        .margin_ms = MARGIN_MS,
        .deadline_ms = agent_lead_deadline_ms(a),
    };

    agent_steps_lead_begins(a, &config, now);
    return lead_create(&config, now, &l->core, e);
}

static void on_limit_end(void *arg, uint64_t end_ms)
{
    struct agent_lead *l = arg;

    record_set_limit(l->record, end_ms);
}

static void on_limit_stop(void *arg, const char *text)
{
    agent_lead_halt(arg, LEAD_STOP_PREEMPT, false, text);
}

static void on_late_stop(void *arg, const char *text)
{
    agent_lead_halt(arg, LEAD_STOP_PREEMPT, false, text);
}

static const struct agent_limit_ops limit_ops = {
    .on_end = on_limit_end,
    .on_stop = on_limit_stop,
};

static void tell_start(struct agent_lead *l)
{
    const struct run_config *c = &l->agent->config;
    const char *requeues = strlist_getenv(&c->env, "SLURM_RESTART_COUNT");
    char text[256], span[32];

    if (c->n_starts == 0) {
        return;
    }
    clock_format_span(c->ran_ms, span, sizeof(span));
    snprintf(text, sizeof(text), "start %u of this run, which ran for %s before"
             "%s%.16s%s", c->n_starts + 1, span, requeues ? "; Slurm has "
             "requeued its job " : "", requeues ? requeues : "",
             !requeues ? "" : strcmp(requeues, "1") == 0 ? " time" : " times");
    record_event(l->record, "resumed", c->first_generation, text, NULL, 0);
}

/* What was, until the next generation runs: there may be none. */
static void set_past(struct agent_lead *l, const struct past *past)
{
    struct run_status *s = record_status(l->record);

    s->generation = past->ran ? (int)past->ran : s->generation;
    s->restarts = (int)past->n_restarts;
    s->node_failures = (int)past->n_losses;
    l->has_saved = past->ran && past->saved_generation == past->ran;
    lead_bucket_doubt(l->bucket, past->ran > 0);
    if (past->resume_path[0]) {
        str_copy(s->resume_path, sizeof(s->resume_path), past->resume_path);
        s->resume_step = past->resume_step;
        lead_bucket_saved(l->bucket, past->resume_path, false);
    }
}

int agent_lead_start(struct agent *a, const struct heritage *heritage,
                     struct error *e)
{
    struct agent_lead *l = calloc(1, sizeof(*l));
    struct lead_event tick = {.type = LEAD_TICK};
    _free_ uint32_t *node_of = NULL;
    int rc;

    if (!l) {
        return error_set(e, ENOMEM, "lead the run");
    }
    l->agent = a;
    a->lead = l;
    l->is_heir = heritage != NULL;
    l->lost_ms = heritage ? uv_now(&a->loop) : 0; /* the lead before, just now */
    l->n_nodes = l->n_first = a->roster.n;
    l->said_shared = calloc(l->n_first + 1, sizeof(bool));
    l->timer = loop_timer_create(&a->loop, l);
    l->front = loop_timer_create(&a->loop, l);
    l->term = loop_timer_create(&a->loop, l);
    l->newcomers = loop_timer_create(&a->loop, l);
    if (list_nodes(l, &node_of) < 0 || !l->timer || !l->front || !l->term ||
        !l->newcomers || !l->said_shared) {
        return error_set(e, ENOMEM, "lead the run");
    }
    rc = record_create(a, &l->record, e);
    rc = rc < 0 ? rc : lead_hang_create(a, l->record, &l->hang, e);
    rc = rc < 0 ? rc : log_pruner_create(a->run.dir,
                                         a->config.job->logs.generations,
                                         &l->old_logs, e);
    rc = rc < 0 ? rc : create_core(l, node_of, heritage, e);
    rc = rc < 0 ? rc : control_watch_create(&a->loop, a->run.dir,
                                            agent_lead_file_request, a,
                                            &l->watch, e);
    rc = rc < 0 ? rc : agent_limit_create(a, &limit_ops, l, &l->limit, e);
    rc = rc < 0 ? rc : lead_watch_create(a, l->record, &agent_lead_watch_ops, l,
                                         &l->ckpts, e);
    rc = rc < 0 ? rc : lead_late_create(a, l->record, on_late_stop, l, &l->late,
                                        e);
    rc = rc < 0 ? rc : lead_snap_create(a, &agent_lead_snap_ops, l, &l->snaps, e);
    rc = rc < 0 ? rc : lead_look_create(a, l->record, &agent_lead_look_ops, l,
                                        &l->look, e);
    rc = rc < 0 ? rc : lead_bucket_create(a, l->record, &agent_lead_bucket_ops, l,
                                          &l->bucket, e);
    rc = rc < 0 ? rc : lead_copy_create(a, l->record, &agent_lead_copy_ops, l, &l->copies,
                                        e);
    if (rc == 0) {
        agent_lead_good(a);
        record_size(l->record, l->core);
        l->order = (struct agent_order){.agent = a, .record = l->record};
    }
    if (rc == 0 && heritage) {
        set_past(l, &heritage->past);
    }
    if (rc == 0) {
        agent_lead_avoid(l);
    }
    if (rc == 0 && heritage && a->run.has_front) {
        agent_lead_expect_front(l);
    }
    if (rc == 0 && !heritage) {
        agent_lead_front(a, tree_has_uplink(a->tree));
        tell_start(l);
        record_touch(l->record);
        agent_lead_outcast(l, NULL);
        agent_lead_step(l, &tick);
    }
    return rc;
}

static void destroy(struct agent_lead *l, unsigned journal_ms)
{
    control_watch_destroy(l->watch);
    lead_watch_destroy(l->ckpts);
    lead_late_destroy(l->late);
    lead_snap_destroy(l->snaps);
    lead_look_destroy(l->look);
    lead_bucket_destroy(l->bucket);
    lead_copy_destroy(l->copies);
    lead_hang_destroy(l->hang);
    log_pruner_release(l->old_logs, journal_ms);
    agent_limit_destroy(l->limit);
    agent_order_release(&l->order);
    record_destroy(l->record, journal_ms);
    loop_timer_close(l->timer);
    loop_timer_close(l->front);
    loop_timer_close(l->term);
    loop_timer_close(l->newcomers);
    lead_destroy(l->core);
    strlist_release(&l->names);
    free(l->said_shared);
    free(l);
}

void agent_lead_stop(struct agent *a)
{
    struct agent_lead *l = a->lead;

    if (!l) {
        return;
    }
    a->lead = NULL;
    if (l->record && l->core && lead_verdict(l->core) &&
        !lead_verdict(l->core)->is_unsure) {
        record_may_tell(l->record, UINT64_MAX); /* nobody leads after an end */
        record_status(l->record)->saving_ranks = 0;
        record_status(l->record)->storing_path[0] = '\0';
        record_status(l->record)->held_ranks = 0;
        record_verdict(l->record, l->core);
        record_flush(l->record);
    }
    destroy(l, JOURNAL_CLOSE_MS);
}

/* What is not written yet is of a time when another one led. */
void agent_lead_quit(struct agent *a)
{
    struct agent_lead *l = a->lead;

    if (l) {
        a->lead = NULL;
        record_may_tell(l->record, 0);
        destroy(l, 0);
    }
}
