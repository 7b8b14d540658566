/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster resume: goes on with a run that was stopped or suspended. The job is
 * the one in its run directory, and hosts, ssh and the like are those of the last
 * front end (front.json), as far as nothing else is said.
 */
#include <config.h>

#include "launcher/cmd_run.h"
#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/front_record.h"
#include "launcher/options.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELD(name) offsetof(struct run_options, name)

static const struct option_def table[] = {
    {"set", "PATH=VALUE", "set any value of the spec, e.g. limits.deadline=2h; "
     "may be repeated", OPTION_CALL, FIELD(job), job_options_take, 's'},
    RUN_HOST_OPTIONS,
    RUN_REQUEUE_OPTION,
    {"allow-run-as-root", NULL, "run although this is root", OPTION_FLAG,
     FIELD(as_root), NULL, 0},
    {"dry-run", NULL, "show what would be done, and the mpirun command",
     OPTION_FLAG, FIELD(dry_run), NULL, 'n'},
    {"quiet", NULL, "no progress line", OPTION_FLAG, FIELD(quiet), NULL, 'q'},
    {0},
};

static const struct options options = {
    .command = "resume",
    .usage = "[OPTION...] RUN",
    .about = "Goes on with a run that was suspended, stopped, preempted or lost, "
             "in its next generation, from its last checkpoint: with the job as "
             "it was, and on its hosts, unless options say otherwise. RUN is a "
             "run directory, a run id or a name.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

/* --- what the last front end knew --- */

static void join_hosts(const struct host_list *hosts, struct strlist *to)
{
    _buf_ struct buf names = {0};

    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *h = &hosts->items[i];

        buf_printf(&names, h->slots ? "%s%s:%u" : "%s%s", i ? "," : "", h->name,
                   h->slots);
    }
    strlist_add(to, buf_str(&names));
    to->failed = to->failed || names.failed;
}

static const char *kept(struct strlist *owned, const char *text)
{
    strlist_add(owned, text);
    return owned->failed ? NULL : owned->items[owned->n - 1];
}

static void take_hosts(struct run_options *o, const struct front_record *was)
{
    o->chose_hosts = o->hosts || o->hostfile;
    if (!o->hosts && !o->hostfile && !getenv("SLURM_JOB_ID") && was->hosts.n &&
        !hosts_all_local(&was->hosts)) {
        join_hosts(&was->hosts, &o->job.owned);
        o->hosts = o->job.owned.failed
                       ? NULL : o->job.owned.items[o->job.owned.n - 1];
    }
}

static int take_record(struct run_options *o, const struct front_record *was,
                       struct error *e)
{
    struct strlist *owned = &o->job.owned;

    if (was->own_step && !getenv("SLURM_JOB_ID") && !o->hosts && !o->hostfile) {
        return error_text(e, ERR_USAGE, "run %s had the nodes of Slurm job %s: "
                          "resume it in another job (sbatch, salloc), or give "
                          "it --hosts", o->resume, was->slurm_job);
    }
    take_hosts(o, was);
    if (!o->ssh && was->ssh[0]) {
        o->ssh = kept(owned, was->ssh);
    }
    if (!o->mpirun && was->mpirun[0] && access(was->mpirun, X_OK) == 0) {
        o->mpirun = kept(owned, was->mpirun);
    }
    if (!o->key_file && was->key_file[0]) {
        o->key_file = kept(owned, was->key_file);
    }
    o->agent_is_node = o->agent_is_node || was->agent_is_node;
    if (!o->agents_per_node && !o->agent_is_node && was->agents_per_host > 1) {
        o->agents_per_node = was->agents_per_host;
    }
    if (was->cwd[0] && access(was->cwd, X_OK) == 0) {
        o->cwd = kept(owned, was->cwd);
    }
    return owned->failed ? error_set(e, ENOMEM, "resume") : 0;
}

/* A run that was killed before it had a front end worth the name has none. */
static int read_record(struct run_options *o, const char *path,
                       struct error *e)
{
    _cleanup_(rundir) struct rundir *dir = NULL;
    _front_record_ struct front_record was = {0};
    int rc = rundir_open(path, &dir, e);

    rc = rc < 0 ? rc : front_record_read(dir, &was, e);
    if (rc == -ENOENT) {
        return 0;
    }
    return rc < 0 ? rc : take_record(o, &was, e);
}

/* --- the run --- */

int run_resume_options(struct run_options *o, struct option_args *args,
                       struct error *e)
{
    char path[PATH_MAX];
    int rc;

    if (args->words.n || args->has_rest || o->run_dir || o->job.job) {
        return error_text(e, ERR_USAGE, "--resume goes on with the job of that "
                          "run, in its directory: leave SPEC, PROGRAM, --job and "
                          "--run-dir out");
    }
    if (o->job.n_overrides == JOB_OPTIONS_MAX) {
        return error_text(e, ERR_USAGE, "too many values");
    }
    rc = rundir_resolve(o->resume, path, sizeof(path), e);
    rc = rc < 0 ? rc : read_record(o, path, e);
    if (rc < 0) {
        return rc;
    }
    o->run_dir = kept(&o->job.owned, path);
    strlist_addf(&args->words, "%s/spec.yaml", path);
    o->job.overrides[o->job.n_overrides++] =
        (struct spec_override){"suspend", "false", "muster resume"};
    return o->run_dir && !args->words.failed ? 0
                                             : error_set(e, ENOMEM, "resume");
}

int cmd_resume(int argc, char **argv)
{
    struct run_options o = {0};
    struct option_args args = {0};
    _free_ char *run = NULL;
    int status = options_start(&options, argc, argv, &o, &args);

    if (status < 0) {
        run = strdup(args.words.items[0]);
        o.resume = run ? run : "";
        strlist_release(&args.words);
        status = run_with_options(&o, &args);
    }
    option_args_release(&args);
    job_options_release(&o.job);
    return status;
}
