/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes in a row, those of a domain side by side, are dealt out like cards: no group
 * gets two of a domain that has no more nodes than there are groups.
 */
#include <config.h>

#include "launcher/partner_groups.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

struct card {
    uint32_t at, domain;
    uint32_t first; /* node of the domain */
};

static int by_domain(const void *a, const void *b)
{
    const struct card *x = a, *y = b;

    if (x->domain != y->domain) {
        return x->domain < y->domain ? -1 : 1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_first(const void *a, const void *b)
{
    const struct card *x = a, *y = b;

    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Returns how many nodes the largest domain has. */
static uint32_t put_in_row(struct card *cards, uint32_t n)
{
    uint32_t largest = 0, begin = 0;

    qsort(cards, n, sizeof(*cards), by_domain);
    for (uint32_t i = 0; i < n; i++) {
        begin = cards[i].domain == cards[begin].domain ? begin : i;
        cards[i].first = cards[begin].at;
        largest = i - begin + 1 > largest ? i - begin + 1 : largest;
    }
    qsort(cards, n, sizeof(*cards), by_first);
    return largest;
}

int partner_groups(const struct partners_node *nodes, uint32_t n, unsigned size,
                   uint32_t *ret)
{
    _free_ struct card *cards = calloc((size_t)n + 1, sizeof(*cards));
    uint32_t n_groups, largest;

    if (!cards) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        cards[i] = (struct card){.at = i, .domain = nodes[i].domain};
    }
    largest = put_in_row(cards, n);
    n_groups = (uint32_t)(((uint64_t)n * 2 + size) / ((uint64_t)size * 2));
    n_groups = n_groups > largest ? n_groups : largest;
    for (uint32_t i = 0; i < n; i++) {
        ret[cards[i].at] = i % n_groups;
    }
    return (int)n_groups;
}
