/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which checkpoints are to be kept. Pure: names and steps in, a decision out.
 *
 * Kept are the newest `keep` that are whole, all that are newer, those whose step is
 * a multiple of `every`, the best one by its metric, where that is known, and those
 * that are pinned. Those that nobody starts from for now stand apart. Where fewer than
 * `keep` are whole nothing goes: so never the newest that is. That counts for each
 * series, those whose names are alike (found_series()), by itself. Several that are one
 * checkpoint together are whole where each is, and stay or go together; the newest of
 * those that have most files stays as well, for newer ones with fewer may lack some, and
 * of these two: that there are two in a row says that it is how the program saves.
 */
#ifndef MUSTER_CKPT_RETAIN_H
#define MUSTER_CKPT_RETAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct retain_rule {
    uint64_t keep;      /* 0: all */
    uint64_t every;     /* 0: none for its step */
    bool is_highest;    /* what is best */
};

struct retain_item {
    uint64_t step;
    size_t series;      /* the place of the first that is of it */
    size_t set;         /* 0: it is a checkpoint by itself; else 1 and the place of the
                           first that is of the same one (found_sets()) */
    size_t n_files;     /* of its set; 0: it is known not to be whole */
    bool is_short;      /* a part of its set is not there: it counts for none */
    bool has_step;      /* one without is never removed */
    bool is_whole;      /* it was verified */
    bool is_pinned;
    bool is_apart;      /* it stays, and counts for nothing */
    bool has_metric;
    double metric;
    bool is_removed;    /* the decision */
};

/* `items` has the newest first, here and below. The newest of those that are best; n
 * for none. NaN is never best. */
size_t retain_best(const struct retain_rule *rule, const struct retain_item *items,
                   size_t n);

/* The first of the newest of those of a series that have most files; n for none. */
size_t retain_largest(const struct retain_item *items, size_t n, size_t series);

/* How many whole ones of its series are newer than the i-th; no more than `most`. */
uint64_t retain_n_newer(const struct retain_item *items, size_t n, size_t i,
                        uint64_t most);

void retain_mark(const struct retain_rule *rule, struct retain_item *items,
                 size_t n);

/* Of marked ones: some go, and none has the metric by which the best is to stay. The metric's
 * name may be wrong, or nothing was evaluated yet. */
bool retain_lacks_best(const struct retain_rule *rule, const struct retain_item *items,
                       size_t n);

#endif
