/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job, as every dialect resolves to it. This is what the front end, the
 * agents and the commands work with; none of them ever sees YAML.
 *
 * A struct job owns everything it points to. It is plain data: fill it, read
 * it, pass it on. Spans are milliseconds. JOB_OFF (0) in a span means that the
 * thing is off or has no limit, JOB_AUTO that muster picks, JOB_NEVER (where it
 * is named) that the time never comes.
 */
#ifndef MUSTER_SPEC_JOB_H
#define MUSTER_SPEC_JOB_H

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_OFF 0
#define JOB_AUTO UINT64_MAX
#define JOB_NEVER (UINT64_MAX - 1)

/* Of the name of a variable in `env`, and of a key of other maps of text. */
enum { JOB_ENV_NAME_MAX = 320 };

enum job_program {
    JOB_WORKERS, /* started by agents, one process a slot */
    JOB_MPI,     /* an MPI program: mpirun ... muster exec -- prog */
};

enum job_procs_mode {
    JOB_PROCS_AUTO, /* one a visible GPU, else one a usable CPU */
    JOB_PROCS_CPU,
    JOB_PROCS_GPU,
    JOB_PROCS_FIXED,
};

enum {
    /* On a node. Workers meet in a segment of shared memory that is made for so many
     * (comm/segment.h); crew_world.c sees to it that both agree. */
    JOB_PROCS_MAX = 1024,
};

/* Resolved to a number on each node: see spec/procs.h. */
struct job_procs {
    enum job_procs_mode mode;
    uint32_t n; /* JOB_PROCS_FIXED only, else 0 */
};

struct job_nodes {
    uint32_t min; /* at least 1 */
    uint32_t max; /* min == max: not elastic */
};

enum job_restart_policy {
    JOB_RESTART_NEVER,
    JOB_RESTART_ON_FAILURE,
    JOB_RESTART_ALWAYS,
    JOB_RESTART_EXIT_CODE, /* by `retry_codes` */
};

struct job_restart {
    enum job_restart_policy policy;
    uint32_t max;            /* for the whole job, kept over requeues */
    uint32_t max_per_node;   /* for one node's failures; 0: as max */
    uint64_t backoff_min_ms; /* before the first restart; doubles ... */
    uint64_t backoff_max_ms; /* ... up to this */
    uint8_t retry_codes[32]; /* bit c: exit code c is retried (EXIT_CODE) */
    struct strlist preload;  /* modules for the warm interpreter */
};

struct job_elastic {
    uint32_t min_nodes, max_nodes; /* as given: `nodes` of the job has them; 0:
                                      not given */
    uint32_t spares;
    double exclude_slow; /* nodes whose ranks take so many times the median; 0:
                            none */
    uint64_t grow_interval_ms;
};

struct job_limits {
    uint64_t deadline_ms; /* of the job's running time, in all its starts;
                             JOB_OFF: none */
    uint64_t grace_ms;    /* between "stop" and SIGKILL */
    uint32_t node_failures;
};

enum job_level {
    JOB_LEVEL_MEMORY = 1 << 0,
    JOB_LEVEL_PARTNER = 1 << 1,
    JOB_LEVEL_DISK = 1 << 2,
};

enum job_partner {
    JOB_PARTNER_COPY,
    JOB_PARTNER_XOR,
    JOB_PARTNER_RS,
};

enum job_goal {
    JOB_MINIMIZE,
    JOB_MAXIMIZE,
};

enum job_alarm {
    JOB_ALARM_TELL,
    JOB_ALARM_STOP,
};

struct job_checkpoint {
    uint64_t every_ms; /* JOB_AUTO, which counts as JOB_OFF beside every_steps; JOB_OFF */
    uint32_t every_steps; /* 0: not by them */
    uint32_t keep, keep_every;  /* keep_every: 0: none for their step */
    char *keep_best;            /* a metric, or NULL */
    enum job_goal keep_goal;
    unsigned levels;  /* of enum job_level */
    uint64_t partner_every_ms, disk_every_ms; /* JOB_AUTO; 0: each save */
    enum job_partner partner;
    uint32_t partner_group, partner_parities; /* unless it is copies */
    bool partner_encrypt;
    char *store;      /* s3://BUCKET/PREFIX, or NULL */
    uint64_t store_every_ms; /* JOB_AUTO */
    uint32_t store_keep; /* 0: all */
    char *watch;      /* directory of the program's own checkpoints, or NULL */
    uint32_t avoid_after; /* starts from one that died; 0: never */
    char *resume_arg; /* see launcher/resume_arg.h; or NULL */
    uint64_t alarm_ms; /* without a checkpoint for so long; JOB_OFF: never */
    enum job_alarm alarm_then;
    uint32_t prune_keep, prune_every; /* 0: all; none for their step */
    char *prune_best;                 /* a metric, or NULL */
    enum job_goal prune_goal;
    char *copy_to;                    /* directory or URI, or NULL */
    uint64_t copy_every_ms;
    uint32_t copy_keep;               /* 0: all */
};

/* Data in before the start, or out after success. */
struct job_transfer {
    char *from;
    char *to;
    char *credential;          /* name of a credential, or NULL */
    struct strlist parameters; /* NAME=VALUE, for the store's own use */
};

enum job_search_method {
    JOB_SEARCH_NONE, /* no search: nothing else in it is set */
    JOB_SEARCH_GRID,
    JOB_SEARCH_RANDOM,
    JOB_SEARCH_BAYES,
};

enum job_parameter_type {
    JOB_PARAMETER_DOUBLE,
    JOB_PARAMETER_INT,
    JOB_PARAMETER_CATEGORICAL,
};

enum job_scale {
    JOB_SCALE_LINEAR,
    JOB_SCALE_LOG,
};

/* Either `values` or min..max. One fixed value is a list of one. */
struct job_parameter {
    char *name;
    enum job_parameter_type type;
    double min;
    double max;
    double step; /* 0: none */
    enum job_scale scale;
    struct strlist values; /* as written */
};

struct job_search {
    enum job_search_method method;
    uint32_t max_trials;      /* 0: as many as the space has (grid), else 1 */
    uint32_t parallel_trials; /* 0: auto */
    uint32_t trial_nodes;     /* 0: auto */
    uint32_t trial_procs;     /* a node; 0: auto */
    char *metric;             /* NULL: none named */
    enum job_goal goal;
    struct job_parameter *parameters;
    size_t n_parameters;
};

/* What a node must have, and what a job may use of it. 0: not said. */
struct job_resources {
    uint32_t cpus_milli;
    uint64_t memory_bytes;
    uint32_t gpus;
};

enum job_binding {
    JOB_BIND_AUTO,
    JOB_BIND_NONE,
    JOB_BIND_CORE,
    JOB_BIND_NUMA,
    JOB_BIND_SOCKET,
};

enum job_preflight {
    JOB_PREFLIGHT_OFF,
    JOB_PREFLIGHT_QUICK,
    JOB_PREFLIGHT_FULL,
};

enum job_log_format {
    JOB_LOG_TEXT,
    JOB_LOG_JSON,
};

enum job_log_files {
    JOB_FILES_RANK,
    JOB_FILES_NODE,
    JOB_FILES_NONE,
};

struct job_logs {
    char *show; /* ranks whose output is shown: rank_set.h */
    char *streams; /* which of their streams: stream_set.h */
    char *dir; /* where the run directory is made; NULL: ./muster-runs */
    char *prefix; /* of each line of it: log_prefix.h */
    uint64_t max_bytes; /* of a log file; 0: no limit */
    uint32_t keep;      /* full ones of each */
    uint32_t generations; /* beside the first and the one that runs; 0: all */
    bool fold; /* lines that several ranks print are shown once */
    enum job_log_format format;
    enum job_log_files files;
};

/* What only programs for torchrun look at. */
struct job_torch {
    char *role;
    char *run_id; /* NULL: that of the run */
};

enum job_store {
    JOB_STORE_AUTO,
    JOB_STORE_DIRECT,
    JOB_STORE_TREE,
};

enum job_horovod {
    JOB_HOROVOD_NONE,
    JOB_HOROVOD_GLOO, /* the agents serve the rendezvous of its gloo */
};

struct job_slurm {
    char *partition; /* all NULL when not given */
    char *account;
    char *qos;
    char *constraint;
    uint64_t time_ms; /* JOB_OFF: not given */
    uint64_t margin_ms; /* of a stop before the job's time limit, beyond
                           limits.grace_ms; JOB_OFF: no such stop */
    bool requeue;
    struct strlist extra;
};

struct job {
    char *name; /* a DNS label */
    enum job_program program;
    struct job_nodes nodes;
    struct job_procs procs; /* a node */
    /* Both are templates: contract_argv() and contract_env() replace $(NAME) and
     * turn $$ into $ for each worker. */
    struct strlist command; /* argv: at least one; args are in it */
    struct strlist mpi_args; /* JOB_MPI: further options of mpirun */
    struct strlist env;     /* NAME=VALUE, in order */
    struct strlist secrets; /* names in env whose values are never shown; see
                               also job_env_is_secret() */
    char *workdir;          /* NULL: where muster was started */
    char *runtime;          /* name of the runtime it was made from, or NULL */
    char *image;            /* container image; NULL: none, run on the host */
    struct job_restart restart;
    struct job_elastic elastic;
    uint64_t gang_timeout_ms;
    uint64_t hang_timeout_ms; /* JOB_OFF: not watched */
    struct job_limits limits;
    struct job_checkpoint checkpoint;
    struct job_transfer *inputs;
    size_t n_inputs;
    struct job_transfer *outputs;
    size_t n_outputs;
    struct job_search search;
    struct job_resources resources; /* of each node */
    enum job_binding binding;
    enum job_preflight preflight;
    struct job_logs logs;
    struct job_torch torch;
    enum job_store store;
    enum job_horovod horovod;
    char *interface; /* "auto", or as in base/addr.h */
    uint64_t heartbeat_timeout_ms; /* also the lease */
    uint64_t detach_timeout_ms;    /* how long the run goes on without its front
                                      end: JOB_AUTO: to the end in batch, 10 min
                                      on a terminal; JOB_OFF: not at all;
                                      JOB_NEVER: to its end */
    struct job_slurm slurm;
    struct strlist labels;      /* NAME=VALUE */
    struct strlist annotations; /* NAME=VALUE */
    bool suspend;               /* made, and not started before muster resume */
};

/* The choice of a network, or NULL where any will do. */
const char *job_interface(const struct job *job);

/* All defaults, no command and no name; NULL without memory. */
struct job *job_create(void);

/* Frees everything; NULL is allowed. */
void job_destroy(struct job *job);
DEFINE_CLEANUP(job);

/* True for a variable whose value must not be shown or stored in the clear:
 * listed in `secrets`, or with a name such as *_TOKEN, *SECRET*, *PASSWORD*,
 * *_KEY. */
bool job_env_is_secret(const struct job *job, const char *name);

/* True if the policy lets a process that ended so be started again (budget and
 * causes other than the exit are the caller's). `code` is the exit status, or
 * 128 + signal. */
bool job_exit_is_retried(const struct job *job, int code);

/* The whole job, secrets too, as one line of JSON for the control tree; the
 * caller frees it. NULL without memory. */
char *job_encode(const struct job *job);

/* Reads what job_encode() wrote: at most 4 MiB, every key known, every value in
 * range. 0 and *ret is the caller's; or -ERR_FORMAT, -ENOMEM. */
int job_decode(const char *json, size_t len, struct job **ret,
               struct error *e);

/* The job in the short form, as YAML that spec_resolve() reads back to the same
 * job, except that `runtime` is only a comment (all that it gave is there), and
 * that the value of each secret is replaced by JOB_HIDDEN (reading
 * that takes the value from the environment of the reader). The caller frees
 * it; NULL without memory. */
#define JOB_HIDDEN "<hidden>"
char *job_write_yaml(const struct job *job);

/* One value of that, e.g. of "restart.max" or "env.LR", on one line. False
 * where it is not set (or without memory): then nothing is added. */
bool job_write_value(const struct job *job, const char *path, struct buf *to);

#endif
