/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/retain.h"

#include <math.h>

static bool is_better(const struct retain_rule *rule, double a, double b)
{
    return rule->is_highest ? a > b : a < b;
}

size_t retain_best(const struct retain_rule *rule, const struct retain_item *items,
                   size_t n)
{
    size_t best = n;

    for (size_t i = 0; i < n; i++) {
        if (!items[i].is_apart && items[i].has_metric && !isnan(items[i].metric) &&
            (best == n ||
             is_better(rule, items[i].metric, items[best].metric))) {
            best = i;
        }
    }
    return best;
}

uint64_t retain_n_newer(const struct retain_item *items, size_t i, uint64_t most)
{
    uint64_t n = 0;

    for (size_t k = 0; k < i && n < most; k++) {
        n += items[k].is_whole && !items[k].is_apart &&
             items[k].series == items[i].series;
    }
    return n;
}

void retain_mark(const struct retain_rule *rule, struct retain_item *items,
                 size_t n)
{
    size_t best = retain_best(rule, items, n);

    for (size_t i = 0; i < n; i++) {
        struct retain_item *at = &items[i];

        at->is_removed =
            rule->keep > 0 && at->has_step &&
            retain_n_newer(items, i, rule->keep) >= rule->keep && !at->is_pinned &&
            !at->is_apart && i != best &&
            !(rule->every > 0 && at->step % rule->every == 0);
    }
}
