/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether boxes tile a tensor. Cuts are nearly always a grid, or a grid of grids:
 * so the boxes are parted, dimension by dimension, into groups that share no place
 * in it. A group alone is looked at as the whole was; where no dimension parts one
 * (a pinwheel), its pairs are compared and its volume is counted.
 */
#include <config.h>

#include "ckpt/box.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

struct search {
    const struct box *boxes;
    struct box_cover *ret;
};

/* A box in the order of one dimension. */
struct place {
    uint64_t at, end;
    size_t index;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static void sort_by(const struct search *s, struct place *places, size_t n,
                    uint32_t d)
{
    for (size_t i = 0; i < n; i++) {
        const struct box *b = &s->boxes[places[i].index];

        places[i].at = b->at[d];
        places[i].end = b->at[d] + b->len[d];
    }
    qsort(places, n, sizeof(*places), by_place);
}

/* How many of the first belong together: none behind them begins before all of
 * them have ended. */
static size_t first_group(const struct place *places, size_t n,
                          uint64_t *ret_end)
{
    uint64_t end = places[0].end;
    size_t k = 1;

    for (; k < n && places[k].at < end; k++) {
        end = places[k].end > end ? places[k].end : end;
    }
    *ret_end = end;
    return k;
}

static int found_hole(const struct search *s, const struct box *hole)
{
    s->ret->hole = *hole;
    return BOX_HOLE;
}

/* A part of the region that none of the boxes has; false if there is none. */
static bool find_hole(const struct search *s, const struct box *region,
                      const struct place *places, size_t n, struct box *ret)
{
    struct box shared, rest = *region;
    size_t k = 0;

    while (k < n && !box_meet(region, &s->boxes[places[k].index], &shared)) {
        k++;
    }
    if (k == n) {
        *ret = *region;
        return true;
    }
    /* What lies before and behind it, one dimension after the other. */
    for (uint32_t d = 0; d < region->n_dims; d++) {
        struct box side = rest;

        side.len[d] = shared.at[d] - rest.at[d];
        if (side.len[d] && find_hole(s, &side, places + k + 1, n - k - 1, ret)) {
            return true;
        }
        side.at[d] = shared.at[d] + shared.len[d];
        side.len[d] = rest.at[d] + rest.len[d] - side.at[d];
        if (side.len[d] && find_hole(s, &side, places + k + 1, n - k - 1, ret)) {
            return true;
        }
        rest.at[d] = shared.at[d];
        rest.len[d] = shared.len[d];
    }
    return false;
}

/* Boxes that no dimension parts. */
static int check_pairs(const struct search *s, const struct box *region,
                       const struct place *places, size_t n)
{
    uint64_t volume = 0, whole = 0;
    struct box hole;

    for (size_t i = 0; i < n; i++) {
        const struct box *a = &s->boxes[places[i].index];
        uint64_t part = 0;

        for (size_t k = i + 1; k < n; k++) {
            if (box_meet(a, &s->boxes[places[k].index], &hole)) {
                s->ret->a = places[i].index;
                s->ret->b = places[k].index;
                return BOX_OVERLAP;
            }
        }
        box_volume(a, &part);
        volume += part;
    }
    box_volume(region, &whole);
    return volume != whole && find_hole(s, region, places, n, &hole)
               ? found_hole(s, &hole) : 0;
}

static int check(const struct search *s, const struct box *region,
                 struct place *places, size_t n);

/* Each group of dimension `d` on its own; they must follow each other from the
 * region's begin to its end. */
static int check_groups(const struct search *s, const struct box *region,
                        struct place *places, size_t n, uint32_t d)
{
    uint64_t at = region->at[d], last = at + region->len[d];
    struct box part = *region;

    while (n > 0) {
        uint64_t end;
        size_t k = first_group(places, n, &end);
        uint64_t begin = places[0].at;
        int rc;

        part.at[d] = at;
        part.len[d] = begin - at;
        if (begin > at) {
            return found_hole(s, &part);
        }
        part.len[d] = end - begin;
        rc = check(s, &part, places, k);
        if (rc) {
            return rc;
        }
        at = end;
        places += k;
        n -= k;
    }
    part.at[d] = at;
    part.len[d] = last - at;
    return at < last ? found_hole(s, &part) : 0;
}

static int check(const struct search *s, const struct box *region,
                 struct place *places, size_t n)
{
    for (uint32_t d = 0; d < region->n_dims; d++) {
        uint64_t end;

        sort_by(s, places, n, d);
        if (first_group(places, n, &end) < n || places[0].at > region->at[d] ||
            end < region->at[d] + region->len[d]) {
            return check_groups(s, region, places, n, d);
        }
    }
    return n == 1 ? 0 : check_pairs(s, region, places, n);
}

int box_check_cover(const struct box *whole, const struct box *boxes, size_t n,
                    struct box_cover *ret)
{
    _free_ struct place *places = calloc(n + 1, sizeof(*places));
    struct search s = {boxes, ret};
    size_t n_full = 0;

    if (!places) {
        return -ENOMEM;
    }
    *ret = (struct box_cover){0};
    for (size_t i = 0; i < n; i++) {
        if (!box_contains(whole, &boxes[i])) {
            ret->a = i;
            return BOX_OUTSIDE;
        }
        if (!box_is_empty(&boxes[i])) {
            places[n_full++].index = i;
        }
    }
    if (box_is_empty(whole)) {
        return 0;
    }
    return n_full ? check(&s, whole, places, n_full) : found_hole(&s, whole);
}
