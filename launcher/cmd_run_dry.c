/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/mpi_world.h"
#include "launcher/show_env.h"
#include "launcher/slurm.h"
#include "spec/rank_set.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static void show_step(const struct mpirun_plan *plan, const char *muster)
{
    const struct slurm_step step = {
        plan->hosts, "RUN-DIR/agents.nodes", muster, plan->run_id,
        plan->gather_seconds,
    };
    _strlist_ struct strlist argv = {0};
    _free_ char *line = NULL;

    slurm_step_argv("srun", &step, &argv);
    line = str_shell_join(argv.items);
    printf("%s &\n", line ? line : "");
}

/* How many ranks there are is known once nodes have counted. */
static void show_world(const struct mpirun *mpirun,
                       const struct mpirun_plan *plan, const struct job *job,
                       const char *muster)
{
    _strlist_ struct strlist words = {0}, argv = {0};
    _free_ char *shown = NULL;
    char n_ranks[16] = "N";
    struct mpi_world_line line = {
        .words = &words, .n_ranks = n_ranks, .program = muster,
        .hosts = mpirun_needs_hostfile(plan) ? "HOSTS" : NULL,
        .run_id = plan->run_id, .generation = "GENERATION",
    };

    if (job->procs.mode == JOB_PROCS_FIXED) {
        snprintf(n_ranks, sizeof(n_ranks), "%u", job->nodes.min * job->procs.n);
    }
    mpi_world_words(mpirun, plan->as_root, plan->ssh, &job->mpi_args, &words);
    mpi_world_line(&line, &argv);
    shown = str_shell_join(argv.items);
    printf("# and in each generation, on the node of rank 0, by\n%s\n",
           shown ? shown : "");
}

int run_show_plan(const struct mpirun *mpirun, struct mpirun_plan *plan,
                  const struct job *job)
{
    _strlist_ struct strlist argv = {0};
    _free_ char *yaml = job_write_yaml(job);
    _free_ char *line = NULL;
    char muster[PATH_MAX];
    struct error e = {0};
    _buf_ struct buf hosts = {0};

    if (fs_program(muster, sizeof(muster), &e) < 0) {
        return command_fail(&e);
    }
    plan->front = "ADDRESS:PORT";
    plan->hostfile = "RUN-DIR/hostfile";
    plan->epoch = 1;
    plan->is_kept = run_needs_own_step(plan->hosts);
    mpirun_argv(mpirun, plan, &argv);
    line = str_shell_join(argv.items);
    printf("# the job as resolved\n%s\n", yaml ? yaml : "");
    if (mpirun_needs_hostfile(plan)) {
        mpirun_hostfile(plan, &hosts);
        printf("# %s\n%s\n", plan->hostfile, buf_str(&hosts));
    }
    printf("# started by\n");
    if (plan->is_kept) {
        show_step(plan, muster);
    }
    printf("%s\n", line ? line : "");
    if (job->program == JOB_MPI) {
        show_world(mpirun, plan, job, muster);
    }
    return EXIT_OK;
}

int run_check_show_env(const struct run_options *o, struct error *e)
{
    if (!o->show_env) {
        return o->show_secrets || o->format != SHOW_TABLE
                   ? error_text(e, ERR_USAGE, "option --%s: is for --show-env",
                                o->show_secrets ? "show-secrets" : "output")
                   : 0;
    }
    if (!o->dry_run) {
        return error_text(e, ERR_USAGE, "option --show-env: needs --dry-run");
    }
    if (o->show_env[0] && !rank_set_is_valid(o->show_env)) {
        return error_text(e, ERR_USAGE, "option --show-env: expected ranks "
                          "such as 0,3-5, found '%.100s'", o->show_env);
    }
    return 0;
}

static bool have_all_slots(const struct host_list *hosts)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (!hosts->items[i].slots) {
            return false;
        }
    }
    return true;
}

/* Hosts may have other numbers of GPUs and CPUs than this one. */
static void note_guess(const struct job *job, const struct host_list *hosts)
{
    if (job->procs.mode != JOB_PROCS_FIXED && !hosts_all_local(hosts) &&
        !have_all_slots(hosts)) {
        fputs("muster: note: procsPerNode is counted on this machine\n",
              stderr);
    }
}

int run_show_env(const struct run_options *o, struct spec_result *r,
                 const struct mpirun_plan *plan)
{
    _run_config_ struct run_config config = {0};
    _env_plan_ struct env_plan found = {0};
    struct env_plan_spec spec = {
        .job = r->job,
        .env = &config.env,
        .hosts = plan->hosts,
        .agents_per_host = plan->agents_per_host,
        .n_agents = plan->n_agents,
        .agent_is_node = o->agent_is_node,
        .ranks = o->show_env[0] ? o->show_env : "all",
        .shows_secrets = o->show_secrets,
    };
    struct show_env show = {.plan = &found, .spec = r, .config = &config,
                            .format = o->format};
    struct error e = {0};

    if (run_config_capture(&config, environ, &e) < 0 ||
        env_plan_make(&spec, &found, &e) < 0) {
        return command_fail(&e);
    }
    note_guess(r->job, plan->hosts);
    return show_env(&show);
}
