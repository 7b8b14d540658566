/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a save: a thread commits what is whole, and removes what that takes the place
 * of, or what is left of one that cannot become whole any more; all hear of it in between.
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "ckpt/io_direct.h"
#include "ckpt/step.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* --- what is said --- */

static void tell(struct lead_save *s, const struct snap_verdict *v)
{
    struct agent *a = s->lead->agent;
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "snap");
    jsonw_str(&w, "uuid", v->uuid);
    jsonw_int(&w, "error", v->error);
    jsonw_str(&w, "why", v->why);
    if (v->stays) {
        jsonw_bool(&w, "stays", true);
    }
    if (v->again) {
        jsonw_int(&w, "again", v->again);
    }
    if (v->on) {
        jsonw_int(&w, "on", v->on);
    }
    jsonw_end_object(&w);
    s->told_ms = uv_now(&a->loop);
    if (!b.failed && a->tree) {
        tree_ask(a->tree, b.data, b.len);
        agent_asked(a, b.data, b.len);
    }
}

static void tell_all(struct lead_save *s)
{
    struct snap_verdict v = {.uuid = s->uuid, .error = s->error.code,
                             .why = s->error.text, .stays = s->stays, .again = s->again};

    tell(s, &v);
}

/* There may be many who have not heard, and all hear it. */
static bool may_tell_again(const struct lead_save *s)
{
    return uv_now(&s->lead->agent->loop) - s->told_ms >= SNAP_TELL_AGAIN_MS;
}

void lead_save_tell_again(struct lead_save *s)
{
    if (may_tell_again(s)) {
        tell_all(s);
    }
}

void lead_save_tell_past(struct lead_save *s, uint32_t again)
{
    struct snap_verdict v = {.uuid = s->uuid, .error = s->past.code, .why = s->past.text,
                             .stays = true, .again = again, .on = s->again};

    if (may_tell_again(s)) {
        tell(s, &v);
    }
}

static void tell_failed(const struct lead_save *s)
{
    const struct lead_snap *l = s->lead;
    char name[STEP_NAME_BYTES];

    if (s->error.code != ESTALE && l->ops->on_failed) {
        step_name(s->step, s->uuid, name);
        l->ops->on_failed(l->arg, name, s->error.text);
    }
}

/* Of two of one step: what was made now comes after all that the run knows of. Of one that
 * was there the directory tells, if the other one is in it. */
static bool is_later(const struct lead_snap *l, const struct lead_save *s)
{
    char newest[STEP_NAME_BYTES];

    (void)lead_snap_resume(l, s->root, newest);
    return s->is_last && (!s->was_there || newest[0]);
}

/* Where it is, unless the reason says it; and what becomes of it: the workers that had it
 * in memory may have ended, and then this was what is tried as they end. */
static void note_failed(const struct lead_snap *l, const struct lead_save *s)
{
    bool is_said = strstr(s->error.text, s->root) != NULL;
    bool is_last = s->again != 0 && s->again >= l->ops->started(l->arg);

    agent_note(l->agent, "the checkpoint of step %llu is none: %s%s%s%s%s",
               (unsigned long long)s->step, s->error.text, is_said ? "" : " (in ",
               is_said ? "" : s->root, is_said ? "" : ")",
               !s->stays ? ""
               : is_last ? "; workers have ended, and it is lost with the run's memory, unless "
                           "the run starts more, or is resumed"
                         : "; it stays in memory, and is tried again when workers end, "
                           "unless they have saved more");
}

static void announce(struct lead_snap *l, const struct lead_save *s)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    if (s->error.code == ESTALE) {
        return; /* a later one has its place */
    }
    if (s->error.code) {
        tell_failed(s);
        note_failed(l, s);
        return;
    }
    step_name(s->step, s->uuid, name);
    snprintf(path, sizeof(path), "%s/%s", s->root, name);
    l->ops->on_saved(l->arg, path, (int64_t)s->step, s->tally.generation, !s->was_there,
                     is_later(l, s));
}

/* --- what is to stay --- */

/* Below that no other save is on its way. */
static uint64_t busy_from(const struct lead_save *save)
{
    uint64_t from = UINT64_MAX;

    for (const struct lead_save *s = save->lead->saves; s; s = s->next) {
        if (s != save && !s->is_settled && lead_save_is_beside(s, save) && s->step < from) {
            from = s->step;
        }
    }
    return from;
}

/* "" for what is elsewhere. */
static void name_in(const char *root, const char *path, char ret[STEP_NAME_BYTES])
{
    size_t n = strlen(root);

    ret[0] = '\0';
    if (strncmp(path, root, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/') &&
        strlen(path + n + 1) < STEP_NAME_BYTES) {
        str_copy(ret, STEP_NAME_BYTES, path + n + 1);
    }
}

void lead_snap_pinned(const struct lead_snap *l, const char *root,
                      char ret[STEP_NAME_BYTES])
{
    name_in(root, l->ops->pinned(l->arg), ret);
}

void lead_snap_copied(const struct lead_snap *l, const char *root,
                      char ret[STEP_NAME_BYTES])
{
    name_in(root, l->ops->copied ? l->ops->copied(l->arg) : "", ret);
}

int64_t lead_snap_resume(const struct lead_snap *l, const char *root,
                         char ret[STEP_NAME_BYTES])
{
    int64_t step = -1;

    name_in(root, l->ops->resume ? l->ops->resume(l->arg, &step) : "", ret);
    return step;
}

void lead_snap_source(const struct lead_snap *l, const char *root,
                      char ret[STEP_NAME_BYTES])
{
    uint32_t started = l->ops->started(l->arg);

    name_in(root, l->ops->source ? l->ops->source(l->arg) : "", ret);
    for (const struct lead_save *s = l->saves; s; s = s->next) {
        if (s->tally.generation == started && s->tally.n_held == s->tally.n_ranks) {
            ret[0] = '\0';
        }
    }
}

void lead_snap_avoided(const struct lead_snap *l, char ret[AVOID_LINES_BYTES])
{
    str_copy(ret, AVOID_LINES_BYTES,
             l->ops->avoided ? l->ops->avoided(l->arg) : "");
}

struct retain_rule lead_snap_rule(const struct lead_snap *l)
{
    const struct job_checkpoint *k = &l->agent->config.job->checkpoint;

    return (struct retain_rule){.keep = k->keep, .every = k->keep_every,
                                .is_highest = k->keep_goal == JOB_MAXIMIZE};
}

/* --- the thread --- */

/* What the thread has to know, as of now. */
static void prepare(struct lead_save *s)
{
    struct lead_snap *l = s->lead;

    s->is_due = s->is_right = s->is_last = s->lacks_best = false;
    lead_snap_pinned(l, s->root, s->pinned);
    lead_snap_copied(l, s->root, s->copied);
    lead_snap_source(l, s->root, s->source);
    if (!s->source[0] && s->tally.generation < l->ops->started(l->arg)) {
        lead_snap_resume(l, s->root, s->source); /* the next ones are to start from that */
    }
    lead_snap_avoided(l, s->avoided);
    lead_check_know(l, s);
    s->commit = (struct snap_commit){
        .root = s->root,
        .gather = {.step = s->step, .uuid = s->uuid, .token = s->token,
                   .generation = s->tally.generation,
                   .n_ranks = s->tally.n_ranks,
                   .cache = &l->index},
        .n_written = s->tally.n_written,
        .rule = lead_snap_rule(l),
        .best = l->agent->config.job->checkpoint.keep_best,
        .pinned = s->pinned,
        .copied = s->copied,
        .source = s->source,
        .avoided = s->avoided,
        .busy_from = busy_from(s),
        .known_ms = uv_now(&l->agent->loop),
        .strays = &l->strays,
        .office = &l->office,
        .lease = lead_lease_of(l, s->root, &s->error),
        .verified = s->verified,
        .checking = s->checking,
        .ret_was_there = &s->was_there,
        .ret_is_last = &s->is_last,
        .ret_is_due = &s->is_due,
        .ret_lacks_best = &s->lacks_best,
    };
}

/* Older ones stay until one that is kept was read again: where the next one has no room as
 * long as they are there, this one is at once. */
static bool read_again(struct lead_save *s)
{
    char name[STEP_NAME_BYTES];

    step_name(s->step, s->uuid, name);
    s->is_right = snap_reread(s->root, name, &s->lead->check.gate, true, NULL) == 0;
    if (s->is_right) {
        str_copy(s->verified, sizeof(s->verified), name);
        s->checking[0] = '\0'; /* whoever reads that one is told that it has gone */
    }
    return s->is_right;
}

/* Who hears of it may save the next one at once: where that could want the room of those
 * that go, they go first. */
static void do_commit(void *arg)
{
    struct lead_save *s = arg;
    int rc = snap_commit(&s->commit, io_direct(), s->why.code ? &s->why : NULL, &s->error);

    s->is_tidied = rc == 0 && s->commit.lease && snap_is_short(&s->commit, io_direct(), 2);
    if (s->is_tidied) {
        snap_tidy(&s->commit, io_direct());
    }
    if (s->is_tidied && s->is_due && snap_is_short(&s->commit, io_direct(), 1) &&
        read_again(s)) {
        snap_tidy(&s->commit, io_direct());
        reread_gate_leave(&s->lead->check.gate); /* which may have been what has gone */
    }
}

/* Apart, as all that has files of a checkpoint open: a filesystem that hangs then is not in
 * the way of workers that start. */
static void work_on(uv_work_t *work)
{
    thread_apart(do_commit, work->data, -1);
}

void lead_save_took(const struct lead_save *s, enum interval_level_id level)
{
    struct lead_snap *l = s->lead;

    l->ops->on_took(l->arg, level,
                    (double)(uv_now(&l->agent->loop) - s->began_ms) / 1e3);
}

/* What one rank had no room for others may hand over only now, and then all have it. Of one
 * that came to nothing as a rank will not hand it over nothing is of use. */
static bool may_be_tried_again(const struct lead_save *s)
{
    return s->error.code && s->error.code != ESTALE && s->why.code != ECONNABORTED &&
           (s->why.code || s->tally.n_held == s->tally.n_ranks);
}

static void settle(struct lead_save *s)
{
    struct lead_snap *l = s->lead;

    if (s->why.code == ESTALE && s->error.code) {
        s->error.code = ESTALE; /* a later one has its place in memory: no news */
    }
    s->is_settled = true;
    s->stays = may_be_tried_again(s);
    s->settled_ms = uv_now(&l->agent->loop);
    if (s->error.code) {
        lead_levels_failed(s);
    } else if (!s->was_there) {
        lead_save_took(s, INTERVAL_DISK);
    }
    lead_snap_show(l);
    announce(l, s);
    tell_all(s);
    lead_levels_replace(l);
}

static void do_tidy(void *arg)
{
    const struct lead_save *s = arg;

    snap_tidy(&s->commit, io_direct());
}

static void work_on_tidy(uv_work_t *work)
{
    thread_apart(do_tidy, work->data, -1);
}

void lead_snap_tell_best(struct lead_snap *l, bool lacks_best, const char *root)
{
    if (lacks_best && !l->has_told_best) {
        l->has_told_best = true;
        agent_note(l->agent, "none in %s has a metric '%s', by which the best is to stay "
                   "(checkpoint.keepBest): older ones go as if there were none", root,
                   l->agent->config.job->checkpoint.keep_best);
    }
}

static void end_work(struct lead_save *s)
{
    struct lead_snap *l = s->lead;

    s->is_working = false;
    lead_snap_tell_best(l, s->lacks_best, s->root);
    if (s->error.code == 0 && s->is_due) {
        lead_check_want(l, s);
    }
    lead_snap_worked(l);
}

static void after_tidy(uv_work_t *work, int status)
{
    (void)status;
    end_work(work->data);
}

static void tidy(struct lead_save *s)
{
    if (!s->commit.lease) { /* for want of memory: another run may save there */
        s->error = (struct error){0}; /* it is a checkpoint all the same */
        end_work(s);
        return;
    }
    s->is_tidied = true;
    uv_queue_work(&s->lead->agent->loop, &s->work, work_on_tidy, after_tidy);
}

/* The newest of its directory that is there, by the lead before this one, too. */
static bool is_to_sweep(const struct lead_save *save)
{
    if (!save->is_settled || save->is_working || save->error.code || save->is_swept) {
        return false;
    }
    for (const struct lead_save *s = save->lead->saves; s != save; s = s->next) {
        if (s->is_settled && s->error.code == 0 && lead_save_is_beside(s, save)) {
            return false;
        }
    }
    return true;
}

void lead_save_sweep(struct lead_snap *l)
{
    struct lead_save *s = l->saves;

    while (s && !is_to_sweep(s)) {
        s = s->next;
    }
    if (!s) {
        return;
    }
    s->is_swept = true;
    prepare(s);
    if (!s->commit.lease) {
        s->error = (struct error){0}; /* nothing of it has failed */
        return;
    }
    s->commit.strays = NULL;
    s->commit.ret_is_due = NULL;
    s->commit.ret_awaits = &s->is_due; /* only for those is anything read again any more */
    s->is_working = true;
    s->work.data = s;
    l->n_works++;
    uv_queue_work(&l->agent->loop, &s->work, work_on_tidy, after_tidy);
}

static void after_work(uv_work_t *work, int status)
{
    struct lead_save *s = work->data;
    struct lead_snap *l = s->lead;
    bool is_over;

    if (l->is_dying && s->error.code == 0 && status == 0 && !s->is_tidied) {
        tidy(s); /* by what was known before */
        return;
    }
    if (l->is_dying) {
        end_work(s);
        return;
    }
    if (status < 0 && s->error.code == 0) {
        error_text(&s->error, ECANCELED, "no thread to commit it");
    }
    if (s->error.code == ESTALE || (s->error.code && !office_holds(&l->office))) {
        s->is_working = false;
        l->n_works--;
        return; /* nothing more was done: if this agent leads on, it is looked at again */
    }
    if (s->is_right) {
        lead_check_right(l, s);
    }
    is_over = s->error.code || s->is_tidied;
    settle(s); /* on which another try may begin at once, of agents that have heard of it */
    if (is_over) {
        end_work(s);
        return;
    }
    prepare(s); /* others may have come, and be read, meanwhile */
    tidy(s);
}

void lead_save_finish(struct lead_save *s)
{
    struct lead_snap *l = s->lead;

    s->is_working = true;
    s->error = (struct error){0};
    prepare(s);
    if (!s->commit.lease && s->why.code == 0) {
        s->why = s->error;
    }
    s->work.data = s;
    l->n_works++;
    uv_queue_work(&l->agent->loop, &s->work, work_on, after_work);
}

void lead_snap_drop(struct lead_save *s, int code, const char *why)
{
    error_text(&s->error, code, "%s", why);
    s->is_settled = true;
    lead_check_give_way(s->lead);
    tell_failed(s);
    tell_all(s);
}
