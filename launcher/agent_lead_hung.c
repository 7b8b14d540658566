/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes without which there is an MPI world: on their hosts mpirun hangs, or fails, as
 * the front end has found. They are left out as slow ones are, as long as there are enough
 * others; at once where workers wait in a collective for the world that does not come.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "launcher/agent_record.h"
#include "launcher/crew.h"
#include "launcher/hung.h"

#include <stdio.h>
#include <string.h>

/* As the workers here do; an agent that leads without any cannot tell. */
static bool are_waiting(const struct agent *a)
{
    const struct crew_world *w = a->crew ? a->crew->world : NULL;

    return !a->crew ||
           (w && w->n_nodes > 1 && !w->broken && segment_waits(w->segment));
}

static bool is_on(const struct agent_lead *l, uint32_t rank, const char *host)
{
    const struct run_status *s = record_status(l->record);

    return rank < l->n_nodes && rank < s->n_nodes &&
           strcmp(s->nodes[rank].host, host) == 0 &&
           s->nodes[rank].state != STATUS_NODE_LOST &&
           s->nodes[rank].state != STATUS_NODE_LEFT;
}

void agent_lead_hung(struct agent_lead *l, const json_t *fact)
{
    const char *host = json_string_value(json_object_get(fact, "host"));
    json_int_t n = json_integer_value(json_object_get(fact, "worlds"));
    bool fails = json_is_true(json_object_get(fact, "fails"));
    bool is_needed = false;
    char text[128];
    struct lead_event event = {.type = LEAD_EXCLUDE, .text = text,
                               .why = fails ? EXCLUSION_FAILS : EXCLUSION_HANGS,
                               .force = are_waiting(l->agent)};

    snprintf(text, sizeof(text), "mpirun %s there: %lld MPI worlds in a row %s",
             fails ? "fails" : "hangs",
             n < 0 || n > INT32_MAX ? 0 : (long long)n,
             fails ? "failed, and an mpirun to it alone, too (mpirun.log)"
                   : "did not come in time");
    for (uint32_t i = 0; host && i < l->n_nodes; i++) {
        if (is_on(l, i, host)) {
            event.rank = i;
            agent_lead_step(l, &event);
            is_needed = is_needed || !lead_node(l->core, i)->excluded;
        }
    }
    if (is_needed) {
        agent_note(l->agent, "mpirun %s on %.64s (%lld MPI worlds in a row), which "
                   "is used all the same: without it there would be too few nodes",
                   fails ? "fails" : "hangs", host, (long long)n);
    }
}

void agent_lead_well(struct agent_lead *l, const json_t *fact)
{
    const char *host = json_string_value(json_object_get(fact, "host"));
    struct lead_event event = {.type = LEAD_READMIT};

    for (uint32_t i = 0; host && i < l->n_nodes; i++) {
        if (is_on(l, i, host) && hung_is_why(&record_status(l->record)->nodes[i])) {
            event.rank = i;
            agent_lead_step(l, &event);
        }
    }
}
