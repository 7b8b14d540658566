/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>

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
    is_int(str_to_f64("1e-4", &d), 0, "float without a dot");
    ok(d == 1e-4, "its value");
    is_int(str_to_f64("1e999", &d), -ERANGE, "float too large");
    is_int(str_to_f64("1.5x", &d), -EINVAL, "float with a rest");
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
    strlist_unsetenv_prefix(&env, "OMPI_");
    is_int((intmax_t)env.n, 2, "prefix removed");
    ok(env.items[env.n] == NULL, "terminated");
    strlist_unsetenv(&env, "A");
    is_str(env.items[0], "B=", "the other one is left");
}

static void test_quote(void)
{
    char *const argv[] = {(char *)"a", (char *)"b c", (char *)"it's",
                          (char *)"", (char *)"--x=y", NULL};
    _free_ char *joined = str_shell_join(argv);

    is_str(joined, "a 'b c' 'it'\\''s' '' --x=y", "quoted for a shell");
}

static void test_spans(void)
{
    char text[32];

    clock_format_span(59999, text, sizeof(text));
    is_str(text, "59s", "seconds");
    clock_format_span(184000, text, sizeof(text));
    is_str(text, "3m04s", "minutes");
    clock_format_span(7500000, text, sizeof(text));
    is_str(text, "2h05m", "hours");
    clock_format(1795206357123000000u, text, sizeof(text));
    is_str(text, "2026-11-20T20:25:57.123Z", "wall clock");
}

int main(void)
{
    test_numbers();
    test_nearest();
    test_env();
    test_quote();
    test_spans();
    ok(str_is_label("node-1"), "label");
    ok(!str_is_label("-x") && !str_is_label("A") && !str_is_label(""),
       "not labels");
    return tap_done();
}
