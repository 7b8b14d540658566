/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/label.h"

#include "base/clock.h"
#include "spec/log_prefix.h"

#include <stdio.h>

enum { NUMBER_BYTES = 16 };

/* NULL where the status does not know it, yet. */
static const char *host_of(const struct label *l)
{
    const struct run_status *s = l->status;

    return s && l->node < s->n_nodes ? s->nodes[l->node].host : NULL;
}

/* Ranks of a node are consecutive. */
static const char *local_rank_of(const struct label *l, char *to)
{
    const struct run_status *s = l->status;
    uint32_t first = l->rank;

    if (!s || l->rank >= s->n_workers) {
        return NULL;
    }
    while (first && s->workers[first - 1].node == s->workers[l->rank].node) {
        first--;
    }
    snprintf(to, NUMBER_BYTES, "%u", l->rank - first);
    return to;
}

void label_write(const struct label *l, struct buf *to)
{
    char rank[NUMBER_BYTES], node[NUMBER_BYTES], generation[NUMBER_BYTES];
    char local_rank[NUMBER_BYTES], t[40];
    const char *values[LOG_PREFIX_N_FIELDS] = {
        [LOG_PREFIX_RANK] = l->ranks ? l->ranks : rank,
        [LOG_PREFIX_LOCAL_RANK] = "*",
        [LOG_PREFIX_HOST] = l->has_many_nodes ? "*" : host_of(l),
        [LOG_PREFIX_NODE] = l->has_many_nodes ? "*" : node,
        [LOG_PREFIX_STREAM] = l->is_err ? "stderr" : "stdout",
        [LOG_PREFIX_TIME] = t,
        [LOG_PREFIX_GENERATION] = generation,
        [LOG_PREFIX_RUN] = l->run,
    };

    snprintf(rank, sizeof(rank), "%u", l->rank);
    snprintf(node, sizeof(node), "%u", l->node);
    snprintf(generation, sizeof(generation), "%u", l->generation);
    clock_format(l->wall_ns, t, sizeof(t));
    if (!l->ranks && log_prefix_has(l->prefix, LOG_PREFIX_LOCAL_RANK)) {
        values[LOG_PREFIX_LOCAL_RANK] = local_rank_of(l, local_rank);
    }
    log_prefix_write(l->prefix, values, to);
    if (l->ranks && !log_prefix_has(l->prefix, LOG_PREFIX_RANK)) {
        buf_printf(to, "(x%u) ", l->n_ranks);
    }
}
