/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/hang_cpu.h"
#include "tests/lib/tap.h"

enum { HZ = 100, LOOK = 500 };

/* Looks each half a second for `looks` of them, `used[i % n]` ticks more each time: how
 * many saw progress. */
static int see(struct hang_cpu *c, uint64_t *now, uint64_t *ticks, int looks,
               const uint64_t *used, int n)
{
    int seen = 0;

    for (int i = 0; i < looks; i++) {
        *now += LOOK;
        *ticks += used[i % n];
        seen += hang_cpu_see(c, *ticks, *now, HZ);
    }
    return seen;
}

static void test_use(void)
{
    static const uint64_t none[] = {0}, busy[] = {50}, one_in_ten[] = {5},
                          one_in_fifty[] = {1}, seldom[] = {1, 0, 0, 0, 0, 0, 0},
                          noise[] = {2, 0, 0, 0, 0, 0};
    struct hang_cpu c = {0};
    uint64_t now = 1000, ticks = 700;

    ok(!hang_cpu_see(&c, ticks, now, HZ), "what was used before the first look is old");
    is_int(see(&c, &now, &ticks, 10, busy, 1), 10, "a rank that works does at each look");
    is_int(see(&c, &now, &ticks, 10, one_in_ten, 1), 10, "with a tenth of the time, too");
    is_int(see(&c, &now, &ticks, 30, none, 1), 0, "one that waits does not");
    is_int(see(&c, &now, &ticks, 30, one_in_fifty, 1), 10,
           "little adds up: a fiftieth of the time");
    see(&c, &now, &ticks, 30, none, 1);
    is_int(see(&c, &now, &ticks, 210, seldom, 7), 0,
           "a tick now and then is housekeeping, though it is much of its look");
    see(&c, &now, &ticks, 30, none, 1);
    is_int(see(&c, &now, &ticks, 60, noise, 6), 0, "two can be the noise of rounding");
}

static void test_rare_looks(void)
{
    struct hang_cpu c = {0};

    hang_cpu_see(&c, 5, 10000, HZ);
    ok(!hang_cpu_see(&c, 14, 20000, HZ), "of ten seconds, 90 ms are housekeeping");
    ok(hang_cpu_see(&c, 24, 30000, HZ), "and 100 ms progress");
    ok(!hang_cpu_see(&c, 33, 40000, HZ), "each look for itself");
}

static void test_fewer(void)
{
    struct hang_cpu c = {0};

    hang_cpu_see(&c, 500, 1000, HZ);
    ok(!hang_cpu_see(&c, 100, 1500, HZ), "processes that have ended are no progress");
    ok(hang_cpu_see(&c, 110, 2000, HZ), "what the others use from there is");
}

int main(void)
{
    test_use();
    test_rare_looks();
    test_fewer();
    return tap_done();
}
