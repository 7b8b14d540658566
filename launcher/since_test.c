/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/since.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <time.h>

#define S UINT64_C(1000000000)
#define NOW (UINT64_C(1795305600) * S) /* 2026-11-22T00:00:00Z */

static void test_good(void)
{
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {
        {"90s", NOW - 90 * S},
        {"1.5h", NOW - 5400 * S},
        {"0s", NOW},
        {"36500d", 1},
        {"2026-11-22T00:00:00Z", NOW},
        {"2026-11-22T00:00Z", NOW},
        {"2026-11-22Z", NOW},
        {"2026-11-22", NOW - 3600 * S},
        {"2026-11-21T23:59:59", NOW - 3601 * S},
        {"@1795305600", NOW},
        {"@1795305600.25", NOW + S / 4},
        {"1970-01-01Z", 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};
        uint64_t got = 0;

        is_int(since_parse(cases[i].text, NOW, &got, &e), 0, "%s is a time",
               cases[i].text);
        ok(got == cases[i].want, "and this one");
    }
}

static void test_bad(void)
{
    static const char *const bad[] = {
        "", "yesterday", "-5m", "5", "@", "@-1", "@nan", "@1e300", "2026",
        "2026-11", "2026-13-01", "2026-02-30", "2026-11-22T", "Z",
        "2026-11-22T25:61:61", "2026-11-22 08:00", "2026-11-22T08:00:00+01",
        "1969-12-31Z", "9999-01-01",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct error e = {0};
        uint64_t got;

        is_int(since_parse(bad[i], NOW, &got, &e), -ERR_USAGE, "'%s' is none",
               bad[i]);
        like(e.text, "such as 90s or 2h", "and it is told what is one");
    }
}

int main(void)
{
    setenv("TZ", "XXX-1", 1); /* an hour ahead */
    tzset();
    test_good();
    test_bad();
    return tap_done();
}
