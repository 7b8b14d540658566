/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/beside.h"

#include <stdlib.h>

/* Some structures, each of which begins with what was found, or has it inside. */
struct list {
    const char *all;
    size_t stride;
    bool has_steps;
};

static const struct found *at(const struct list *l, size_t i)
{
    return (const struct found *)(const void *)(l->all + i * l->stride);
}

static bool is_alike(const struct list *l, size_t i, size_t k)
{
    const struct found *a = at(l, i), *b = at(l, k);

    if (a->is_inside || b->is_inside || a->is_part || b->is_part) {
        return false;
    }
    return l->has_steps ? a->is_step && b->is_step
                        : a->has_step && b->has_step && beside_is_like(a->name, b->name);
}

size_t *found_series(const struct found *all, size_t stride, size_t n)
{
    struct list l = {.all = (const char *)all, .stride = stride};
    size_t *series = calloc(n + 1, sizeof(*series));

    for (size_t i = 0; i < n; i++) {
        l.has_steps = l.has_steps || at(&l, i)->is_step;
    }
    for (size_t i = 0; i < n && series; i++) {
        while (series[i] < i && !is_alike(&l, series[i], i)) {
            series[i]++;
        }
        series[i] = is_alike(&l, i, i) ? series[i] : FOUND_NO_SERIES;
    }
    return series;
}
