/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurm.requeue: a run that was stopped, and may go on, has Slurm put its job
 * back into the queue, where the next start of the batch script reopens it.
 * Slurm would requeue a job that the user has cancelled just as well: only one
 * that it still takes for running is.
 *
 * It is the last thing that a front end does: Slurm kills it then, often before it has
 * heard that it will. So what is to be read of it is written before Slurm is asked.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/runview.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct requeue {
    struct front *front;
    const char *job;
    struct strlist env;
    bool is_answered;
    bool is_running; /* the job, for all that Slurm knows */
};

static void say_not(const struct requeue *r, const char *why)
{
    screen_note(r->front->screen, "Slurm job %s is not requeued: %s", r->job,
                why);
}

static void on_state(void *arg, bool ok, const char *text)
{
    struct requeue *r = arg;
    char why[SLURM_ANSWER_BYTES + 32];

    r->is_answered = true;
    r->is_running = ok && strcmp(text, "RUNNING") == 0;
    if (!r->is_running) {
        snprintf(why, sizeof(why), ok ? "it is %s" : "%s", text);
        say_not(r, why);
    }
}

static void on_requeued(void *arg, bool ok, const char *text)
{
    struct requeue *r = arg;

    r->is_answered = true;
    if (!ok) {
        say_not(r, text);
    }
}

/* Until it is answered. Whatever else ends now stops the loop, as it does while the run
 * ends. */
static void ask(struct requeue *r, const char *const *words,
                void (*on_answer)(void *arg, bool ok, const char *text))
{
    struct front *f = r->front;
    struct error e = {0};

    r->is_answered = false;
    if (slurm_ask(&f->slurm, &f->loop, f->children, words, &r->env, on_answer,
                  r, &e) < 0) {
        say_not(r, e.text);
        return;
    }
    while (!r->is_answered) {
        uv_run(&f->loop, UV_RUN_ONCE);
    }
}

static void requeue_if_running(struct requeue *r)
{
    struct front *f = r->front;
    char jobs[80];
    const char *const state[] = {"squeue", "--noheader", jobs, "--format=%T",
                                 NULL};
    const char *const requeue[] = {"scontrol", "requeue", r->job, NULL};

    snprintf(jobs, sizeof(jobs), "--jobs=%s", r->job);
    ask(r, state, on_state);
    if (r->is_running) {
        screen_note(f->screen, "Slurm is asked to requeue job %s, which goes on "
                    "with run %s", r->job, f->config->dir->id);
        front_drain_output(f);
        ask(r, requeue, on_requeued);
    }
}

/* NULL: it is to be done; "": it is not; else why it is not, though it was asked
 * for. */
static const char *why_not(const struct front *f, char *text, size_t size)
{
    const struct job *job = f->config->run->job;
    _run_view_ struct run_view v = {0};
    const struct run_status *s;

    if (!job->slurm.requeue || f->status != EXIT_RESUMABLE || f->has_left ||
        !getenv("SLURM_JOB_ID")) {
        return "";
    }
    if (run_view_open(f->config->dir->path, &v, NULL) < 0) {
        return "its run cannot be read";
    }
    s = v.status;
    if (s->state == STATUS_SUSPENDED) {
        return "the run is suspended";
    }
    if (s->node_failures > 0 &&
        (unsigned)s->node_failures > job->limits.node_failures) {
        snprintf(text, size, "the run has lost %d node%s, and limits."
                 "nodeFailures is %u", s->node_failures,
                 s->node_failures == 1 ? "" : "s",
                 job->limits.node_failures);
        return text;
    }
    return NULL;
}

void front_requeue(struct front *f)
{
    struct requeue r = {.front = f, .job = getenv("SLURM_JOB_ID")};
    char text[256];
    const char *why = why_not(f, text, sizeof(text));

    if (why && !why[0]) {
        return;
    }
    strlist_add_all(&r.env, environ);
    if (why) {
        say_not(&r, why);
    } else {
        requeue_if_running(&r);
    }
    slurm_ask_forget(&f->slurm);
    strlist_release(&r.env);
    front_drain_output(f);
}
