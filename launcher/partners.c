/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each half of a range of places pairs its own nodes first; those that are left over
 * are all of one domain, or two of them were a pair. Then both halves pair what they
 * have left.
 */
#include <config.h>

#include "launcher/partners.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum { PLACE_BITS = 32 };

struct search {
    const struct partners_node *nodes;
    uint32_t *partner;
    uint32_t *next; /* of those that are left over: the next one, or NONE */
};

static uint32_t domain(const struct search *s, uint32_t i)
{
    return s->nodes[i].domain;
}

/* Two lists of one domain each, into one. */
static uint32_t meet(const struct search *s, uint32_t left, uint32_t right)
{
    uint32_t last;

    while (left != PARTNERS_NONE && right != PARTNERS_NONE &&
           domain(s, left) != domain(s, right)) {
        uint32_t a = left, b = right;

        left = s->next[a];
        right = s->next[b];
        s->partner[a] = b;
        s->partner[b] = a;
    }
    if (left == PARTNERS_NONE) {
        return right;
    }
    for (last = left; s->next[last] != PARTNERS_NONE; last = s->next[last]) {
    }
    s->next[last] = right;
    return left;
}

/* Of nodes [begin, end), whose places differ in their `bits` low bits only: who is
 * left over. */
static uint32_t pair_up(const struct search *s, uint32_t begin, uint32_t end,
                        unsigned bits)
{
    uint32_t mid = begin;

    if (end - begin == 1) {
        s->next[begin] = PARTNERS_NONE;
        return begin;
    }
    if (begin == end || bits == 0) {
        return PARTNERS_NONE;
    }
    while (mid < end && !(s->nodes[mid].place >> (bits - 1) & 1)) {
        mid++;
    }
    return meet(s, pair_up(s, begin, mid, bits - 1),
                pair_up(s, mid, end, bits - 1));
}

static bool is_pair(const struct search *s, uint32_t a)
{
    uint32_t b = s->partner[a];

    return b != PARTNERS_NONE && b < a && s->partner[b] == a;
}

/* The last pair, of neither the domain of `one`, takes it into its circle. */
static bool join(const struct search *s, uint32_t n, uint32_t one)
{
    for (uint32_t a = n; a-- > 0;) {
        uint32_t b = s->partner[a];

        if (is_pair(s, a) && domain(s, a) != domain(s, one) &&
            domain(s, b) != domain(s, one)) {
            s->partner[b] = a;
            s->partner[a] = one;
            s->partner[one] = b;
            return true;
        }
    }
    return false;
}

/* Where there is no such pair: the last one of another domain keeps copies of two. */
static void lean(const struct search *s, uint32_t n, uint32_t one)
{
    for (uint32_t a = n; a-- > 0 && s->partner[one] == PARTNERS_NONE;) {
        if (domain(s, a) != domain(s, one)) {
            s->partner[one] = a;
        }
    }
}

int partners_find(const struct partners_node *nodes, uint32_t n, uint32_t *ret)
{
    _free_ uint32_t *next = calloc((size_t)n + 1, sizeof(*next));
    const struct search s = {nodes, ret, next};

    if (!next) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = PARTNERS_NONE;
    }
    for (uint32_t one = pair_up(&s, 0, n, PLACE_BITS); one != PARTNERS_NONE;
         one = next[one]) {
        if (!join(&s, n, one)) {
            lean(&s, n, one);
        }
    }
    return 0;
}
