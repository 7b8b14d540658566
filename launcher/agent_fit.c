/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the job fits those that came. A front end starts as many agents as the
 * job may have; `mpirun ... muster run` as many as mpirun was told.
 */
#include <config.h>

#include "launcher/agent.h"

#include <errno.h>

/* Agents of one host are one node, and stand together in the roster. */
static bool begins_node(const struct agent *a, uint32_t i)
{
    return a->run.agent_is_node || a->roster.entries[i].host_index == 0;
}

uint32_t agent_fit_count(const struct agent *a)
{
    uint32_t max = a->config.job->nodes.max, n_nodes = 0;

    if (!a->config.by_hand) {
        return a->roster.n;
    }
    for (uint32_t i = 0; i < a->roster.n; i++) {
        n_nodes += begins_node(a, i);
        if (n_nodes > max) {
            return i;
        }
    }
    return a->roster.n;
}

int agent_fit_check(const struct agent *a, struct error *e)
{
    uint32_t min = a->config.job->nodes.min, n_nodes = 0;

    for (uint32_t i = 0; i < a->roster.n; i++) {
        n_nodes += begins_node(a, i);
    }
    if (n_nodes >= min || !a->config.by_hand) {
        return 0;
    }
    return error_text(e, ERANGE, "the job needs %u nodes, and mpirun started "
                      "muster on %u%s", min, n_nodes,
                      a->run.agent_is_node ? "" : " (--agent-is-node lets one "
                      "machine stand for many)");
}
