/* SPDX-License-Identifier: Apache-2.0 */
/* Which texts are JSON, to their end. */
#include <config.h>

#include "ckpt/found_json.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <string.h>

/* As Python reads it. */
static void test_json(void)
{
    static const char *const whole[] = {
        "{}", " [ ] ", "\t\r\n0", "-0.5e-3", "1E+9", "12", "\"\"", "\"\\\\\\\"\"", "null", "true",
        "false", "NaN", "-Infinity", "[Infinity,-1]",
        "{\"a\":{\"b\":[1,\"\\u00e9\",{}]} , \"a\":2}",
        "\"\xc3\xa9\"", "1000000000000000019884624838656", "{\"\\u0000\":\"\\ud800\"}"};
    static const char *const none[] = {
        "", " ", "{", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1]]", "{\"a\"}", "{\"a\":}",
        "{\"a\":1,}", "{a:1}", "{1:1}", "{\"a\":1", "{\"a\"", "{\"a", "\"", "\"\\", "\"\\\"",
        "\"\\x\"", "\"\\u12\"", "\"\\n\n\"", "\"a\tb\"",
        "01", "1.", ".5", "+1", "-", "1e", "1e+", "nan",
        "nul", "-Inf", "'a'", "{} x", "\"\xc3\"", "\xef\xbb\xbf{}", "[}", "{]"};
    char deep[4096];

    for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
        ok(found_json_is_whole(whole[i], strlen(whole[i])), "%s is whole", whole[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        ok(!found_json_is_whole(none[i], strlen(none[i])), "%s is none", none[i]);
    }
    ok(!found_json_is_whole("{}\0", 3) && !found_json_is_whole("[\0]", 3),
       "nor is one with a zero byte");
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    ok(!found_json_is_whole(deep, sizeof(deep) - 1), "nor one that is too deep");
}

/* Only what goes on, and does not, is cut: another text may be anybody's. */
static void test_cut(void)
{
    static const char *const cut[] = {
        "{", "[", "[1", "[1,", "{\"a\"", "{\"a", "\"", "\"\\", "\"\\u12", "-", "[1.", "[1e", "[nul",
        "{\"a\":tr", "[-Inf", "{} {\"a\":1}\n{\"a\":", "[{\"a\":[1,2],\"b\":{\"c\""};
    static const char *const others[] = {
        "", " ", "{}", "{}\n{\"a\":1}\n", "[1,]", "{a", "// {", "{1", "step: 5", "[1 2",
        "\"\\x", "\"a\nb", "[nix"};

    for (size_t i = 0; i < ARRAY_SIZE(cut); i++) {
        ok(found_json_is_cut(cut[i], strlen(cut[i])), "%s is cut", cut[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        ok(!found_json_is_cut(others[i], strlen(others[i])), "'%s' is not", others[i]);
    }
    ok(!found_json_is_cut("[\0", 2), "nor is what has a zero byte");
}

int main(void)
{
    test_json();
    test_cut();
    return tap_done();
}
