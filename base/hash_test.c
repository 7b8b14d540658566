/* SPDX-License-Identifier: Apache-2.0 */
/* Against the values that the authors of FNV-1a have published. */
#include <config.h>

#include "base/hash.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

static void test_published(void)
{
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {
        {"", 0xcbf29ce484222325}, {"a", 0xaf63dc4c8601ec8c}, {"foobar", 0x85944171f73967e8},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ok(hash_text(HASH_NONE, cases[i].text) == cases[i].want, "of '%s'", cases[i].text);
    }
}

static void test_behind(void)
{
    ok(hash_text(hash_bytes(HASH_NONE, "foo", 3), "bar") == hash_text(HASH_NONE, "foobar"),
       "one text behind another is as one");
    ok(hash_bytes(HASH_NONE, "a\0b", 3) != hash_bytes(HASH_NONE, "a\0c", 3),
       "a zero is a byte like any");
    ok(hash_bytes(7, NULL, 0) == 7, "nothing changes nothing");
}

int main(void)
{
    test_published();
    test_behind();
    return tap_done();
}
