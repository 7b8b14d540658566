/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a job is, from launchers that say it for the whole job: so many
 * processes, or hosts with so many slots each.
 */
#include <config.h>

#include "base/str.h"
#include "spec/command.h"
#include "spec/value.h"

#include <string.h>

enum { MAX_HOSTS = 65536 };

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

static struct node *number(struct command *cmd, const struct launcher_hit *hit,
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
    node_set_path(cmd->c->arena, cmd->tree, path, number(cmd, hit, v));
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

void command_settle_total(struct command *cmd)
{
    const struct launcher_hit *hit = &cmd->total;
    bool has_nodes, has_procs;
    uint64_t nodes = fixed_at(cmd, "nodes", &has_nodes);
    uint64_t procs = fixed_at(cmd, "procsPerNode", &has_procs);
    uint64_t total = 0;

    if (!hit->option) {
        return;
    }
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

/* One HOST[:SLOTS] of a list; slots are 1 where it says none. 0 if it is
 * none. */
static uint64_t slots_of(const char *item, size_t len)
{
    const char *colon = memchr(item, ':', len);
    char text[16];
    uint64_t v;

    if (len == 0 || colon == item) {
        return 0;
    }
    if (!colon) {
        return 1;
    }
    len -= (size_t)(colon + 1 - item);
    str_copy(text, len < sizeof(text) ? len + 1 : sizeof(text), colon + 1);
    return len < sizeof(text) && value_count(text, &v) == 0 ? v : 0;
}

void command_offer_hosts(struct command *cmd, const struct launcher_hit *hit)
{
    const char *s = hit->values[0]->text;
    uint64_t n = 0, slots = 0;

    if (command_is_unexpanded(cmd, hit, hit->values[0])) {
        return;
    }
    for (;;) {
        size_t len = strcspn(s, ",");
        uint64_t own = slots_of(s, len);

        if (!own || n == MAX_HOSTS || (slots && own != slots)) {
            report_error(cmd->c->report, &hit->values[0]->place,
                         "%.60s of %s is %.60s; expected HOST:SLOTS,... with "
                         "as many slots on each (others are for --hosts of "
                         "muster run)",
                         hit->node->text, cmd->launcher, hit->values[0]->text);
            return;
        }
        slots = own;
        n++;
        if (!s[len]) {
            break;
        }
        s += len + 1;
    }
    command_offer(cmd, hit, "nodes", number(cmd, hit, n));
    if (!cmd->total.option) {
        command_offer(cmd, hit, "procsPerNode", number(cmd, hit, slots));
    }
    command_note(cmd, hit, "beyond the size of the job: which hosts they are "
                           "is for --hosts of muster run");
}
