/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/retain.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Each a step, w where it is whole, p where it is pinned, a where it stands apart, s of
 * another series, t where all of that step are one, h where it is short, and =metric. */
static size_t parse(const char *text, struct retain_item *items)
{
    size_t n = 0, series[2] = {SIZE_MAX, SIZE_MAX};
    int len;

    for (unsigned step; sscanf(text, "%u%n", &step, &len) == 1; n++) {
        bool is_other = false;

        items[n] = (struct retain_item){.step = step, .has_step = step > 0};
        for (text += len; strchr("wpasth", *text) && *text; text++) {
            items[n].is_whole |= *text == 'w';
            items[n].is_pinned |= *text == 'p';
            items[n].is_apart |= *text == 'a';
            is_other |= *text == 's';
            items[n].is_short |= *text == 'h';
            if (*text == 't') {
                items[n].set = n > 0 && items[n - 1].step == step ? items[n - 1].set : n + 1;
            }
        }
        if (sscanf(text, "=%lf%n", &items[n].metric, &len) == 1) {
            items[n].has_metric = true;
            text += len;
        }
        series[is_other] = series[is_other] == SIZE_MAX ? n : series[is_other];
        items[n].series = series[is_other];
    }
    for (size_t i = 0; i < n; i++) {
        items[i].n_files = 0;
        for (size_t k = 0; k < n && items[i].is_whole; k++) {
            items[i].n_files += i == k || (items[i].set && items[k].set == items[i].set);
        }
    }
    return n;
}

static void test_rules(void)
{
    static const struct {
        struct retain_rule rule;
        const char *items, *want;
    } cases[] = {
        {{.keep = 2}, "50w 40w 30w 20w", "30 20 "},
        {{.keep = 0}, "50w 40w 30w 20w", ""},
        {{.keep = 2}, "50 40w 30 20w 10w", "10 "},
        {{.keep = 2}, "50w 40 30", ""},
        {{.keep = 1}, "50 40 30", ""},
        {{.keep = 1}, "50 40w 30", "30 "},
        {{.keep = 1, .every = 20}, "50w 40w 30w 20w", "30 "},
        {{.keep = 1}, "50w=3 40w=1 30w=2 20w=1", "30 20 "},
        {{.keep = 1, .is_highest = true}, "50w=3 40w=1 30w=4", "40 "},
        {{.keep = 1}, "50w=nan 40w=nan 30w=7 20w", "40 20 "},
        {{.keep = 1}, "50w 40w 30wp 0w", "40 "},
        {{.keep = 3}, "", ""},
        {{.keep = 1}, "50wa 40w 30w", "30 "},
        {{.keep = 1}, "50w 40wa 30w", "30 "},
        {{.keep = 2}, "50wa 40wa 30w 20w 10w", "10 "},
        {{.keep = 1}, "50wa=1 40w=3 30w=2 20w=4", "20 "},
        {{.keep = 2}, "50w 45ws 40w 35ws 30w 20ws", "30 20 "},
        {{.keep = 1}, "50w 40ws 30s 20w", "30 20 "},
        {{.keep = 2}, "50w 40ws", ""},
        {{.keep = 1}, "50wt 50wt 40wt 40wt 30w", "40 40 30 "},
        {{.keep = 2}, "50wt 50wt 40wt 40wt 30w", "30 "},
        {{.keep = 1}, "50wt 50t 40wt 40wt 30wt 30wt", "30 30 "},
        {{.keep = 1}, "50wth 50wth 40wt 40wt 30wt 30wt", "30 30 "},
        {{.keep = 1}, "50wt 50wta 40wt 40wt 30wt 30wt", "30 30 "},
        {{.keep = 1}, "50w 40wt 40wtp 30w", "30 "},
        {{.keep = 1}, "50w=3 40wt=1 40wt 30w", "30 "},
        {{.keep = 2}, "50w 40w 30wt 30wt 20wt 20wt", "20 20 "},
        {{.keep = 2}, "50w 40w 30wt 30t 20wt 20wt", "30 30 "},
        {{.keep = 1}, "50wh 40w 30w 20wth 20wt 10wt 10wt", "20 20 "},
        {{.keep = 1}, "50w 40w 30w 20wt 20wt 10wt 10wt", "30 10 10 "},
        {{.keep = 1}, "50w 40ws 30wst 30wst 20wst 20wst", "20 20 "},
        {{.keep = 1}, "50w 40ws 30ws 20wst 20wst 10wst 10wst", "10 10 "},
        {{.keep = 1}, "50w 40wt 40wta 30w", "30 "},
        {{.keep = 1}, "60wt 60wt 50wt=1 50wt 40wt 40wt", "40 40 "},
        {{.keep = 1, .every = 1}, "50w 40w 30w", ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct retain_item items[16];
        size_t n = parse(cases[i].items, items);
        char got[128] = "";

        retain_mark(&cases[i].rule, items, n);
        for (size_t k = 0; k < n; k++) {
            if (items[k].is_removed) {
                snprintf(got + strlen(got), sizeof(got) - strlen(got), "%u ",
                         (unsigned)items[k].step);
            }
        }
        is_str(got, cases[i].want, "of %s", cases[i].items);
    }
}

/* Whatever the rule, the newest that is whole stays. */
static void test_newest(void)
{
    unsigned seed = 1, n_lost = 0;

    for (int round = 0; round < 20000; round++) {
        struct retain_item items[8] = {{0}};
        struct retain_rule rule;
        bool is_older = false;

        for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
            seed = seed * 1103515245 + 12345;
            items[i] = (struct retain_item){
                .step = 100 - i, .has_step = seed & 1 << 16,
                .is_whole = seed & 1 << 17, .has_metric = seed & 1 << 18,
                .metric = (seed >> 20) & 7};
        }
        rule = (struct retain_rule){.keep = (seed >> 16) & 3,
                                    .every = (seed >> 18) & 3};
        retain_mark(&rule, items, ARRAY_SIZE(items));
        for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
            n_lost += items[i].is_removed && !is_older;
            is_older |= items[i].is_whole;
        }
    }
    is_int((int)n_lost, 0, "the newest that is whole, and all newer ones, stay");
}

int main(void)
{
    test_rules();
    test_newest();
    return tap_done();
}
