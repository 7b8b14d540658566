/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpirun -np N prog: an MPI program, whose processes keep the ranks that MPI
 * gives them. N is the whole job's, so it is held against nodes times processes
 * of each, or says one of them where only the other is known. Hosts that it names are
 * those of the run. Options of the MPI library itself are kept for the mpirun that
 * muster runs.
 */
#include <config.h>

#include "base/str.h"
#include "spec/command.h"

#include <string.h>

enum meaning {
    VARIABLE = LAUNCHER_OWN, /* NAME=VALUE, or two words */
    PASSED,                  /* to the mpirun that muster runs */
    HOSTS,
    HOSTFILE,
    BY_NODE,
    MAP,
};

#define PLACED LAUNCHER_NOTED, "muster places the processes"
#define SHOWN LAUNCHER_NOTED, "muster shows the output"

static const struct launcher_option options[] = {
    {"np", 1, LAUNCHER_TOTAL, NULL},
    {"n", 1, LAUNCHER_TOTAL, NULL},
    {"c", 1, LAUNCHER_TOTAL, NULL},
    {"npernode", 1, LAUNCHER_KEY, "procsPerNode"},
    {"N", 1, LAUNCHER_KEY, "procsPerNode"},
    {"ppn", 1, LAUNCHER_KEY, "procsPerNode"},
    {"perhost", 1, LAUNCHER_KEY, "procsPerNode"},
    {"x", 1, VARIABLE, NULL},
    {"genv", 2, VARIABLE, NULL},
    {"env", 2, VARIABLE, NULL},
    {"hostfile", 1, HOSTFILE, NULL},
    {"machinefile", 1, HOSTFILE, NULL},
    {"default-hostfile", 1, HOSTFILE, NULL},
    {"f", 1, HOSTFILE, NULL},
    {"host", 1, HOSTS, NULL},
    {"hosts", 1, HOSTS, NULL},
    {"H", 1, HOSTS, NULL},
    {"map-by", 1, MAP, NULL},
    {"rank-by", 1, PLACED},
    {"bind-to", 1, PASSED, NULL},
    {"bind-to-none", 0, PASSED, NULL},
    {"bind-to-core", 0, PASSED, NULL},
    {"bynode", 0, BY_NODE, NULL},
    {"byslot", 0, PLACED},
    {"nolocal", 0, PLACED},
    {"oversubscribe", 0, LAUNCHER_SILENT, NULL},
    {"allow-run-as-root", 0, LAUNCHER_SILENT, NULL},
    {"tag-output", 0, SHOWN},
    {"timestamp-output", 0, SHOWN},
    {"report-bindings", 0, PASSED, NULL},
    {"display-map", 0, PASSED, NULL},
    {"display-allocation", 0, PASSED, NULL},
    {"mca", 2, PASSED, NULL},
    {"gmca", 2, PASSED, NULL},
    {"prtemca", 2, PASSED, NULL},
    {"pmixmca", 2, PASSED, NULL},
    {"prefix", 1, PASSED, NULL},
    {"launcher", 1, PLACED},
    {"bootstrap", 1, PLACED},
    {"iface", 1, PLACED},
    {"genvall", 0, LAUNCHER_SILENT, NULL},
    {"v", 0, PASSED, NULL},
    {"q", 0, PASSED, NULL},
    {"quiet", 0, PASSED, NULL},
    {0},
};

bool command_is_mpi(struct command *cmd)
{
    static const char *const names[] = {"mpirun",  "mpiexec",      "orterun",
                                        "prterun", "mpiexec.hydra", NULL};

    return command_is_one_of(cmd, names, NULL);
}

/* -x NAME=VALUE; -x NAME forwards what muster's workers have anyway. */
static void set_variable(struct command *cmd, const struct launcher_hit *hit)
{
    struct arena *a = cmd->c->arena;
    struct node *name = hit->values[0], *value = hit->values[1];
    const char *sep = strchr(name->text, '=');

    if (value) {
        command_set_env(cmd, name->text, value);
    } else if (sep) {
        command_set_env(cmd,
                        arena_printf(a, "%.*s", (int)(sep - name->text),
                                     name->text),
                        node_scalar(a, &name->place, sep + 1, false));
    }
}

/* Behind those that the job has already. */
static void pass_on(struct command *cmd, const struct launcher_hit *hit)
{
    struct arena *a = cmd->c->arena;
    struct node *list = node_get(cmd->tree, "mpiArgs");
    bool is_attached = strchr(hit->node->text, '=');

    if (!list || node_is_null(list)) {
        list = node_list(a, &hit->node->place);
        node_set(a, cmd->tree, "mpiArgs", list);
    }
    if (!list || list->kind != NODE_LIST) {
        return; /* which the schema reports */
    }
    node_append(a, list, hit->node);
    for (unsigned i = is_attached; i < hit->option->n_values; i++) {
        node_append(a, list, hit->values[i]);
    }
}

struct own {
    struct launcher_hit hosts, map; /* option is NULL: not given */
    bool is_even; /* processes go by node, and not by slot */
};

/* Given again, it adds to them. */
static void take_hosts(struct command *cmd, const struct launcher_hit *hit,
                       struct own *own)
{
    struct arena *a = cmd->c->arena;
    const struct node *before = own->hosts.values[0];
    struct node *both = NULL;

    own->hosts = *hit;
    if (before) {
        both = node_scalar(a, &hit->values[0]->place,
                           arena_printf(a, "%s,%s", before->text,
                                        hit->values[0]->text), false);
    }
    if (both) {
        own->hosts.values[0] = both;
    }
}

static void read_own(struct command *cmd, const struct launcher_hit *hit,
                     void *arg)
{
    struct own *own = arg;

    switch ((enum meaning)hit->option->meaning) {
    case VARIABLE:
        set_variable(cmd, hit);
        break;
    case PASSED:
        pass_on(cmd, hit);
        break;
    case HOSTS:
        take_hosts(cmd, hit, own);
        break;
    case HOSTFILE:
        report_warn(cmd->c->report, &hit->node->place,
                    "%.80s of %s is not read; expected --hostfile of muster "
                    "run, which takes such files, and nodes",
                    hit->node->text, cmd->launcher);
        break;
    case BY_NODE:
    case MAP:
        own->map = *hit;
        break;
    }
}

/* "4" of ppr:4:node, or NULL. */
static struct node *procs_of_map(struct command *cmd, const struct node *map)
{
    static const char head[] = "ppr:";
    const char *at = map->text + sizeof(head) - 1;
    size_t len;

    if (!str_starts(map->text, head)) {
        return NULL;
    }
    len = strspn(at, "0123456789");
    if (!len || !str_starts(at + len, ":node") ||
        (at[len + 5] && at[len + 5] != ':')) {
        return NULL;
    }
    return node_scalar(cmd->c->arena, &map->place,
                       arena_printf(cmd->c->arena, "%.*s", (int)len, at), true);
}

/* What mapping says of how many processes are where; the rest is muster's. */
static void read_map(struct command *cmd, struct own *own)
{
    const struct node *map = own->map.values[0];
    struct node *procs = map ? procs_of_map(cmd, map) : NULL;

    if (!own->map.option) {
        return;
    }
    own->is_even = !map || (str_starts(map->text, "node") &&
                            (!map->text[4] || map->text[4] == ':'));
    if (procs) {
        command_offer(cmd, &own->map, "procsPerNode", procs);
    } else if (!own->is_even || !own->hosts.option) {
        command_note(cmd, &own->map, "muster places the processes");
    }
}

bool command_mpi_owns(const char *word)
{
    const char *name = word + strspn(word, "-");
    size_t len = strcspn(name, "=");

    for (size_t i = 0; word[0] == '-' && options[i].name; i++) {
        if (strncmp(options[i].name, name, len) == 0 &&
            !options[i].name[len]) {
            return options[i].meaning != PASSED;
        }
    }
    return false;
}

bool command_read_mpi(struct command *cmd)
{
    size_t errors = cmd->c->report->n_errors;
    const struct place *at = &cmd->argv[0]->place;
    struct own own = {0};

    if (!command_read_options(cmd, options, read_own, &own)) {
        return false;
    }
    for (size_t i = cmd->at; i < cmd->n; i++) {
        if (strcmp(cmd->argv[i]->text, ":") == 0) {
            report_error(cmd->c->report, &cmd->argv[i]->place,
                         "several programs in one %s; expected one",
                         cmd->launcher);
            return false;
        }
    }
    read_map(cmd, &own);
    if (own.hosts.option &&
        !command_settle_hosts(cmd, &own.hosts, own.is_even)) {
        return false;
    }
    command_settle_total(cmd);
    node_set(cmd->c->arena, cmd->tree, "program",
             node_scalar(cmd->c->arena, at, "mpi", true));
    report_note(cmd->c->report, at,
                "%s is not run as it stands: muster starts %.80s as an MPI "
                "program",
                cmd->launcher, cmd->argv[cmd->at]->text);
    command_replace(cmd, NULL, 0);
    return cmd->c->report->n_errors == errors;
}
