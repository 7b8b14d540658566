/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that were excluded when the run was started before: this start does not use
 * them either, as long as there are enough others, nor where they come later. A node is
 * known by its host, and by which of the agents there it is: agents stand for nodes on one
 * machine, too.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/str.h"
#include "launcher/agent_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that has come in the place of another in this start. */
static bool is_replacement(const struct roster *roster, uint32_t rank)
{
    const struct roster_entry *own = &roster->entries[rank];

    for (uint32_t i = 0; i < rank; i++) {
        if (roster->entries[i].host_index == own->host_index &&
            strcmp(roster->entries[i].host, own->host) == 0) {
            return true;
        }
    }
    return false;
}

static uint32_t rank_of(const struct roster *roster, const char *host, unsigned long nth)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        if (strcmp(roster->entries[i].host, host) == 0 && !is_replacement(roster, i) &&
            nth-- == 0) {
            return i;
        }
    }
    return ROSTER_NO_RANK;
}

static void exclude(struct agent_lead *l, uint32_t rank, const char *host,
                    enum exclusion kind, const char *why)
{
    static const char before[] = " (in a start before this one)";
    char text[256];
    struct lead_event event = {.type = LEAD_EXCLUDE, .rank = rank, .why = kind,
                               .text = text};

    if (lead_node(l->core, rank)->excluded || lead_verdict(l->core)) {
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

/* The next word, of `all` that are separated by blanks; false without one that fits. */
static bool take_word(const char **all, char *to, size_t size)
{
    size_t len = strcspn(*all, " ");

    if (len == 0 || len >= size || (*all)[len] != ' ') {
        return false;
    }
    snprintf(to, size, "%.*s", (int)len, *all);
    *all += len + 1;
    return true;
}

/* A newcomer has come through mpirun just now. */
static bool is_meant(uint32_t rank, enum exclusion kind, const bool *is_new)
{
    return rank != ROSTER_NO_RANK &&
           (!is_new || (is_new[rank] && !exclusion_is_of_mpi(kind)));
}

void agent_lead_outcast(struct agent_lead *l, const bool *is_new)
{
    const struct strlist *all = &l->agent->config.excluded;

    for (size_t i = 0; i < all->n; i++) {
        const char *at = all->items[i];
        char nth[16], host[ROSTER_HOST_BYTES], name[32];

        if (take_word(&at, nth, sizeof(nth)) && take_word(&at, host, sizeof(host)) &&
            take_word(&at, name, sizeof(name))) {
            uint32_t rank = rank_of(&l->agent->roster, host, strtoul(nth, NULL, 10));
            enum exclusion kind = exclusion_by_name(name);

            if (is_meant(rank, kind, is_new)) {
                exclude(l, rank, host, kind, at);
            }
        }
    }
}
