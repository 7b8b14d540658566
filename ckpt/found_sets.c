/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are one checkpoint together, and whether all of it is there. */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/beside.h"

#include <stdlib.h>

/* Some structures, each of which begins with what was found. */
struct list {
    const char *all;
    size_t stride;
};

static const struct found *at(const struct list *l, size_t i)
{
    return (const struct found *)(const void *)(l->all + i * l->stride);
}

bool found_is_of_set(const struct found *a, const struct found *b)
{
    return found_is_file(a) && found_is_file(b) && a->has_step && b->has_step &&
           a->step == b->step && !a->is_inside && !b->is_inside &&
           ((a->is_step && b->is_step) ||
            (beside_is_like(a->name, b->name) && found_is_rank_name(a->name) &&
             found_is_rank_name(b->name)));
}

/* Those of one step follow each other. */
static void find_first(const struct list *l, size_t i, const size_t *series,
                       struct found_set *sets)
{
    for (size_t k = i; series[i] != FOUND_NO_SERIES && k-- > 0;) {
        if (at(l, k)->step != at(l, i)->step || !at(l, k)->has_step) {
            return;
        }
        if (series[k] == series[i] && found_is_of_set(at(l, k), at(l, i))) {
            sets[k].first = sets[k].first ? sets[k].first : k + 1;
            sets[i].first = sets[k].first;
            return;
        }
    }
}

/* How many there are of the name of which there are most, numbers aside. */
static size_t count(const struct list *l, size_t n, size_t first,
                    const struct found_set *sets)
{
    size_t most = 1, run = 1, last = first;

    for (size_t i = first + 1; i < n && at(l, i)->step == at(l, first)->step; i++) {
        if (sets[first].first == 0 || sets[i].first != first + 1) {
            continue;
        }
        run = beside_is_like(at(l, last)->name, at(l, i)->name) ? run + 1 : 1;
        most = run > most ? run : most;
        last = i;
    }
    return most;
}

static bool is_first(const struct found_set *sets, size_t i)
{
    return sets[i].first == 0 || sets[i].first == i + 1;
}

/* `n_files` has those of each set at its first. */
static bool is_short(const size_t *n_files, size_t n, const size_t *series,
                     const struct found_set *sets, size_t first)
{
    bool has_more = false;

    for (size_t i = 0; i < n; i++) {
        if (i == first || series[i] != series[first] || !is_first(sets, i)) {
            continue;
        }
        if (n_files[i] == n_files[first]) {
            return false;
        }
        has_more = has_more || (i > first && n_files[i] > n_files[first]);
    }
    return has_more;
}

struct found_set *found_sets(const struct found *all, size_t stride, size_t n,
                             const size_t *series)
{
    const struct list l = {.all = (const char *)all, .stride = stride};
    _free_ struct found_set *sets = calloc(n + 1, sizeof(*sets));
    _free_ size_t *n_files = calloc(n + 1, sizeof(*n_files));
    bool has_sets = false;

    if (!sets || !n_files) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        find_first(&l, i, series, sets);
        has_sets = has_sets || sets[i].first;
    }
    for (size_t i = 0; i < n && has_sets; i++) {
        n_files[i] = is_first(sets, i) ? count(&l, n, i, sets) : 0;
    }
    for (size_t i = 0; i < n && has_sets; i++) {
        if (series[i] != FOUND_NO_SERIES && is_first(sets, i)) {
            sets[i].is_short = is_short(n_files, n, series, sets, i);
        } else if (series[i] != FOUND_NO_SERIES) {
            sets[i].is_short = sets[sets[i].first - 1].is_short;
        }
    }
    return take_ptr(&sets);
}
