/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that were excluded when the run was started before: this start does not use
 * them either, as long as there are enough others. A node is known by its host, and by
 * which of the agents there it is: agents stand for nodes on one machine, too.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/str.h"
#include "launcher/agent_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t rank_of(const struct roster *roster, const char *host, unsigned long nth)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        if (strcmp(roster->entries[i].host, host) == 0 && nth-- == 0) {
            return i;
        }
    }
    return ROSTER_NO_RANK;
}

static void exclude(struct agent_lead *l, const char *host, unsigned long nth,
                    const char *why)
{
    uint32_t rank = rank_of(&l->agent->roster, host, nth);
    static const char before[] = " (in a start before this one)";
    char text[256];
    struct lead_event event = {.type = LEAD_EXCLUDE, .rank = rank, .text = text};

    if (rank == ROSTER_NO_RANK || lead_node(l->core, rank)->excluded) {
        return;
    }
    snprintf(text, sizeof(text), "%.200s%s", why, strstr(why, before) ? "" : before);
    agent_lead_step(l, &event);
    if (!lead_node(l->core, rank)->excluded) {
        agent_note(l->agent, "node %u (%s) was excluded when this run was started before "
                   "(%.200s), and is used again: without it there would be too few",
                   rank, host, why);
    }
}

void agent_lead_outcast(struct agent_lead *l)
{
    const struct strlist *all = &l->agent->config.excluded;

    for (size_t i = 0; i < all->n; i++) {
        char *at;
        unsigned long nth = strtoul(all->items[i], &at, 10);
        char host[ROSTER_HOST_BYTES];
        size_t len = *at == ' ' ? strcspn(++at, " ") : 0;

        if (len > 0 && len < sizeof(host) && at[len] == ' ') {
            snprintf(host, sizeof(host), "%.*s", (int)len, at);
            exclude(l, host, nth, at + len + 1);
        }
    }
}
