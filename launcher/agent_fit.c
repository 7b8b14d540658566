/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which agents are a node together, and whether the job fits those that came. A
 * front end starts as many agents as the job may have; `mpirun ... muster run` as
 * many as mpirun was told.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "rendezvous/lead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool same_host(const struct agent *a, uint32_t i, uint32_t k)
{
    return strcmp(a->roster.entries[i].host, a->roster.entries[k].host) == 0;
}

/* A later agent in the place of one that is gone: nobody starts a second one
 * beside one that lives. */
static bool is_replaced(const struct agent *a, uint32_t i)
{
    for (uint32_t k = i + 1; k < a->roster.n; k++) {
        if (same_host(a, i, k) && a->roster.entries[k].port &&
            a->roster.entries[i].host_index ==
                a->roster.entries[k].host_index) {
            return true;
        }
    }
    return false;
}

void agent_fit_nodes(const struct agent *a, uint32_t *node_of)
{
    for (uint32_t i = 0; i < a->roster.n; i++) {
        uint32_t first = a->run.agent_is_node ? i : 0;

        if (a->roster.entries[i].port == 0 || is_replaced(a, i)) {
            node_of[i] = LEAD_NO_NODE;
            continue;
        }
        while (first < i &&
               (node_of[first] != first || !same_host(a, first, i))) {
            first++;
        }
        node_of[i] = first;
    }
}

int agent_fit_check(const struct agent *a, struct error *e)
{
    uint32_t min = a->config.job->nodes.min, n_nodes = 0;
    _free_ uint32_t *node_of = calloc(a->roster.n + 1, sizeof(*node_of));

    if (!node_of) {
        return error_set(e, ENOMEM, "count nodes");
    }
    agent_fit_nodes(a, node_of);
    for (uint32_t i = 0; i < a->roster.n; i++) {
        n_nodes += node_of[i] == i;
    }
    if (n_nodes >= min || !a->config.by_hand) {
        return 0;
    }
    return error_text(e, ERANGE, "the job needs %u nodes, and mpirun started "
                      "muster on %u%s", min, n_nodes,
                      a->run.agent_is_node ? "" : " (--agent-is-node lets one "
                      "machine stand for many)");
}
