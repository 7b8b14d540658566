/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/takeup.h"

#include "base/clock.h"
#include "base/proc.h"
#include "base/str.h"
#include "launcher/control.h"
#include "launcher/front_record.h"
#include "launcher/runview.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_MS = 500,
    END_MS = 5000, /* for an mpirun that was told to end */
    END_LOOK_MS = 20,
};

/* Whether its lead writes another status before the last one is stale. */
static bool says_more(struct run_view *v)
{
    uint64_t updated_ns = v->status->updated_ns;
    uint64_t from_ms = clock_mono_ms();

    while (!v->is_stale && clock_mono_ms() - from_ms < STATUS_STALE_MS) {
        poll(NULL, 0, LOOK_MS);
        if (run_view_refresh(v, NULL) < 0) {
            return false;
        }
        if (v->status->updated_ns != updated_ns) {
            return !status_run_is_over(v->status->state);
        }
    }
    return false;
}

/* The same of one whose status was removed: it writes another one. */
static bool says_anything(struct run_view *v)
{
    uint64_t from_ms = clock_mono_ms();

    while (!v->has_status && clock_mono_ms() - from_ms < STATUS_STALE_MS) {
        poll(NULL, 0, LOOK_MS);
        if (run_view_refresh(v, NULL) < 0) {
            return false;
        }
    }
    return v->has_status && !status_run_is_over(v->status->state);
}

/* Where it ran is known from its last front end, too. */
static bool was_here(const struct rundir *dir)
{
    _front_record_ struct front_record was = {0};

    return front_record_read(dir, &was, NULL) == 0 && was.hosts.n > 0 &&
           hosts_all_local(&was.hosts);
}

/* Its front end was lost before any node had begun, and with that end all would wait for
 * it in vain: what its mpirun here has started is in the session of that. */
static void end_unbegun(const struct rundir *dir)
{
    _front_record_ struct front_record was = {0};
    uint64_t from_ms = clock_mono_ms();
    struct proc mpirun;

    if (front_record_read(dir, &was, NULL) < 0 || !front_record_find(&was, &mpirun)) {
        return;
    }
    fprintf(stderr, "muster: run %s had not begun when its front end was lost: "
            "ending the mpirun of that, process %ld\n", dir->id, (long)mpirun.pid);
    proc_signal(&mpirun, SIGTERM);
    while (front_record_find(&was, &mpirun) && clock_mono_ms() - from_ms < 2 * END_MS) {
        if (clock_mono_ms() - from_ms >= END_MS) {
            proc_signal(&mpirun, SIGKILL);
        }
        poll(NULL, 0, END_LOOK_MS);
    }
    proc_end_session((pid_t)was.mpirun_pid, NULL);
    while (control_is_heard(dir->id) && clock_mono_ms() - from_ms < 4 * END_MS) {
        poll(NULL, 0, END_LOOK_MS);
    }
}

static int refuse_alive(const struct rundir *dir, struct error *e)
{
    return error_text(e, ERR_LOCKED, "run %s is alive, and only its front end is "
                      "gone: muster attach %s takes it over", dir->id, dir->id);
}

static int check_wanted(const struct run_view *v, bool resumes,
                        struct error *e)
{
    const char *id = v->dir->id;

    if (resumes && v->status->state == STATUS_SUCCEEDED) {
        return error_text(e, EEXIST, "run %s has succeeded: there is nothing "
                          "to resume", id);
    }
    if (!resumes && v->status->state == STATUS_SUSPENDED) {
        return error_text(e, ERR_SUSPENDED, "run %s is suspended: muster resume "
                          "%s goes on with it", id, id);
    }
    return 0;
}

/* One whose status is gone. 0: it is dead, or has never lived. */
static int check_blind(const struct rundir *dir, struct run_view *v, struct error *e)
{
    struct takeup_left left = {0};
    int rc = takeup_left(dir, &left, e);

    if (rc < 0) {
        return rc;
    }
    if (left.generation == 0) {
        end_unbegun(dir);
    }
    return control_is_heard(dir->id) ||
                   (left.generation > 0 && !was_here(dir) && says_anything(v))
               ? refuse_alive(dir, e) : 0;
}

int takeup_check(const struct rundir *dir, bool resumes, struct error *e)
{
    _run_view_ struct run_view v = {0};
    int rc = dir->reopened ? run_view_open(dir->path, &v, e) : 0;

    if (rc == 0 && dir->reopened && !v.has_status) {
        rc = check_blind(dir, &v, e);
    }
    if (rc < 0 || !v.has_status) {
        return rc;
    }
    if (status_run_is_over(v.status->state)) {
        return check_wanted(&v, resumes, e);
    }
    if (!control_is_heard(dir->id) &&
        (run_view_is_all_here(&v) || !says_more(&v))) {
        return 0;
    }
    return refuse_alive(dir, e);
}

static int check_time(const struct rundir *dir, const struct run_config *config,
                      struct error *e)
{
    uint64_t deadline_ms = config->job ? config->job->limits.deadline_ms
                                       : JOB_OFF;
    char ran[32], limit[32];

    if (deadline_ms == JOB_OFF || config->ran_ms < deadline_ms) {
        return 0;
    }
    clock_format_span(config->ran_ms, ran, sizeof(ran));
    clock_format_span(deadline_ms, limit, sizeof(limit));
    return error_text(e, ERR_DEADLINE, "run %s has run for %s, and limits."
                      "deadline is %s: a longer one lets it go on, as in muster "
                      "resume --set limits.deadline=TIME", dir->id, ran, limit);
}

/* Also those that were to be excluded with a generation that did not come any more; but
 * of one that was lost it only says why that was. Where such a one was replaced it has no
 * place among the agents of its host in the next start. Whether one fits is found anew. */
static int take_excluded(const struct run_status *s, struct run_config *config)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        const struct status_node *n = &s->nodes[i];
        unsigned nth = 0;

        if (!n->excluded || n->excluded == EXCLUSION_MISFIT ||
            n->state == STATUS_NODE_LOST) {
            continue;
        }
        for (size_t k = 0; k < i; k++) {
            nth += s->nodes[k].state != STATUS_NODE_LOST &&
                   strcmp(s->nodes[k].host, n->host) == 0;
        }
        strlist_addf(&config->excluded, "%u %s %s %s", nth, n->host,
                     exclusion_name(n->excluded), n->why);
    }
    return config->excluded.failed ? -ENOMEM : 0;
}

static void take_spent(const struct run_status *s, struct run_config *config)
{
    config->n_restarts = (uint32_t)s->restarts;
    config->n_node_failures = (uint32_t)s->node_failures;
    config->ran_ms = s->ran_ms;
    config->want_nodes = s->want_nodes < s->max_nodes ? (uint32_t)s->want_nodes
                                                      : 0;
}

static void take_checkpoint(const struct run_status *s,
                            struct run_config *config)
{
    if (strlen(s->resume_path) < sizeof(config->resume_path)) {
        str_copy(config->resume_path, sizeof(config->resume_path),
                 s->resume_path);
        config->resume_step = s->resume_path[0] ? s->resume_step : 0;
        config->avoid = s->avoid;
    }
}

/* Numbers that were given are not given again. */
static int take_left(const struct rundir *dir, struct run_config *config, struct error *e)
{
    struct takeup_left left = {0};
    int rc = takeup_left(dir, &left, e);

    if (rc == 0) {
        config->first_generation = left.generation + 1;
        config->n_starts = left.start;
    }
    return rc;
}

int takeup_run(const struct rundir *dir, bool resumes,
               struct run_config *config, struct error *e)
{
    _run_view_ struct run_view v = {0};
    const struct run_status *s;
    int rc = dir->reopened ? run_view_open(dir->path, &v, e) : 0;

    if (rc < 0 || !v.has_status) {
        return rc < 0 || !dir->reopened ? rc : take_left(dir, config, e);
    }
    s = v.status;
    config->first_generation = (uint32_t)s->generation + 1;
    config->n_starts = (uint32_t)s->starts;
    if (s->state != STATUS_SUCCEEDED && s->state != STATUS_FAILED) {
        take_spent(s, config);
        take_checkpoint(s, config);
        if (take_excluded(s, config) < 0) {
            return error_set(e, ENOMEM, "list nodes");
        }
    } else if (resumes) {
        take_checkpoint(s, config);
    }
    return check_time(dir, config, e);
}
