/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster run: from a spec or a program to a run. Resolves the job, finds and
 * probes hosts, makes the run directory, then hands over to the front end
 * (front.c). Inside an MPI launch it becomes muster-mpi instead; rank 0 leaves a
 * front end behind that shows what happens.
 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/open_files.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/front.h"
#include "launcher/mpi_world.h"
#include "launcher/options.h"
#include "launcher/other_launch.h"
#include "launcher/probe.h"
#include "launcher/slots.h"
#include "launcher/slurm.h"
#include "launcher/ssh.h"
#include "launcher/tmpdir.h"
#include "launcher/unbegun.h"
#include "launcher/unread.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PROBE_MS = 30000,
    MPIRUN_FILES = 24, /* of mpirun, and ... */
    AGENT_FILES = 5,   /* ... for each process that it starts on a host */
};

#define FIELD(name) offsetof(struct run_options, name)

static const struct option_def option_table[] = {
    JOB_OPTIONS(struct run_options, job),
    RUN_HOST_OPTIONS,
    {"resume", "RUN", "go on with that run and its job, as muster resume",
     OPTION_STR, FIELD(resume), NULL, 0},
    {"attach", NULL, "if the run in --run-dir goes on without a front end, take "
     "it over, and if it has succeeded, leave it", OPTION_FLAG, FIELD(attach),
     NULL, 0},
    RUN_REQUEUE_OPTION,
    {"run-dir", "DIR", "directory of the run, instead of "
     "./muster-runs/NAME/ID", OPTION_STR, FIELD(run_dir), NULL, 0},
    {"agents-per-node", "N", "agents that share a node's slots", OPTION_CALL,
     0, run_take_agents, 0},
    {"agent-is-node", NULL, "count every agent as a node, so that one machine "
     "stands for many", OPTION_FLAG, FIELD(agent_is_node), NULL, 0},
    {"key-file", "FILE", "job key that all hosts have there already",
     OPTION_STR, FIELD(key_file), NULL, 0},
    {"insecure-bootstrap", NULL, "inside mpirun: let the job key go over MPI, "
     "unencrypted", OPTION_FLAG, FIELD(insecure), NULL, 0},
    {"allow-run-as-root", NULL, "run although this is root", OPTION_FLAG,
     FIELD(as_root), NULL, 0},
    {"dry-run", NULL, "show what would be done, and the mpirun command",
     OPTION_FLAG, FIELD(dry_run), NULL, 'n'},
    {"show-env", "RANKS", "with --dry-run: show the environment of all workers, "
     "or of those ranks, and who sets what", OPTION_MAYBE, FIELD(show_env),
     NULL, 0},
    {"show-secrets", NULL, "with --show-env: also what looks like a secret",
     OPTION_FLAG, FIELD(show_secrets), NULL, 0},
    {"output", "FORMAT", "with --show-env: print as json or yaml", OPTION_CALL,
     FIELD(format), show_set_format, 'o'},
    {"quiet", NULL, "no progress line", OPTION_FLAG, FIELD(quiet), NULL, 'q'},
    {"as-launcher", NULL, NULL, OPTION_FLAG, FIELD(as_launcher), NULL, 0},
    {0},
};

static const struct options run_usage = {
    .command = "run",
    .usage = "[OPTION...] SPEC\n[OPTION...] -- PROGRAM [ARG...]\n"
             "[OPTION...] --resume RUN",
    .about = "Runs a job: SPEC is a YAML file; without one PROGRAM is run by "
             "the processes that the options ask for. Options of torchrun that "
             "are not below count as well; muster torchrun --help lists "
             "them.",
    .table = option_table,
    .max_args = 1,
    .takes_rest = true,
    .n_values_elsewhere = spec_torchrun_option,
};

int run_option_values(const char *word)
{
    return options_n_values(&run_usage, word);
}

/* --- the job --- */

static void print_messages(const struct spec_result *r)
{
    static const char *const levels[] = {"note: ", "warning: ", "error: "};

    for (size_t i = 0; i < r->n_messages; i++) {
        fprintf(stderr, "muster: %s%s\n", levels[r->messages[i].level],
                r->messages[i].text);
    }
}

static int resolve(const struct run_options *o, const struct option_args *args,
                   struct spec_result *ret)
{
    const struct spec_request like = {.as_launcher = o->as_launcher};
    struct error e = {0};
    int rc = job_options_resolve(&o->job, args, &like, ret, &e);

    print_messages(ret);
    if (rc < 0) {
        if (ret->n_errors == 0) {
            command_fail(&e);
        }
        return EXIT_USAGE;
    }
    return -1;
}

/* --- hosts --- */

static int check_root(const struct run_options *o, struct error *e)
{
    if (geteuid() != 0 || o->as_root ||
        (getenv("OMPI_ALLOW_RUN_AS_ROOT") &&
         getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"))) {
        return 0;
    }
    return error_text(e, ERR_USAGE, "this is root: mpirun and the job would "
                      "have all rights on every host; use another user, or "
                      "say --allow-run-as-root");
}

/* A run that can do with fewer hosts starts without those that cannot be used. The
 * hosts of an MPI program have their places. */
static int do_without(const struct job *job, const struct mpirun_plan *plan,
                      const bool *absent, const struct error *why,
                      struct error *e)
{
    size_t n_there = 0, n_hosts = plan->hosts->n;

    for (size_t i = 0; i < n_hosts; i++) {
        n_there += !absent[i];
    }
    if (n_there == n_hosts) {
        return 0;
    }
    if (job->program == JOB_MPI || plan->agent_is_node ||
        n_there < job->nodes.min) {
        return error_text(e, ERR_LOST, "%s", why->text);
    }
    fprintf(stderr, "muster: starting on %zu of %zu hosts: %s\n", n_there,
            n_hosts, why->text);
    return 0;
}

static int probe(const struct run_options *o, const struct job *job,
                 const struct mpirun_plan *plan, const struct rundir *dir,
                 const uint8_t *key, bool *absent, struct error *e)
{
    const struct host_list *hosts = plan->hosts;
    uint64_t gang_ms = job->gang_timeout_ms;
    uint8_t nonce[RUNDIR_NONCE_BYTES];
    _strlist_ struct strlist ssh = {0};
    struct probe_config config = {.hosts = hosts, .dir = dir, .key = key,
                                  .nonce = nonce, .ret_bad = absent,
                                  .timeout_ms = gang_ms < PROBE_MS
                                                    ? (unsigned)gang_ms
                                                    : PROBE_MS};
    struct error why = {0};
    int rc;

    /* Slurm vouches for its nodes, and may not let us in by ssh. */
    if (hosts->source == HOSTS_SLURM || hosts_all_local(hosts)) {
        return 0;
    }
    randombytes_buf(nonce, sizeof(nonce));
    rc = rundir_write_nonce(dir->path, nonce, e);
    if (rc < 0) {
        return rc;
    }
    ssh_argv(o->ssh, &ssh);
    config.ssh = ssh.items;
    if (ssh.failed || !absent) {
        return error_set(e, ENOMEM, "probe hosts");
    }
    rc = probe_hosts(&config, &why);
    return rc < 0 ? error_text(e, why.code, "%s", why.text)
                  : do_without(job, plan, absent, &why, e);
}

/* Who names hosts to go on with means all of them. */
static void keep_out(const struct run_options *o, struct run_config *c)
{
    if (o->chose_hosts && c->excluded.n) {
        fprintf(stderr, "muster: --hosts and --hostfile name whom to use: also nodes "
                "that this run had excluded\n");
        strlist_release(&c->excluded);
        c->excluded = (struct strlist){0};
    }
}

/* --- ways to run --- */

static void plan_mpirun(const struct run_options *o, const struct job *job,
                        const struct rundir *dir,
                        const struct host_list *hosts, const char *helper,
                        struct mpirun_plan *plan)
{
    plan->hosts = hosts;
    plan->as_root = geteuid() == 0;
    plan->ssh = ssh_command(o->ssh);
    plan->helper = helper;
    plan->run_id = dir->id;
    plan->run_dir = dir->path;
    plan->key_file = o->key_file;
    plan->gather_seconds = (unsigned)(job->gang_timeout_ms / 1000) + 1;
    plan->agent_is_node = o->agent_is_node;
    plan->interface = job_interface(job);
}

/* An MPI program gets an mpirun of its own, from the agent of its rank 0. */
static int plan_world(const struct mpirun *mpirun,
                      const struct mpirun_plan *plan,
                      struct run_config *config, struct error *e)
{
    if (config->job->program != JOB_MPI) {
        return 0;
    }
    mpi_world_words(mpirun, plan->as_root, plan->ssh, &config->job->mpi_args,
                    &config->mpirun);
    for (unsigned i = 0; mpirun_needs_hostfile(plan) && i < plan->n_agents;
         i++) {
        strlist_add(&config->hosts,
                    plan->hosts->items[i / plan->agents_per_host].name);
    }
    return config->mpirun.failed || config->hosts.failed
               ? error_set(e, ENOMEM, "plan the MPI world") : 0;
}

/* Hosts with the same are the job's procsPerNode already. */
static int plan_slots(const struct host_list *hosts, const bool *absent,
                      struct run_config *config, struct error *e)
{
    if (config->job->procs.mode != JOB_PROCS_FIXED) {
        slots_list(hosts, absent, &config->slots);
    }
    return config->slots.failed ? error_set(e, ENOMEM, "list slots") : 0;
}

static void print_unused(const struct host_list *all, size_t n_used)
{
    if (all->n > n_used) {
        fprintf(stderr, "muster: note: %zu of %zu hosts %s not needed\n",
                all->n - n_used, all->n,
                all->n - n_used == 1 ? "is" : "are");
    }
}

bool run_needs_own_step(const struct host_list *hosts)
{
    return hosts->source == HOSTS_SLURM;
}

static int make_suspended(const struct run_options *o, struct spec_result *r,
                          const struct mpirun *mpirun,
                          const struct mpirun_plan *plan)
{
    struct front_record was = {
        .hosts = *plan->hosts, /* borrowed */
        .agents_per_host = plan->agents_per_host,
        .n_agents = plan->n_agents,
        .gather_seconds = plan->gather_seconds,
        .agent_is_node = plan->agent_is_node,
        .own_step = run_needs_own_step(plan->hosts),
    };

    str_copy(was.mpirun, sizeof(was.mpirun), mpirun->path);
    str_copy(was.ssh, sizeof(was.ssh), plan->ssh ? plan->ssh : "");
    str_copy(was.key_file, sizeof(was.key_file), o->key_file ? o->key_file : "");
    return run_make_suspended(o, r, &was);
}

/* -1 to go on, else an exit status. */
static int enter_dir(const struct run_options *o, const struct job *job,
                     struct rundir **ret, uint8_t *key)
{
    int status = o->attach ? run_attach_over(o->run_dir) : -1;
    struct error e = {0};
    int rc;

    if (status >= 0) {
        return status;
    }
    rc = run_make_dir(o, job, ret, key, &e);
    if (rc == -ERR_LOCKED && o->attach) {
        rundir_unlock(*ret);
        return run_attach(o->run_dir, o->quiet);
    }
    return rc < 0 ? command_fail(&e) : -1;
}

/* There is a run directory by now. */
static int end_unbegun(const struct rundir *dir, const struct error *why)
{
    int status = command_fail(why);

    status = why->code == ERR_LOST ? EXIT_NOT_GATHERED : status;
    (void)unbegun_end(dir, status, why->text, NULL);
    return status;
}

static int run_with_front(struct run_options *o, struct spec_result *r)
{
    _host_list_ struct host_list hosts = {0};
    _cleanup_(rundir) struct rundir *dir = NULL;
    _run_config_ struct run_config config = {0};
    struct mpirun mpirun;
    struct mpirun_plan plan = {0};
    struct front_config front = {.run = &config, .mpirun = &mpirun,
                                 .is_quiet = o->quiet};
    _secret_ uint8_t *key = secret_alloc(JOB_KEY_BYTES);
    char helper[PATH_MAX];
    struct error e = {0};
    struct rundir planned = {.id = "RUN-ID", .path = "RUN-DIR"};
    char hostfile[PATH_MAX];
    _free_ bool *absent = NULL;
    size_t n_given;
    int status;

    run_take_hosts(o, r);
    if (check_root(o, &e) < 0 || run_check_cwd(&e) < 0 ||
        run_as_usage(o->hostfile, hosts_find(o->hosts, o->hostfile, &hosts, &e),
                     &e) < 0) {
        return command_fail(&e);
    }
    n_given = hosts.n;
    run_take_slots(o, r->job, &hosts);
    if (run_place(o, r->job, &hosts, &plan.agents_per_host, &plan.n_agents,
                  &e) < 0 ||
        run_check_size(r->job, &hosts, &e) < 0 ||
        open_files_need(MPIRUN_FILES + AGENT_FILES * plan.agents_per_host, &e) < 0 ||
        run_as_usage(o->mpirun, mpirun_find(o->mpirun, &mpirun, &e), &e) < 0 ||
        fs_helper("muster-mpi", helper, sizeof(helper), &e) < 0) {
        return command_fail(&e);
    }
    print_unused(&(struct host_list){.n = n_given}, hosts.n);
    if (o->dry_run) {
        plan_mpirun(o, r->job, &planned, &hosts, helper, &plan);
        status = o->show_env ? run_show_env(o, r, &plan)
                             : run_show_plan(&mpirun, &plan, r->job);
        return status != EXIT_OK ? status : run_check_here(o, r->job, &hosts);
    }
    if (r->job->suspend) {
        plan_mpirun(o, r->job, &planned, &hosts, helper, &plan);
        return make_suspended(o, r, &mpirun, &plan);
    }
    if (tmpdir_check(&e) < 0) {
        return command_fail(&e);
    }
    status = enter_dir(o, r->job, &dir, key);
    if (status >= 0) {
        return status;
    }
    absent = calloc(hosts.n + 1, sizeof(*absent));
    plan.hosts = &hosts;
    plan.agent_is_node = o->agent_is_node;
    if (probe(o, r->job, &plan, dir, key, absent, &e) < 0 ||
        run_make_config(r, &config, &e) < 0 ||
        run_take_up(dir, o, &config, &e) < 0 ||
        run_mark_dir(dir, &config, &e) < 0) {
        return end_unbegun(dir, &e);
    }
    keep_out(o, &config);
    plan_mpirun(o, config.job, dir, &hosts, helper, &plan);
    if (plan_world(&mpirun, &plan, &config, &e) < 0 ||
        plan_slots(&hosts, absent, &config, &e) < 0 ||
        run_write_hostfile(dir, &plan, hostfile, sizeof(hostfile), &e) < 0) {
        return end_unbegun(dir, &e);
    }
    if (o->cwd) {
        str_copy(config.cwd, sizeof(config.cwd), o->cwd);
    }
    config.n_nodes = plan.agent_is_node ? plan.n_agents : (uint32_t)hosts.n;
    front.cwd = config.cwd;
    front.dir = dir;
    front.key = key;
    front.loopback = hosts_all_local(&hosts);
    front.own_step = run_needs_own_step(&hosts);
    secret_forget();
    front.plan = plan;
    front.absent = absent;
    unread_note(config.job->program == JOB_MPI);
    return front_run(&front);
}

static int run_here(struct run_options *o, struct spec_result *r)
{
    bool in_mpi = getenv("OMPI_COMM_WORLD_SIZE") || slurm_is_mpi_launch();
    struct error e = {0};

    if (open_files_need(0, &e) < 0 || run_check_show_env(o, &e) < 0 ||
        slurm_check_tasks(&e) < 0 ||
        other_launch_check(&e) < 0) {
        return command_fail(&e);
    }
    if (in_mpi && o->attach) {
        error_text(&e, ERR_USAGE, "--attach makes a front end, and a run inside "
                   "an MPI launch has none: leave it out");
        return command_fail(&e);
    }
    if (in_mpi && r->job->program == JOB_MPI) {
        error_text(&e, ERR_USAGE, "the command is an MPI program, and this is "
                   "an MPI launch already: give the program to `mpirun ... "
                   "muster exec -- PROGRAM`, or start `muster run` without "
                   "mpirun");
        return command_fail(&e);
    }
    return in_mpi && !o->dry_run ? run_by_hand(o, r) : run_with_front(o, r);
}

/* All that need the key are told the same file: on every host, and whoever attaches
 * or resumes elsewhere. */
static int take_key_file(struct run_options *o, struct error *e)
{
    const char *named = getenv("MUSTER_KEY_FILE");
    struct strlist *owned = &o->job.owned;
    char cwd[PATH_MAX];

    if (!o->key_file && named && named[0]) {
        o->key_file = named;
    }
    if (!o->key_file || o->key_file[0] == '/') {
        return 0;
    }
    if (!getcwd(cwd, sizeof(cwd))) {
        return error_set(e, errno, "find the current directory");
    }
    strlist_addf(owned, "%s/%s", cwd, o->key_file);
    if (owned->failed) {
        return error_set(e, ENOMEM, "name the key file");
    }
    o->key_file = owned->items[owned->n - 1];
    return 0;
}

int run_with_options(struct run_options *o, struct option_args *args)
{
    struct spec_result result = {0};
    struct error e = {0};
    int status;

    if (sodium_init() < 0) {
        return EXIT_FAILED;
    }
    if (take_key_file(o, &e) < 0) {
        return command_fail(&e);
    }
    if (o->resume && run_resume_options(o, args, &e) < 0) {
        return command_fail(&e);
    }
    if (o->attach && !o->run_dir) {
        error_text(&e, ERR_USAGE, "--attach is for a run in a known directory: "
                   "give --run-dir, too");
        return command_fail(&e);
    }
    status = resolve(o, args, &result);
    if (status < 0) {
        status = run_here(o, &result);
    }
    spec_result_release(&result);
    return status;
}

int cmd_run(int argc, char **argv)
{
    struct run_options o = {0};
    struct option_args args = {0};
    int status = options_start(&run_usage, argc, argv, &o, &args);

    if (status < 0) {
        status = run_with_options(&o, &args);
    }
    option_args_release(&args);
    job_options_release(&o.job);
    return status;
}
