/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchrun, python -m torch.distributed.run and the older .launch.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/command.h"

#include <string.h>

enum meaning {
    IGNORED,    /* no loss: logging of torchrun's own, and the like */
    RENDEZVOUS, /* muster's own work */
    NODES,
    PROCS,
    RESTARTS,
    MODULE,
    NO_PYTHON,
    RUN_PATH,
};

static const struct launcher_option options[] = {
    {"nnodes", 1, NODES},
    {"nproc-per-node", 1, PROCS},
    {"max-restarts", 1, RESTARTS},
    {"module", 0, MODULE},
    {"m", 0, MODULE},
    {"no-python", 0, NO_PYTHON},
    {"run-path", 0, RUN_PATH},
    {"rdzv-backend", 1, RENDEZVOUS},
    {"rdzv-endpoint", 1, RENDEZVOUS},
    {"rdzv-id", 1, RENDEZVOUS},
    {"rdzv-conf", 1, RENDEZVOUS},
    {"standalone", 0, RENDEZVOUS},
    {"node-rank", 1, RENDEZVOUS},
    {"master-addr", 1, RENDEZVOUS},
    {"master-port", 1, RENDEZVOUS},
    {"local-addr", 1, RENDEZVOUS},
    {"monitor-interval", 1, IGNORED},
    {"start-method", 1, IGNORED},
    {"event-log-handler", 1, IGNORED},
    {"role", 1, IGNORED},
    {"log-dir", 1, IGNORED},
    {"redirects", 1, IGNORED},
    {"r", 1, IGNORED},
    {"tee", 1, IGNORED},
    {"t", 1, IGNORED},
    {"local-ranks-filter", 1, IGNORED},
    {"duplicate-stdout-filters", 1, IGNORED},
    {"duplicate-stderr-filters", 1, IGNORED},
    {"logs-specs", 1, IGNORED},
    {"numa-binding", 1, IGNORED},
    {"signals-to-handle", 1, IGNORED},
    {"virtual-local-rank", 0, IGNORED},
    {"use-env", 0, IGNORED},
    {0},
};

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
};

static void note_rendezvous(struct command *cmd,
                            const struct launcher_hit *hit)
{
    report_note(cmd->c->report, &hit->node->place,
                "%.80s of %s has no effect: muster gathers the processes "
                "itself",
                hit->node->text, cmd->launcher);
}

static void read_option(struct command *cmd, struct launcher_hit *hit,
                        struct wants *wants)
{
    switch ((enum meaning)hit->option->meaning) {
    case NODES:
        command_offer(cmd, hit, "nodes", hit->values[0]);
        break;
    case PROCS:
        command_offer(cmd, hit, "procsPerNode", hit->values[0]);
        break;
    case RESTARTS:
        command_offer(cmd, hit, "restart.max", hit->values[0]);
        break;
    case MODULE:
        wants->module = true;
        break;
    case NO_PYTHON:
        wants->no_python = true;
        break;
    case RENDEZVOUS:
        note_rendezvous(cmd, hit);
        break;
    case RUN_PATH:
        report_error(cmd->c->report, &hit->node->place,
                     "%s of %s; expected a script, or -m and a module",
                     hit->node->text, cmd->launcher);
        break;
    case IGNORED:
        wants->use_env |= strcmp(hit->option->name, "use-env") == 0;
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
    if (!node_get(cmd->tree, "procsPerNode")) {
        report_note(cmd->c->report, &cmd->argv[0]->place,
                    "%s would start one process a node; procsPerNode is auto, "
                    "as nothing says otherwise",
                    cmd->launcher);
    }
    start_program(cmd, &wants);
    return cmd->c->report->n_errors == errors;
}
