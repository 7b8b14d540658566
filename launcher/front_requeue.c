/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurm.requeue: a run that was stopped, and may go on, has Slurm put its job
 * back into the queue, where the next start of the batch script reopens it.
 * Slurm would requeue a job that the user has cancelled just as well: only one
 * that it still takes for running is.
 *
 * It is the last thing that a front end does: Slurm kills it then, often before it has
 * heard that it will. So what is to be read of it is said before Slurm is asked.
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
    bool is_over;
};

static void say_not(const struct requeue *r, const char *why)
{
    screen_note(r->front->screen, "Slurm job %s is not requeued: %s", r->job,
                why);
}

static void give_up(struct requeue *r, const char *why)
{
    say_not(r, why);
    r->is_over = true;
}

static void on_requeued(void *arg, bool ok, const char *text)
{
    struct requeue *r = arg;

    if (ok) {
        r->is_over = true;
    } else {
        give_up(r, text);
    }
}

static void run(struct requeue *r, const char *const *words,
                void (*on_answer)(void *arg, bool ok, const char *text))
{
    struct front *f = r->front;
    struct error e = {0};

    if (slurm_ask(&f->slurm, &f->loop, f->children, words, &r->env, on_answer,
                  r, &e) < 0) {
        give_up(r, e.text);
    }
}

static void on_state(void *arg, bool ok, const char *text)
{
    struct requeue *r = arg;
    const char *const words[] = {"scontrol", "requeue", r->job, NULL};
    char why[SLURM_ANSWER_BYTES + 32];

    if (ok && strcmp(text, "RUNNING") == 0) {
        screen_note(r->front->screen, "Slurm is asked to requeue job %s, which goes on "
                    "with run %s", r->job, r->front->config->dir->id);
        run(r, words, on_requeued);
        return;
    }
    snprintf(why, sizeof(why), ok ? "it is %s" : "%s", text);
    give_up(r, why);
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
    char jobs[80], text[256];
    const char *const words[] = {"squeue", "--noheader", jobs, "--format=%T",
                                 NULL};
    const char *why = why_not(f, text, sizeof(text));

    if (why && !why[0]) {
        return;
    }
    strlist_add_all(&r.env, environ);
    snprintf(jobs, sizeof(jobs), "--jobs=%s", r.job);
    if (why) {
        say_not(&r, why);
    } else {
        run(&r, words, on_state);
        /* Whatever else ends now would stop the loop, as it does while the run ends. */
        while (!r.is_over) {
            uv_run(&f->loop, UV_RUN_ONCE);
        }
    }
    slurm_ask_forget(&f->slurm);
    strlist_release(&r.env);
    front_drain_output(f);
}
