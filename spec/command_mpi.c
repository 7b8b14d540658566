/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpirun -np N prog: an MPI program, whose processes keep the ranks that MPI
 * gives them. N is the whole job's, so it is held against nodes times processes
 * of each, or says one of them where only the other is known.
 */
#include <config.h>

#include "base/str.h"
#include "spec/command.h"
#include "spec/value.h"

#include <string.h>

enum meaning {
    IGNORED,
    PLACEMENT, /* hosts and mapping are muster's */
    TOTAL,
    PER_NODE,
    VARIABLE,
    VARIABLE_2, /* name and value as two words */
};

static const struct launcher_option options[] = {
    {"np", 1, TOTAL},
    {"n", 1, TOTAL},
    {"c", 1, TOTAL},
    {"npernode", 1, PER_NODE},
    {"N", 1, PER_NODE},
    {"ppn", 1, PER_NODE},
    {"perhost", 1, PER_NODE},
    {"x", 1, VARIABLE},
    {"genv", 2, VARIABLE_2},
    {"env", 2, VARIABLE_2},
    {"hostfile", 1, PLACEMENT},
    {"machinefile", 1, PLACEMENT},
    {"default-hostfile", 1, PLACEMENT},
    {"f", 1, PLACEMENT},
    {"host", 1, PLACEMENT},
    {"hosts", 1, PLACEMENT},
    {"H", 1, PLACEMENT},
    {"map-by", 1, PLACEMENT},
    {"rank-by", 1, PLACEMENT},
    {"bind-to", 1, PLACEMENT},
    {"bind-to-none", 0, PLACEMENT},
    {"bind-to-core", 0, PLACEMENT},
    {"bynode", 0, PLACEMENT},
    {"byslot", 0, PLACEMENT},
    {"nolocal", 0, PLACEMENT},
    {"oversubscribe", 0, IGNORED},
    {"allow-run-as-root", 0, IGNORED},
    {"tag-output", 0, IGNORED},
    {"timestamp-output", 0, IGNORED},
    {"report-bindings", 0, IGNORED},
    {"display-map", 0, IGNORED},
    {"display-allocation", 0, IGNORED},
    {"mca", 2, PLACEMENT},
    {"gmca", 2, PLACEMENT},
    {"prtemca", 2, PLACEMENT},
    {"pmixmca", 2, PLACEMENT},
    {"prefix", 1, PLACEMENT},
    {"launcher", 1, PLACEMENT},
    {"bootstrap", 1, PLACEMENT},
    {"iface", 1, PLACEMENT},
    {"genvall", 0, IGNORED},
    {"v", 0, IGNORED},
    {"q", 0, IGNORED},
    {"quiet", 0, IGNORED},
    {0},
};

bool command_is_mpi(struct command *cmd)
{
    static const char *const names[] = {"mpirun",  "mpiexec",      "orterun",
                                        "prterun", "mpiexec.hydra", NULL};
    const char *name = command_basename(cmd->argv[0]->text);

    for (size_t i = 0; names[i]; i++) {
        if (strcmp(names[i], name) == 0) {
            cmd->launcher = names[i];
            cmd->at = 1;
            return true;
        }
    }
    return false;
}

/* -x NAME=VALUE; -x NAME forwards what muster's workers have anyway. */
static void set_variable(struct command *cmd, struct node *name,
                         struct node *value)
{
    struct arena *a = cmd->c->arena;
    const char *sep = strchr(name->text, '=');
    char *key;

    if (!value && !sep) {
        return;
    }
    key = sep ? arena_printf(a, "%.*s", (int)(sep - name->text), name->text)
              : arena_strdup(a, name->text);
    value = value ? value : node_scalar(a, &name->place, sep + 1, false);
    if (key && !node_get(node_get(cmd->tree, "env"), key)) {
        node_set_path(a, cmd->tree, arena_printf(a, "env.%s", key), value);
    }
}

static void note_placement(struct command *cmd,
                           const struct launcher_hit *hit)
{
    report_note(cmd->c->report, &hit->node->place,
                "%.60s of %s has no effect: muster places the processes",
                hit->node->text, cmd->launcher);
}

static void read_option(struct command *cmd, struct launcher_hit *hit,
                        struct launcher_hit *ret_total)
{
    switch ((enum meaning)hit->option->meaning) {
    case TOTAL:
        if (!command_is_unexpanded(cmd, hit, hit->values[0])) {
            *ret_total = *hit;
        }
        break;
    case PER_NODE:
        command_offer(cmd, hit, "procsPerNode", hit->values[0]);
        break;
    case VARIABLE:
    case VARIABLE_2:
        set_variable(cmd, hit->values[0], hit->values[1]);
        break;
    case PLACEMENT:
        note_placement(cmd, hit);
        break;
    case IGNORED:
        break;
    }
}

/* A fixed number at a path of the tree; 0: none, or not fixed. */
static uint64_t fixed_at(const struct command *cmd, const char *path,
                         bool *ret_given)
{
    const struct node *n = node_get_path(cmd->tree, path);
    uint64_t v;

    *ret_given = n && !node_is_null(n);
    return *ret_given && n->kind == NODE_SCALAR &&
                   value_count(n->text, &v) == 0
               ? v
               : 0;
}

static void set_number(struct command *cmd, const struct launcher_hit *hit,
                       const char *path, uint64_t v)
{
    struct arena *a = cmd->c->arena;

    node_set_path(a, cmd->tree, path,
                  node_scalar(a, &hit->node->place,
                              arena_printf(a, "%llu", (unsigned long long)v),
                              true));
}

/* A total that does not come out even, or as the job has it. */
static void warn_of_total(struct command *cmd, const struct launcher_hit *hit,
                          uint64_t nodes, uint64_t procs)
{
    if (nodes && procs) {
        report_warn(cmd->c->report, &hit->node->place,
                    "%s %s of %s differs from what the job says, %llu node%s "
                    "with %llu processes each; the latter counts",
                    hit->node->text, hit->values[0]->text, cmd->launcher,
                    (unsigned long long)nodes, nodes == 1 ? "" : "s",
                    (unsigned long long)procs);
    } else {
        report_warn(cmd->c->report, &hit->node->place,
                    "%s %s of %s is no multiple of %llu %s; the latter counts",
                    hit->node->text, hit->values[0]->text, cmd->launcher,
                    (unsigned long long)(nodes ? nodes : procs),
                    nodes ? "nodes" : "processes of a node");
    }
}

/* Nodes and processes of each from their product, as far as they are open. */
static void settle_total(struct command *cmd, const struct launcher_hit *hit)
{
    bool has_nodes, has_procs;
    uint64_t nodes = fixed_at(cmd, "nodes", &has_nodes);
    uint64_t procs = fixed_at(cmd, "procsPerNode", &has_procs);
    uint64_t total = 0;

    if (value_count(hit->values[0]->text, &total) < 0 || total < 1 ||
        total > UINT32_MAX) {
        report_error(cmd->c->report, &hit->values[0]->place,
                     "%s %.30s of %s; expected a number of processes",
                     hit->node->text, hit->values[0]->text, cmd->launcher);
        return;
    }
    if (!has_nodes && !has_procs) {
        set_number(cmd, hit, "procsPerNode", total);
    } else if (!has_nodes && procs && total % procs == 0) {
        set_number(cmd, hit, "nodes", total / procs);
    } else if (!has_procs && nodes && total % nodes == 0) {
        set_number(cmd, hit, "procsPerNode", total / nodes);
    } else if ((nodes || !has_nodes) && (procs || !has_procs) &&
               nodes * procs != total) {
        warn_of_total(cmd, hit, nodes, procs);
    }
}

bool command_read_mpi(struct command *cmd)
{
    size_t errors = cmd->c->report->n_errors;
    struct launcher_hit hit, total = {0};
    const struct place *at = &cmd->argv[0]->place;
    int rc;

    while ((rc = command_next(cmd, options, &hit)) > 0) {
        read_option(cmd, &hit, &total);
    }
    if (rc < 0) {
        return false;
    }
    if (cmd->at == cmd->n) {
        report_error(cmd->c->report, at,
                     "%s without a program; expected one behind its options",
                     cmd->launcher);
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
    if (total.option) {
        settle_total(cmd, &total);
    }
    node_set(cmd->c->arena, cmd->tree, "program",
             node_scalar(cmd->c->arena, at, "mpi", true));
    report_note(cmd->c->report, at,
                "%s is not run as it stands: muster starts %.80s as an MPI "
                "program",
                cmd->launcher, cmd->argv[cmd->at]->text);
    command_replace(cmd, NULL, 0);
    return cmd->c->report->n_errors == errors;
}
