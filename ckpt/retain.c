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

static bool is_one(const struct retain_item *a, const struct retain_item *b)
{
    return a == b || (a->set && a->set == b->set);
}

/* Those of one set are of one step, and so close to each other. */
static bool is_in_set(const struct retain_item *items, size_t n, size_t first, size_t i)
{
    return i < n && items[i].has_step && items[i].step == items[first].step;
}

static bool is_first(const struct retain_item *items, size_t i)
{
    return items[i].set == 0 || items[i].set == i + 1;
}

/* The checkpoint that begins there, with all of its parts, or that may be whole. */
static bool is_whole(const struct retain_item *items, size_t n, size_t first, bool may_be)
{
    bool is_whole = !items[first].is_short;

    for (size_t i = first;
         is_whole && (i == first || (items[first].set && is_in_set(items, n, first, i))); i++) {
        if (is_one(&items[first], &items[i])) {
            is_whole = (may_be ? items[i].n_files > 0 : items[i].is_whole) &&
                       !items[i].is_apart;
        }
    }
    return is_whole;
}

size_t retain_largest(const struct retain_item *items, size_t n, size_t series)
{
    size_t largest = n;

    for (size_t i = 0; i < n; i++) {
        if (items[i].series == series && is_first(items, i) &&
            (largest == n || items[i].n_files > items[largest].n_files) &&
            is_whole(items, n, i, true)) {
            largest = i;
        }
    }
    return largest;
}

static bool is_kept(const struct retain_item *items, size_t n, size_t i)
{
    bool is_kept = items[i].is_pinned || items[i].is_apart;

    for (size_t k = items[i].set ? items[i].set - 1 : n; is_in_set(items, n, i, k); k++) {
        is_kept = is_kept || (is_one(&items[i], &items[k]) &&
                              (items[k].is_pinned || items[k].is_apart));
    }
    return is_kept;
}

uint64_t retain_n_newer(const struct retain_item *items, size_t n, size_t i,
                        uint64_t most)
{
    uint64_t n_whole = 0;

    for (size_t k = 0; k < i && n_whole < most; k++) {
        n_whole += items[k].series == items[i].series && !is_one(&items[k], &items[i]) &&
                   is_first(items, k) && is_whole(items, n, k, false);
    }
    return n_whole;
}

/* With all of it. */
static void keep_largest(struct retain_item *items, size_t n, size_t series)
{
    size_t largest = retain_largest(items, n, series);

    for (size_t i = largest; is_in_set(items, n, largest, i); i++) {
        items[i].is_removed = items[i].is_removed && !is_one(&items[largest], &items[i]);
    }
}

/* Of a series whose newest may lack some files two stay at least: the next one with as few
 * is what says that it does not. */
static uint64_t n_kept(const struct retain_rule *rule, const struct retain_item *items,
                       size_t n, size_t series)
{
    size_t largest = rule->keep == 1 ? retain_largest(items, n, series) : n, newest = 0;

    while (newest < largest && (items[newest].series != series || !is_first(items, newest) ||
                                !is_whole(items, n, newest, true))) {
        newest++;
    }
    return largest < n && newest < largest ? 2 : rule->keep;
}

void retain_mark(const struct retain_rule *rule, struct retain_item *items,
                 size_t n)
{
    size_t best = retain_best(rule, items, n);

    for (size_t i = 0; i < n; i++) {
        struct retain_item *at = &items[i];
        uint64_t keep = n_kept(rule, items, n, at->series);

        at->is_removed =
            keep > 0 && at->has_step && !is_kept(items, n, i) &&
            retain_n_newer(items, n, i, keep) >= keep &&
            !(best < n && is_one(at, &items[best])) &&
            !(rule->every > 0 && at->step % rule->every == 0);
    }
    for (size_t i = 0; i < n; i++) {
        if (items[i].series == i) {
            keep_largest(items, n, i);
        }
    }
}

bool retain_lacks_best(const struct retain_rule *rule, const struct retain_item *items,
                       size_t n)
{
    bool some_go = false;

    for (size_t i = 0; i < n; i++) {
        some_go |= items[i].is_removed;
    }
    return some_go && retain_best(rule, items, n) == n;
}
