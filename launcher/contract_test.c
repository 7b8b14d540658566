/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/contract.h"
#include "spec/job.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct contract_facts facts = {
    .run_id = "r-17",
    .run_dir = "/runs/r-17",
    .job_name = "tiny",
    .generation = 3,
    .restart_count = 2,
    .n_failures = 4,
    .ran_ms = 90500,
    .save_every_ms = 1500,
    .max_restarts = 5,
    .rank = 5,
    .world = 8,
    .local_rank = 1,
    .local_world = 4,
    .node = 1,
    .n_nodes = 2,
    .node_name = "n1",
    .master_addr = "10.0.0.1",
    .master_port = 29500,
    .agent_store = true,
    .jax_port = 29501,
    .error_file = "/runs/r-17/errors/3-5.json",
    .socket = "/run/u/s.5",
};

static void test_varies(void)
{
    static const char *const varying[] = {"RANK", "MASTER_PORT", "PET_NNODES",
        "SLURM_PROCID", "MUSTER_SOCKET", "TORCHELASTIC_ERROR_FILE",
        "MUSTER_AGENT", "SLURM_NTASKS_PER_NODE", "JAX_PROCESS_ID"};
    static const char *const fixed[] = {"OMP_NUM_THREADS", "PATH",
        "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED", "LD_PRELOAD", "RANKS",
        "SLURM_JOB_ID", "NCCL_SOCKET_IFNAME", "MUSTER"};

    for (size_t i = 0; i < ARRAY_SIZE(varying); i++) {
        ok(contract_varies(varying[i]), "%s is each worker's", varying[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++) {
        ok(!contract_varies(fixed[i]), "%s is not", fixed[i]);
    }
}

static void make(const char *const *base, const char *const *job,
                 const struct contract_facts *f, struct strlist *ret,
                 struct strlist *warnings)
{
    _strlist_ struct strlist b = {0}, j = {0};
    struct error e = {0};

    for (size_t i = 0; base && base[i]; i++) {
        strlist_add(&b, base[i]);
    }
    for (size_t i = 0; job && job[i]; i++) {
        strlist_add(&j, job[i]);
    }
    if (contract_env(&b, &j, f, ret, warnings, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Everything that a worker gets on top of an empty environment. */
static void test_golden(void)
{
    static const char *const want[] = {
        "CROSS_RANK=1", "CROSS_SIZE=2", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2",
        "HOROVOD_CROSS_RANK=1", "HOROVOD_CROSS_SIZE=2", "HOROVOD_HOSTNAME=n1",
        "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=4", "HOROVOD_RANK=5",
        "HOROVOD_SIZE=8", "JAX_COORDINATOR_ADDRESS=10.0.0.1:29501",
        "JAX_NUM_PROCESSES=8", "JAX_PROCESS_ID=5", "LOCAL_RANK=1",
        "LOCAL_SIZE=4", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=29500", "MUSTER_CHECKPOINT_EVERY=1.5",
        "MUSTER_FAILURE_COUNT=4", "MUSTER_GENERATION=3",
        "MUSTER_JOB_NAME=tiny",
        "MUSTER_LOCAL_RANK=1", "MUSTER_LOCAL_WORLD_SIZE=4",
        "MUSTER_MASTER_ADDR=10.0.0.1", "MUSTER_MASTER_PORT=29500",
        "MUSTER_NODE=1", "MUSTER_NODE_NAME=n1",
        "MUSTER_N_NODES=2", "MUSTER_RANK=5", "MUSTER_RAN_SECONDS=90",
        "MUSTER_RESTART_COUNT=2",
        "MUSTER_RUN_DIR=/runs/r-17", "MUSTER_RUN_ID=r-17",
        "MUSTER_SOCKET=/run/u/s.5", "MUSTER_STORE=10.0.0.1:29500",
        "MUSTER_WORLD_SIZE=8", "NODE_RANK=1",
        "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
        "OMPI_COMM_WORLD_NODE_RANK=1", "OMPI_COMM_WORLD_RANK=5",
        "OMPI_COMM_WORLD_SIZE=8",
        "OMPI_MCA_orte_hnp_uri=0.0;tcp://10.0.0.1:29501", "OMP_NUM_THREADS=1",
        "PET_MASTER_ADDR=10.0.0.1", "PET_MASTER_PORT=29500",
        "PET_MAX_RESTARTS=5", "PET_NNODES=2", "PET_NODE_RANK=1",
        "PET_NPROC_PER_NODE=4", "PET_RDZV_ENDPOINT=10.0.0.1:29500",
        "PET_RDZV_ID=r-17", "RANK=5", "ROLE_NAME=default", "ROLE_RANK=5",
        "ROLE_WORLD_SIZE=8", "TORCHELASTIC_ERROR_FILE=/runs/r-17/errors/3-5.json",
        "TORCHELASTIC_MAX_RESTARTS=5", "TORCHELASTIC_RESTART_COUNT=2",
        "TORCHELASTIC_RUN_ID=r-17", "TORCHELASTIC_USE_AGENT_STORE=True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "WORLD_SIZE=8",
    };
    _strlist_ struct strlist env = {0}, warnings = {0};

    make(NULL, NULL, &facts, &env, &warnings);
    qsort(env.items, env.n, sizeof(env.items[0]), compare);
    is_int((int)env.n, (int)ARRAY_SIZE(want), "as many as expected");
    for (size_t i = 0; i < ARRAY_SIZE(want) && i < env.n; i++) {
        is_str(env.items[i], want[i], "variable %zu", i);
    }
    is_int((int)warnings.n, 0, "no warnings");
}

/* One fact changed, one variable looked at; NULL: unset. */
static void test_facts(void)
{
    static const struct {
        const char *what;
        struct contract_facts f;
        const char *name, *want;
    } cases[] = {
        {"one local worker", {.local_world = 1}, "OMP_NUM_THREADS", NULL},
        {"no master", {.world = 1}, "MASTER_ADDR", NULL},
        {"no port", {.master_addr = "h"}, "MASTER_PORT", NULL},
        {"no port", {.master_addr = "h"}, "PET_RDZV_ENDPOINT", NULL},
        {"no jax port", {.master_addr = "h"}, "JAX_COORDINATOR_ADDRESS", NULL},
        {"own store", {.agent_store = false}, "TORCHELASTIC_USE_AGENT_STORE",
         "False"},
        {"IPv6", {.master_addr = "fd00::1", .jax_port = 7},
         "JAX_COORDINATOR_ADDRESS", "[fd00::1]:7"},
        {"IPv6", {.master_addr = "fd00::1", .master_port = 8},
         "PET_RDZV_ENDPOINT", "[fd00::1]:8"},
        {"no jax port", {.master_addr = "h"}, "OMPI_MCA_orte_hnp_uri", NULL},
        {"IPv6", {.master_addr = "fd00::1", .jax_port = 7},
         "OMPI_MCA_orte_hnp_uri", "0.0;tcp6://[fd00::1]:7"},
        {"a GPU each", {.n_gpus = 4, .local_world = 4, .local_rank = 1},
         "JAX_LOCAL_DEVICE_IDS", NULL},
        {"several GPUs each", {.n_gpus = 8, .local_world = 2, .local_rank = 1},
         "JAX_LOCAL_DEVICE_IDS", "4,5,6,7"},
        {"no GPU", {.local_world = 1}, "JAX_LOCAL_DEVICE_IDS", NULL},
        {"tree store", {.master_addr = "127.0.0.1", .routable_addr = "10.0.0.9"},
         "MASTER_ADDR", "127.0.0.1"},
        {"tree store", {.master_addr = "127.0.0.1", .routable_addr = "10.0.0.9"},
         "MUSTER_MASTER_ADDR", "10.0.0.9"},
        {"tree store", {.master_port = 5, .routable_port = 9}, "MASTER_PORT",
         "5"},
        {"tree store", {.master_port = 5, .routable_port = 9},
         "MUSTER_MASTER_PORT", "9"},
        {"tree store", {.master_addr = "127.0.0.1", .routable_addr = "10.0.0.9",
                        .jax_port = 5},
         "JAX_COORDINATOR_ADDRESS", "10.0.0.9:5"},
        {"a role", {.role = "trainer", .role_rank = 2, .role_world = 3,
                    .rank = 9},
         "ROLE_RANK", "2"},
        {"a role", {.role_rank = 2, .role_world = 3, .world = 9},
         "ROLE_WORLD_SIZE", "3"},
        {"a role", {.role = "trainer"}, "ROLE_NAME", "trainer"},
        {"an id of the job's", {.run_id = "r", .torch_run_id = "x"},
         "TORCHELASTIC_RUN_ID", "x"},
        {"an id of the job's", {.run_id = "r", .torch_run_id = "x"},
         "PET_RDZV_ID", "x"},
        {"an id of the job's", {.run_id = "r", .torch_run_id = "x"},
         "MUSTER_RUN_ID", "r"},
        {"a network", {.interface = "eth1"}, "NCCL_SOCKET_IFNAME", "=eth1"},
        {"a network", {.interface = "eth1"}, "GLOO_SOCKET_IFNAME", "eth1"},
        {"no network", {.world = 1}, "NCCL_SOCKET_IFNAME", NULL},
        {"two local workers", {.local_world = 2}, "OMP_NUM_THREADS", "1"},
        {"no worker", {.local_world = 0, .n_gpus = 4}, "JAX_LOCAL_DEVICE_IDS",
         NULL},
        {"GPUs that do not divide", {.n_gpus = 5, .local_world = 2,
                                     .local_rank = 1},
         "JAX_LOCAL_DEVICE_IDS", "2,3"},
        {"fewer than two each", {.n_gpus = 7, .local_world = 4},
         "JAX_LOCAL_DEVICE_IDS", NULL},
        {"tree store, IPv6", {.master_addr = "127.0.0.1",
                              .routable_addr = "fd00::9", .jax_port = 5},
         "JAX_COORDINATOR_ADDRESS", "[fd00::9]:5"},
        {"tree store, IPv6", {.master_addr = "127.0.0.1",
                              .routable_addr = "fd00::9", .jax_port = 5},
         "OMPI_MCA_orte_hnp_uri", "0.0;tcp6://[fd00::9]:5"},
        {"tree store", {.master_addr = "127.0.0.1", .routable_addr = "10.0.0.9",
                        .horovod_gloo = true, .horovod_port = 9},
         "HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.9"},
        {"uneven nodes", {.cross_rank = 3, .cross_size = 4}, "CROSS_RANK", "3"},
        {"uneven nodes", {.cross_rank = 3, .cross_size = 4, .n_nodes = 9},
         "HOROVOD_CROSS_SIZE", "4"},
        {"stacks", {.stacks = "/s/1"}, "MUSTER_STACKS", "/s/1"},
        {"a file", {.stop_file = "/s/g1.stop"}, "MUSTER_STOP_FILE",
         "/s/g1.stop"},
        {"timers", {.timers = "/s/g1.timers"}, "TORCHELASTIC_TIMER_FILE",
         "/s/g1.timers"},
        {"none are served", {.timers = NULL}, "TORCHELASTIC_TIMER_FILE", NULL},
        {"resume", {.resume_path = "/c/9"}, "MUSTER_RESUME_PATH", "/c/9"},
        {"avoid", {.avoid_paths = "/c/9\n/c/8\n"}, "MUSTER_AVOID_PATHS",
         "/c/9\n/c/8\n"},
        {"a part of a node", {.visible_gpus = "GPU-1,GPU-2"},
         "CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"},
        {"whole node", {.visible_gpus = NULL}, "CUDA_VISIBLE_DEVICES", NULL},
        {"a trial", {.trial = "12"}, "MUSTER_TRIAL", "12"},
        {"gloo", {.horovod_gloo = true}, "HOROVOD_CONTROLLER", "gloo"},
        {"gloo", {.horovod_gloo = true}, "HOROVOD_CPU_OPERATIONS", "gloo"},
        {"gloo", {.horovod_gloo = true, .horovod_port = 9, .master_addr = "h"},
         "HOROVOD_GLOO_RENDEZVOUS_ADDR", "h"},
        {"gloo", {.horovod_gloo = true, .horovod_port = 9, .master_addr = "h"},
         "HOROVOD_GLOO_RENDEZVOUS_PORT", "9"},
        {"gloo", {.horovod_gloo = true, .horovod_interface = "eth1"},
         "HOROVOD_GLOO_IFACE", "eth1"},
        {"one agent of a host", {.node_name = "n"}, "HOROVOD_HOSTNAME", "n"},
        {"another one", {.node_name = "n", .agent_index = 2},
         "HOROVOD_HOSTNAME", "n_2"},
        {"no name", {.agent_index = 2}, "HOROVOD_HOSTNAME", NULL},
        {"gloo without a server", {.horovod_gloo = true, .master_addr = "h"},
         "HOROVOD_GLOO_RENDEZVOUS_ADDR", NULL},
        {"no gloo", {.horovod_port = 9, .master_addr = "h"},
         "HOROVOD_GLOO_RENDEZVOUS_PORT", NULL},
        {"no gloo", {.horovod_interface = "eth1"}, "HOROVOD_GLOO_IFACE", NULL},
        {"no gloo", {.horovod_gloo = false}, "HOROVOD_CPU_OPERATIONS", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _strlist_ struct strlist env = {0};

        make(NULL, NULL, &cases[i].f, &env, NULL);
        is_str(strlist_getenv(&env, cases[i].name), cases[i].want, "%s: %s",
               cases[i].what, cases[i].name);
    }
}

/* A base or job entry, and what of it a worker sees. */
static void test_inherited(void)
{
    static const struct {
        const char *base, *job, *name, *want;
        int n_warnings;
    } cases[] = {
        {"HOME=/h", NULL, "HOME", "/h", 0},
        {"HOME=/h", "HOME=/j", "HOME", "/j", 0},
        {"EMPTY=", NULL, "EMPTY", "", 0},
        {"EQ=a=b", NULL, "EQ", "a=b", 0},
        {NULL, "noequals", "noequals", NULL, 0},
        {"RANK=77", NULL, "RANK", "5", 1},
        {"RANK=5", NULL, "RANK", "5", 0},
        {NULL, "WORLD_SIZE=2", "WORLD_SIZE", "8", 1},
        {NULL, "MASTER_ADDR=x", "MASTER_ADDR", "10.0.0.1", 1},
        {NULL, "OMP_NUM_THREADS=6", "OMP_NUM_THREADS", "6", 0},
        {"OMP_NUM_THREADS=6", NULL, "OMP_NUM_THREADS", "6", 0},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING=3", NULL,
         "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", 0},
        {"CUDA_VISIBLE_DEVICES=0,1", NULL, "CUDA_VISIBLE_DEVICES", "0,1", 0},
        {"OMPI_MCA_orte_hnp_uri=x", NULL, "OMPI_MCA_orte_hnp_uri",
         "0.0;tcp://10.0.0.1:29501", 0},
        {"OMPI_MCA_orte_local_daemon_uri=x", NULL,
         "OMPI_MCA_orte_local_daemon_uri", NULL, 0},
        {NULL, "HOROVOD_GLOO_IFACE=ib0", "HOROVOD_GLOO_IFACE", "ib0", 0},
        {"HOROVOD_GLOO_RENDEZVOUS_ADDR=own", NULL,
         "HOROVOD_GLOO_RENDEZVOUS_ADDR", "own", 0},
        {NULL, "JAX_LOCAL_DEVICE_IDS=3", "JAX_LOCAL_DEVICE_IDS", "3", 0},
        {"OMPI_COMM_WORLD_RANK=0", NULL, "OMPI_COMM_WORLD_RANK", "5", 0},
        {"OMPI_COMM_WORLD_SIZE=2", NULL, "OMPI_COMM_WORLD_SIZE", "8", 0},
        {"OMPI_UNIVERSE_SIZE=2", NULL, "OMPI_UNIVERSE_SIZE", NULL, 0},
        {"PMIX_RANK=0", NULL, "PMIX_RANK", NULL, 0},
        {"PMI_FD=7", NULL, "PMI_FD", NULL, 0},
        {"PRTE_LAUNCHED=1", NULL, "PRTE_LAUNCHED", NULL, 0},
        {"ORTE_X=1", NULL, "ORTE_X", NULL, 0},
        {"HYDRA_X=1", NULL, "HYDRA_X", NULL, 0},
        {NULL, "OMPI_MCA_btl=tcp,self", "OMPI_MCA_btl", "tcp,self", 0},
        {"MUSTER_KEY_FILE=/k", NULL, "MUSTER_KEY_FILE", NULL, 0},
        {"PET_NNODES=1:4", NULL, "PET_NNODES", "2", 0},
        {"SLURM_JOB_ID=9", NULL, "SLURM_JOB_ID", "9", 0},
        {"SLURM_JOB_NODELIST=n[1-2]", NULL, "SLURM_JOB_NODELIST", "n[1-2]", 0},
        {"SLURM_STEP_ID=0", NULL, "SLURM_STEP_ID", NULL, 0},
        {"SLURM_STEPID=0", NULL, "SLURM_STEPID", NULL, 0},
        {"SLURM_PROCID=0", NULL, "SLURM_PROCID", NULL, 0},
        {"SLURM_GTIDS=0", NULL, "SLURM_GTIDS", NULL, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *base[] = {cases[i].base, NULL};
        const char *job[] = {cases[i].job, NULL};
        _strlist_ struct strlist env = {0}, warnings = {0};

        make(base, job, &facts, &env, &warnings);
        is_str(strlist_getenv(&env, cases[i].name), cases[i].want, "%s / %s",
               cases[i].base ? cases[i].base : "-",
               cases[i].job ? cases[i].job : "-");
        is_int((int)warnings.n, cases[i].n_warnings, "warnings");
    }
}

/* What is no NAME=VALUE, or has a name that nobody gives: passed on as it is. */
static void test_odd(void)
{
    char longest[400];
    const char *const odd[] = {"noequals", "=C:=x", longest};
    const char *const base[] = {"noequals", "=C:=x", longest, NULL};
    const char *const job[] = {"=C:=y", "other", longest, NULL};
    _strlist_ struct strlist env = {0}, plain = {0};

    memset(longest, 'n', sizeof(longest));
    memcpy(longest + 390, "=x", 3);
    make(NULL, NULL, &facts, &plain, NULL);
    make(base, job, &facts, &env, NULL);
    is_int((int)env.n, (int)(plain.n + ARRAY_SIZE(odd)), "as many more");
    for (size_t i = 0; i < ARRAY_SIZE(odd) && i < env.n; i++) {
        is_str(env.items[i], odd[i], "as it was");
    }
}

/* As long as a spec may have it. */
static void test_long_name(void)
{
    char name[JOB_ENV_NAME_MAX + 1], own[sizeof(name) + 2], use[sizeof(name) + 8];
    const char *const job[] = {own, use, NULL};
    _strlist_ struct strlist env = {0};

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    snprintf(own, sizeof(own), "%s=x", name);
    snprintf(use, sizeof(use), "B=$(%s)", name);
    make(NULL, job, &facts, &env, NULL);
    is_str(strlist_getenv(&env, name), "x", "a variable with a long name is set");
    is_str(strlist_getenv(&env, "B"), "x", "and can be referred to");
}

/* A job that wants no checkpoints made for it has no variable of them: an empty
 * one would be a bad number. */
static void test_save_every(void)
{
    static const struct {
        uint64_t ms;
        uint32_t steps;
        const char *want, *want_steps;
    } cases[] = {
        {JOB_OFF, 0, NULL, NULL},        {JOB_AUTO, 0, "auto", NULL},
        {1, 0, "0.001", NULL},           {90000, 0, "90", NULL},
        {JOB_AUTO, 500, NULL, "500"},    {JOB_OFF, 1, NULL, "1"},
        {90000, 1000000000, "90", "1000000000"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct contract_facts f = facts;
        _strlist_ struct strlist env = {0};

        f.save_every_ms = cases[i].ms;
        f.save_every_steps = cases[i].steps;
        make(NULL, NULL, &f, &env, NULL);
        is_str(strlist_getenv(&env, "MUSTER_CHECKPOINT_EVERY"), cases[i].want,
               "%llu ms and %u steps: time", (unsigned long long)cases[i].ms,
               cases[i].steps);
        is_str(strlist_getenv(&env, "MUSTER_CHECKPOINT_EVERY_STEPS"), cases[i].want_steps,
               "and steps");
    }
}

/* What the launch of the agent leaves in its environment, and what is the
 * job's. */
static void test_stripped(void)
{
    static const char *const gone[] = {
        "PMIX_SERVER_URI", "PMI_RANK", "ORTE_PROC", "PRTE_X", "HYDRA_PROXY",
        "HYDI_CONTROL_FD", "MPIEXEC_HOSTNAME",
        "FLUX_TASK_RANK", "FLUX_KVS_NAMESPACE", "SLURM_STEP_ID",
        "SLURM_STEP_NODELIST", "SLURM_STEPID", "SLURM_SRUN_COMM_HOST",
        "SLURM_PMIXP_ABORT", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_PROCID",
        "SLURM_LOCALID", "SLURM_NODEID", "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_UMASK", "SLURM_PRIO_PROCESS", "SLURM_DISTRIBUTION",
        "SLURM_TOPOLOGY_ADDR", "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST",
        "SLURM_MEM_BIND", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE", "SLURM_NPROCS", "SLURM_JOB_NUM_TASKS",
        "MUSTER_KEY_FILE", "MUSTER_SET", "MUSTER_CKPT_CHECKED",
    };
    static const char *const kept[] = {
        "PATH", "LD_LIBRARY_PATH", "SLURM_JOB_NAME", "SLURM_SUBMIT_DIR",
        "SLURM_CPUS_ON_NODE", "FLUX_JOB_ID", "UCX_TLS", "NCCL_DEBUG",
        "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT", "OPAL_PREFIX", "OMPI_MCA_btl", "OMPI_CC",
        "OMPI_MCA_orte_tmpdir_base", "PMIX_MCA_gds", "PRTE_MCA_plm",
        "MUSTER_CHECKPOINT_DIR", "MUSTER_CKPT_CHECK",
    };

    for (size_t i = 0; i < ARRAY_SIZE(gone) + ARRAY_SIZE(kept); i++) {
        bool is_kept = i >= ARRAY_SIZE(gone);
        const char *name = is_kept ? kept[i - ARRAY_SIZE(gone)] : gone[i];
        char entry[64];
        const char *base[] = {entry, NULL};
        _strlist_ struct strlist env = {0};

        snprintf(entry, sizeof(entry), "%s=x", name);
        make(base, NULL, &facts, &env, NULL);
        is_str(strlist_getenv(&env, name), is_kept ? "x" : NULL, "%s is %s",
               name, is_kept ? "kept" : "stripped");
    }
}

/* The same in a rank of mpirun, which hands on the user's parameters. */
static void test_stripped_in_launch(void)
{
    static const char *const gone[] = {
        "OMPI_MCA_ess", "OMPI_MCA_ess_base_vpid", "OMPI_MCA_orte_num_nodes",
        "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
        "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_plm_rsh_agent",
        "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "OMPI_COMMAND", "OMPI_FIRST_RANKS",
        "PMIX_MCA_gds", "PRTE_MCA_plm", "OPAL_X", "PMIX_RANK",
    };
    static const char *const kept[] = {
        "OMPI_ALLOW_RUN_AS_ROOT", "OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_btl", "OMPI_MCA_pml",
        "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_mpi_yield_when_idle",
        "MUSTER_CHECKPOINT_DIR",
    };
    static const char *const marks[] = {"OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=0",
                                        "PMI_RANK=0", "PRTE_LAUNCHED=1"};

    for (size_t i = 0; i < ARRAY_SIZE(gone) + ARRAY_SIZE(kept); i++) {
        bool is_kept = i >= ARRAY_SIZE(gone);
        const char *name = is_kept ? kept[i - ARRAY_SIZE(gone)] : gone[i];
        char entry[64];
        const char *base[] = {entry, marks[i % ARRAY_SIZE(marks)], NULL};
        _strlist_ struct strlist env = {0};

        snprintf(entry, sizeof(entry), "%s=x", name);
        make(base, NULL, &facts, &env, NULL);
        is_str(strlist_getenv(&env, name), is_kept ? "x" : NULL,
               "in a launch %s is %s", name, is_kept ? "kept" : "stripped");
    }
}

/* What muster owns and cannot say now: an older word of it would mislead. */
static void test_stale(void)
{
    static const char *const base[] = {"MASTER_ADDR=old", "MASTER_PORT=1",
                                       "OMP_NUM_THREADS=7", NULL};
    struct contract_facts f = {.world = 1};
    _strlist_ struct strlist env = {0};

    make(base, NULL, &f, &env, NULL);
    is_str(strlist_getenv(&env, "MASTER_ADDR"), NULL, "a stale address");
    is_str(strlist_getenv(&env, "MASTER_PORT"), NULL, "a stale port");
    is_str(strlist_getenv(&env, "OMP_NUM_THREADS"), "7", "the user's own");
}

static void test_slurm(void)
{
    static const char *const base[] = {"SLURM_JOB_ID=9", "SLURM_PROCID=1",
                                       "SLURM_NTASKS=2", "SLURM_NPROCS=2",
                                       "SLURM_LOCALID=0", "SLURM_NODEID=1",
                                       "SLURM_TASKS_PER_NODE=1(x2)", NULL};
    static const struct { const char *name, *want; } want[] = {
        {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_NPROCS", "8"},
        {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"},
        {"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_TASKS_PER_NODE", NULL},
    };
    _strlist_ struct strlist env = {0};

    make(base, NULL, &facts, &env, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        is_str(strlist_getenv(&env, want[i].name), want[i].want, "%s",
               want[i].name);
    }
}

static void test_words(void)
{
    static const char *const job[] = {"MASTER_ADDR=elsewhere", NULL};
    _strlist_ struct strlist env = {0}, warnings = {0};

    make(NULL, job, &facts, &env, &warnings);
    is_str(warnings.items[0], "MASTER_ADDR=elsewhere of the environment is "
           "replaced by muster's 10.0.0.1", "a warning says both values");
    ok(contract_owns("MASTER_ADDR") && contract_owns("RANK"), "owned");
    ok(!contract_owns("OMP_NUM_THREADS") && !contract_owns("HOME"),
       "not owned");
    ok(contract_strips("PMIX_ID", false) &&
       !contract_strips("PATH", true), "stripped");
}

static void test_hints(void)
{
    static const char *const job[] = {"NCCL_IB_HCA=mlx5_0", NULL};
    _strlist_ struct strlist hints = {0}, extra = {0}, env = {0};
    struct contract_facts f = facts;

    strlist_add(&hints, "NCCL_IB_HCA=mlx5_9");
    strlist_add(&hints, "NCCL_SOCKET_IFNAME=eth0");
    strlist_add(&extra, "MUSTER_PARAM_LR=0.1");
    strlist_add(&extra, "RANK=4");
    f.hints = &hints;
    f.extra = &extra;
    make(NULL, job, &f, &env, NULL);
    is_str(strlist_getenv(&env, "NCCL_IB_HCA"), "mlx5_0", "the user's stays");
    is_str(strlist_getenv(&env, "NCCL_SOCKET_IFNAME"), "eth0", "a hint");
    is_str(strlist_getenv(&env, "MUSTER_PARAM_LR"), "0.1", "an extra");
    is_str(strlist_getenv(&env, "RANK"), "4", "extras have the last word");
}

static void test_expansion(void)
{
    static const struct { const char *in, *want; } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"$(A)", "1"},
        {"x$(A)y$(B)z", "x1ytwoz"},
        {"$(A)$(A)", "11"},
        {"$(NONE)", "$(NONE)"},
        {"$$(A)", "$(A)"},
        {"$$$(A)", "$1"},
        {"$$$$(A)", "$$(A)"},
        {"$$", "$"},
        {"$", "$"},
        {"cost: 5$", "cost: 5$"},
        {"$A ${A}", "$A ${A}"},
        {"$(A", "$(A"},
        {"$()", "$()"},
        {"$(A B)", "$(A B)"},
        {"$(EMPTY)|", "|"},
        {"$(C)", "$(A)"}, /* not expanded twice */
        {"--addr=$(B):$(A)", "--addr=two:1"},
    };
    _strlist_ struct strlist env = {0};

    strlist_add(&env, "A=1");
    strlist_add(&env, "B=two");
    strlist_add(&env, "C=$(A)");
    strlist_add(&env, "EMPTY=");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *got = contract_expand(cases[i].in, &env);

        is_str(got, cases[i].want, "'%s'", cases[i].in);
    }
}

static void test_expansion_in_env(void)
{
    static const char *const job[] = {
        "ENDPOINT=$(MASTER_ADDR):$(MASTER_PORT)", "FIRST=$(SECOND)",
        "SECOND=2", "THIRD=$(SECOND)3", "RANK=$(RANK)", "SELF=$(SELF)",
        "LIT=$$(RANK)", "FROM_BASE=$(HOME)", NULL};
    static const char *const base[] = {"HOME=/h", "RANK=88", NULL};
    static char *const argv[] = {(char *)"prog", (char *)"--rank=$(RANK)",
                                 (char *)"$(ENDPOINT)", NULL};
    _strlist_ struct strlist env = {0}, warnings = {0}, words = {0};

    make(base, job, &facts, &env, &warnings);
    is_str(strlist_getenv(&env, "ENDPOINT"), "10.0.0.1:29500", "the contract");
    is_str(strlist_getenv(&env, "FIRST"), "$(SECOND)", "no later entries");
    is_str(strlist_getenv(&env, "THIRD"), "23", "earlier entries");
    is_str(strlist_getenv(&env, "RANK"), "5", "itself");
    is_int((int)warnings.n, 0, "which is no override");
    is_str(strlist_getenv(&env, "SELF"), "$(SELF)", "unknown itself");
    is_str(strlist_getenv(&env, "LIT"), "$(RANK)", "escaped");
    is_str(strlist_getenv(&env, "FROM_BASE"), "/h", "inherited");
    is_int(contract_argv(argv, &env, &words, NULL), 0, "argv");
    is_str(words.items[1], "--rank=5", "a word");
    is_str(words.items[2], "10.0.0.1:29500", "a word of the job's env");
    is_int((int)words.n, 3, "as many words as before");
}

static void test_bounds(void)
{
    _strlist_ struct strlist env = {0};
    char *big = calloc(1, 300001), *text = calloc(1, 61);

    memset(big, 'x', 300000);
    for (int i = 0; i < 12; i++) {
        memcpy(text + 4 * i, "$(B)", 4);
    }
    strlist_setenv(&env, "B", big);
    ok(contract_expand(text, &env) == NULL, "an expansion that explodes");
    free(big);
    free(text);
}

/* Who said what a variable is, and what went. */
static void test_trace(void)
{
    static const struct {
        const char *name;
        enum contract_origin want;
    } cases[] = {
        {"HOME", CONTRACT_USER},        {"RANK", CONTRACT_OWN},
        {"OMP_NUM_THREADS", CONTRACT_USER},
        {"LR", CONTRACT_JOB},           {"HOST", CONTRACT_JOB},
        {"NCCL_NET", CONTRACT_HINT},    {"MUSTER_AGENT", CONTRACT_OWN},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", CONTRACT_DEFAULT},
    };
    static const char *const base[] = {
        "HOME=/h", "HOST=a", "RANK=5", "OMP_NUM_THREADS=3", "PMIX_ID=1",
        "OMPI_COMM_WORLD_RANK=7", "JAX_PROCESS_ID=1", "MASTER_PORT=1"};
    _strlist_ struct strlist b = {0}, j = {0}, hints = {0}, extra = {0};
    _strlist_ struct strlist env = {0}, plain = {0};
    struct contract_facts f = facts;
    struct contract_trace t = {0};

    for (size_t i = 0; i < ARRAY_SIZE(base); i++) {
        strlist_add(&b, base[i]);
    }
    strlist_add(&j, "LR=1");
    strlist_add(&j, "HOST=b");
    strlist_add(&hints, "NCCL_NET=Socket");
    strlist_add(&extra, "MUSTER_AGENT=x.0");
    f.hints = &hints;
    f.extra = &extra;
    f.master_port = 0;
    is_int(contract_env_traced(&b, &j, &f, &env, &t, NULL, NULL), 0, "traced");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int((int)contract_trace_origin(&t, cases[i].name),
               (int)cases[i].want, "who says %s", cases[i].name);
    }
    is_int((int)t.origins.n, (int)env.n, "each variable has an origin");
    is_int((int)t.lost.n, 2, "those that are lost");
    ok(strlist_getenv(&t.lost, "PMIX_ID"), "one of the launch");
    ok(strlist_getenv(&t.lost, "MASTER_PORT"), "one that would be stale");
    ok(!strlist_getenv(&t.lost, "OMPI_COMM_WORLD_RANK"), "not one replaced");
    contract_env(&b, &j, &f, &plain, NULL, NULL);
    is_int((int)plain.n, (int)env.n, "tracing changes nothing");
    contract_trace_release(&t);
}

int main(void)
{
    test_trace();
    test_golden();
    test_facts();
    test_inherited();
    test_odd();
    test_long_name();
    test_save_every();
    test_stripped();
    test_stripped_in_launch();
    test_stale();
    test_slurm();
    test_words();
    test_hints();
    test_expansion();
    test_expansion_in_env();
    test_bounds();
    test_varies();
    return tap_done();
}
