/* SPDX-License-Identifier: Apache-2.0 */
/* Which saves go where, and which are of no use any more. */
#include <config.h>

#include "launcher/snap_levels.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

enum { P = 1 << INTERVAL_PARTNER, D = 1 << INTERVAL_DISK };

/* Of saves 10 s apart, each 'd' to the disk, too, 'p' to the partner, '.' to neither. */
static void goes(const char *want, uint64_t partner_ms, uint64_t disk_ms,
                 const char *what)
{
    const uint64_t every_ms[INTERVAL_N_LEVELS] = {[INTERVAL_PARTNER] = partner_ms,
                                                  [INTERVAL_DISK] = disk_ms};
    struct snap_levels l = {0};
    char got[32] = "";

    for (size_t i = 0; want[i]; i++) {
        unsigned levels = snap_levels_choose(&l, 5000 + 10000 * i, every_ms);

        snap_levels_note(&l, levels, 5000 + 10000 * i);
        got[i] = levels == (P | D) ? 'd' : levels == P ? 'p' : levels == 0 ? '.' : '?';
    }
    is_str(got, want, "%s", what);
}

static void test_choose(void)
{
    goes("dddd", 0, 0, "each one");
    goes("dppp", 0, 3600000, "the first one to the disk, all to the partner");
    goes("d...", 3600000, 3600000, "the first one alone");
    goes("d..d..d", 3600000, 30000, "what goes to the disk goes to the partner");
    goes("d.p.d.p.d", 20000, 40000, "the partner more often");
    goes("d..d.", 20001, 20001, "never sooner than is wanted");
    goes("dpdpd", 10000, 20000, "as long as it is");
}

static void test_note(void)
{
    const uint64_t every_ms[INTERVAL_N_LEVELS] = {0, 60000, 60000, 0};
    struct snap_levels l = {0};

    snap_levels_note(&l, P | D, 100000);
    snap_levels_note(&l, D, 50000);
    is_int((int)snap_levels_choose(&l, 150000, every_ms), 0, "the newest counts");
    is_int((int)snap_levels_choose(&l, 90000, every_ms), 0, "one before it goes nowhere");
    snap_levels_forget(&l, P);
    is_int((int)snap_levels_choose(&l, 150000, every_ms), P, "one that came to nothing");
    snap_levels_forget(&l, D);
    is_int((int)snap_levels_choose(&l, 150000, every_ms), P | D, "does not");
}

/* As fast as they come, and by a clock that stands. */
static void test_each(void)
{
    const uint64_t every_ms[INTERVAL_N_LEVELS] = {0};
    struct snap_levels l = {0};

    snap_levels_note(&l, P | D, 100000);
    is_int((int)snap_levels_choose(&l, 100000, every_ms), P | D, "each goes, at one time, too");
    is_int((int)snap_levels_choose(&l, 99000, every_ms), P | D, "or before");
}

static void test_replaces(void)
{
    static const struct {
        struct snap_standing later, earlier;
        bool want;
        const char *what;
    } cases[] = {
        {{{1, 20, 0}, true, false, false}, {{1, 10, 0}, true, false, false}, true,
         "memory, memory"},
        {{{1, 10, 0}, true, true, true}, {{1, 20, 0}, true, false, false}, false, "an older one"},
        {{{1, 20, 0}, true, true, true}, {{1, 20, 0}, true, false, false}, false, "itself"},
        {{{1, 20, 0}, false, false, false}, {{1, 10, 0}, true, false, false}, false,
         "one that a rank has not handed over"},
        {{{1, 20, 0}, true, false, false}, {{1, 10, 0}, true, true, false}, false,
         "a copy is more than memory"},
        {{{1, 20, 0}, true, true, false}, {{1, 10, 0}, true, true, false}, true, "copy, copy"},
        {{{1, 20, 0}, true, false, true}, {{1, 10, 0}, true, true, false}, true, "disk, copy"},
        {{{1, 20, 2}, true, false, false}, {{1, 20, 1}, true, false, false}, true,
         "a step that is saved again"},
        {{{1, 20, 1}, true, true, true}, {{1, 20, 2}, true, false, false}, false,
         "what it was saved as before"},
        {{{2, 5, 0}, true, false, false}, {{1, 10, 0}, true, false, false}, true,
         "workers that were started later"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ok(snap_levels_replaces(&cases[i].later, &cases[i].earlier) == cases[i].want,
           "%s: %s", cases[i].what, cases[i].want ? "takes its place" : "does not");
    }
}

int main(void)
{
    test_choose();
    test_note();
    test_each();
    test_replaces();
    return tap_done();
}
