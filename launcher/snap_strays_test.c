/* SPDX-License-Identifier: Apache-2.0 */
/* What was never finished is nobody's once agents have had their time to tell of it, by
 * what was known then and not by when somebody looks. */
#include <config.h>

#include "launcher/snap_strays.h"

#include "tests/lib/tap.h"

#include <stdio.h>

static const char *name_of(unsigned i)
{
    static char name[STEP_NAME_BYTES];

    snprintf(name, sizeof(name), "step-%012u-0badc0de", i);
    return name;
}

static void test_time(void)
{
    struct snap_strays s = {0};
    const uint64_t t = 1000;

    ok(!snap_strays_take(&s, name_of(1), t, 0), "seen for the first time");
    ok(!snap_strays_take(&s, name_of(1), t + 60000, 500),
       "again, much later: but nothing has been heard since");
    ok(!snap_strays_take(&s, name_of(1), t + 60000, t + SNAP_STRAYS_MS - 1),
       "nor for long enough");
    ok(!snap_strays_take(&s, name_of(2), t + 60000, t + SNAP_STRAYS_MS),
       "another one is new");
    ok(snap_strays_take(&s, name_of(1), t + 60000, t + SNAP_STRAYS_MS),
       "now it is nobody's");
    ok(!snap_strays_take(&s, name_of(1), t + 60000, t + 60000),
       "what is there again is new");
}

/* No more is remembered than there is room for: those seen last. */
static void test_many(void)
{
    struct snap_strays s = {0};
    unsigned n = 0;

    for (unsigned i = 0; i < SNAP_STRAYS_MAX + 3; i++) {
        n += snap_strays_take(&s, name_of(i), 10 + i, 10 + i);
    }
    is_int((int)n, 0, "many are seen");
    for (unsigned i = 3; i < SNAP_STRAYS_MAX + 3; i++) {
        n += snap_strays_take(&s, name_of(i), 90000, 90000);
    }
    is_int((int)n, SNAP_STRAYS_MAX, "those for which there was room go");
    ok(!snap_strays_take(&s, name_of(0), 90000, 90000), "the others are new again");
}

int main(void)
{
    test_time();
    test_many();
    return tap_done();
}
