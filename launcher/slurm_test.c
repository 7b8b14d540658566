/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/slurm.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_argv(void)
{
    _host_list_ struct host_list hosts = {0};
    struct slurm_step step = {&hosts, "/runs/17/agents.nodes", "/opt/muster",
                              "17", 301};
    _strlist_ struct strlist argv = {0};
    _buf_ struct buf nodes = {0};
    _free_ char *line = NULL;
    struct error e = {0};

    if (hosts_parse("n[1-2],m1", &hosts, &e) < 0) {
        bail_out("%s", e.text);
    }
    slurm_step_argv("/usr/bin/srun", &step, &argv);
    line = str_shell_join(argv.items);
    is_str(line, "/usr/bin/srun --overlap --no-kill --kill-on-bad-exit=0 "
           "--wait=0 --mpi=none --cpu-bind=none --export=ALL "
           "--ntasks-per-node=1 --nodes=3 --ntasks=3 --nodelist=/runs/17/"
           "agents.nodes --input=none --job-name=muster-agents /opt/muster "
           "keep --run-id=17 --wait=301", "the step of the agents");
    slurm_nodelist(&hosts, &nodes);
    is_str(buf_str(&nodes), "n1\nn2\nm1\n", "whose nodes are in a file");
}

/* It reads its question: no --input=none. */
static void test_probe_argv(void)
{
    _host_list_ struct host_list hosts = {0};
    _strlist_ struct strlist argv = {0};
    _free_ char *line = NULL;
    struct error e = {0};

    if (hosts_parse("n1", &hosts, &e) < 0) {
        bail_out("%s", e.text);
    }
    slurm_probe_argv("srun", &hosts, 0, 1, "/opt/muster", &argv);
    line = str_shell_join(argv.items);
    is_str(line, "srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 "
           "--mpi=none --cpu-bind=none --export=ALL --ntasks-per-node=1 "
           "--nodes=1 --ntasks=1 --nodelist=n1 --job-name=muster-nodes "
           "/opt/muster probe", "a look at the nodes");
}

/* Each host is asked once, by commands that the kernel takes. */
static void check_batches(const char *list, size_t n_hosts)
{
    _host_list_ struct host_list hosts = {0};
    struct error e = {0};
    size_t first = 0, n, longest = 0;
    bool is_named = true;

    if (hosts_parse(list, &hosts, &e) < 0) {
        bail_out("%s", e.text);
    }
    while ((n = slurm_probe_batch(&hosts, first)) > 0) {
        _strlist_ struct strlist argv = {0};
        _buf_ struct buf want = {0};

        slurm_probe_argv("srun", &hosts, first, n, "/opt/muster", &argv);
        buf_printf(&want, "--nodelist=%s", hosts.items[first].name);
        for (size_t i = 0; !argv.failed && i < argv.n; i++) {
            size_t len = strlen(argv.items[i]);

            longest = len > longest ? len : longest;
            is_named = is_named && (!str_starts(argv.items[i], "--nodelist=") ||
                                    str_starts(argv.items[i], buf_str(&want)));
        }
        first += n;
    }
    is_int((intmax_t)first, (intmax_t)n_hosts, "all hosts are asked");
    ok(is_named, "each command from where the last one ended");
    ok(longest && longest < 128 * 1024, "with %zu bytes in one argument at most",
       longest);
}

static void test_batches(void)
{
    char list[300] = "", name[251];

    check_batches("n1", 1);
    check_batches("a-rather-long-host-name[1-10000]", 10000);
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    snprintf(list, sizeof(list), "%s[1-2000]", name);
    check_batches(list, 2000);
}

static void test_env(void)
{
    _strlist_ struct strlist env = {0};
    _strlist_ struct strlist step = {0};
    _strlist_ struct strlist mpi = {0};
    _strlist_ struct strlist outside = {0};

    strlist_setenv(&env, "HOME", "/h");
    strlist_setenv(&env, "SLURM_JOB_ID", "17");
    strlist_setenv(&env, "SLURM_NTASKS", "8");
    strlist_setenv(&env, "SLURM_GPUS_PER_TASK", "1");
    strlist_setenv(&env, "SLURM_CPUS_PER_TASK", "4");
    strlist_setenv(&env, "SLURM_EXPORT_ENV", "NONE");
    slurm_step_env(env.items, &step);
    is_str(strlist_getenv(&step, "HOME"), "/h", "the user's own stays");
    is_str(strlist_getenv(&step, "SLURM_JOB_ID"), "17", "and the job");
    is_int((int)step.n, 2, "options for the script's tasks go");
    strlist_setenv(&env, "SLURM_JOB_NODELIST", "n[1-3]");
    strlist_setenv(&env, "SLURM_NODELIST", "n2");
    strlist_setenv(&env, "SLURM_TASKS_PER_NODE", "2,1(x2)");
    slurm_mpirun_env(env.items, 4, &mpi);
    is_str(strlist_getenv(&mpi, "SLURM_OVERLAP"), "1", "mpirun's step waits "
           "for no other");
    is_str(strlist_getenv(&mpi, "SLURM_NODELIST"), "n[1-3]", "it has the whole "
           "job");
    is_str(strlist_getenv(&mpi, "SLURM_TASKS_PER_NODE"), "4(x3)", "with room "
           "for all agents");
    ok(!strlist_getenv(&mpi, "SLURM_EXPORT_ENV"), "and passes all on");
    strlist_setenv(&env, "SLURM_JOB_NODELIST", "n2");
    strlist_setenv(&env, "SLURM_NODELIST", "n[1-3]");
    slurm_mpirun_env(env.items, 1, &outside);
    is_str(strlist_getenv(&outside, "SLURM_NODELIST"), "n[1-3]", "also in a "
           "step that was made from outside");
    is_str(strlist_getenv(&outside, "SLURM_NNODES"), "3", "which counts itself "
           "alone");
}

#define TEXT(s) s, sizeof(s) - 1

static void test_last_line(void)
{
    static const struct {
        const char *text;
        size_t len;
        const char *want;
    } cases[] = {
        {TEXT(""), ""},
        {TEXT("\n \r\n\t\n"), ""},
        {TEXT("4:05\n"), "4:05"},
        {TEXT("4:05"), "4:05"},
        {TEXT("  4:05  \r\n\n"), "4:05"},
        {TEXT("squeue: a banner\n4:05\n"), "4:05"},
        {TEXT("RUNNING\nslurm_load_jobs error: x\n"),
         "slurm_load_jobs error: x"},
        {TEXT("4:05\0" "9\n"), "4:05?9"},
        {TEXT("\0"), "?"},
        {TEXT("\x1b[31mRUNNING"), "\\x1b[31mRUNNING"},
        {TEXT("RUN\xffNING"), "RUN\\xffNING"},
        {TEXT("a\xe2\x80\xae" "b\tc"), "a\\u202eb\\tc"},
        {TEXT("012345678901234567890123456789012345678901234567890123456789"),
         "012345678901234567890123456789012345678901234567..."},
        {TEXT("01234567890123456789012345678901234567890123456\xff\xff\xff"),
         "01234567890123456789012345678901234567890123456\\xff..."},
    };
    char line[64];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        slurm_last_line(cases[i].text, cases[i].len, line, sizeof(line));
        is_str(line, cases[i].want, "answer %zu of Slurm", i);
    }
}

static void test_own(void)
{
    _strlist_ struct strlist env = {0};

    strlist_setenv(&env, "SLURM_JOB_ID", "17");
    strlist_setenv(&env, "SLURMD_NODENAME", "n1");
    strlist_setenv(&env, "SLURM_STEP_GPUS", "0,1");
    strlist_setenv(&env, "CUDA_VISIBLE_DEVICES", "0,1");
    setenv("SLURM_JOB_ID", "17", 1);
    slurm_take_own(&env);
    is_str(strlist_getenv(&env, "SLURMD_NODENAME"), "n1", "not started by "
           "slurmd: nothing to take");
    setenv("SLURMD_NODENAME", "n2", 1);
    setenv("SLURM_CPUS_ON_NODE", "64", 1);
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    slurm_take_own(&env);
    is_str(strlist_getenv(&env, "SLURMD_NODENAME"), "n2", "the node's name");
    is_str(strlist_getenv(&env, "SLURM_CPUS_ON_NODE"), "64", "what it has");
    ok(!strlist_getenv(&env, "SLURM_STEP_GPUS"), "and what it has not");
    is_str(strlist_getenv(&env, "CUDA_VISIBLE_DEVICES"), "0,1", "GPUs that "
           "Slurm does not hand out are the user's");
    setenv("SLURM_STEP_GPUS", "7", 1);
    slurm_take_own(&env);
    is_str(strlist_getenv(&env, "CUDA_VISIBLE_DEVICES"), "7", "those that it "
           "does are the node's");
    strlist_unsetenv(&env, "SLURM_JOB_ID");
    setenv("SLURMD_NODENAME", "n3", 1);
    slurm_take_own(&env);
    is_str(strlist_getenv(&env, "SLURMD_NODENAME"), "n2", "a run from outside "
           "of the job knows nothing of it");
}

static void test_tasks(void)
{
    struct error e = {0};

    unsetenv("SLURM_STEP_ID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_NAMESPACE");
    unsetenv("PMIX_RANK");
    is_int(slurm_check_tasks(&e), 0, "a batch script");
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("PMIX_NAMESPACE", "slurm.pmix.17.0", 1);
    setenv("PMIX_RANK", "0", 1);
    is_int(slurm_check_tasks(&e), 0, "a shell by srun");
    ok(!slurm_is_mpi_launch(), "is no MPI launch");
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    is_int(slurm_check_tasks(&e), 0, "tasks that srun made MPI ranks");
    ok(slurm_is_mpi_launch(), "are one");
    unsetenv("PMIX_NAMESPACE");
    is_int(slurm_check_tasks(&e), -ERR_USAGE, "tasks that it did not");
    like(e.text, "one of 3 tasks of srun", "are told what they are");
    like(e.text, "srun --mpi=pmix", "and what to do");
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    is_int(slurm_check_tasks(&e), 0, "mpirun inside of a step");
}

int main(void)
{
    test_argv();
    test_probe_argv();
    test_batches();
    test_env();
    test_last_line();
    test_own();
    test_tasks();
    return tap_done();
}
