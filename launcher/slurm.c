/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/slurm.h"

#include "base/cleanup.h"
#include "base/utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROBE_HOSTS = 256, /* with answers of 4 KiB each, see fanout.h */
    ARGUMENT_BYTES = 128 * 1024, /* of which Linux takes no longer one */
};
_Static_assert(PROBE_HOSTS * HOSTS_NAME_BYTES < ARGUMENT_BYTES,
               "the names of a batch are one argument");

void slurm_nodelist(const struct host_list *hosts, struct buf *to)
{
    for (size_t i = 0; i < hosts->n; i++) {
        buf_printf(to, "%s\n", hosts->items[i].name);
    }
}

/* --overlap: beside the steps of mpirun and of the user. --no-kill, no
 * --kill-on-bad-exit, no --wait: the loss of a node or of a task ends no other.
 * --mpi=none: these are no MPI processes. --cpu-bind=none: the one task of a node
 * may use all of it. --export=ALL: they must find the same runtime directory. */
static void add_srun(const char *srun, size_t n_hosts, const char *nodelist,
                     struct strlist *to)
{
    static const char *const fixed[] = {
        "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0",
        "--mpi=none", "--cpu-bind=none", "--export=ALL",
        "--ntasks-per-node=1",
    };

    strlist_add(to, srun);
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++) {
        strlist_add(to, fixed[i]);
    }
    strlist_addf(to, "--nodes=%zu", n_hosts);
    strlist_addf(to, "--ntasks=%zu", n_hosts);
    strlist_addf(to, "--nodelist=%s", nodelist);
}

void slurm_step_argv(const char *srun, const struct slurm_step *step,
                     struct strlist *to)
{
    add_srun(srun, step->hosts->n, step->nodelist, to);
    strlist_add(to, "--input=none");
    strlist_add(to, "--job-name=muster-agents");
    strlist_add(to, step->muster);
    strlist_add(to, "keep");
    strlist_addf(to, "--run-id=%s", step->run_id);
    strlist_addf(to, "--wait=%u", step->wait_seconds);
}

size_t slurm_probe_batch(const struct host_list *hosts, size_t first)
{
    size_t left = hosts->n - first;

    return left < PROBE_HOSTS ? left : PROBE_HOSTS;
}

void slurm_probe_argv(const char *srun, const struct host_list *hosts,
                      size_t first, size_t n, const char *muster,
                      struct strlist *to)
{
    _buf_ struct buf names = {0};

    for (size_t i = 0; i < n; i++) {
        buf_printf(&names, "%s%s", i ? "," : "", hosts->items[first + i].name);
    }
    add_srun(srun, n, buf_str(&names), to);
    strlist_add(to, "--job-name=muster-nodes");
    strlist_add(to, muster);
    strlist_add(to, "probe");
    to->failed = to->failed || names.failed;
}

void slurm_host_argv(const char *srun, const char *job, const char *host,
                     const char *name, bool on_terminal, struct strlist *to)
{
    add_srun(srun, 1, host, to);
    strlist_addf(to, "--jobid=%s", job);
    strlist_addf(to, "--job-name=%s", name);
    if (on_terminal) {
        strlist_add(to, "--pty");
    }
}

/* Options of sbatch or salloc that come as variables, and that srun takes as its
 * own: for one task a node they would mean a part of the node, or none at all. */
static const char *const task_options[] = {
    "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK",
    "SLURM_GPUS_PER_TASK", "SLURM_NTASKS", "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_TRES", "SLURM_TASKS_PER_NODE", "SLURM_DISTRIBUTION",
    "SLURM_ARBITRARY_NODELIST", "SLURM_HINT", "SLURM_THREADS_PER_CORE",
    "SLURM_CORE_SPEC", "SLURM_EXACT", "SLURM_WHOLE", "SLURM_EXCLUSIVE",
    "SLURM_OVERCOMMIT", "SLURM_GPU_BIND", "SLURM_MULTI_PROG",
    "SLURM_LABELIO", "SLURM_UNBUFFEREDIO", "SLURM_OPEN_MODE",
    "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE",
    "SLURM_TIMELIMIT", "SLURM_IMMEDIATE", "SLURM_TASK_PROLOG",
    "SLURM_TASK_EPILOG", "SLURM_SRUN_MULTI", "SLURM_EXPORT_ENV",
    "SLURM_DEPENDENCY", "SLURM_REMOTE_CWD", "SLURM_WORKING_DIR",
    "SLURM_RELATIVE", "SLURM_STEP_ID", "SLURM_STEPID",
};

void slurm_step_env(char *const *env, struct strlist *to)
{
    strlist_add_all(to, env);
    for (size_t i = 0; i < ARRAY_SIZE(task_options); i++) {
        strlist_unsetenv(to, task_options[i]);
    }
}

/* The nodes of the job, among two variables of which one is those of a step: in a
 * step that was made from inside of the job SLURM_NODELIST, and in one from outside
 * (srun --jobid) SLURM_JOB_NODELIST (Slurm 22.05). The caller frees them. */
static char *job_nodes(const struct strlist *env, size_t *ret_n)
{
    static const char *const names[] = {"SLURM_JOB_NODELIST",
                                        "SLURM_NODELIST"};
    const char *nodes = NULL;

    *ret_n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _host_list_ struct host_list l = {0};
        const char *v = strlist_getenv(env, names[i]);

        if (v && hosts_parse(v, &l, NULL) == 0 && l.n > *ret_n) {
            nodes = v;
            *ret_n = l.n;
        }
    }
    return nodes ? strdup(nodes) : NULL;
}

void slurm_mpirun_env(char *const *env, unsigned per_host, struct strlist *to)
{
    _free_ char *nodes = NULL;
    char text[64];
    size_t n = 0;

    strlist_add_all(to, env);
    strlist_setenv(to, "SLURM_OVERLAP", "1");
    strlist_unsetenv(to, "SLURM_EXPORT_ENV");
    strlist_unsetenv(to, "SLURM_CPUS_PER_TASK");
    nodes = job_nodes(to, &n);
    to->failed = to->failed || (n && !nodes);
    if (!nodes) {
        return;
    }
    snprintf(text, sizeof(text), "%u(x%zu)", per_host, n);
    strlist_setenv(to, "SLURM_JOB_NODELIST", nodes);
    strlist_setenv(to, "SLURM_NODELIST", nodes);
    strlist_setenv(to, "SLURM_TASKS_PER_NODE", text);
    snprintf(text, sizeof(text), "%zu", n);
    strlist_setenv(to, "SLURM_NNODES", text);
}

static bool is_blank(char c)
{
    return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

void slurm_last_line(const char *text, size_t len, char *to, size_t size)
{
    enum { MARGIN = 16 }; /* for what is put in place of one character */
    _buf_ struct buf line = {0}, shown = {0};
    size_t start;

    while (len > 0 && is_blank(text[len - 1])) {
        len--;
    }
    for (start = len; start > 0 && text[start - 1] != '\n'; start--) {
    }
    while (start < len && is_blank(text[start])) {
        start++;
    }
    for (size_t i = start; i < len; i++) {
        buf_append(&line, text[i] ? &text[i] : "?", 1);
    }
    utf8_put_printable(&shown, buf_str(&line), size - MARGIN);
    str_copy(to, size, buf_str(&shown));
}

static void take(struct strlist *env, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *own = getenv(names[i]);

        if (own) {
            strlist_setenv(env, names[i], own);
        } else {
            strlist_unsetenv(env, names[i]);
        }
    }
}

void slurm_take_own(struct strlist *env)
{
    static const char *const of_node[] = {
        "SLURMD_NODENAME", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE",
        "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
    };
    static const char *const of_gpus[] = {
        "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
        "ZE_AFFINITY_MASK",
    };

    if (!getenv("SLURM_JOB_ID") || !getenv("SLURMD_NODENAME") ||
        !strlist_getenv(env, "SLURM_JOB_ID")) {
        return;
    }
    take(env, of_node, ARRAY_SIZE(of_node));
    /* Slurm hands out GPUs node by node; otherwise the choice is the user's. */
    if (getenv("SLURM_JOB_GPUS") || getenv("SLURM_STEP_GPUS")) {
        take(env, of_gpus, ARRAY_SIZE(of_gpus));
    }
}

/* Of the step that this process is in; 0 outside of one. */
static uint64_t count_tasks(void)
{
    const char *text = getenv("SLURM_STEP_NUM_TASKS");
    uint64_t n = 0;

    return text && getenv("SLURM_STEP_ID") && str_to_u64(text, &n) == 0 ? n
                                                                        : 0;
}

bool slurm_is_mpi_launch(void)
{
    return count_tasks() > 1 && getenv("PMIX_NAMESPACE") &&
           getenv("PMIX_RANK");
}

int slurm_check_tasks(struct error *e)
{
    uint64_t n = count_tasks();

    if (n < 2 || getenv("OMPI_COMM_WORLD_SIZE") || slurm_is_mpi_launch()) {
        return 0;
    }
    return error_text(e, ERR_USAGE, "this is one of %llu tasks of srun, and "
                      "each would start a run of its own: start `muster run` "
                      "once, without srun (it takes all nodes of the job), or "
                      "as an MPI launch of one task a node: `srun --mpi=pmix "
                      "--ntasks-per-node=1 muster run`",
                      (unsigned long long)n);
}
