/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/time_limit.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <stdint.h>

#define S UINT64_C(1000)
#define H (3600 * S)
#define NEVER TIME_LIMIT_NEVER

static void test_parse(void)
{
    static const struct {
        const char *text;
        uint64_t want;
    } good[] = {
        {"0:00", 0}, {"0:57", 57 * S}, {"1:00", 60 * S}, {"59:59", 3599 * S},
        {"1:00:00", H}, {"23:59:59", 24 * H - S}, {"1-00:00:00", 24 * H},
        {"364-23:59:57", 365 * 24 * H - 3 * S}, {"UNLIMITED", NEVER},
        {"NOT_SET", NEVER},
    };
    static const char *const bad[] = {
        "", "INVALID", "5", "1-", "1-2", "1-2:3", ":", "1:", ":1", "1:2:3:4",
        "1-2-3:4:5", "-1:00", "1:00 ", " 1:00", "1:0x", "99999999999:00",
        "1:2-3", "1-1-1", "unlimited",
    };
    uint64_t left;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        left = 1;
        ok(time_limit_parse(good[i].text, &left) && left == good[i].want,
           "%s", good[i].text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ok(!time_limit_parse(bad[i], &left), "not '%s'", bad[i]);
    }
}

static void test_parse_end(void)
{
    static const char *const bad[] = {
        "", "999", "-1", "1e9", "0x7000", "1060 ", "99999999999999",
        "18446744073709551615", "18446744073709551616",
    };
    uint64_t left = 1;

    ok(time_limit_parse_end("1060", 1000, &left) && left == 60 * S,
       "an end in a minute");
    ok(time_limit_parse_end("1000", 1000, &left) && left == 0, "one now");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ok(!time_limit_parse_end(bad[i], 1000, &left), "no end: '%s'", bad[i]);
    }
}

/* Answers, one after the other, and when the run would stop after each. The first
 * one comes at 1000 s of the steady clock, and at 5000 s of the wall clock. */
static void test_answers(void)
{
    static const struct {
        const char *what;
        uint64_t before;
        struct {
            uint64_t left, after, jump;
            uint64_t want; /* seconds after the first answer */
        } answers[3];
    } cases[] = {
        {"a limit", 60, {{3600, 0, 0, 3540}, {2600, 1000, 0, 3540}}},
        {"no limit", 60, {{UINT64_MAX / S, 0, 0, UINT64_MAX / S}}},
        {"one that becomes longer", 60,
         {{3600, 0, 0, 3540}, {6200, 1000, 0, 7140}}},
        {"one that becomes shorter", 60,
         {{3600, 0, 0, 3540}, {500, 1000, 0, 1440}}},
        {"one that is passed already", 60,
         {{3600, 0, 0, 3540}, {0, 1000, 0, 940}}},
        {"one that is lifted, and comes back", 60,
         {{3600, 0, 0, 3540}, {UINT64_MAX / S, 1000, 0, UINT64_MAX / S},
          {1600, 2000, 0, 3540}}},
        {"a wall clock that is put on by an hour", 60,
         {{7200, 0, 0, 7140}, {2600, 1000, 3600, 7140}}},
        {"one that is put back by an hour", 60,
         {{7200, 0, 0, 7140}, {9800, 1000, (uint64_t)-3600, 7140}}},
        {"and a limit that becomes longer by as much", 60,
         {{7200, 0, 0, 7140}, {6200, 1000, 3600, 10740}}},
        {"a job that was suspended for 500 s", 60,
         {{3600, 0, 0, 3540}, {3100, 1000, 0, 4040}}},
        {"little time: half of it", 60, {{100, 0, 0, 50}, {60, 40, 0, 50}}},
        {"none at all", 60, {{0, 0, 0, 0}}},
        {"little time that becomes more", 60,
         {{40, 0, 0, 20}, {3630, 10, 0, 3620}}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct time_limit t = time_limit_start(cases[i].before * S);

        ok(time_limit_stop_ms(&t) == NEVER, "nothing is known");
        for (size_t j = 0; j < 3; j++) {
            uint64_t left = cases[i].answers[j].left;
            uint64_t after = cases[i].answers[j].after;
            uint64_t want = cases[i].answers[j].want;
            uint64_t wall = 5000 + after + cases[i].answers[j].jump;

            if (j && !after) {
                break;
            }
            time_limit_take(&t, left == UINT64_MAX / S ? NEVER : left * S,
                            (1000 + after) * S, wall * S);
            is_int((intmax_t)time_limit_stop_ms(&t),
                   (intmax_t)(want == UINT64_MAX / S ? NEVER
                                                     : (1000 + want) * S),
                   "%s (%zu)", cases[i].what, j);
        }
    }
}

/* From asking to asking: it is asked when it is time to stop, and never after. */
static void test_asking(void)
{
    struct time_limit t = time_limit_start(60 * S);
    uint64_t now = 0, last = 0;
    unsigned n = 0;

    is_int((intmax_t)time_limit_ask_ms(&t, 7), 300007, "nothing is known");
    time_limit_take(&t, 24 * H, now, now);
    while (now < time_limit_stop_ms(&t) && n < 1000) {
        last = now;
        now = time_limit_ask_ms(&t, now);
        n++;
    }
    is_int((intmax_t)now, (intmax_t)(24 * H - 60 * S), "asked when it is time");
    ok(now - last <= 20 * S, "and shortly before");
    ok(n < 310, "%u times in a day", n);
    is_int((intmax_t)time_limit_ask_ms(&t, now + 5), (intmax_t)now + 5,
           "too late is at once");
    time_limit_take(&t, NEVER, now, now);
    is_int((intmax_t)time_limit_ask_ms(&t, now), (intmax_t)(now + 300 * S),
           "a limit may come");
}

int main(void)
{
    test_parse();
    test_parse_end();
    test_answers();
    test_asking();
    return tap_done();
}
