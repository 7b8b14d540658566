/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster attach: a new front end for a run whose own is gone. What that one knew
 * is in the run directory: the job (spec.yaml), the key, and how mpirun was run
 * (front.json). The lock of the run is what says that there is no front end, and
 * that of two who come at once one is it.
 */
#include <config.h>

#include "launcher/cmd_run.h"
#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/open_files.h"
#include "base/str.h"
#include "launcher/control.h"
#include "launcher/front.h"
#include "launcher/options.h"
#include "launcher/runview.h"
#include "spec/spec.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct attach_options {
    bool quiet;
};

static const struct option_def table[] = {
    {"quiet", NULL, "no progress line", OPTION_FLAG,
     offsetof(struct attach_options, quiet), NULL, 'q'},
    {0},
};

static const struct options options = {
    .command = "attach",
    .usage = "RUN [-q]",
    .about = "Takes over a run whose front end is gone: from then on it is as "
             "if muster run had been called here, with output, Ctrl-C, and the "
             "exit status of the run. RUN is a run directory, a run id or a "
             "name.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

/* All that is known before the lead is asked: owned. */
struct attaching {
    struct run_view view;
    struct front_record was;
    struct run_config run;
    struct mpirun mpirun;
    char helper[PATH_MAX];
    char hostfile[PATH_MAX];
    char why_no_mpirun[512];
};

static void attaching_release(struct attaching *a)
{
    run_view_release(&a->view);
    front_record_release(&a->was);
    run_config_release(&a->run);
}

/* --- runs that cannot be taken over --- */

/* The exit status is the run's own. */
static int say_over(const struct run_view *v)
{
    const struct run_status *s = v->status;

    fprintf(stderr, "muster: run %s is over: %s%s%s; logs and records are in "
            "%s\n", v->dir->id, status_run_name(s->state),
            s->verdict.reason[0] ? ": " : "", s->verdict.reason, v->dir->path);
    return s->verdict.is_set ? s->verdict.exit_status : EXIT_FAILED;
}

static int refuse_second(const struct run_view *v, struct error *e)
{
    uint64_t now = clock_wall_ns();
    uint64_t since = v->owner.since_ns;
    char span[32] = "?";

    if (since && since < now) {
        clock_format_span((now - since) / 1000000u, span, sizeof(span));
    }
    return error_text(e, ERR_LOCKED, "run %s has a front end: pid %ld on %s, for "
                      "%s; another one can take over when that is gone",
                      v->dir->id, (long)v->owner.pid,
                      v->owner.host[0] ? v->owner.host : "an unknown host",
                      span);
}

static int check_alive(const struct run_view *v, struct error *e)
{
    if (!v->has_status) {
        return error_text(e, ERR_LOST, "run %s had not begun when its front end "
                          "was lost: start it again (muster run)", v->dir->id);
    }
    if ((v->is_stale || run_view_is_all_here(v)) &&
        !control_is_heard(v->dir->id)) {
        return error_text(e, ERR_LOST, "run %s is not alive, and has not come to "
                          "its end: muster resume %s goes on with it",
                          v->dir->id, v->dir->path);
    }
    return 0;
}

/* -1 to go on, else an exit status. From here on the run is locked. */
static int claim(struct attaching *a)
{
    struct run_view *v = &a->view;
    struct error e = {0};
    int rc;

    if (status_run_is_over(v->status->state)) {
        return say_over(v);
    }
    rc = rundir_lock(v->dir, &e);
    if (rc == -ERR_LOCKED && rundir_is_locked(v->dir, &v->owner)) {
        refuse_second(v, &e);
    }
    if (rc < 0) {
        return command_fail(&e);
    }
    /* It may have ended with the front end that held the lock until now. */
    if (run_view_refresh(v, &e) < 0) {
        return command_fail(&e);
    }
    if (status_run_is_over(v->status->state)) {
        return say_over(v);
    }
    if (check_alive(v, &e) < 0 || front_record_read(v->dir, &a->was, &e) < 0) {
        return command_fail(&e);
    }
    return -1;
}

/* --- what the front end before knew --- */

static int read_key(const struct attaching *a, uint8_t *key, struct error *e)
{
    char path[PATH_MAX];
    int rc;

    if (a->was.key_file[0]) {
        return key_read(a->was.key_file, false, key, e);
    }
    rc = rundir_path(a->view.dir, path, sizeof(path), e, "key");
    return rc < 0 ? rc : key_read(path, true, key, e);
}

/* Values of secrets are not in there, and are not needed: the workers' side of
 * the job has come down the tree long ago. */
static int read_job(struct attaching *a, struct error *e)
{
    char *none[] = {NULL};
    char path[PATH_MAX];
    struct spec_request request = {.path = path, .env = none};
    struct spec_result result = {0};
    int rc = rundir_path(a->view.dir, path, sizeof(path), e, "spec.yaml");

    if (rc < 0) {
        return rc;
    }
    rc = spec_resolve(&request, &result, e);
    if (rc == 0) {
        a->run.job = take_ptr(&result.job);
        a->run.detach_ms = a->was.detach_ms;
        a->run.by_hand = a->was.by_hand;
    }
    spec_result_release(&result);
    return rc;
}

/* Whether a new MPI world can be made from here; a->why_no_mpirun says why
 * not. */
static bool can_run_mpirun(struct attaching *a)
{
    const struct front_record *was = &a->was;
    const char *job = getenv("SLURM_JOB_ID");
    struct error e = {0};
    char *why = a->why_no_mpirun;
    size_t size = sizeof(a->why_no_mpirun);

    if (was->by_hand) {
        str_copy(why, size, "its mpirun was started by hand");
        return false;
    }
    if (was->slurm_job[0] && (!job || strcmp(job, was->slurm_job) != 0)) {
        snprintf(why, size, "that takes a shell inside of Slurm job %s",
                 was->slurm_job);
        return false;
    }
    if ((mpirun_find(was->mpirun, &a->mpirun, &e) < 0 &&
         mpirun_find(NULL, &a->mpirun, &e) < 0) ||
        fs_helper("muster-mpi", a->helper, sizeof(a->helper), &e) < 0) {
        str_copy(why, size, e.text);
        return false;
    }
    return true;
}

static void plan_mpirun(struct attaching *a, struct mpirun_plan *plan)
{
    const struct front_record *was = &a->was;

    *plan = (struct mpirun_plan){
        .hosts = &was->hosts,
        .agents_per_host = was->agents_per_host,
        .n_agents = was->n_agents,
        .as_root = geteuid() == 0,
        .ssh = was->ssh[0] ? was->ssh : NULL,
        .helper = a->helper,
        .run_id = a->view.dir->id,
        .run_dir = a->view.dir->path,
        .key_file = was->key_file[0] ? was->key_file : NULL,
        .gather_seconds = was->gather_seconds,
        .agent_is_node = was->agent_is_node,
        .interface = job_interface(a->run.job),
    };
}

/* --- all together --- */

/* Only then is no lead, the next one neither, on another host. */
static bool are_all_here(const struct attaching *a)
{
    const struct run_status *s = a->view.status;
    char host[HOSTS_NAME_BYTES] = "";

    gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (strcmp(s->nodes[i].host, host) != 0) {
            return false;
        }
    }
    return s->n_nodes > 0 && hosts_all_local(&a->was.hosts);
}

static int attach(struct attaching *a, bool quiet)
{
    _secret_ uint8_t *key = secret_alloc(JOB_KEY_BYTES);
    struct front_attach how = {.was = &a->was, .status = a->view.status,
                               .why_no_mpirun = a->why_no_mpirun};
    struct front_config front = {.dir = a->view.dir, .key = key,
                                 .run = &a->run, .attach = &how,
                                 .is_quiet = quiet,
                                 .own_step = a->was.own_step,
                                 .cwd = a->was.cwd,
                                 .loopback = are_all_here(a)};
    struct error e = {0};

    if (!key) {
        error_set(&e, ENOMEM, "keep the job key");
        return command_fail(&e);
    }
    if (read_key(a, key, &e) < 0 || read_job(a, &e) < 0) {
        return command_fail(&e);
    }
    plan_mpirun(a, &front.plan);
    if (can_run_mpirun(a)) {
        front.mpirun = &a->mpirun;
        if (run_write_hostfile(a->view.dir, &front.plan, a->hostfile,
                               sizeof(a->hostfile), &e) < 0) {
            return command_fail(&e);
        }
    }
    secret_forget();
    return front_run(&front);
}

int run_attach_over(const char *dir)
{
    _run_view_ struct run_view v = {0};

    if (run_view_open(dir, &v, NULL) < 0 || !v.has_status ||
        v.status->state != STATUS_SUCCEEDED) {
        return -1;
    }
    return say_over(&v);
}

int run_attach(const char *run, bool quiet)
{
    struct attaching a = {0};
    struct error e = {0};
    int status = open_files_need(0, &e) < 0 || run_view_load(run, &a.view, &e) < 0
                     ? command_fail(&e) : claim(&a);

    if (status < 0) {
        status = attach(&a, quiet);
    }
    attaching_release(&a);
    return status;
}

int cmd_attach(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct attach_options set = {0};
    int status = options_start(&options, argc, argv, &set, &args);

    if (status < 0 && sodium_init() < 0) {
        status = EXIT_FAILED;
    }
    return status < 0 ? run_attach(args.words.items[0], set.quiet) : status;
}
