/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/expand.h"
#include "spec/testing.h"
#include "spec/value.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

static void test_spans(void)
{
    static const struct {
        const char *text;
        int rc;
        uint64_t ms;
        const char *written; /* NULL: as `text` */
    } cases[] = {
        {"10s", 0, 10000, NULL},
        {"250ms", 0, 250, NULL},
        {"5m", 0, 300000, NULL},
        {"2h", 0, 7200000, NULL},
        {"1d", 0, 86400000, NULL},
        {"1h30m", 0, 5400000, "90m"},
        {"1.5s", 0, 1500, "1500ms"},
        {"90s", 0, 90000, NULL},
        {"0", 0, 0, "0s"},
        {"0s", 0, 0, NULL},
        {"10", -EINVAL, 0, NULL},
        {"", -EINVAL, 0, NULL},
        {"s", -EINVAL, 0, NULL},
        {"-1s", -EINVAL, 0, NULL},
        {"1 s", -EINVAL, 0, NULL},
        {"1S", -EINVAL, 0, NULL},
        {"1s2", -EINVAL, 0, NULL},
        {"1..2s", -EINVAL, 0, NULL},
        {"99999999999999d", -ERANGE, 0, NULL},
        {"36600d", 0, UINT64_C(3162240000000), NULL},
        {"36600d1ms", -ERANGE, 0, NULL},
        {"0.0006s", 0, 1, "1ms"},
        {"0.0004s", 0, 0, "0s"},
        {"0000000000000000000000000000001s", 0, 1000, "1s"},
        {"00000000000000000000000000000001s", -EINVAL, 0, NULL},
        {"1111111111111111111111111111111111111111s", -EINVAL, 0, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf text = {0};
        uint64_t ms = 0;
        int rc = value_span(cases[i].text, &ms);

        is_int(rc, cases[i].rc, "span '%s'", cases[i].text);
        if (rc == 0) {
            is_int((intmax_t)ms, (intmax_t)cases[i].ms, "its value");
            value_write_span(&text, ms);
            is_str(buf_str(&text),
                   cases[i].written ? cases[i].written : cases[i].text,
                   "written back");
        }
    }
}

static void test_counts(void)
{
    static const struct {
        const char *text;
        int rc;
    } cases[] = {
        {"0", 0},          {"7", 0},        {"4294967296", 0},
        {"07", -EINVAL},   {"00", -EINVAL}, {"0x10", -EINVAL},
        {"1_000", -EINVAL}, {"1e3", -EINVAL}, {"1.0", -EINVAL},
        {"-1", -EINVAL},   {"", -EINVAL},   {"99999999999999999999", -ERANGE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t v;

        is_int(value_count(cases[i].text, &v), cases[i].rc, "count '%s'",
               cases[i].text);
    }
}

static void test_ranges(void)
{
    static const struct {
        const char *text;
        int rc;
        uint32_t min, max;
    } cases[] = {
        {"1", 0, 1, 1},        {"2..8", 0, 2, 8},    {"2:8", 0, 2, 8},
        {"100", 0, 100, 100},  {"1..100", 0, 1, 100}, {"101", -ERANGE, 0, 0},
        {"3..3", 0, 3, 3},     {"8..2", -ERANGE, 0, 0},
        {"0", -ERANGE, 0, 0},  {"0..2", -ERANGE, 0, 0},
        {"1..101", -ERANGE, 0, 0}, {"..", -EINVAL, 0, 0},
        {"1..", -EINVAL, 0, 0}, {"..2", -EINVAL, 0, 0},
        {"1-2", -EINVAL, 0, 0}, {"1..2..3", -EINVAL, 0, 0},
        {"auto", -EINVAL, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct job_nodes n = {0};

        is_int(value_range(cases[i].text, 100, &n), cases[i].rc, "range '%s'",
               cases[i].text);
        ok(n.min == cases[i].min && n.max == cases[i].max, "its ends");
    }
}

static void test_quantities(void)
{
    static const struct {
        const char *text;
        int rc;
        double v;
    } cases[] = {
        {"500m", 0, 0.5},   {"2", 0, 2},           {"0.5", 0, 0.5},
        {"4Gi", 0, 4294967296.0}, {"4G", 0, 4e9},  {"1e3", 0, 1000},
        {"1E", 0, 1e18},    {"1E3", 0, 1000},      {"16Ki", 0, 16384},
        {"1e-2", 0, 0.01},  {"1E+2", 0, 100},      {"1e", -EINVAL, 0},
        {"5n", 0, 5 * 1e-9}, {"5u", 0, 5 * 1e-6},  {"2k", 0, 2000},
        {"2M", 0, 2e6},     {"2T", 0, 2e12},       {"2P", 0, 2e15},
        {"2Mi", 0, 2097152}, {"2Ti", 0, 2199023255552.0},
        {"2Pi", 0, 2251799813685248.0},            {"2Ei", 0, 0x1p61},
        {"32Gb", -EINVAL, 0}, {"", -EINVAL, 0},    {"Gi", -EINVAL, 0},
        {"-1", -EINVAL, 0}, {"1 Gi", -EINVAL, 0},  {"1ki", -EINVAL, 0},
        {"1.2.3", -EINVAL, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        double v = 0;

        is_int(value_quantity(cases[i].text, &v), cases[i].rc,
               "quantity '%s'", cases[i].text);
        ok(v == cases[i].v, "its value");
    }
}

static void test_yaml_words(void)
{
    static const struct {
        const char *text;
        bool ambiguous, quotes;
    } cases[] = {
        {"yes", true, true},    {"Off", true, true},   {"y", true, true},
        {"0755", true, true},   {"0o17", true, true},  {"0b11", true, true},
        {"1:30", true, true},   {"+012", true, true},  {"1e3", false, true},
        {"012x", false, false},  {"1_000", true, true},
        {"12:30", true, true},  {"-0755", true, true}, {"true", false, true},
        {"null", false, true},  {"none", false, true}, {"~", false, true},
        {"5", false, true},     {"1e-4", false, true}, {"0x1f", false, true},
        {"089", false, true},   {"", false, true},     {"a b", false, true},
        {"-x", false, true},    {".5", false, true},   {".inf", false, true},
        {"a:b", false, true},   {"#a", false, true},   {"*a", false, true},
        {"train.py", false, false}, {"./a", false, false},
        {"10s", false, false},  {"/tmp", false, false}, {"a=b", false, false},
        {"yesterday", false, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ok(value_is_ambiguous(cases[i].text) == cases[i].ambiguous,
           "'%s' ambiguous", cases[i].text);
        ok(value_needs_quotes(cases[i].text) == cases[i].quotes,
           "'%s' needs quotes", cases[i].text);
    }
}

static void test_text(void)
{
    _buf_ struct buf b = {0};

    value_write_quoted(&b, "a\"b\\c\nd\te\x7f\xc2\x85\xe2\x80\xa8\xc3\xa4");
    is_str(buf_str(&b), "\"a\\\"b\\\\c\\nd\\te\\u007f\\u0085\\u2028\xc3\xa4\"",
           "quoted");
}

static const char *lookup(const void *ctx, const char *name, size_t len)
{
    (void)ctx;
    if (len == 1 && name[0] == 'A') {
        return "1";
    }
    if (len == 1 && name[0] == 'D') {
        return "$$";
    }
    return len == 1 && name[0] == 'E' ? "" : NULL;
}

static void test_expansion(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"$(A)", "1"},           {"x$(A)y$(A)", "x1y1"},
        {"$(B)", "$(B)"},        {"$$(A)", "$$(A)"},
        {"$$$(A)", "$$1"},       {"$$$$(A)", "$$$$(A)"},
        {"$A ${A}", "$A ${A}"},  {"$(A", "$$(A"},
        {"a$$b", "a$$b"},        {"$", "$$"},
        {"$$", "$$"},            {"$(E)|", "|"},
        {"$(D)(A)", "$$(A)"},    {"$(D)$(A)", "$$1"},
        {"$()", "$()"},          {"$($(A))", "$($(A))"},
    };
    static const char *const texts[] = {"$(A)", "$$", "a$b", "$", "$$(A)",
                                        "$(", "$$$", "$a$$(A)$"};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};

        is_int(expand_known(&b, cases[i].text, 100, lookup, NULL), 0, "expand");
        is_str(buf_str(&b), cases[i].want, "'%s'", cases[i].text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        _buf_ struct buf escaped = {0}, back = {0};

        expand_escape(&escaped, texts[i]);
        unescape(&back, buf_str(&escaped));
        is_str(buf_str(&back), texts[i], "escape of '%s' is undone",
               texts[i]);
    }

    _buf_ struct buf b = {0};

    is_int(expand_known(&b, "$(A)$(A)$(A)", 2, lookup, NULL), -E2BIG,
           "too long");
    is_int(expand_known(&b, "$(A)$(A)", 2, lookup, NULL), 0, "long enough");
}

int main(void)
{
    test_spans();
    test_counts();
    test_ranges();
    test_quantities();
    test_yaml_words();
    test_text();
    test_expansion();
    return tap_done();
}
