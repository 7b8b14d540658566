/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/slow.h"
#include "tests/lib/tap.h"

#include <math.h>

enum { RANKS = 4, MAX = 8 };

static struct slow *make(void)
{
    struct slow *s = slow_create(RANKS);

    if (!s) {
        bail_out("slow_create");
    }
    return s;
}

static void add(struct slow *s, int n, double a, double b, double c, double d)
{
    const double times[RANKS] = {a, b, c, d};

    for (int i = 0; i < n; i++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            slow_add(s, r, times[r]);
        }
    }
}

static void test_one(void)
{
    _cleanup_(slow) struct slow *s = make();
    struct slow_change c[MAX];

    add(s, SLOW_SKIP, 1, 1, 900, 1);
    add(s, SLOW_ENOUGH - 1, 1, 1.1, 2, 1);
    is_int((intmax_t)slow_look(s, c, MAX), 0, "too early to tell");
    add(s, 1, 1, 1.1, 2, 1);
    is_int((intmax_t)slow_look(s, c, MAX), 1, "one is slow");
    is_int(c[0].rank, 2, "that one");
    is_int(c[0].percent, 200, "by so much, without its first steps");
    ok(slow_worst(s).rank == 2 && slow_worst(s).percent == 200,
       "it is the slowest");
    ok(c[0].own_s == 2 && c[0].median_s == 1, "in seconds");
    is_int((intmax_t)slow_look(s, c, MAX), 0, "it is told once");
    add(s, SLOW_WINDOW, 1, 1, 1.4, 1);
    is_int((intmax_t)slow_look(s, c, MAX), 0, "a little better is still slow");
    add(s, SLOW_WINDOW, 1, 1, 1.2, 1);
    is_int((intmax_t)slow_look(s, c, MAX), 1, "but then it keeps up");
    ok(c[0].rank == 2 && c[0].percent == 0, "which is told");
    add(s, SLOW_WINDOW, 1, 1, 1.4, 1);
    is_int((intmax_t)slow_look(s, c, MAX), 0, "and takes more to be slow "
           "again");
}

/* The first step that counts is one of those of which the median is taken. */
static void test_first(void)
{
    _cleanup_(slow) struct slow *s = make();
    struct slow_change c[MAX];

    add(s, SLOW_SKIP, 1, 1, 1, 1);
    add(s, SLOW_ENOUGH / 2 + 1, 1, 1, 2, 1);
    add(s, SLOW_ENOUGH / 2 - 1, 1, 1, 1, 1);
    is_int((intmax_t)slow_look(s, c, MAX), 1, "more than half of its steps were slow");
    is_int(c[0].percent, 200, "by so much");
}

static void test_noise(void)
{
    _cleanup_(slow) struct slow *s = make();
    struct slow_change c[MAX];

    for (int i = 0; i < 20; i++) {
        add(s, 1, i % 4 ? 1 : 30, 1, 1, 1);
    }
    is_int((intmax_t)slow_look(s, c, MAX), 0, "a rank that saves a checkpoint "
           "every few steps");
    add(s, SLOW_WINDOW, 9, 9, 9, 9);
    is_int((intmax_t)slow_look(s, c, MAX), 0, "all slow is none slow");
    slow_add(s, RANKS, 1);
    slow_add(s, 0, NAN);
    slow_add(s, 0, INFINITY);
    slow_add(s, 0, -1);
    slow_add(s, 0, 0);
    is_int((intmax_t)slow_look(s, c, MAX), 0, "what is no time, of no rank");
}

static void test_few(void)
{
    _cleanup_(slow) struct slow *s = make();
    struct slow_change c[MAX];

    is_int(slow_worst(s).percent, 0, "nobody is the slowest yet");
    for (int i = 0; i < 20; i++) {
        slow_add(s, 1, 5);
    }
    is_int((intmax_t)slow_look(s, c, MAX), 0, "one that reports alone");
    for (int i = 0; i < 20; i++) {
        slow_add(s, 3, 1);
    }
    is_int((intmax_t)slow_look(s, c, MAX), 1, "two");
    ok(c[0].rank == 1 && c[0].percent == 500, "the slow one of them");
    add(s, SLOW_WINDOW, 1, 1e12, 9, 1);
    is_int((intmax_t)slow_look(s, c, 0), 0, "no room for a change");
    is_int((intmax_t)slow_look(s, c, MAX), 1, "it comes later");
    is_int(c[0].percent, 900, "as it is by then");
    slow_destroy(NULL);
}

int main(void)
{
    test_one();
    test_first();
    test_noise();
    test_few();
    return tap_done();
}
