/* SPDX-License-Identifier: Apache-2.0 */
/* Parity of saves, as the lead has heard of it (launcher/snap_sets.h): and has what lost
 * nodes had saved made again by it. */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"

#include <string.h>

enum { MAX_AGENTS = STATUS_MAX_NODES, MAX_LOST = 256 };

static bool read_group(const json_t *fact, struct parity_group *ret)
{
    const json_t *members = json_object_get(fact, "members");
    json_int_t m = json_integer_value(json_object_get(fact, "parities"));
    size_t n = json_array_size(members);

    memset(ret, 0, sizeof(*ret));
    if (n < 2 || n > PARITY_MAX_MEMBERS || m < 1 || m > PARITY_MAX) {
        return false;
    }
    ret->shape = (struct parity){(unsigned)n, (unsigned)m};
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(members, i);
        json_int_t agent = json_integer_value(json_array_get(one, 0));
        json_int_t rank = json_integer_value(json_array_get(one, 1));

        if (json_array_size(one) != 2 || agent < 0 || agent >= MAX_AGENTS ||
            rank < -1 || rank >= UINT32_MAX) {
            return false;
        }
        ret->agents[i] = (uint32_t)agent;
        ret->ranks[i] = rank < 0 ? PARITY_NO_RANK : (uint32_t)rank;
    }
    return true;
}

void lead_snap_parity(struct lead_snap *l, uint32_t agent, const json_t *fact)
{
    struct lead_save *s = lead_save_of(l, fact);
    struct parity_group g;

    if (!s) {
        return;
    }
    /* It may be on the disk before it has parity. */
    if (read_group(fact, &g) &&
        snap_sets_take(&s->sets, s->tally.n_ranks, agent, &g)) {
        lead_save_copied(s);
        lead_levels_show_busy(l);
        s = lead_save_of(l, fact); /* others may have been dropped, and this one gone */
    }
    if (s && s->is_settled) {
        lead_save_tell_again(s);
    }
}

/* --- for nodes that are lost --- */

struct lost_list {
    unsigned n;
    uint32_t agents[MAX_LOST];
};

static void add_lost(struct lost_list *to, const struct snap_set *set,
                     const struct snap_now *now)
{
    uint64_t lost = snap_sets_lost(set, now);

    for (unsigned i = 0; i < set->group.shape.n; i++) {
        uint32_t agent = set->group.agents[i];
        unsigned at = 0;

        while (at < to->n && to->agents[at] != agent) {
            at++;
        }
        if (lost & PARITY_BIT(i) && at == to->n && at < MAX_LOST) {
            to->agents[to->n++] = agent;
        }
    }
}

/* Once a save. */
static void tell_hopeless(struct lead_save *s, const struct snap_set *set,
                          const struct snap_now *now)
{
    if (!s->is_hopeless) {
        s->is_hopeless = true;
        agent_note(s->lead->agent, "%d of the %u nodes of a group are lost, and parity "
                   "makes up for %u: what they had saved at step %llu is gone, but for "
                   "what is on the disk",
                   __builtin_popcountll(snap_sets_lost(set, now)), set->group.shape.n,
                   set->group.shape.m, (unsigned long long)s->step);
    }
}

void lead_save_rebuild(struct lead_save *s)
{
    const struct snap_now now = lead_save_now(s);
    struct agent *a = s->lead->agent;
    const struct snap_set *hopeless;
    struct lost_list lost = {0};
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);
    uint32_t n = 0, agent;

    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "snap_rebuild");
    jsonw_str(&w, "uuid", s->uuid);
    jsonw_array(&w, "ranks");
    for (uint32_t at = 0;
         snap_sets_rescue(&s->sets, &s->tally, &now, &at, &agent, &hopeless); at++) {
        jsonw_array(&w, NULL);
        jsonw_int(&w, NULL, at);
        jsonw_int(&w, NULL, agent);
        jsonw_end_array(&w);
        add_lost(&lost, s->sets.of_rank[at], &now);
        n++;
    }
    jsonw_end_array(&w);
    jsonw_array(&w, "lost");
    for (unsigned i = 0; i < lost.n; i++) {
        jsonw_int(&w, NULL, lost.agents[i]);
    }
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    if (n > 0 && !b.failed && a->tree) {
        tree_ask(a->tree, b.data, b.len);
        agent_asked(a, b.data, b.len);
    }
    if (hopeless) {
        tell_hopeless(s, hopeless, &now);
    }
}
