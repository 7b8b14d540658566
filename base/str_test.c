/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void test_numbers(void)
{
    static const struct {
        const char *text;
        int rc;
        uint64_t value;
    } cases[] = {
        {"0", 0, 0},
        {"42", 0, 42},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t v = 0;

        is_int(str_to_u64(cases[i].text, &v), cases[i].rc, "u64 '%s'",
               cases[i].text);
        is_int((intmax_t)v, (intmax_t)cases[i].value, "value of '%s'",
               cases[i].text);
    }

    int64_t s = 0;
    double d = 0;

    is_int(str_to_i64("-7", &s), 0, "negative");
    is_int(s, -7, "its value");
    is_int(str_to_i64("--7", &s), -EINVAL, "two signs");
    is_int(str_to_i64("-9223372036854775808", &s), 0, "the least");
    ok(s == INT64_MIN, "its value");
    is_int(str_to_i64("9223372036854775808", &s), -ERANGE, "one too many");
    is_int(str_to_f64("1e-4", &d), 0, "float without a dot");
    ok(d == 1e-4, "its value");
    is_int(str_to_f64("1e999", &d), -ERANGE, "float too large");
    is_int(str_to_f64("1.5x", &d), -EINVAL, "float with a rest");
    is_int(str_to_f64(" 1.5", &d), -EINVAL, "float behind a blank");
    is_int(str_to_f64("", &d), -EINVAL, "no float");
    is_int(str_to_f64("1e-999", &d), 0, "a float too small is 0");
    ok(d == 0, "its value");
}

static void test_nearest(void)
{
    static const char *const names[] = {"nodes", "procsPerNode", "command",
                                        "restart", NULL};

    is_str(str_nearest("node", names), "nodes", "one letter short");
    is_str(str_nearest("comand", names), "command", "one letter lost");
    is_str(str_nearest("procPerNode", names), "procsPerNode", "inner letter");
    is_str(str_nearest("PROCSPERNODE", names), "procsPerNode", "case");
    is_str(str_nearest("ocmmand", names), "command", "swapped letters");
    is_str(str_nearest("image", names), NULL, "nothing near");
}

static void test_env(void)
{
    _strlist_ struct strlist env = {0};

    strlist_add(&env, "A=1");
    strlist_add(&env, "OMPI_X=2");
    strlist_add(&env, "OMPI_Y=3");
    strlist_setenv(&env, "A", "4");
    strlist_setenv(&env, "B", "");
    is_str(strlist_getenv(&env, "A"), "4", "replaced");
    is_str(strlist_getenv(&env, "B"), "", "empty value");
    is_str(strlist_getenv(&env, "OMPI"), NULL, "a prefix is not a name");
    strlist_unsetenv(&env, "OMPI_X");
    strlist_unsetenv(&env, "OMPI_Y");
    is_int((intmax_t)env.n, 2, "removed");
    ok(env.items[env.n] == NULL, "terminated");
    strlist_unsetenv(&env, "A");
    is_str(env.items[0], "B=", "the other one is left");
}

static void test_quote(void)
{
    char *const argv[] = {(char *)"a", (char *)"b c", (char *)"it's",
                          (char *)"", (char *)"--x=y", NULL};
    _free_ char *joined = str_shell_join(argv);
    static const char special[] = " \t\n!\"#$&()*;<>?[\\]^`{|}~";

    is_str(joined, "a 'b c' 'it'\\''s' '' --x=y", "quoted for a shell");
    for (size_t i = 0; special[i]; i++) {
        char word[] = {'a', special[i], '\0'};
        char want[] = {'\'', 'a', special[i], '\'', '\0'};
        _free_ char *quoted = str_shell_quote(word);

        is_str(quoted, want, "character %d is quoted", special[i]);
    }

    char *const hostile[] = {(char[]){"\x1b[31m'\\"}, (char[]){"\xc2\x9b"},
                             (char[]){"a\nb"}, (char[]){"\xc3\xa4"}, NULL};
    _free_ char *shown = str_shell_join(hostile);

    is_str(shown, "$'\\033[31m\\'\\\\' $'\\302\\233' $'a\\nb' '\xc3\xa4'",
           "what drives a terminal is written out");
}

static void test_copy(void)
{
    char to[] = "????";

    str_copy(to, 3, "abcdef");
    is_str(to, "ab", "cut to what fits");
    is_int(to[3], '?', "and nothing behind it");
    str_copy(to, 3, "a");
    is_str(to, "a", "what fits");
}

static void test_ends(void)
{
    static const char text[] = "x.json";

    ok(str_ends("a.json", ".json") && str_ends(".json", ".json"), "suffix");
    ok(!str_ends("a.jso", ".json"), "another end");
    ok(!str_ends(&text[2], text), "longer than the text");
    ok(str_starts("abc", "ab") && !str_starts("a", "ab"), "prefix");
}

static void test_labels(void)
{
    static const struct {
        const char *text;
        bool is_label;
    } cases[] = {
        {"node-1", true}, {"a", true}, {"0", true}, {"a--b", true},
        {"", false},      {"-x", false}, {"x-", false}, {"A", false},
        {"a.b", false},   {"a_b", false}, {"a b", false},
        {"123456789012345678901234567890123456789012345678901234567890123",
         true},
        {"1234567890123456789012345678901234567890123456789012345678901234",
         false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(str_is_label(cases[i].text), cases[i].is_label, "label '%s'",
               cases[i].text);
    }
}

static void test_spans(void)
{
    static const struct {
        uint64_t seconds;
        const char *want;
    } cases[] = {
        {0, "0s"},          {59, "59s"},        {60, "1m00s"},
        {184, "3m04s"},     {3599, "59m59s"},   {3600, "1h00m"},
        {7500, "2h05m"},    {86399, "23h59m"},  {86400, "1d00h"},
        {172799, "1d23h"},  {8640000, "100d00h"},
    };
    char text[32];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        clock_format_span(cases[i].seconds * 1000 + 999, text, sizeof(text));
        is_str(text, cases[i].want, "%s", cases[i].want);
    }
    clock_format(1795206357123000000u, text, sizeof(text));
    is_str(text, "2026-11-20T20:25:57.123Z", "wall clock");
}

/* Time that nobody can set: deadlines depend on it. */
static void test_monotonic(void)
{
    struct timespec ts;
    uint64_t now_ns, before_ns = clock_mono_ns(), ms = clock_mono_ms();

    clock_gettime(CLOCK_MONOTONIC, &ts);
    now_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    ok(before_ns <= now_ns && now_ns - before_ns < 60000000000u,
       "nanoseconds of the monotonic clock");
    ok(ms <= now_ns / 1000000 && before_ns / 1000000 <= ms, "milliseconds");
}

int main(void)
{
    test_numbers();
    test_nearest();
    test_env();
    test_quote();
    test_copy();
    test_ends();
    test_labels();
    test_spans();
    test_monotonic();
    return tap_done();
}
