/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names are facts of other systems, so they are a table: one line a name,
 * with who owns it. A name that muster owns is always muster's; one that it only
 * defaults is left alone where it is set.
 */
#include <config.h>

#include "launcher/contract_priv.h"

#include "base/cleanup.h"
#include "spec/job.h"

#include <inttypes.h>
#include <string.h>

static bool put_u(struct buf *b, uint32_t v)
{
    buf_printf(b, "%u", (unsigned)v);
    return true;
}

static bool put_s(struct buf *b, const char *s)
{
    if (!s) {
        return false;
    }
    buf_puts(b, s);
    return true;
}

#define NUMBER(fn, expr)                                              \
    static bool fn(const struct contract_facts *f, struct buf *b)     \
    {                                                                 \
        return put_u(b, (expr));                                      \
    }
#define STRING(fn, expr)                                              \
    static bool fn(const struct contract_facts *f, struct buf *b)     \
    {                                                                 \
        return put_s(b, (expr));                                      \
    }

NUMBER(rank, f->rank)
NUMBER(world, f->world)
NUMBER(local_rank, f->local_rank)
NUMBER(local_world, f->local_world)
NUMBER(node, f->node)
NUMBER(n_nodes, f->n_nodes)
NUMBER(role_rank, f->role_world ? f->role_rank : f->rank)
NUMBER(role_world, f->role_world ? f->role_world : f->world)
NUMBER(cross_rank, f->cross_size ? f->cross_rank : f->node)
NUMBER(cross_size, f->cross_size ? f->cross_size : f->n_nodes)
NUMBER(restart_count, f->restart_count)
NUMBER(max_restarts, f->max_restarts)
NUMBER(generation, f->generation)
NUMBER(n_failures, f->n_failures)
STRING(role, f->role ? f->role : "default")
STRING(run_id, f->run_id)
STRING(torch_run_id, f->torch_run_id ? f->torch_run_id : f->run_id)
STRING(run_dir, f->run_dir)
STRING(job_name, f->job_name)
STRING(node_name, f->node_name)
STRING(master_addr, f->master_addr)
STRING(routable_addr, f->routable_addr ? f->routable_addr : f->master_addr)
STRING(agent_store, f->agent_store ? "True" : "False")
STRING(error_file, f->error_file)
STRING(resume_path, f->resume_path)
STRING(avoid_paths, f->avoid_paths && f->avoid_paths[0] ? f->avoid_paths : NULL)
STRING(socket_path, f->socket)
STRING(stacks, f->stacks)
STRING(stop_file, f->stop_file)
STRING(timers, f->timers)
STRING(trial, f->trial)
STRING(visible_gpus, f->visible_gpus)
STRING(interface, f->interface)
STRING(one_thread, f->local_world > 1 ? "1" : NULL)
STRING(gloo, f->horovod_gloo ? "gloo" : NULL)

/* Without the sign NCCL takes a name for the beginning of names. */
static bool nccl_interface(const struct contract_facts *f, struct buf *b)
{
    return f->interface && put_s(b, "=") && put_s(b, f->interface);
}

STRING(gloo_addr, f->horovod_gloo && f->horovod_port
                      ? (f->routable_addr ? f->routable_addr : f->master_addr)
                      : NULL)
STRING(gloo_interface, f->horovod_gloo ? f->horovod_interface : NULL)

/* Those with the same one meet as the workers of a node, so several agents on a
 * host need several. */
static bool horovod_host(const struct contract_facts *f, struct buf *b)
{
    if (!put_s(b, f->node_name)) {
        return false;
    }
    if (f->agent_index) {
        buf_printf(b, "_%u", (unsigned)f->agent_index);
    }
    return true;
}

static bool gloo_port(const struct contract_facts *f, struct buf *b)
{
    return f->horovod_gloo && f->horovod_port && put_u(b, f->horovod_port);
}

static bool ran_seconds(const struct contract_facts *f, struct buf *b)
{
    buf_printf(b, "%" PRIu64, f->ran_ms / 1000);
    return true;
}

static bool save_every(const struct contract_facts *f, struct buf *b)
{
    if (f->save_every_ms == JOB_OFF ||
        (f->save_every_ms == JOB_AUTO && f->save_every_steps)) {
        return false;
    }
    if (f->save_every_ms == JOB_AUTO) {
        return put_s(b, "auto");
    }
    buf_printf(b, "%g", (double)f->save_every_ms / 1e3);
    return true;
}

static bool save_every_steps(const struct contract_facts *f, struct buf *b)
{
    return f->save_every_steps && put_u(b, f->save_every_steps);
}

static bool async_errors(const struct contract_facts *f, struct buf *b)
{
    (void)f;
    return put_s(b, "1");
}

static bool master_port(const struct contract_facts *f, struct buf *b)
{
    return f->master_port && put_u(b, f->master_port);
}

static bool routable_port(const struct contract_facts *f, struct buf *b)
{
    return f->routable_port ? put_u(b, f->routable_port) : master_port(f, b);
}

static bool endpoint(const struct contract_facts *f, struct buf *b)
{
    if (!f->master_addr || !f->master_port) {
        return false;
    }
    /* An IPv6 address has colons of its own. */
    buf_printf(b, strchr(f->master_addr, ':') ? "[%s]:%u" : "%s:%u",
               f->master_addr, (unsigned)f->master_port);
    return true;
}

static bool jax_address(const struct contract_facts *f, struct buf *b)
{
    const char *addr = f->routable_addr ? f->routable_addr : f->master_addr;

    if (!addr || !f->jax_port) {
        return false;
    }
    buf_printf(b, strchr(addr, ':') ? "[%s]:%u" : "%s:%u", addr,
               (unsigned)f->jax_port);
    return true;
}

/* JAX finds its place by the names of Open MPI where this one is there, and only
 * then: its value matters to nobody as long as JAX_COORDINATOR_ADDRESS is set, and
 * an MPI_Init of the worker's own does not look at it. */
static bool hnp_uri(const struct contract_facts *f, struct buf *b)
{
    const char *addr = f->routable_addr ? f->routable_addr : f->master_addr;

    if (!addr || !f->jax_port) {
        return false;
    }
    buf_printf(b, strchr(addr, ':') ? "0.0;tcp6://[%s]:%u" : "0.0;tcp://%s:%u",
               addr, (unsigned)f->jax_port);
    return true;
}

/* Under that name JAX takes the one GPU of its local rank. Where there are more
 * GPUs than workers, each worker has several. */
static bool jax_devices(const struct contract_facts *f, struct buf *b)
{
    uint32_t share = f->local_world ? f->n_gpus / f->local_world : 0;

    if (share < 2) {
        return false;
    }
    for (uint32_t i = 0; i < share; i++) {
        buf_printf(b, "%s%u", i ? "," : "",
                   (unsigned)(f->local_rank * share + i));
    }
    return true;
}

static const struct contract_entry entries[] = {
    /* torchrun */
    {"RANK", OWNED, rank},
    {"WORLD_SIZE", OWNED, world},
    {"LOCAL_RANK", OWNED, local_rank},
    {"LOCAL_WORLD_SIZE", OWNED, local_world},
    {"GROUP_RANK", OWNED, node},
    {"GROUP_WORLD_SIZE", OWNED, n_nodes},
    {"ROLE_NAME", OWNED, role},
    {"ROLE_RANK", OWNED, role_rank},
    {"ROLE_WORLD_SIZE", OWNED, role_world},
    {"NODE_RANK", OWNED, node},
    {"MASTER_ADDR", OWNED, master_addr},
    {"MASTER_PORT", OWNED, master_port},
    {"TORCHELASTIC_RUN_ID", OWNED, torch_run_id},
    {"TORCHELASTIC_RESTART_COUNT", OWNED, restart_count},
    {"TORCHELASTIC_MAX_RESTARTS", OWNED, max_restarts},
    {"TORCHELASTIC_USE_AGENT_STORE", OWNED, agent_store},
    {"TORCHELASTIC_ERROR_FILE", QUIET, error_file},
    {"TORCHELASTIC_TIMER_FILE", QUIET, timers},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", DEFAULTED, async_errors},
    {"OMP_NUM_THREADS", DEFAULTED, one_thread},
    /* what it, and others, reach their peers by */
    {"NCCL_SOCKET_IFNAME", DEFAULTED, nccl_interface},
    {"GLOO_SOCKET_IFNAME", DEFAULTED, interface},
    /* its options, which pods carry and some programs read */
    {"PET_NNODES", QUIET, n_nodes},
    {"PET_NPROC_PER_NODE", QUIET, local_world},
    {"PET_NODE_RANK", QUIET, node},
    {"PET_MASTER_ADDR", QUIET, master_addr},
    {"PET_MASTER_PORT", QUIET, master_port},
    {"PET_MAX_RESTARTS", QUIET, max_restarts},
    {"PET_RDZV_ID", QUIET, torch_run_id},
    {"PET_RDZV_ENDPOINT", QUIET, endpoint},
    /* DeepSpeed */
    {"LOCAL_SIZE", OWNED, local_world},
    {"CROSS_RANK", OWNED, cross_rank},
    {"CROSS_SIZE", OWNED, cross_size},
    /* JAX */
    {"JAX_COORDINATOR_ADDRESS", OWNED, jax_address},
    {"JAX_NUM_PROCESSES", OWNED, world},
    {"JAX_PROCESS_ID", OWNED, rank},
    {"JAX_LOCAL_DEVICE_IDS", DEFAULTED, jax_devices},
    {"OMPI_MCA_orte_hnp_uri", QUIET, hnp_uri},
    /* Horovod */
    {"HOROVOD_RANK", OWNED, rank},
    {"HOROVOD_SIZE", OWNED, world},
    {"HOROVOD_LOCAL_RANK", OWNED, local_rank},
    {"HOROVOD_LOCAL_SIZE", OWNED, local_world},
    {"HOROVOD_CROSS_RANK", OWNED, cross_rank},
    {"HOROVOD_CROSS_SIZE", OWNED, cross_size},
    {"HOROVOD_HOSTNAME", OWNED, horovod_host},
    {"HOROVOD_CONTROLLER", DEFAULTED, gloo},
    {"HOROVOD_CPU_OPERATIONS", DEFAULTED, gloo},
    {"HOROVOD_GLOO_RENDEZVOUS_ADDR", QUIET, gloo_addr},
    {"HOROVOD_GLOO_RENDEZVOUS_PORT", QUIET, gloo_port},
    {"HOROVOD_GLOO_IFACE", DEFAULTED, gloo_interface},
    /* Open MPI, for programs that only read its variables */
    {"OMPI_COMM_WORLD_RANK", QUIET, rank},
    {"OMPI_COMM_WORLD_SIZE", QUIET, world},
    {"OMPI_COMM_WORLD_LOCAL_RANK", QUIET, local_rank},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", QUIET, local_world},
    {"OMPI_COMM_WORLD_NODE_RANK", QUIET, local_rank},
    /* our own */
    {"MUSTER_RUN_ID", QUIET, run_id},
    {"MUSTER_RUN_DIR", QUIET, run_dir},
    {"MUSTER_JOB_NAME", QUIET, job_name},
    {"MUSTER_GENERATION", QUIET, generation},
    {"MUSTER_RESTART_COUNT", QUIET, restart_count},
    {"MUSTER_FAILURE_COUNT", QUIET, n_failures},
    {"MUSTER_RAN_SECONDS", QUIET, ran_seconds},
    {"MUSTER_CHECKPOINT_EVERY", QUIET, save_every},
    {"MUSTER_CHECKPOINT_EVERY_STEPS", QUIET, save_every_steps},
    {"MUSTER_RANK", QUIET, rank},
    {"MUSTER_WORLD_SIZE", QUIET, world},
    {"MUSTER_LOCAL_RANK", QUIET, local_rank},
    {"MUSTER_LOCAL_WORLD_SIZE", QUIET, local_world},
    {"MUSTER_NODE", QUIET, node},
    {"MUSTER_N_NODES", QUIET, n_nodes},
    {"MUSTER_NODE_NAME", QUIET, node_name},
    {"MUSTER_MASTER_ADDR", QUIET, routable_addr},
    {"MUSTER_MASTER_PORT", QUIET, routable_port},
    {"MUSTER_SOCKET", QUIET, socket_path},
    {"MUSTER_STACKS", QUIET, stacks},
    {"MUSTER_STOP_FILE", QUIET, stop_file},
    {"MUSTER_STORE", QUIET, endpoint},
    {"MUSTER_RESUME_PATH", QUIET, resume_path},
    {"MUSTER_AVOID_PATHS", QUIET, avoid_paths},
    {"MUSTER_TRIAL", QUIET, trial},
    {"CUDA_VISIBLE_DEVICES", QUIET, visible_gpus},
};

/* What the agent's own launch leaves behind. A worker that believed it would
 * speak to the agents' MPI, or take the agent's place in a Slurm step for its
 * own. */
static const char *const stripped_prefixes[] = {
    "OMPI_", "PMIX_", "PMI_", "ORTE_", "PRTE_", "OPAL_", "HYDRA_", "HYDI_",
    "MPIEXEC_", "FLUX_TASK_", "FLUX_KVS_", "SLURM_STEP_", "SLURM_STEPID",
    "SLURM_SRUN_", "SLURM_PMI", "SLURM_GTIDS", "SLURM_TASK_PID",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_LAUNCH_NODE",
    "SLURM_UMASK", "SLURM_PRIO_PROCESS", "SLURM_DISTRIBUTION",
    "SLURM_TOPOLOGY_ADDR", "SLURM_CPU_BIND", "SLURM_MEM_BIND",
    "SLURM_TASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS",
    "SLURM_JOB_NUM_TASKS", "MUSTER_",
};

/* What a Slurm job's worker is told of itself in place of that. */
static const struct contract_entry slurm_entries[] = {
    {"SLURM_PROCID", QUIET, rank},
    {"SLURM_LOCALID", QUIET, local_rank},
    {"SLURM_NODEID", QUIET, node},
    {"SLURM_NTASKS", QUIET, world},
    {"SLURM_NPROCS", QUIET, world},
    {"SLURM_NTASKS_PER_NODE", QUIET, local_world},
};

/* Where the MPI lies, what root has agreed to, and what a program tells the library by: the
 * same inside of a launch. */
static const char *const kept_names[] = {
    "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    "OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX",
    "MUSTER_CHECKPOINT_DIR", "MUSTER_CKPT_CHECK",
};

/* Where nothing around is a launch these are the user's own, for an mpirun in a
 * worker and for MPI_Init. */
static const char *const user_prefixes[] = {
    "OMPI_CC", "OMPI_CFLAGS", "OMPI_CPPFLAGS", "OMPI_CXX", "OMPI_FC",
    "OMPI_LDFLAGS", "OMPI_LIBS", "OMPI_MCA_", "OPAL_", "PMIX_MCA_", "PRTE_MCA_",
};

/* But for what only a rank is told, wherever it comes from. */
static const char *const rank_parameters[] = {
    "ess", "orte_app_num", "orte_bound_at_launch", "orte_ess_", "orte_hnp_uri",
    "orte_jobfam_", "orte_launch", "orte_local_daemon_uri", "orte_num_nodes",
    "orte_precondition_", "orte_top_session_dir",
};

/* In a launch parameters are handed on to all ranks; these are those of the launch
 * itself: its daemons, places and how it was mapped. */
static const char *const launch_parameters[] = {
    "hwloc_base_", "initial_wdir", "mpi_oversubscribe", "orte_", "plm",
    "pmix", "rmaps", "shmem_RUNTIME_",
};

static bool has_prefix(const char *const *prefixes, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        /* Most differ in the first letter, and some environments are long. */
        if (prefixes[i][0] == name[0] && str_starts(name, prefixes[i])) {
            return true;
        }
    }
    return false;
}

static bool is_users(const char *name, bool in_launch)
{
    static const char mca[] = "OMPI_MCA_";
    const char *parameter = str_starts(name, mca) ? name + strlen(mca) : "";

    for (size_t i = 0; i < ARRAY_SIZE(kept_names); i++) {
        if (strcmp(kept_names[i], name) == 0) {
            return true;
        }
    }
    if (has_prefix(rank_parameters, ARRAY_SIZE(rank_parameters), parameter)) {
        return false;
    }
    if (in_launch) {
        return parameter[0] && !has_prefix(launch_parameters,
                                           ARRAY_SIZE(launch_parameters),
                                           parameter);
    }
    return has_prefix(user_prefixes, ARRAY_SIZE(user_prefixes), name);
}

bool contract_strips(const char *name, bool in_launch)
{
    return has_prefix(stripped_prefixes, ARRAY_SIZE(stripped_prefixes), name) &&
           !is_users(name, in_launch);
}

bool contract_is_launch(const struct strlist *env)
{
    static const char *const marks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                        "PMI_RANK", "PRTE_LAUNCHED"};

    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        if (strlist_getenv(env, marks[i])) {
            return true;
        }
    }
    return false;
}

static const struct contract_entry *find_in(const struct contract_entry *table,
                                            size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static const struct contract_entry *find_entry(const char *name)
{
    return find_in(entries, ARRAY_SIZE(entries), name);
}

bool contract_owns(const char *name)
{
    const struct contract_entry *en = find_entry(name);

    return en && en->policy == OWNED;
}

bool contract_varies(const char *name)
{
    const struct contract_entry *en = find_entry(name);

    if (str_starts(name, "MUSTER_")) {
        return true;
    }
    if (!en) {
        en = find_in(slurm_entries, ARRAY_SIZE(slurm_entries), name);
    }
    return en && en->policy != DEFAULTED &&
           strcmp(name, "CUDA_VISIBLE_DEVICES") != 0;
}

const struct contract_table contract_names = {entries, ARRAY_SIZE(entries)};
const struct contract_table contract_slurm_names = {
    slurm_entries, ARRAY_SIZE(slurm_entries)};
