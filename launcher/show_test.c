/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/show.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

static void test_yaml(void)
{
    static const struct {
        const char *json, *yaml;
    } cases[] = {
        {"{}", "{}\n"},
        {"[]", "[]\n"},
        {"{\"a\":1,\"b\":\"x\"}", "a: 1\nb: x\n"},
        {"{\"a\":{\"b\":{\"c\":null}},\"d\":true}",
         "a:\n  b:\n    c: null\nd: true\n"},
        {"{\"a\":[1,2.5],\"e\":[],\"o\":{}}",
         "a:\n  - 1\n  - 2.5\ne: []\no: {}\n"},
        {"[{\"a\":1,\"b\":2},{\"a\":3}]", "- a: 1\n  b: 2\n- a: 3\n"},
        {"{\"l\":[{\"a\":1,\"b\":[1,{\"c\":2}]}]}",
         "l:\n  - a: 1\n    b:\n      - 1\n      - c: 2\n"},
        {"{\"s\":[\"yes\",\"No\",\"1\",\"\",\" a\",\"a: b\",\"a\\nb\",\"-\","
         "\"/p/q\",\"~\"]}",
         "s:\n  - \"yes\"\n  - \"No\"\n  - \"1\"\n  - \"\"\n  - \" a\"\n"
         "  - \"a: b\"\n  - \"a\\nb\"\n  - \"-\"\n  - /p/q\n  - \"~\"\n"},
        {"{\"a b\":1,\"true\":2}", "\"a b\": 1\n\"true\": 2\n"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        struct error e = {0};

        is_int(show_yaml(cases[i].json, strlen(cases[i].json), &b, &e), 0,
               "yaml %zu: %s", i, e.text);
        is_str(buf_str(&b), cases[i].yaml, "yaml %zu", i);
    }
}

static void test_yaml_errors(void)
{
    _buf_ struct buf b = {0}, deep = {0};
    struct error e = {0};

    is_int(show_yaml("{", 1, &b, &e), -ERR_FORMAT, "no JSON");
    for (int i = 0; i < 200; i++) {
        buf_puts(&deep, "[[");
    }
    for (int i = 0; i < 200; i++) {
        buf_puts(&deep, "]]");
    }
    ok(show_yaml(deep.data, deep.len, &b, &e) < 0, "nested too deep");
}

static void test_table(void)
{
    static const char *const words[] = {
        "A", "LONGER", "C",
        "x", "y", "",
        "gr\xc3\xbc\xc3\x9f", "1", "z\x1b[0m\n",
    };
    _strlist_ struct strlist cells = {0};
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        strlist_add(&cells, words[i]);
    }
    show_table(&cells, 3, &b);
    is_str(buf_str(&b), "A     LONGER  C\n"
                        "x     y\n"
                        "gr\xc3\xbc\xc3\x9f  1       z?[0m?\n", "a table");
    is_int(show_width("gr\xc3\xbc\xc3\x9f"), 4, "columns, not bytes");
    is_int(show_width("\xe6\xa8\xa1\xe5\x9e\x8b"), 4, "of which some characters take two");
    is_int(show_width("e\xcc\x81"), 1, "and accents none");
}

/* Names of files may be anything. */
static void test_odd_cells(void)
{
    static const char *const words[] = {
        "\xe6\xa8\xa1\xf0\x9f\x98\x80", "1", "a\tb", "2", "\x80\xff\xe2\x82", "3",
        "\xe2\x80\xae", "4",
    };
    _strlist_ struct strlist cells = {0};
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        strlist_add(&cells, words[i]);
    }
    show_table(&cells, 2, &b);
    is_str(buf_str(&b), "\xe6\xa8\xa1\xf0\x9f\x98\x80  1\na?b   2\n????  3\n?     4\n",
           "columns line up, whatever is in them");
}

static void test_format(void)
{
    static const struct option_def def = {.name = "output", .value = "FORMAT"};
    enum show_format f = SHOW_TABLE;
    struct error e = {0};

    is_int(show_set_format(&f, &def, "yaml", &e), 0, "yaml");
    is_int(f, SHOW_YAML, "taken");
    is_int(show_set_format(&f, &def, "YAML", &e), -ERR_USAGE, "case counts");
    is_int(f, SHOW_YAML, "unchanged");
}

static void test_colour(void)
{
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    ok(!show_has_colour(stdout), "NO_COLOR");
}

int main(void)
{
    test_yaml();
    test_yaml_errors();
    test_table();
    test_odd_cells();
    test_format();
    test_colour();
    return tap_done();
}
