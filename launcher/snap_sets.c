/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_sets.h"

#include <stdlib.h>
#include <string.h>

void snap_sets_release(struct snap_sets *s)
{
    while (s->list) {
        struct snap_set *set = s->list;

        s->list = set->next;
        free(set);
    }
    free(s->of_rank);
    *s = (struct snap_sets){0};
}

static unsigned member_of(const struct parity_group *g, const uint32_t *in, uint32_t what)
{
    for (unsigned i = 0; i < g->shape.n; i++) {
        if (in[i] == what && what != PARITY_NO_RANK) {
            return i;
        }
    }
    return PARITY_MAX_MEMBERS;
}

static bool makes_sense(const struct parity_group *g, uint32_t n_ranks, uint32_t agent)
{
    unsigned n_there = 0;

    if (!parity_makes_sense(&g->shape) ||
        member_of(g, g->agents, agent) == PARITY_MAX_MEMBERS) {
        return false;
    }
    for (unsigned i = 0; i < g->shape.n; i++) {
        n_there += g->ranks[i] != PARITY_NO_RANK;
        if (member_of(g, g->agents, g->agents[i]) != i ||
            (g->ranks[i] != PARITY_NO_RANK &&
             (g->ranks[i] >= n_ranks || member_of(g, g->ranks, g->ranks[i]) != i))) {
            return false;
        }
    }
    return n_there > 0;
}

static bool is_same(const struct parity_group *a, const struct parity_group *b)
{
    size_t bytes = a->shape.n * sizeof(a->agents[0]);

    return a->shape.n == b->shape.n && a->shape.m == b->shape.m &&
           memcmp(a->agents, b->agents, bytes) == 0 &&
           memcmp(a->ranks, b->ranks, bytes) == 0;
}

/* The set of any of its ranks. */
static struct snap_set *find(const struct snap_sets *s, const struct parity_group *g)
{
    struct snap_set *set = NULL;

    for (unsigned i = 0; i < g->shape.n && !set; i++) {
        set = g->ranks[i] == PARITY_NO_RANK ? NULL : s->of_rank[g->ranks[i]];
    }
    return set;
}

static struct snap_set *add(struct snap_sets *s, const struct parity_group *g)
{
    struct snap_set *set = calloc(1, sizeof(*set));

    if (!set) {
        return NULL;
    }
    set->group = *g;
    set->next = s->list;
    s->list = set;
    for (unsigned i = 0; i < g->shape.n; i++) {
        if (g->ranks[i] != PARITY_NO_RANK) {
            s->of_rank[g->ranks[i]] = set;
        }
    }
    return set;
}

bool snap_sets_take(struct snap_sets *s, uint32_t n_ranks, uint32_t agent,
                    const struct parity_group *g)
{
    struct snap_set *set;

    if (!s->of_rank) {
        s->of_rank = calloc((size_t)n_ranks + 1, sizeof(struct snap_set *));
        s->n_ranks = s->of_rank ? n_ranks : 0;
    }
    if (!makes_sense(g, s->n_ranks, agent)) {
        return false;
    }
    set = find(s, g);
    set = set ? set : add(s, g);
    if (!set || !is_same(&set->group, g)) {
        return false;
    }
    set->whole |= PARITY_BIT(member_of(g, g->agents, agent));
    return true;
}

static uint64_t all_of(const struct snap_set *set)
{
    uint64_t last = PARITY_BIT(set->group.shape.n - 1);

    return last - 1 + last;
}

bool snap_sets_has(const struct snap_sets *s, uint32_t rank)
{
    const struct snap_set *set = rank < s->n_ranks ? s->of_rank[rank] : NULL;
    uint64_t others;

    if (!set) {
        return false;
    }
    others = all_of(set) & ~PARITY_BIT(member_of(&set->group, set->group.ranks, rank));
    return (set->whole & others) == others;
}

bool snap_sets_outlives(const struct snap_sets *s, const struct snap_tally *t,
                        uint32_t rank)
{
    return (rank < t->n_ranks && t->copies[rank] > 0) || snap_sets_has(s, rank);
}

uint64_t snap_sets_lost(const struct snap_set *set, const struct snap_now *now)
{
    uint64_t lost = 0;

    for (unsigned i = 0; i < set->group.shape.n; i++) {
        lost |= now->is_lost(now->arg, set->group.agents[i]) ? PARITY_BIT(i) : 0;
    }
    return lost;
}

/* Those that a group has to make again are shared out. */
static bool choose(const struct snap_set *set, uint32_t rank, uint64_t lost, uint32_t *ret)
{
    unsigned n = set->group.shape.n;

    for (unsigned i = 0; i < n; i++) {
        unsigned m = (rank + i) % n;

        if (set->whole & ~lost & PARITY_BIT(m)) {
            *ret = set->group.agents[m];
            return true;
        }
    }
    return false;
}

/* No more are lost than parity makes up for, and somebody has it. */
static bool find_builder(const struct snap_set *set, const struct snap_now *now,
                         uint32_t rank, uint32_t *ret)
{
    uint64_t lost = snap_sets_lost(set, now);

    return (unsigned)__builtin_popcountll(lost) <= set->group.shape.m &&
           choose(set, rank, lost, ret);
}

bool snap_sets_builder(const struct snap_sets *s, const struct snap_now *now,
                       uint32_t rank, uint32_t *ret_agent)
{
    const struct snap_set *set = rank < s->n_ranks ? s->of_rank[rank] : NULL;
    unsigned m = set ? member_of(&set->group, set->group.ranks, rank) : 0;

    return set && now->is_lost(now->arg, set->group.agents[m]) &&
           find_builder(set, now, rank, ret_agent);
}

/* All that are left keep their parity of it: no more than that is known of those who
 * were lost before this lead began. */
static bool can_be_made(const struct snap_sets *s, const struct snap_now *now,
                        uint32_t rank)
{
    const struct snap_set *set = rank < s->n_ranks ? s->of_rank[rank] : NULL;
    uint64_t lost;

    if (!set) {
        return false;
    }
    lost = snap_sets_lost(set, now);
    return (unsigned)__builtin_popcountll(lost) <= set->group.shape.m &&
           (set->whole | lost) == all_of(set);
}

bool snap_sets_can_be(const struct snap_sets *s, const struct snap_tally *t,
                      const struct snap_now *now)
{
    uint32_t holders[SNAP_TALLY_HOLDERS];

    if (t->n_failed > 0 || t->n_held < t->n_ranks) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_ranks; i++) {
        if (t->stages[i] == SNAP_STAGE_HELD &&
            snap_tally_holders(t, now, i, holders) == 0 && !can_be_made(s, now, i)) {
            return false;
        }
    }
    return true;
}

static bool needs_it(const struct snap_tally *t, const struct snap_now *now, uint32_t rank)
{
    uint32_t copy = t->copies[rank];

    return t->stages[rank] == SNAP_STAGE_HELD &&
           (copy == 0 || now->is_lost(now->arg, copy - 1));
}

bool snap_sets_rescue(struct snap_sets *s, struct snap_tally *t,
                      const struct snap_now *now, uint32_t *at, uint32_t *ret_agent,
                      const struct snap_set **ret_hopeless)
{
    *ret_hopeless = NULL;
    for (uint32_t i = *at; i < s->n_ranks && i < t->n_ranks; i++) {
        struct snap_set *set = s->of_rank[i];
        bool is_lost = now->is_lost(now->arg, t->agents[i]);
        uint32_t *builder;

        if (!set || !needs_it(t, now, i)) {
            continue;
        }
        builder = &set->builders[member_of(&set->group, set->group.ranks, i)];
        if (!is_lost && *builder != t->agents[i] + 1) {
            continue; /* it writes what it has saved */
        }
        if (is_lost) {
            if (!find_builder(set, now, i, ret_agent)) {
                *ret_hopeless = set;
                continue;
            }
            *builder = *ret_agent + 1;
            t->agents[i] = *ret_agent;
            t->news_ms = now->ms;
        }
        *at = i;
        *ret_agent = t->agents[i];
        return true;
    }
    *at = t->n_ranks;
    return false;
}
