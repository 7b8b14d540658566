/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/interval_levels.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    M = 1 << INTERVAL_MEMORY,
    P = 1 << INTERVAL_PARTNER,
    D = 1 << INTERVAL_DISK,
    S = 1 << INTERVAL_STORE,
};

#define DAY 86400.0

/* 8000 workers that save every 66 s and have run for 31 h. */
static struct interval_levels_facts facts(unsigned there, uint64_t n_failures,
                                          uint64_t n_nodes, uint64_t n_runs)
{
    return (struct interval_levels_facts){
        .first = {.seconds = 66, .cost_s = 0.2, .mtbf_s = 11160},
        .n_failures = n_failures, .n_nodes = n_nodes, .n_runs = n_runs,
        .ran_s = 111600, .n_workers = 8000, .there = there,
        .took_s = {0, 1, 4, 40},
    };
}

static bool is_near(double got, double want)
{
    return fabs(got - want) <= want / 1000;
}

/*
 * By hand. A kind that was not seen: its prior, of one worker's 180e6 s / 8000 = 22500,
 * and 111600 s: of nodes twice 22500, 156600; of the run ten times, 336600; of all a
 * hundred times, 2361600. One node that was lost in 111600 s: the worse of that and of
 * 156600/2: 78300. Costs are a twentieth of 1, 4 and 40 s: 0.05, 0.2, 2.
 */
static void test_table(void)
{
    static const struct {
        unsigned there;
        uint64_t n_nodes, n_runs;
        enum interval_level_id level;
        double mtbf, best;
        uint64_t saves, n_failures;
    } cases[] = {
        /* 1 / (1/78300 + 1/336600 + 1/2361600) = 61859; sqrt(2 * 0.05 * that) = 78.65,
         * with Daly's terms 78.62; of 66 s that is 1.19: 1 */
        {M | P | D | S, 1, 0, INTERVAL_PARTNER, 61859, 78.62, 1, 1},
        /* 1 / (1/336600 + 1/2361600) = 294609; sqrt(2 * 0.2 * that) = 343.28, 343.15;
         * of 66 s 5.20: 5 */
        {M | P | D | S, 1, 0, INTERVAL_DISK, 294609, 343.15, 5, 0},
        /* sqrt(2 * 2 * 2361600) = 3073.5, 3072.2; of 330 s 9.31: 9, of saves 45 */
        {M | P | D | S, 1, 0, INTERVAL_STORE, 2361600, 3072.2, 45, 0},
        /* Without a partner nodes need the disk: sqrt(2 * 0.2 * 61859) = 157.30, 157.17;
         * of 66 s 2.38: 2 */
        {M | D | S, 1, 0, INTERVAL_DISK, 61859, 157.17, 2, 1},
        /* Without a store nothing helps where the filesystem is lost: 1 / (1/78300 +
         * 1/336600) = 63523; sqrt(2 * 0.2 * that) = 159.40, 159.27 */
        {M | D, 1, 0, INTERVAL_DISK, 63523, 159.27, 2, 1},
        /* Two runs gone on with: 111600/2 = 55800, less than 336600/3. With nodes
         * 1 / (1/156600 + 1/55800) = 41141; sqrt(2 * 0.2 * that) = 128.28, 128.15 */
        {M | D, 0, 2, INTERVAL_DISK, 41141, 128.15, 2, 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct interval_levels_facts f = facts(cases[i].there, cases[i].n_nodes + 9,
                                               cases[i].n_nodes, cases[i].n_runs);
        struct interval_level l[INTERVAL_N_LEVELS];
        const struct interval_level *got = &l[cases[i].level];

        interval_levels(&f, l);
        ok(is_near(got->mtbf_s, cases[i].mtbf), "%zu: failures %.0f s apart", i,
           got->mtbf_s);
        ok(is_near(got->best_s, cases[i].best), "%zu: best is %.2f s", i, got->best_s);
        is_int((int)got->saves, (int)cases[i].saves, "%zu: one save in so many", i);
        ok(is_near(got->seconds, 66.0 * (double)cases[i].saves), "%zu: so often", i);
        is_int((int)got->n_failures, (int)cases[i].n_failures, "%zu: failures", i);
    }
}

static void test_first(void)
{
    struct interval_levels_facts f = facts(M | D, 10, 1, 1);
    struct interval_level l[INTERVAL_N_LEVELS];

    interval_levels(&f, l);
    ok(l[INTERVAL_MEMORY].saves == 1 && l[INTERVAL_MEMORY].seconds == 66 &&
       l[INTERVAL_MEMORY].n_failures == 11, "every save is in memory, for all failures");
    ok(!l[INTERVAL_PARTNER].is_there && !l[INTERVAL_STORE].is_there,
       "what is not there has no plan");
    f.there = D;
    interval_levels(&f, l);
    ok(l[INTERVAL_DISK].saves == 1 && l[INTERVAL_DISK].seconds == 66,
       "or on the disk, where that is the first");
}

static void test_bounds(void)
{
    struct interval_levels_facts f = facts(M | P | D | S, 0, 0, 0);
    struct interval_level l[INTERVAL_N_LEVELS];

    f.took_s[INTERVAL_DISK] = 1e6;
    interval_levels(&f, l);
    ok(l[INTERVAL_DISK].seconds >= 1e6, "no more often than it can get there");
    f = facts(M | P | D | S, 0, 0, 0);
    f.took_s[INTERVAL_DISK] = 1000;
    interval_levels(&f, l);
    ok(l[INTERVAL_DISK].best_s > 3600 && l[INTERVAL_DISK].seconds < 3700,
       "nobody loses more than an hour");
    f.took_s[INTERVAL_STORE] = 60000;
    interval_levels(&f, l);
    ok(l[INTERVAL_STORE].best_s > DAY && l[INTERVAL_STORE].seconds < 1.1 * DAY &&
           l[INTERVAL_STORE].seconds > 0.9 * DAY,
       "nor more than a day with all of the filesystem");
    f.took_s[INTERVAL_PARTNER] = 0;
    interval_levels(&f, l);
    ok(l[INTERVAL_PARTNER].is_assumed && l[INTERVAL_PARTNER].cost_s == 1,
       "what was not measured is assumed");
}

/* What nobody has measured would be copied once in an hour; a disk that costs little is
 * worth more: then each copy that goes there goes to the partner, too. */
static void test_no_more_seldom(void)
{
    struct interval_levels_facts f = facts(M | P | D, 0, 0, 0);
    struct interval_level l[INTERVAL_N_LEVELS];

    f.took_s[INTERVAL_PARTNER] = 0;
    f.took_s[INTERVAL_DISK] = 0.2;
    interval_levels(&f, l);
    ok(l[INTERVAL_PARTNER].best_s > 5 * l[INTERVAL_DISK].best_s, "a disk is cheap");
    is_int((int)l[INTERVAL_DISK].saves, 1, "and gets as many as is best");
    is_int((int)l[INTERVAL_PARTNER].saves, 1, "the partner as many");
    f.there = M | P | S;
    f.took_s[INTERVAL_STORE] = 0.2;
    interval_levels(&f, l);
    ok(l[INTERVAL_STORE].saves == l[INTERVAL_PARTNER].saves &&
       l[INTERVAL_STORE].best_s < l[INTERVAL_PARTNER].best_s, "so with a store");
}

/* Multiples of each other, whatever comes in. */
static void test_nested(void)
{
    static const double odd[] = {0, -1, 1e-9, 0.3, 7, 1e5, 1e30, INFINITY, NAN};
    unsigned n_bad = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(odd) * ARRAY_SIZE(odd) * 16; i++) {
        double a = odd[i % ARRAY_SIZE(odd)];
        double b = odd[i / ARRAY_SIZE(odd) % ARRAY_SIZE(odd)];
        struct interval_levels_facts f = facts(
            i / ARRAY_SIZE(odd) / ARRAY_SIZE(odd), 3, i % 5, UINT64_MAX * (i % 2));
        struct interval_level l[INTERVAL_N_LEVELS];
        uint64_t below = 1;

        f.first = (struct interval){a, b, a};
        f.ran_s = b;
        f.took_s[INTERVAL_PARTNER] = a;
        f.took_s[INTERVAL_DISK] = f.took_s[INTERVAL_STORE] = b;
        f.slower[INTERVAL_PARTNER] = b;
        f.slower[INTERVAL_DISK] = a;
        f.slower_known = i % 3 ? P | D : 0;
        interval_levels(&f, l);
        for (size_t k = 0; k < INTERVAL_N_LEVELS; k++) {
            char text[INTERVAL_TEXT_BYTES];

            if (l[k].is_there) {
                n_bad += l[k].saves == 0 || l[k].saves % below != 0 ||
                         !(l[k].seconds >= 1);
                below = l[k].saves ? l[k].saves : 1;
                interval_level_explain(&f, k, &l[k], text);
            }
        }
    }
    is_int((int)n_bad, 0, "multiples, of whatever");
}

static void test_explain(void)
{
    struct interval_levels_facts f = facts(M | P | D | S, 10, 1, 0);
    struct interval_level l[INTERVAL_N_LEVELS];
    char text[INTERVAL_TEXT_BYTES];

    interval_levels(&f, l);
    interval_level_explain(&f, INTERVAL_DISK, &l[INTERVAL_DISK], text);
    is_str(text, "one save in 5, 5m30s: sqrt(2 x 0.2 s x 3d09h) = 5m43s, needed 0 "
           "times in 1d07h; 0.2 s a save, a twentieth of 4 s: too few steps were reported "
           "meanwhile",
           "in words");
    interval_level_explain(&f, INTERVAL_MEMORY, &l[INTERVAL_MEMORY], text);
    like(text, "every save, 1m06s: sqrt(2 x 0.2 s x 3h06m) = 1m06s, needed 10 times",
         "of every save");
    like(text, "; 0.2 s a save, for which it holds workers up", "which each one does");
    f.slower_known = D;
    f.slower[INTERVAL_DISK] = 0.25;
    f.took_s[INTERVAL_PARTNER] = 0;
    interval_levels(&f, l);
    interval_level_explain(&f, INTERVAL_DISK, &l[INTERVAL_DISK], text);
    like(text, "; 0.8 s a save, of steps that are 25 % slower for 4 s", "as was measured");
    interval_level_explain(&f, INTERVAL_PARTNER, &l[INTERVAL_PARTNER], text);
    like(text, "; 1 s a save, as long as none was measured", "or assumed");
    ok(strlen(text) < INTERVAL_TEXT_BYTES - 1, "all of it");
}

/* What a save costs is what steps are slower for it. */
static void test_slower(void)
{
    struct interval_levels_facts f = facts(M | D, 10, 1, 0);
    struct interval_level l[INTERVAL_N_LEVELS];

    f.slower_known = D;
    f.slower[INTERVAL_DISK] = 1;
    interval_levels(&f, l);
    ok(l[INTERVAL_DISK].is_measured && l[INTERVAL_DISK].cost_s == 2,
       "twice as slow for 4 s: 2 s are lost");
    f.slower[INTERVAL_DISK] = 0;
    interval_levels(&f, l);
    ok(l[INTERVAL_DISK].cost_s == 0 && l[INTERVAL_DISK].saves == 1,
       "not at all: each save goes there");
    f.took_s[INTERVAL_DISK] = 200;
    interval_levels(&f, l);
    is_int((int)l[INTERVAL_DISK].saves, 4, "that can get there");
    f.slower[INTERVAL_DISK] = NAN;
    interval_levels(&f, l);
    ok(l[INTERVAL_DISK].cost_s == 0, "what makes no sense is none");
    f.slower[INTERVAL_DISK] = INFINITY;
    interval_levels(&f, l);
    ok(!l[INTERVAL_DISK].is_measured && l[INTERVAL_DISK].cost_s == 10, "nor what has no end");
    f.slower[INTERVAL_DISK] = 1;
    f.took_s[INTERVAL_DISK] = 0;
    interval_levels(&f, l);
    ok(!l[INTERVAL_DISK].is_measured && l[INTERVAL_DISK].is_assumed,
       "nor how slow steps are while nothing has gone there");
    f.took_s[INTERVAL_DISK] = 200;
    f.slower_known = 0;
    interval_levels(&f, l);
    ok(!l[INTERVAL_DISK].is_measured && l[INTERVAL_DISK].cost_s == 10,
       "without steps it is a share of what it takes");
}

int main(void)
{
    test_table();
    test_first();
    test_bounds();
    test_no_more_seldom();
    test_nested();
    test_explain();
    test_slower();
    return tap_done();
}
