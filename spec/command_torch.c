/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchrun, python -m torch.distributed.run and the older .launch. Their options
 * are read as argparse reads them, without its abbreviations: the last one of a
 * name counts, and PET_NAME in the environment is the default of --name.
 */
#include <config.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "spec/command_torch.h"
#include "spec/resolve.h"
#include "spec/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum meaning {
    RENDEZVOUS, /* muster's own work */
    RDZV_NUMBER, /* the same, and a whole number */
    RDZV_CONF,
    RDZV_ID,
    LOCAL_ADDR,
    STANDALONE,
    NODES,
    PROCS,
    RESTARTS,
    GRACE,
    ROLE,
    LOG_DIR,
    INTERVAL,
    METHOD,
    EVENTS,
    SIGNALS,
    MODULE,
    NO_PYTHON,
    USE_ENV,
    RUN_PATH,
    REDIRECTS,
    TEE,
    FILTER,
    PREFIX,
    REFUSED, /* what it asks for cannot be had; text: what can */
    UNLESS_EMPTY, /* the same, unless it asks for nothing */
    LOGS_SPECS, /* the same, unless it asks for what torchrun does anyway */
};

static const struct launcher_option options[] = {
    {"nnodes", 1, NODES, NULL},
    {"nproc-per-node", 1, PROCS, NULL},
    {"max-restarts", 1, RESTARTS, NULL},
    {"shutdown-timeout", 1, GRACE, NULL},
    {"numa-binding", 1, REFUSED,
     "it to be left out: workers are not bound yet"},
    {"module", 0, MODULE, NULL},
    {"m", 0, MODULE, NULL},
    {"no-python", 0, NO_PYTHON, NULL},
    {"use-env", 0, USE_ENV, NULL},
    {"run-path", 0, RUN_PATH, NULL},
    {"rdzv-backend", 1, RENDEZVOUS, NULL},
    {"rdzv-endpoint", 1, RENDEZVOUS, NULL},
    {"rdzv-id", 1, RDZV_ID, NULL},
    {"rdzv-conf", 1, RDZV_CONF, NULL},
    {"standalone", 0, STANDALONE, NULL},
    {"node-rank", 1, RDZV_NUMBER, NULL},
    {"master-addr", 1, RENDEZVOUS, NULL},
    {"master-port", 1, RDZV_NUMBER, NULL},
    {"local-addr", 1, LOCAL_ADDR, NULL},
    {"monitor-interval", 1, INTERVAL, "muster hears of a worker's end at once"},
    {"start-method", 1, METHOD, "every worker is a program of its own"},
    {"event-log-handler", 1, EVENTS,
     "null: events.jsonl of the run directory has the events"},
    {"role", 1, ROLE, NULL},
    {"log-dir", 1, LOG_DIR, NULL},
    {"redirects", 1, REDIRECTS, NULL},
    {"r", 1, REDIRECTS, NULL},
    {"tee", 1, TEE,
     "muster writes a file for each worker and stream, and shows both"},
    {"t", 1, TEE, NULL},
    {"local-ranks-filter", 1, FILTER, NULL},
    {"duplicate-stdout-filters", 1, UNLESS_EMPTY,
     "nothing: muster logs shows the output of a run, for grep"},
    {"duplicate-stderr-filters", 1, UNLESS_EMPTY,
     "nothing: muster logs shows the output of a run, for grep"},
    {"log-line-prefix-template", 1, PREFIX, NULL},
    {"logs-specs", 1, LOGS_SPECS,
     "nothing, or default: muster keeps logs its own way"},
    {"signals-to-handle", 1, SIGNALS, NULL},
    {"virtual-local-rank", 0, REFUSED,
     "a program that selects its GPU by LOCAL_RANK"},
    {"print-completion", 1, REFUSED, "a script; completion comes with muster"},
    {0},
};

bool command_is_torch(struct command *cmd)
{
    static const char *const programs[] = {"torchrun", NULL};
    static const char *const modules[] = {
        "torch.distributed.run", "torch.distributed.launch",
        "torch.distributed.elastic.launch", NULL};

    return command_is_one_of(cmd, programs, modules);
}

/* What was given, by the place of its option in the table; those without an
 * option were not. */
struct given {
    struct launcher_hit hits[ARRAY_SIZE(options)];
};

/* The place of an option; one letter stands for its long name, which is before
 * it. */
static size_t place_of(const struct launcher_option *option)
{
    while (!option->name[1]) {
        option--;
    }
    return (size_t)(option - options);
}

static const struct launcher_hit *hit_of(const struct given *given,
                                         enum meaning meaning)
{
    size_t i = 0;

    while (options[i].name && options[i].meaning != (int)meaning) {
        i++;
    }
    return &given->hits[i];
}

static bool is_given(const struct given *given, enum meaning meaning)
{
    return hit_of(given, meaning)->option != NULL;
}

/* --- the environment --- */

static void variable_of(const struct launcher_option *option, char *to,
                        size_t size)
{
    int n = snprintf(to, size, "PET_%s", option->name);

    for (int i = 0; i < n && (size_t)i < size; i++) {
        to[i] = to[i] == '-' ? '_' : (char)toupper((unsigned char)to[i]);
    }
}

static void take_variable(struct command *cmd, const char *name,
                          const struct launcher_option *option,
                          struct given *given)
{
    struct arena *a = cmd->c->arena;
    const struct place at = {.file = arena_printf(a, "environment %s", name)};
    const char *value = form_getenv(cmd->c, name);
    struct launcher_hit hit = {.option = option, .is_environment = true};
    int64_t number = 1;

    if (!value || !value[0] || given->hits[place_of(option)].option) {
        return;
    }
    hit.node = node_scalar(a, &at, name, false);
    hit.values[0] = node_scalar(a, &at, value, true);
    if (!hit.node || !hit.values[0]) {
        return;
    }
    if (option->n_values == 0) {
        if (str_to_i64(value, &number) < 0) {
            torch_refuse(cmd, &hit, "0 or 1");
        }
        hit.values[0] = NULL;
    }
    if (number != 0) {
        given->hits[place_of(option)] = hit;
    }
}

/* In a worker of muster these are what muster tells that worker. */
static void add_environment(struct command *cmd, struct given *given)
{
    char name[64];

    if (form_getenv(cmd->c, "MUSTER_RUN_ID")) {
        return;
    }
    for (size_t i = 0; options[i].name; i++) {
        if (options[i].name[1]) {
            variable_of(&options[i], name, sizeof(name));
            take_variable(cmd, name, &options[i], given);
        }
    }
    take_variable(cmd, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
                  &options[hit_of(given, GRACE) - given->hits], given);
    take_variable(cmd, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
                  &options[hit_of(given, PREFIX) - given->hits], given);
    torch_note_variables(cmd);
}

/* --- the options --- */

static void check_number(struct command *cmd, const struct launcher_hit *hit)
{
    uint64_t number;

    if (!command_is_unexpanded(cmd, hit, hit->values[0]) &&
        str_to_u64(hit->values[0]->text, &number) < 0) {
        torch_refuse(cmd, hit, "a whole number");
    }
}

static void check_interval(struct command *cmd, const struct launcher_hit *hit)
{
    double seconds;

    if (str_to_f64(hit->values[0]->text, &seconds) < 0 || seconds < 0) {
        torch_refuse(cmd, hit, "seconds");
        return;
    }
    command_note(cmd, hit, hit->option->text);
}

static void check_method(struct command *cmd, const struct launcher_hit *hit)
{
    const char *s = hit->values[0]->text;

    if (strcmp(s, "spawn") && strcmp(s, "fork") && strcmp(s, "forkserver")) {
        torch_refuse(cmd, hit, "spawn, fork or forkserver");
        return;
    }
    command_note(cmd, hit, hit->option->text);
}

/* "none" is what torchrun says where nobody says anything; and a job that stands
 * alone has an id of its own. */
static void read_id(struct command *cmd, const struct launcher_hit *hit,
                    bool is_standalone)
{
    if (is_standalone) {
        command_note(cmd, hit, "with --standalone each run has an id of its own");
    } else if (strcmp(hit->values[0]->text, "none") != 0) {
        command_offer(cmd, hit, "torch.runId", hit->values[0]);
    }
}

/* Of one node; where nodes meet is the network that it is in. A name may be any
 * of its addresses, and loopback leads to no other node. */
static void read_local_addr(struct command *cmd, const struct launcher_hit *hit)
{
    const char *s = hit->values[0]->text;
    struct sockaddr_storage sa;

    if (addr_parse(s, 0, &sa, NULL) < 0 || str_starts(s, "127.") ||
        strcmp(s, "::1") == 0) {
        command_note(cmd, hit, "muster gathers the processes itself, by the "
                     "network of an address that is not loopback");
    } else {
        command_offer(cmd, hit, "network.interface", hit->values[0]);
    }
}

static void read_option(struct command *cmd, const struct launcher_hit *hit,
                        const struct given *given)
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
                      command_seconds(cmd, value, value->text,
                                      strlen(value->text)));
        break;
    case ROLE:
        command_offer(cmd, hit, "torch.role", value);
        break;
    case LOG_DIR:
        command_offer(cmd, hit, "logs.dir", value);
        break;
    case RDZV_ID:
        read_id(cmd, hit, is_given(given, STANDALONE));
        break;
    case RDZV_CONF:
        torch_read_rdzv_conf(cmd, hit);
        break;
    case RDZV_NUMBER:
        check_number(cmd, hit);
        command_note(cmd, hit, "muster gathers the processes itself");
        break;
    case LOCAL_ADDR:
        read_local_addr(cmd, hit);
        break;
    case STANDALONE:
    case RENDEZVOUS:
        command_note(cmd, hit, "muster gathers the processes itself");
        break;
    case INTERVAL:
        check_interval(cmd, hit);
        break;
    case METHOD:
        check_method(cmd, hit);
        break;
    case SIGNALS:
        torch_read_signals(cmd, hit);
        break;
    case PREFIX:
        torch_read_prefix(cmd, hit);
        break;
    case TEE:
        if (!cmd->c->request->as_launcher) {
            command_note(cmd, hit, hit->option->text);
        }
        break;
    case EVENTS:
        if (strcmp(value->text, "null") != 0) {
            torch_refuse(cmd, hit, hit->option->text);
        }
        break;
    case LOGS_SPECS:
        if (value->text[0] && strcmp(value->text, "default") != 0) {
            torch_refuse(cmd, hit, hit->option->text);
        }
        break;
    case UNLESS_EMPTY:
        if (value->text[0]) {
            torch_refuse(cmd, hit, hit->option->text);
        }
        break;
    case REFUSED:
        torch_refuse(cmd, hit, hit->option->text);
        break;
    case MODULE:
    case NO_PYTHON:
    case USE_ENV:
    case RUN_PATH:
    case REDIRECTS:
    case FILTER:
        break; /* looked at together */
    }
}

static void apply(struct command *cmd, const struct given *given)
{
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        if (given->hits[i].option) {
            read_option(cmd, &given->hits[i], given);
        }
    }
    torch_settle_streams(cmd, hit_of(given, REDIRECTS), hit_of(given, TEE),
                         hit_of(given, FILTER));
}

/* What the older .launch puts behind the program, unless told --use-env. */
static struct node *local_rank(struct command *cmd, const struct given *given)
{
    if (strcmp(cmd->launcher, "torch.distributed.launch") != 0 ||
        is_given(given, USE_ENV)) {
        return NULL;
    }
    return node_scalar(cmd->c->arena, &cmd->argv[0]->place,
                       "--local-rank=$(LOCAL_RANK)", false);
}

/* torchrun's own defaults, where muster stands in for the command itself; in a
 * job those of muster count. */
static void settle_defaults(struct command *cmd, const struct given *given)
{
    static const char *const defaults[][2] = {{"procsPerNode", "1"},
                                              {"restart.max", "0"}};
    static const struct place at = {.file = "default of torchrun"};
    const struct launcher_hit *tee = hit_of(given, TEE);

    if (cmd->c->request->as_launcher && !node_get_path(cmd->tree, "logs.prefix")) {
        torch_default_prefix(cmd, tee->option &&
                                      strcmp(tee->values[0]->text, "0") != 0);
    }
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

/* All options, up to the program. False after an error. */
static bool read_all(struct command *cmd, struct given *given)
{
    struct launcher_hit hit;
    int rc;

    cmd->is_argparse = true;
    while ((rc = command_next(cmd, options, &hit)) > 0) {
        hit.option = &options[place_of(hit.option)];
        given->hits[hit.option - options] = hit;
    }
    return rc == 0;
}

bool command_read_torch(struct command *cmd)
{
    size_t errors = cmd->c->report->n_errors;
    struct given given = {0};

    if (!read_all(cmd, &given)) {
        return false;
    }
    if (cmd->at == cmd->n) {
        report_error(cmd->c->report, &cmd->argv[0]->place,
                     "%s without a program; expected a script behind its "
                     "options",
                     cmd->launcher);
        return false;
    }
    add_environment(cmd, &given);
    apply(cmd, &given);
    cmd->module = is_given(&given, MODULE) && !is_given(&given, RUN_PATH);
    cmd->no_python = is_given(&given, NO_PYTHON) &&
                     !is_given(&given, RUN_PATH);
    cmd->python = form_getenv(cmd->c, "PYTHON_EXEC");
    if (!command_check_python(cmd)) {
        return false;
    }
    resolve_environment(cmd->c, cmd->tree);
    settle_defaults(cmd, &given);
    command_start_python(cmd, local_rank(cmd, &given));
    return cmd->c->report->n_errors == errors;
}

/* What says how the program is started: without torchrun it starts itself. */
static void refuse_start(struct command *cmd, const struct given *given)
{
    static const enum meaning start[] = {MODULE, NO_PYTHON, USE_ENV, RUN_PATH};

    for (size_t i = 0; i < ARRAY_SIZE(start); i++) {
        if (is_given(given, start[i])) {
            torch_refuse(cmd, hit_of(given, start[i]),
                         "it of muster torchrun; muster run starts the program "
                         "as it is");
        }
    }
}

void command_torch_options(const struct context *c, struct node *tree,
                           char *const *words)
{
    static const struct place at = {.file = "command line"};
    struct node *list = node_list(c->arena, &at);
    struct command cmd = {.c = c, .tree = tree, .launcher = "torchrun"};
    struct given given = {0};

    for (; *words; words++) {
        node_append(c->arena, list, node_scalar(c->arena, &at, *words, false));
    }
    if (!list || list->n == 0) {
        return;
    }
    cmd.argv = list->items;
    cmd.n = list->n;
    if (read_all(&cmd, &given)) {
        refuse_start(&cmd, &given);
        apply(&cmd, &given);
    }
}

int spec_torchrun_option(const char *word)
{
    const char *attached;
    const struct launcher_option *option =
        command_option(options, word, &attached);

    if (!option) {
        return -1;
    }
    return attached ? 0 : (int)option->n_values;
}
