/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/log_index.h"
#include "tests/lib/tap.h"

#include <inttypes.h>
#include <string.h>

#define S UINT64_C(1000000000)

static void test_note(void)
{
    struct log_index x = {0};
    _buf_ struct buf b = {0};

    log_index_note(&x, 100 * S + S / 2, 0, &b);
    log_index_note(&x, 101 * S, 50, &b);
    log_index_note(&x, 101 * S + S / 2, 90, &b);
    log_index_note(&x, 99 * S, 120, &b);
    is_str(buf_str(&b), "v 1\n100.500 0 1\n101.500 90 1\n99.000 120 1\n",
           "at most one a second, and a new one where the clock was put back");
}

static void test_bound(void)
{
    struct log_index x = {0};
    _buf_ struct buf b = {0};
    size_t n = 0;

    /* A line a second for a year. */
    for (uint64_t t = 0; t < 365 * 86400; t++) {
        log_index_note(&x, t * S, 80 * t, &b);
    }
    for (const char *at = buf_str(&b); (at = strchr(at, '\n')); at++) {
        n++;
    }
    ok(n > 10000 && n < 17000, "a year has %zu entries", n);
    is_int((intmax_t)log_index_find(b.data, b.len, 100 * S, 365 * 86400 * S,
                                    UINT64_MAX), 99 * 80,
           "to the second at its start");
}

/* Each entry says how long it is before there is another one: twice as long after
 * every thousand, up to 2^20 seconds. */
static void test_spans(void)
{
    struct log_index x = {0};
    _buf_ struct buf b = {0};

    for (uint64_t t = 0; t < 1000; t++) {
        log_index_note(&x, t * S, t, &b);
    }
    is_int((intmax_t)x.n, 1000, "one a second, a thousand times");
    ok(str_ends(buf_str(&b), "\n999.000 999 1\n"), "each says so");
    buf_clear(&b);
    for (uint64_t t = 999; t < 1004; t++) {
        log_index_note(&x, t * S, t, &b);
    }
    is_str(buf_str(&b), "1000.000 1000 2\n1002.000 1002 2\n",
           "then one in two seconds");
    x = (struct log_index){.n = 25000};
    buf_clear(&b);
    log_index_note(&x, ((UINT64_C(1) << 20) - 1) * S, 1, &b);
    log_index_note(&x, (UINT64_C(1) << 20) * S, 2, &b);
    is_str(buf_str(&b), "1048576.000 2 1048576\n", "and in 12 days at last");
}

static void test_find(void)
{
    static const char index[] = "v 1\n"
                                "100.500 0 1\n"
                                "102.000 90 1\n"
                                "110.000 200 4\n";
    static const struct {
        const char *what;
        size_t len;         /* of the index; 0: all */
        uint64_t since_ms, written_ms, want;
    } cases[] = {
        {"all", 0, 0, 110000, 0},
        {"the first second", 0, 101400, 110000, 0},
        {"to its very end", 0, 101500, 110000, 0},
        {"just after that", 0, 101501, 110000, 90},
        {"between two", 0, 101600, 110000, 90},
        {"the second one", 0, 102900, 110000, 90},
        {"the last", 0, 103100, 110000, 200},
        {"within its span", 0, 113900, 110000, 200},
        {"to the end of its span", 0, 114000, 110000, 200},
        {"after all", 0, 114100, 110000, 1000},
        {"as the file was written", 0, 120000, 120000, 200},
        {"after that", 0, 120001, 120000, 1000},
        {"after all, but the file is younger", 0, 114100, 120000, 200},
        {"an index that was cut", 20, 103100, 110000, 0},
        {"one that was cut earlier", 3, 103100, 110000, 0},
        {"and an old file", 3, 110100, 110000, 1000},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t len = cases[i].len ? cases[i].len : strlen(index);

        is_int((intmax_t)log_index_find(index, len,
                                        cases[i].since_ms * (S / 1000),
                                        cases[i].written_ms * (S / 1000),
                                        1000),
               (intmax_t)cases[i].want, "%s", cases[i].what);
    }
}

static void test_hostile(void)
{
    static const char *const lines[] = {
        "", "\n", "x", "1 2 3", "100.500 0", "100.500 90 1 1", "100.500 -1 1",
        "99999999999999999999.000 0 1",
        "100.500 99999999999999999999999 1",
        "100.500 0 99999999999999999999",
        ("1111111111111111111111111111111111111111111111111111111111111111111111"
         "1111111111111111111111111111111111111111111111111111111111111111111111"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        _buf_ struct buf b = {0};

        buf_printf(&b, "v 1\n%s\n200.000 70 1\n", lines[i]);
        is_int((intmax_t)log_index_find(b.data, b.len, 200 * S, 200 * S, 100),
               70, "passed over: '%.40s'", lines[i]);
    }
    is_int((intmax_t)log_index_find("100.000 70 1\n", 13, 100 * S, 100 * S,
                                    50), 50, "never beyond the end");
    is_int((intmax_t)log_index_find("99999999999.999 0 999999999\n", 28,
                                    100 * S, 100 * S, 50), 0,
           "a time that is too far off is no less than one");
}

int main(void)
{
    test_note();
    test_bound();
    test_spans();
    test_find();
    test_hostile();
    return tap_done();
}
