/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpirun -np N prog: an MPI program, whose processes keep the ranks that MPI
 * gives them. N is the whole job's, so it is held against nodes times processes
 * of each, or says one of them where only the other is known. Options of the MPI
 * library itself are kept for the mpirun that muster runs.
 */
#include <config.h>

#include "base/str.h"
#include "spec/command.h"

#include <string.h>

enum meaning {
    VARIABLE = LAUNCHER_OWN, /* NAME=VALUE, or two words */
    PASSED,                  /* to the mpirun that muster runs */
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
    {"hostfile", 1, PLACED},
    {"machinefile", 1, PLACED},
    {"default-hostfile", 1, PLACED},
    {"f", 1, PLACED},
    {"host", 1, PLACED},
    {"hosts", 1, PLACED},
    {"H", 1, PLACED},
    {"map-by", 1, PLACED},
    {"rank-by", 1, PLACED},
    {"bind-to", 1, PASSED, NULL},
    {"bind-to-none", 0, PASSED, NULL},
    {"bind-to-core", 0, PASSED, NULL},
    {"bynode", 0, PLACED},
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

static void read_own(struct command *cmd, const struct launcher_hit *hit,
                     void *arg)
{
    (void)arg;
    if (hit->option->meaning == PASSED) {
        pass_on(cmd, hit);
    } else {
        set_variable(cmd, hit);
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

    if (!command_read_options(cmd, options, read_own, NULL)) {
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
