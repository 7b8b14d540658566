/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps count as slowed by a save, and by how much they are. */
#include <config.h>

#include "ckpt/slowdown.h"

#include "tests/lib/tap.h"

#include <math.h>

/* Steps of 1 s, or as long as is said; *now is the end of the last one. */
static void steps(struct slowdown *s, unsigned n, double seconds, uint64_t *now)
{
    for (unsigned i = 0; i < n; i++) {
        *now += (uint64_t)(seconds * 1000);
        slowdown_step(s, seconds, seconds, *now);
    }
}

static bool is_slower(const struct slowdown *s, enum interval_level_id level, double by)
{
    double got;

    return slowdown_of(s, level, &got) && fabs(got - by) < 1e-9;
}

static void test_disk(void)
{
    struct slowdown s = {0};
    uint64_t now = 5000;
    double got;

    steps(&s, SLOWDOWN_ENOUGH, 1, &now);
    ok(!slowdown_of(&s, INTERVAL_DISK, &got), "no save was on its way yet");
    slowdown_turn(&s, INTERVAL_DISK, true, now + 500);
    steps(&s, SLOWDOWN_ENOUGH, 1.25, &now);
    ok(!slowdown_of(&s, INTERVAL_DISK, &got),
       "the step in which it began does not count: too few");
    steps(&s, 1, 1.25, &now);
    ok(is_slower(&s, INTERVAL_DISK, 0.25), "steps of 1.25 s, and of 1 s before");
    slowdown_turn(&s, INTERVAL_DISK, false, now + 1);
    steps(&s, 1, 100, &now);
    steps(&s, 1, 100, &now);
    ok(is_slower(&s, INTERVAL_DISK, 0.25), "one step that is long does not matter");
    ok(!slowdown_of(&s, INTERVAL_PARTNER, &got), "nothing is known of other levels");
    slowdown_turn(&s, INTERVAL_DISK, true, now);
    steps(&s, 2 * SLOWDOWN_WINDOW, 0.5, &now);
    ok(is_slower(&s, INTERVAL_DISK, 0), "faster is not slower, and the newest count");
    slowdown_restart(&s);
    ok(!slowdown_of(&s, INTERVAL_DISK, &got), "nothing is known of other workers");
    steps(&s, SLOWDOWN_ENOUGH, 3, &now);
    slowdown_turn(&s, INTERVAL_DISK, false, now);
    steps(&s, SLOWDOWN_ENOUGH, 2, &now);
    ok(is_slower(&s, INTERVAL_DISK, 0.5), "until they have taken steps, of both kinds");
}

static void test_several(void)
{
    struct slowdown s = {0};
    uint64_t now = 1000;
    double got;

    steps(&s, SLOWDOWN_ENOUGH, 1, &now);
    slowdown_turn(&s, INTERVAL_PARTNER, true, now);
    slowdown_turn(&s, INTERVAL_DISK, true, now);
    slowdown_turn(&s, INTERVAL_DISK, true, now + 700);
    steps(&s, SLOWDOWN_ENOUGH, 3, &now);
    ok(is_slower(&s, INTERVAL_DISK, 2), "on its way to both: that of the higher");
    ok(!slowdown_of(&s, INTERVAL_PARTNER, &got), "and not of the other");
    slowdown_turn(&s, INTERVAL_DISK, false, now);
    steps(&s, SLOWDOWN_ENOUGH, 2, &now);
    ok(is_slower(&s, INTERVAL_PARTNER, 1), "unless it is alone");
}

/* A report may be of many steps, and of nonsense. */
static void test_span(void)
{
    static const double odd[] = {0, -1, INFINITY, -INFINITY, NAN};
    struct slowdown s = {0};
    double got;

    slowdown_turn(&s, INTERVAL_DISK, true, 10000);
    for (unsigned i = 0; i < 9; i++) {
        slowdown_step(&s, 1, 10, 19999);
        slowdown_step(&s, 1, 1, 9000);
        for (unsigned k = 0; k < sizeof(odd) / sizeof(odd[0]); k++) {
            slowdown_step(&s, odd[k], 1, 30000);
            slowdown_step(&s, 1, odd[k], 30000);
        }
    }
    is_int((int)(s.quiet.n + s.busy[INTERVAL_DISK].n), 0,
           "what began before, and what is no time, does not count");
    for (unsigned i = 0; i < 9; i++) {
        slowdown_step(&s, 1, 10, 20000);
    }
    is_int((int)s.busy[INTERVAL_DISK].n, 9, "all of them have to be meanwhile");
    ok(!slowdown_of(&s, INTERVAL_DISK, &got), "nothing can be said without others");
}

int main(void)
{
    test_disk();
    test_several();
    test_span();
    return tap_done();
}
