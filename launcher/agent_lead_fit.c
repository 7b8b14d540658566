/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether nodes can work together. Each counts its processes by itself (agent_procs.c),
 * and tells where it cannot; whether all count the same is seen here.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include <stdio.h>

void agent_lead_misfit(struct agent_lead *l, uint32_t rank, const json_t *fact)
{
    struct lead_event event = {.type = LEAD_MISFIT, .rank = rank,
                               .text = json_string_value(json_object_get(fact, "text"))};

    if (event.text && rank < l->n_nodes) {
        agent_lead_step(l, &event);
    }
}

/* Agents that share a host share its number. */
static bool has_number(const struct agent *a, uint32_t rank)
{
    return !a->roster.entries[rank].host_index || a->run.agent_is_node;
}

/* With whom it has to agree: one whose workers run, or, as long as none do, who came
 * first. */
static uint32_t find_peer(const struct agent_lead *l, uint32_t rank)
{
    uint32_t peer = ROSTER_NO_RANK;

    for (uint32_t i = 0; i < l->n_nodes; i++) {
        const struct lead_node *n = lead_node(l->core, i);

        if (i == rank || !n->serial || n->excluded || !has_number(l->agent, i)) {
            continue;
        }
        if (n->takes_part) {
            return i;
        }
        peer = peer == ROSTER_NO_RANK ? i : peer;
    }
    return peer;
}

/* Where a list says how many each has, they need not agree. */
static bool must_agree(const struct agent_lead *l, const struct report *r)
{
    const struct agent *a = l->agent;

    return r->state == REPORT_JOINED && a->config.job->procs.mode != JOB_PROCS_FIXED &&
           !a->config.slots.n && has_number(a, r->rank) &&
           !lead_node(l->core, r->rank)->takes_part;
}

void agent_lead_check_fit(struct agent_lead *l, const struct report *r)
{
    uint32_t peer = must_agree(l, r) ? find_peer(l, r->rank) : ROSTER_NO_RANK;
    uint16_t n = peer == ROSTER_NO_RANK ? r->n_procs : lead_node(l->core, peer)->n_procs;
    char text[2 * ROSTER_HOST_BYTES + 256];
    struct lead_event event = {.type = LEAD_MISFIT, .rank = r->rank, .text = text};

    if (r->n_procs == n) {
        return;
    }
    snprintf(text, sizeof(text), "%s would run %u processes and %s %u: set "
             "procsPerNode to a number, or give hosts their slots (--hosts "
             "A:4,B:8)", l->names.items[peer], n, l->names.items[r->rank], r->n_procs);
    agent_lead_step(l, &event);
}
