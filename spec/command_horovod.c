/* SPDX-License-Identifier: Apache-2.0 */
/*
 * horovodrun -np N [OPTION...] PROGRAM: Horovod with its gloo controller, whose
 * rendezvous an agent serves (horovod: gloo). Options of Horovod's library
 * become its variables; --config-file has the same ones in sections.
 */
#include <config.h>

#include "base/str.h"
#include "spec/command.h"
#include "spec/value.h"

#include <string.h>
#include <strings.h>

enum meaning {
    CONFIG = LAUNCHER_OWN,
    HOSTS,
    INTERFACES,
    FUSION,
    STAMPS,
};

#define NOTED LAUNCHER_NOTED
#define REFUSED LAUNCHER_REFUSED
#define ENV LAUNCHER_ENV
#define OFF LAUNCHER_ENV_OFF
#define ENV_NUMBER LAUNCHER_ENV_NUMBER
#define NOT_ELASTIC                                                           \
    LAUNCHER_REFUSED, "expected nodes: MIN..MAX in the spec: muster starts "  \
                      "all workers again when a size changes"
#define OWN_SSH                                                               \
    LAUNCHER_REFUSED, "expected it for these hosts in the configuration of "  \
                      "ssh"
#define BY_MPI                                                                \
    LAUNCHER_REFUSED, "expected --gloo, or mpirun in place of horovodrun for " \
                      "Horovod's MPI controller"

static const struct launcher_option options[] = {
    {"np", 1, LAUNCHER_TOTAL, NULL},
    {"num-proc", 1, LAUNCHER_TOTAL, NULL},
    {"hosts", 1, HOSTS, NULL},
    {"H", 1, HOSTS, NULL},
    {"hostfile", 1, REFUSED,
     "expected --hostfile of muster run, which takes such files, and nodes"},
    {"gloo", 0, LAUNCHER_SILENT, NULL},
    {"mpi", 0, BY_MPI},
    {"jsrun", 0, BY_MPI},
    {"mpi-args", 1, BY_MPI},
    {"mpi-threads-disable", 0, ENV, "HOROVOD_MPI_THREADS_DISABLE"},
    {"no-mpi-threads-disable", 0, OFF, "HOROVOD_MPI_THREADS_DISABLE"},
    {"binding-args", 1, REFUSED,
     "muster binds workers to nothing yet: expected taskset or numactl in the "
     "command"},
    {"ssh-port", 1, OWN_SSH},
    {"p", 1, OWN_SSH},
    {"ssh-identity-file", 1, OWN_SSH},
    {"i", 1, OWN_SSH},
    {"start-timeout", 1, LAUNCHER_SECONDS, "gang.timeout"},
    {"network-interfaces", 1, INTERFACES, NULL},
    {"network-interface", 1, INTERFACES, NULL},
    {"config-file", 1, CONFIG, NULL},
    {"output-filename", 1, NOTED,
     "muster writes a file for each worker and stream in the run directory"},
    {"verbose", 0, NOTED, "it is for horovodrun's own messages"},
    {"disable-cache", 0, NOTED, "muster keeps no results of checks"},
    {"version", 0, REFUSED, "expected a program to start"},
    {"v", 0, REFUSED, "expected a program to start"},
    {"check-build", 0, REFUSED, "expected a program to start"},
    {"cb", 0, REFUSED, "expected a program to start"},
    {"prefix-output-with-timestamp", 0, STAMPS, NULL},
    {"prefix-timestamp", 0, STAMPS, NULL},
    {"tcp", 0, ENV, "NCCL_IB_DISABLE"},
    {"fusion-threshold-mb", 1, FUSION, NULL},
    {"cycle-time-ms", 1, ENV_NUMBER, "HOROVOD_CYCLE_TIME"},
    {"cache-capacity", 1, ENV_NUMBER, "HOROVOD_CACHE_CAPACITY"},
    {"hierarchical-allreduce", 0, ENV, "HOROVOD_HIERARCHICAL_ALLREDUCE"},
    {"no-hierarchical-allreduce", 0, OFF, "HOROVOD_HIERARCHICAL_ALLREDUCE"},
    {"hierarchical-allgather", 0, ENV, "HOROVOD_HIERARCHICAL_ALLGATHER"},
    {"no-hierarchical-allgather", 0, OFF, "HOROVOD_HIERARCHICAL_ALLGATHER"},
    {"autotune", 0, ENV, "HOROVOD_AUTOTUNE"},
    {"no-autotune", 0, OFF, "HOROVOD_AUTOTUNE"},
    {"autotune-log-file", 1, ENV, "HOROVOD_AUTOTUNE_LOG"},
    {"autotune-warmup-samples", 1, ENV_NUMBER, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"},
    {"autotune-steps-per-sample", 1, ENV_NUMBER, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"},
    {"autotune-bayes-opt-max-samples", 1, ENV_NUMBER,
     "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"},
    {"autotune-gaussian-process-noise", 1, ENV_NUMBER,
     "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE"},
    {"min-np", 1, NOT_ELASTIC},
    {"min-num-proc", 1, NOT_ELASTIC},
    {"max-np", 1, NOT_ELASTIC},
    {"max-num-proc", 1, NOT_ELASTIC},
    {"slots-per-host", 1, LAUNCHER_KEY, "procsPerNode"},
    {"host-discovery-script", 1, NOT_ELASTIC},
    {"elastic-timeout", 1, NOT_ELASTIC},
    {"reset-limit", 1, LAUNCHER_KEY, "restart.max"},
    {"blacklist-cooldown-range", 2, NOT_ELASTIC},
    {"timeline-filename", 1, ENV, "HOROVOD_TIMELINE"},
    {"timeline-mark-cycles", 0, ENV, "HOROVOD_TIMELINE_MARK_CYCLES"},
    {"no-timeline-mark-cycles", 0, OFF, "HOROVOD_TIMELINE_MARK_CYCLES"},
    {"no-stall-check", 0, ENV, "HOROVOD_STALL_CHECK_DISABLE"},
    {"stall-check", 0, OFF, "HOROVOD_STALL_CHECK_DISABLE"},
    {"stall-check-warning-time-seconds", 1, ENV_NUMBER,
     "HOROVOD_STALL_CHECK_TIME_SECONDS"},
    {"stall-check-shutdown-time-seconds", 1, ENV_NUMBER,
     "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"},
    {"num-nccl-streams", 1, ENV_NUMBER, "HOROVOD_NUM_NCCL_STREAMS"},
    {"thread-affinity", 1, ENV, "HOROVOD_THREAD_AFFINITY"},
    {"gloo-timeout-seconds", 1, ENV_NUMBER, "HOROVOD_GLOO_TIMEOUT_SECONDS"},
    {"log-level", 1, ENV, "HOROVOD_LOG_LEVEL"},
    {"log-with-timestamp", 0, OFF, "HOROVOD_LOG_HIDE_TIME"},
    {"no-log-hide-timestamp", 0, OFF, "HOROVOD_LOG_HIDE_TIME"},
    {"log-without-timestamp", 0, ENV, "HOROVOD_LOG_HIDE_TIME"},
    {"log-hide-timestamp", 0, ENV, "HOROVOD_LOG_HIDE_TIME"},
    {0},
};

bool command_is_horovod(struct command *cmd)
{
    static const char *const programs[] = {"horovodrun", NULL};
    static const char *const modules[] = {"horovod.runner.launch", NULL};

    return command_is_one_of(cmd, programs, modules);
}

/* --- options --- */

static void set_text(struct command *cmd, const struct node *like,
                     const char *name, const char *text)
{
    command_set_env(cmd, name,
                    node_scalar(cmd->c->arena, &like->place, text, false));
}

/* gloo takes one, NCCL several. */
static void read_interfaces(struct command *cmd,
                            const struct launcher_hit *hit)
{
    const struct node *value = hit->values[0];

    if (command_is_unexpanded(cmd, hit, value)) {
        return;
    }
    set_text(cmd, value, "HOROVOD_GLOO_IFACE",
             arena_printf(cmd->c->arena, "%.*s",
                          (int)strcspn(value->text, ","), value->text));
    set_text(cmd, value, "NCCL_SOCKET_IFNAME", value->text);
}

/* Its variable is in bytes. */
static void read_fusion(struct command *cmd, const struct launcher_hit *hit)
{
    const struct node *value = hit->values[0];
    uint64_t mib;

    if (value_count(value->text, &mib) < 0 || mib > UINT32_MAX) {
        report_error(cmd->c->report, &value->place,
                     "%.40s of %s is %.40s; expected a number of megabytes",
                     hit->node->text, cmd->launcher, value->text);
        return;
    }
    set_text(cmd, value, "HOROVOD_FUSION_THRESHOLD",
             arena_printf(cmd->c->arena, "%llu",
                          (unsigned long long)mib << 20));
}

struct own {
    struct node *config;
    struct launcher_hit hosts; /* option is NULL: not given */
};

static void read_option(struct command *cmd, const struct launcher_hit *hit,
                        void *arg)
{
    struct own *own = arg;

    switch ((enum meaning)hit->option->meaning) {
    case CONFIG:
        own->config = hit->values[0];
        break;
    case HOSTS:
        own->hosts = *hit;
        break;
    case INTERFACES:
        read_interfaces(cmd, hit);
        break;
    case FUSION:
        read_fusion(cmd, hit);
        break;
    case STAMPS:
        command_offer(cmd, hit, "logs.prefix",
                      node_scalar(cmd->c->arena, &hit->node->place,
                                  "{time} [{rank}] ", false));
        break;
    }
}

/* --- the configuration --- */

/* Its keys, and the options that they are; of a switch also its opposite. */
static const struct {
    const char *path, *option, *opposite;
} keys[] = {
    {"params.fusion_threshold_mb", "fusion-threshold-mb", NULL},
    {"params.cycle_time_ms", "cycle-time-ms", NULL},
    {"params.cache_capacity", "cache-capacity", NULL},
    {"params.hierarchical_allreduce", "hierarchical-allreduce",
     "no-hierarchical-allreduce"},
    {"params.hierarchical_allgather", "hierarchical-allgather",
     "no-hierarchical-allgather"},
    {"autotune.enabled", "autotune", "no-autotune"},
    {"autotune.log_file", "autotune-log-file", NULL},
    {"autotune.warmup_samples", "autotune-warmup-samples", NULL},
    {"autotune.steps_per_sample", "autotune-steps-per-sample", NULL},
    {"autotune.bayes_opt_max_samples", "autotune-bayes-opt-max-samples", NULL},
    {"autotune.gaussian_process_noise", "autotune-gaussian-process-noise",
     NULL},
    {"timeline.filename", "timeline-filename", NULL},
    {"timeline.mark_cycles", "timeline-mark-cycles",
     "no-timeline-mark-cycles"},
    {"stall_check.enabled", "stall-check", "no-stall-check"},
    {"stall_check.warning_time_seconds", "stall-check-warning-time-seconds",
     NULL},
    {"stall_check.shutdown_time_seconds", "stall-check-shutdown-time-seconds",
     NULL},
    {"library_options.mpi_threads_disable", "mpi-threads-disable",
     "no-mpi-threads-disable"},
    {"library_options.num_nccl_streams", "num-nccl-streams", NULL},
    {"library_options.thread_affinity", "thread-affinity", NULL},
    {"library_options.gloo_timeout_seconds", "gloo-timeout-seconds", NULL},
    {"logging.level", "log-level", NULL},
    {"logging.with_timestamp", "log-with-timestamp", "log-without-timestamp"},
};

static void take_controller(struct command *cmd, const struct node *value)
{
    if (strcasecmp(value->text, "gloo") != 0) {
        report_error(cmd->c->report, &value->place,
                     "controller %.40s of %s; expected gloo, or mpirun in "
                     "place of horovodrun",
                     value->text, cmd->launcher);
    }
}

static bool is_true(const struct node *value)
{
    return strcasecmp(value->text, "true") == 0;
}

static const struct launcher_option *option_named(const char *name)
{
    const struct launcher_option *option = options;

    while (option->name && strcmp(option->name, name) != 0) {
        option++;
    }
    return option->name ? option : NULL;
}

static void take_key(struct command *cmd, const char *path,
                     const struct pair *p)
{
    struct launcher_hit hit = {.values = {p->value}};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (strcmp(keys[i].path, path) == 0) {
            hit.option = option_named(keys[i].opposite && !is_true(p->value)
                                          ? keys[i].opposite
                                          : keys[i].option);
        }
    }
    hit.node = node_scalar(cmd->c->arena, &p->place, path, true);
    if (!hit.option || !hit.node) {
        report_error(cmd->c->report, &p->place,
                     "%.80s in the configuration of %s; expected a key that "
                     "muster knows",
                     path, cmd->launcher);
    } else if (hit.option->meaning == FUSION) {
        read_fusion(cmd, &hit);
    } else {
        command_take(cmd, &hit);
    }
}

static void take_pair(struct command *cmd, const char *section,
                      const struct pair *p)
{
    const char *path = section ? arena_printf(cmd->c->arena, "%.40s.%.60s",
                                              section, p->key)
                               : p->key;

    if (!path || node_is_null(p->value)) {
        return;
    }
    if (p->value->kind == NODE_MAP && !section) {
        for (size_t i = 0; i < p->value->n &&
                           !report_is_full(cmd->c->report); i++) {
            take_pair(cmd, p->key, &p->value->pairs[i]);
        }
    } else if (p->value->kind != NODE_SCALAR) {
        report_error(cmd->c->report, &p->place,
                     "%.80s in the configuration of %s is %s; expected text",
                     path, cmd->launcher, node_noun(p->value));
    } else if (strcmp(path, "controller") == 0) {
        take_controller(cmd, p->value);
    } else if (strcmp(path, "verbose") != 0) {
        take_key(cmd, path, p);
    }
}

bool command_read_horovod(struct command *cmd)
{
    size_t errors = cmd->c->report->n_errors;
    struct arena *a = cmd->c->arena;
    const struct place *at = &cmd->argv[0]->place;
    struct own own = {0};
    const struct node *doc;

    if (!command_read_options(cmd, options, read_option, &own)) {
        return false;
    }
    doc = own.config ? command_load(cmd, own.config->text, &own.config->place)
                     : NULL;
    for (size_t i = 0; doc && i < doc->n &&
                       !report_is_full(cmd->c->report); i++) {
        take_pair(cmd, NULL, &doc->pairs[i]);
    }
    if (own.hosts.option && !command_settle_hosts(cmd, &own.hosts, false)) {
        return false;
    }
    command_settle_total(cmd);
    set_text(cmd, cmd->argv[0], "PYTHONUNBUFFERED", "1");
    if (!node_get(cmd->tree, "horovod")) {
        node_set(a, cmd->tree, "horovod", node_scalar(a, at, "gloo", true));
    }
    report_note(cmd->c->report, at,
                "%s is not run: muster starts %.80s itself", cmd->launcher,
                cmd->argv[cmd->at]->text);
    command_replace(cmd, NULL, 0);
    return cmd->c->report->n_errors == errors;
}
