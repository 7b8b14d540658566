/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchrun, python -m torch.distributed.run and the older .launch.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/command.h"
#include "spec/resolve.h"
#include "spec/spec.h"
#include "spec/value.h"

#include <string.h>

enum meaning {
    NOTED,      /* no loss, or none that matters: `reasons` says why */
    RENDEZVOUS, /* muster's own work */
    RDZV_CONF,
    NODES,
    PROCS,
    RESTARTS,
    GRACE,
    NUMA,
    MODULE,
    NO_PYTHON,
    USE_ENV,
    SHOW,
    REFUSED, /* what it asks for cannot be had: `reasons` says what can */
};

static const struct launcher_option options[] = {
    {"nnodes", 1, NODES},
    {"nproc-per-node", 1, PROCS},
    {"max-restarts", 1, RESTARTS},
    {"shutdown-timeout", 1, GRACE},
    {"numa-binding", 1, NUMA},
    {"module", 0, MODULE},
    {"m", 0, MODULE},
    {"no-python", 0, NO_PYTHON},
    {"use-env", 0, USE_ENV},
    {"rdzv-backend", 1, RENDEZVOUS},
    {"rdzv-endpoint", 1, RENDEZVOUS},
    {"rdzv-id", 1, RENDEZVOUS},
    {"rdzv-conf", 1, RDZV_CONF},
    {"standalone", 0, RENDEZVOUS},
    {"node-rank", 1, RENDEZVOUS},
    {"master-addr", 1, RENDEZVOUS},
    {"master-port", 1, RENDEZVOUS},
    {"local-addr", 1, RENDEZVOUS},
    {"monitor-interval", 1, NOTED},
    {"start-method", 1, NOTED},
    {"event-log-handler", 1, NOTED},
    {"role", 1, NOTED},
    {"log-dir", 1, NOTED},
    {"redirects", 1, NOTED},
    {"r", 1, NOTED},
    {"tee", 1, NOTED},
    {"t", 1, NOTED},
    {"local-ranks-filter", 1, SHOW},
    {"duplicate-stdout-filters", 1, NOTED},
    {"duplicate-stderr-filters", 1, NOTED},
    {"log-line-prefix-template", 1, NOTED},
    {"logs-specs", 1, NOTED},
    {"signals-to-handle", 1, NOTED},
    {"run-path", 0, REFUSED},
    {"virtual-local-rank", 0, REFUSED},
    {"print-completion", 1, REFUSED},
    {0},
};

static const struct {
    const char *name, *why;
} reasons[] = {
    {"monitor-interval", "muster hears of a worker's end at once"},
    {"start-method", "every worker is a program of its own"},
    {"event-log-handler", "events.jsonl of the run directory has the events"},
    {"role", "all workers have the role default"},
    {"log-dir", "logs are in the run directory, or in that of --run-dir"},
    {"redirects", "muster writes a file for each worker and stream, and shows "
                  "both"},
    {"tee", "muster writes a file for each worker and stream, and shows both"},
    {"local-ranks-filter", "on several nodes muster shows ranks by their number "
                           "in the job (logs.show), not on the node"},
    {"duplicate-stdout-filters", "muster keeps all output in one place"},
    {"duplicate-stderr-filters", "muster keeps all output in one place"},
    {"log-line-prefix-template", "logs.prefix of the spec says what stands "
                                 "before lines"},
    {"logs-specs", "muster keeps logs its own way"},
    {"signals-to-handle", "muster run --help tells what each signal does"},
    {"run-path", "expected a script, or -m and a module"},
    {"virtual-local-rank", "expected a program that selects its GPU by "
                           "LOCAL_RANK"},
    {"print-completion", "expected a script; completion comes with muster"},
};

/* By the long name; -r and -t are two of them. */
static const char *reason_of(const struct launcher_option *option)
{
    const char *name = strcmp(option->name, "r") == 0   ? "redirects"
                       : strcmp(option->name, "t") == 0 ? "tee"
                                                        : option->name;

    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
        if (strcmp(reasons[i].name, name) == 0) {
            return reasons[i].why;
        }
    }
    return "muster has no use for it";
}

/* The module after -m, where `argv` is python; *ret_at is behind it. */
static const char *python_module(const struct command *cmd, size_t *ret_at)
{
    for (size_t i = 1; i < cmd->n && cmd->argv[i]->text[0] == '-'; i++) {
        const char *s = cmd->argv[i]->text;

        if (strcmp(s, "-m") == 0 && i + 1 < cmd->n) {
            *ret_at = i + 2;
            return cmd->argv[i + 1]->text;
        }
        if (strcmp(s, "-c") == 0) {
            return NULL;
        }
        i += strcmp(s, "-X") == 0 || strcmp(s, "-W") == 0;
    }
    return NULL;
}

bool command_is_torch(struct command *cmd)
{
    static const char *const modules[] = {
        "torch.distributed.run", "torch.distributed.launch",
        "torch.distributed.elastic.launch", NULL};
    const char *module;
    size_t at = 0;

    if (strcmp(command_basename(cmd->argv[0]->text), "torchrun") == 0) {
        cmd->launcher = "torchrun";
        cmd->at = 1;
        return true;
    }
    module = command_is_python(cmd->argv[0]->text) ? python_module(cmd, &at) : NULL;
    for (size_t i = 0; module && modules[i]; i++) {
        if (strcmp(module, modules[i]) == 0) {
            cmd->launcher = modules[i];
            cmd->at = at;
            return true;
        }
    }
    return false;
}

struct wants {
    bool module;
    bool no_python;
    bool use_env;
    struct launcher_hit filter; /* option is NULL: none */
};

static void note_no_effect(struct command *cmd, const struct launcher_hit *hit,
                           const char *why)
{
    report_note(cmd->c->report, &hit->node->place,
                "%.80s of %s has no effect: %s", hit->node->text,
                cmd->launcher, why);
}

/* "30", which torchrun takes as seconds, for a span. */
static struct node *in_seconds(struct command *cmd, const struct node *value,
                               const char *text, size_t len)
{
    return node_scalar(cmd->c->arena, &value->place,
                       arena_printf(cmd->c->arena, "%.*ss", (int)len, text),
                       true);
}

/* k=v,...: of all its keys only the time that joining may take is muster's to
 * keep. */
static void read_rdzv_conf(struct command *cmd, const struct launcher_hit *hit)
{
    static const char key[] = "join_timeout=";
    const char *s = hit->values[0]->text;

    while (*s) {
        size_t len = strcspn(s, ",");

        if (str_starts(s, key)) {
            command_offer(cmd, hit, "gang.timeout",
                          in_seconds(cmd, hit->values[0],
                                     s + sizeof(key) - 1,
                                     len - (sizeof(key) - 1)));
            return;
        }
        s += len + (s[len] == ',');
    }
    note_no_effect(cmd, hit, "muster gathers the processes itself");
}

static void read_numa(struct command *cmd, const struct launcher_hit *hit)
{
    static const char *const words[][2] = {
        {"node", "numa"},
        {"socket", "socket"},
    };
    struct node *value = hit->values[0];

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(value->text, words[i][0]) == 0) {
            command_offer(cmd, hit, "binding",
                          node_scalar(cmd->c->arena, &value->place,
                                      words[i][1], true));
            return;
        }
    }
    report_error(cmd->c->report, &value->place,
                 "%.80s of %s is %.40s; expected node or socket",
                 hit->node->text, cmd->launcher, value->text);
}

static void read_option(struct command *cmd, struct launcher_hit *hit,
                        struct wants *wants)
{
    struct node *value = hit->values[0];

    switch ((enum meaning)hit->option->meaning) {
    case NODES:
        command_offer(cmd, hit, "nodes", value);
        break;
    case PROCS:
        command_offer(cmd, hit, "procsPerNode", value);
        break;
    case RESTARTS:
        command_offer(cmd, hit, "restart.max", value);
        break;
    case GRACE:
        command_offer(cmd, hit, "limits.grace",
                      in_seconds(cmd, value, value->text,
                                 strlen(value->text)));
        break;
    case NUMA:
        read_numa(cmd, hit);
        break;
    case MODULE:
        wants->module = true;
        break;
    case NO_PYTHON:
        wants->no_python = true;
        break;
    case USE_ENV:
        wants->use_env = true;
        break;
    case SHOW:
        wants->filter = *hit;
        break;
    case RDZV_CONF:
        read_rdzv_conf(cmd, hit);
        break;
    case RENDEZVOUS:
        note_no_effect(cmd, hit, "muster gathers the processes itself");
        break;
    case NOTED:
        note_no_effect(cmd, hit, reason_of(hit->option));
        break;
    case REFUSED:
        report_error(cmd->c->report, &hit->node->place, "%s of %s; %s",
                     hit->node->text, cmd->launcher, reason_of(hit->option));
        break;
    }
}

/* torchrun beside its own interpreter, in the same environment. */
static struct node *interpreter(struct command *cmd)
{
    struct node *word = cmd->argv[0];
    const char *name = command_basename(word->text);

    if (command_is_python(word->text)) {
        return word;
    }
    return node_scalar(cmd->c->arena, &word->place,
                       arena_printf(cmd->c->arena, "%.*spython3",
                                    (int)(name - word->text), word->text),
                       false);
}

/* What is started: as torchrun does it, with output unbuffered. */
static void start_program(struct command *cmd, const struct wants *wants)
{
    struct arena *a = cmd->c->arena;
    const struct place *at = &cmd->argv[0]->place;
    struct node *first[3] = {interpreter(cmd),
                             node_scalar(a, at, "-u", false),
                             node_scalar(a, at, "-m", false)};
    size_t n = wants->no_python ? 0 : wants->module ? 3 : 2;
    const char *program = cmd->argv[cmd->at]->text;

    command_replace(cmd, first, n);
    report_note(cmd->c->report, at,
                "%s is not run: muster starts %.80s itself", cmd->launcher,
                program);
    if (strcmp(cmd->launcher, "torch.distributed.launch") == 0 &&
        !wants->use_env) {
        report_note(cmd->c->report, at,
                    "%s passed --local-rank to older programs; here they find "
                    "LOCAL_RANK in the environment",
                    cmd->launcher);
    }
}

static bool has_one_node(const struct node *tree)
{
    const struct node *nodes = node_get_path(tree, "nodes");
    struct job_nodes n = {0};

    return !nodes || node_is_null(nodes) ||
           (nodes->kind == NODE_SCALAR &&
            value_range(nodes->text, UINT32_MAX, &n) == 0 && n.max == 1);
}

/* Ranks on the node are those of the job where the job has one node. */
static void settle_filter(struct command *cmd, const struct launcher_hit *hit)
{
    if (!hit->option) {
        return;
    }
    if (!has_one_node(cmd->tree)) {
        note_no_effect(cmd, hit, reason_of(hit->option));
    } else if (hit->values[0]->text[0]) {
        command_offer(cmd, hit, "logs.show", hit->values[0]);
    }
}

/* torchrun's own defaults, where muster stands in for the command itself; in a
 * job those of muster count. */
static void settle_defaults(struct command *cmd)
{
    static const char *const defaults[][2] = {{"procsPerNode", "1"},
                                              {"restart.max", "0"}};
    static const struct place at = {.file = "default of torchrun"};

    if (cmd->c->request->as_launcher) {
        for (size_t i = 0; i < ARRAY_SIZE(defaults); i++) {
            if (!node_get_path(cmd->tree, defaults[i][0])) {
                node_set_path(cmd->c->arena, cmd->tree, defaults[i][0],
                              node_scalar(cmd->c->arena, &at, defaults[i][1],
                                          true));
            }
        }
    } else if (!node_get(cmd->tree, "procsPerNode")) {
        report_note(cmd->c->report, &cmd->argv[0]->place,
                    "%s would start one process a node; procsPerNode is auto, "
                    "as nothing says otherwise",
                    cmd->launcher);
    }
}

bool command_read_torch(struct command *cmd)
{
    size_t errors = cmd->c->report->n_errors;
    struct wants wants = {0};
    struct launcher_hit hit;
    int rc;

    while ((rc = command_next(cmd, options, &hit)) > 0) {
        read_option(cmd, &hit, &wants);
    }
    if (rc < 0) {
        return false;
    }
    if (cmd->at == cmd->n) {
        report_error(cmd->c->report, &cmd->argv[0]->place,
                     "%s without a program; expected a script behind its "
                     "options",
                     cmd->launcher);
        return false;
    }
    if (wants.module && wants.no_python) {
        report_error(cmd->c->report, &cmd->argv[0]->place,
                     "both --module and --no-python of %s; expected one of "
                     "them", cmd->launcher);
        return false;
    }
    resolve_environment(cmd->c, cmd->tree);
    settle_defaults(cmd);
    settle_filter(cmd, &wants.filter);
    start_program(cmd, &wants);
    return cmd->c->report->n_errors == errors;
}

int spec_torchrun_option(const char *word)
{
    const struct launcher_option *option = command_option(options, word);

    if (word[0] != '-' || !option) {
        return -1;
    }
    return strchr(word, '=') ? 0 : (int)option->n_values;
}
