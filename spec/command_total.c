/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a job is, from launchers that say it for the whole job: so many
 * processes.
 */
#include <config.h>

#include "base/str.h"
#include "spec/command.h"
#include "spec/value.h"

#include <string.h>

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

struct node *command_number(struct command *cmd, const struct launcher_hit *hit,
                            uint64_t v)
{
    return node_scalar(cmd->c->arena, &hit->node->place,
                       arena_printf(cmd->c->arena, "%llu",
                                    (unsigned long long)v),
                       true);
}

static void set_number(struct command *cmd, const struct launcher_hit *hit,
                       const char *path, uint64_t v)
{
    node_set_path(cmd->c->arena, cmd->tree, path, command_number(cmd, hit, v));
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

bool command_total(struct command *cmd, uint64_t *ret)
{
    const struct launcher_hit *hit = &cmd->total;

    *ret = 0;
    if (!hit->option) {
        return true;
    }
    if (value_count(hit->values[0]->text, ret) < 0 || *ret < 1 ||
        *ret > UINT32_MAX) {
        report_error(cmd->c->report, &hit->values[0]->place,
                     "%s %.30s of %s; expected a number of processes",
                     hit->node->text, hit->values[0]->text, cmd->launcher);
        return false;
    }
    return true;
}

void command_settle_total(struct command *cmd)
{
    const struct launcher_hit *hit = &cmd->total;
    bool has_nodes, has_procs;
    uint64_t nodes = fixed_at(cmd, "nodes", &has_nodes);
    uint64_t procs = fixed_at(cmd, "procsPerNode", &has_procs);
    uint64_t total;

    if (!command_total(cmd, &total) || !total) {
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
