/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/jsonw.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static void test_strings(void)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"\n\r\t\x01\x1f", "\"\\n\\r\\t\\u0001\\u001f\""},
        {"\x7f", "\"\x7f\""},
        {"gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\""},
        {"\xf0\x9f\x9a\x80", "\"\xf0\x9f\x9a\x80\""},
        {"\xff", "\"\xef\xbf\xbd\""},
        {"a\xc3", "\"a\xef\xbf\xbd\""},
        {"\xc3(", "\"\xef\xbf\xbd(\""},
        {"\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xe0\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xf4\x90\x80\x80",
         "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        struct jsonw w = jsonw_start(&b);
        json_t *back;

        jsonw_str(&w, NULL, cases[i].in);
        is_str(buf_str(&b), cases[i].want, "string %zu", i);
        back = json_loads(buf_str(&b), JSON_DECODE_ANY, NULL);
        ok(back, "string %zu reads back", i);
        json_decref(back);
    }
}

/* A piece of text that ends inside a character: what follows it in memory is
 * none of it. */
static void test_cut_character(void)
{
    static const char text[] = "a\xe2\x82\xac";

    for (size_t len = 2; len < 4; len++) {
        _buf_ struct buf b = {0};
        struct jsonw w = jsonw_start(&b);

        jsonw_bytes(&w, NULL, text, len);
        is_str(buf_str(&b), len == 2 ? "\"a\xef\xbf\xbd\""
                                     : "\"a\xef\xbf\xbd\xef\xbf\xbd\"",
               "%zu bytes of it", len);
    }
}

static void test_numbers(void)
{
    static const struct {
        double in;
        const char *want;
    } cases[] = {
        {0, "0"}, {1, "1"}, {-1.5, "-1.5"}, {0.1, "0.1"}, {1e300, "1e+300"},
        {1.0 / 3, "0.3333333333333333"}, {123456789, "123456789"},
        {5e-324, "4.94066e-324"}, {NAN, "\"NaN\""}, {INFINITY, "\"Infinity\""},
        {-INFINITY, "\"-Infinity\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        struct jsonw w = jsonw_start(&b);
        double back = 7;
        json_t *v;

        jsonw_num(&w, NULL, cases[i].in);
        is_str(buf_str(&b), cases[i].want, "number %zu", i);
        v = json_loads(buf_str(&b), JSON_DECODE_ANY, NULL);
        ok(jsonw_read_num(v, &back) &&
           memcmp(&back, &cases[i].in, sizeof(back)) == 0,
           "number %zu reads back", i);
        json_decref(v);
    }
}

static void test_no_numbers(void)
{
    static const char *const cases[] = {
        "null", "true", "\"\"", "\"nan\"", "\"1\"", "[1]", "{}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *v = json_loads(cases[i], JSON_DECODE_ANY, NULL);
        double back = 7;

        ok(!jsonw_read_num(v, &back) && back == 7, "%s is no number", cases[i]);
        json_decref(v);
    }
    ok(!jsonw_read_num(NULL, &(double){0}), "nothing is no number");
}

static void test_read_times(void)
{
    static const struct {
        const char *text;
        uint64_t ns; /* 7: none */
    } cases[] = {
        {"0", 0},
        {"1795206357", UINT64_C(1795206357000000000)},
        {"1795206357.120001", UINT64_C(1795206357120001000)},
        {"-1", 7},
        {"1e10", 7},
        {"1e300", 7},
        {"-1e300", 7},
        {"9223372036854775807", 7},
        {"\"1\"", 7},
        {"null", 7},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *v = json_loads(cases[i].text, JSON_DECODE_ANY, NULL);
        uint64_t ns = 7;

        is_int(jsonw_read_time(v, &ns), cases[i].ns != 7, "time %s",
               cases[i].text);
        ok(ns == cases[i].ns, "time %s: value", cases[i].text);
        json_decref(v);
    }
    ok(!jsonw_read_time(NULL, &(uint64_t){0}), "nothing is no time");
}

static void test_nesting(void)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "a", INT64_MIN);
    jsonw_opt_str(&w, "no", "");
    jsonw_opt_str(&w, "no", NULL);
    jsonw_array(&w, "b");
    jsonw_object(&w, NULL);
    jsonw_end_object(&w);
    jsonw_object(&w, NULL);
    jsonw_bool(&w, "c", true);
    jsonw_end_object(&w);
    jsonw_int(&w, NULL, 1);
    jsonw_end_array(&w);
    jsonw_time(&w, "t", 1795206357123456789u);
    jsonw_bytes(&w, "z", "a\0b", 3);
    jsonw_end_object(&w);
    is_str(buf_str(&b), "{\"a\":-9223372036854775808,\"b\":[{},{\"c\":true},1],"
                        "\"t\":1795206357.123456,\"z\":\"a\\u0000b\"}",
           "nested");
}

int main(void)
{
    test_strings();
    test_cut_character();
    test_numbers();
    test_no_numbers();
    test_read_times();
    test_nesting();
    return tap_done();
}
