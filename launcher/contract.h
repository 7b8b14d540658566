/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker contract: from the user's environment, the job's and the facts of a
 * rank to the environment of one worker. Pure: no clock, no files, no getenv.
 *
 * Order of precedence, weakest first: the base (what the agent was given from
 * the user at submit), the job's `env`, then muster's own names. A job or base
 * value of a rendezvous name is overridden with a warning where it differs;
 * names that muster only defaults (OMP_NUM_THREADS,
 * TORCH_NCCL_ASYNC_ERROR_HANDLING, NCCL_* hints) are kept. What the launcher of
 * the agent left behind (OMPI_*, PMIX_*, PMI_*, ORTE_*, PRTE_*, HYDRA_*, FLUX
 * and Slurm step names) is removed or rewritten.
 */
#ifndef MUSTER_LAUNCHER_CONTRACT_H
#define MUSTER_LAUNCHER_CONTRACT_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Facts. Strings are borrowed; NULL leaves out what depends on it. */
struct contract_facts {
    /* the run */
    const char *run_id;
    const char *run_dir;
    const char *job_name;
    const char *torch_run_id; /* TORCHELASTIC_RUN_ID; NULL: run_id */
    const char *role;        /* NULL: "default" */
    uint32_t generation;     /* 1 at first */
    uint32_t restart_count;  /* restarts so far that count, job-wide */
    uint32_t max_restarts;
    uint32_t n_failures;     /* those restarts, and nodes that were lost */
    uint64_t ran_ms;         /* the run, its earlier starts included */
    uint64_t save_every_ms;  /* JOB_AUTO, JOB_OFF: by the library */
    uint32_t save_every_steps; /* in the place of JOB_AUTO; 0: not by them */

    /* the place of the worker */
    uint32_t rank, world;
    uint32_t local_rank, local_world;
    uint32_t node, n_nodes;        /* in this view */
    uint32_t role_rank, role_world; /* role_world 0: as rank and world */
    uint32_t cross_rank, cross_size; /* among workers of the same local rank;
                                        cross_size 0: node and n_nodes */
    const char *node_name;
    uint32_t agent_index; /* among the agents of that host */

    /* where to meet */
    const char *master_addr; /* what training code is told */
    uint16_t master_port;
    const char *routable_addr; /* of rank 0's node, where that differs, ... */
    uint16_t routable_port;    /* ... and the port of its store; or 0 */
    bool agent_store;          /* the agent serves the store there */
    uint16_t jax_port;         /* of the coordinator that rank 0 opens; 0: none */

    const char *interface;     /* of this node, where the job chose one */

    /* files and sockets */
    const char *error_file;
    const char *resume_path;
    const char *avoid_paths;   /* ckpt/avoided.h; "" or NULL for none */
    const char *socket;
    const char *stacks;        /* where Python writes its tracebacks */
    const char *timers;        /* TORCHELASTIC_TIMER_FILE, where it is served */
    const char *stop_file;     /* is there once the worker is to stop */

    uint32_t n_gpus;            /* that the workers of this node may use */
    const char *visible_gpus;   /* CUDA_VISIBLE_DEVICES, where a part is owned */
    bool horovod_gloo;          /* set HOROVOD_CONTROLLER=gloo and the like */
    uint16_t horovod_port;      /* of its rendezvous, beside the store; 0: none */
    const char *horovod_interface; /* for its connections, on this node */
    const struct strlist *hints; /* NAME=VALUE that topology asked for (NCCL_*),
                                    never over a value that is there */
    const char *trial;           /* trial number, in a search */
    const struct strlist *extra; /* NAME=VALUE, last word: MUSTER_PARAM_* ... */
};

/* Builds the environment into the empty `ret`. `warnings` gets one line for each
 * overridden value (not when NULL). -ENOMEM only. */
int contract_env(const struct strlist *base, const struct strlist *job,
                 const struct contract_facts *f, struct strlist *ret,
                 struct strlist *warnings, struct error *e);

/* Who said what a variable is. */
enum contract_origin {
    CONTRACT_USER,    /* the base: passed on */
    CONTRACT_JOB,     /* the job's `env` */
    CONTRACT_HINT,    /* topology asked for it */
    CONTRACT_DEFAULT, /* muster, because nobody else did */
    CONTRACT_OWN,     /* muster, always */
};

/* How an environment came about, for people. Zero-initialise; release with
 * contract_trace_release(). */
struct contract_trace {
    struct strlist origins; /* NAME=N, a contract_origin, for all in `ret` */
    struct strlist lost;    /* NAME=WHY: of the base, and not in `ret` */
};
void contract_trace_release(struct contract_trace *t);
enum contract_origin contract_trace_origin(const struct contract_trace *t,
                                           const char *name);

/* As contract_env(), and says how in `trace` (not when NULL). */
int contract_env_traced(const struct strlist *base, const struct strlist *job,
                        const struct contract_facts *f, struct strlist *ret,
                        struct contract_trace *trace,
                        struct strlist *warnings, struct error *e);

/* Expands $(NAME) from `env` in `text` (base/dollar.h). The caller frees the
 * result; NULL without memory or where it would exceed 1 MiB. */
char *contract_expand(const char *text, const struct strlist *env);

/* Every word of `argv` so expanded, appended to `ret`. */
int contract_argv(char *const *argv, const struct strlist *env,
                  struct strlist *ret, struct error *e);

/* True for names whose value is always muster's (RANK, MASTER_ADDR, ...). */
bool contract_owns(const char *name);

/* True for names whose value may be another one for each worker and generation.
 * Never for what a library reads when it is loaded: a set where that differs is
 * the user's own doing. */
bool contract_varies(const char *name);

/* True for names that are removed from what workers inherit; `in_launch` where that
 * is an environment of a rank of MPI, or of a worker of muster. */
bool contract_strips(const char *name, bool in_launch);
bool contract_is_launch(const struct strlist *env);

#endif
