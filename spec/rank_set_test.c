/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/rank_set.h"
#include "tests/lib/tap.h"

static void test_valid(void)
{
    static const char *const bad[] = {
        "", "some", "All", "-1", "1-", "-", ",", "0,", ",0", "0,,1", "3-1",
        "0 1", "0x1", "1-2-3", "1234567890", "lead,1", "0;1",
    };
    static const char *const good[] = {
        "all", "lead", "none", "0", "3-3", "0,3-5", "7,0", "123456789",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ok(!rank_set_is_valid(bad[i]), "'%s' is none", bad[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        ok(rank_set_is_valid(good[i]), "'%s' is one", good[i]);
    }
}

static void test_has(void)
{
    static const struct {
        const char *text, *want; /* of ranks 0 to 7 */
    } cases[] = {
        {"all", "11111111"},   {"none", "00000000"}, {"lead", "10000000"},
        {"0,3-5", "10011100"}, {"7,1", "01000001"},  {"2-2", "00100000"},
        {"9-12", "00000000"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[9] = "";

        for (uint32_t r = 0; r < 8; r++) {
            got[r] = rank_set_has(cases[i].text, r) ? '1' : '0';
        }
        is_str(got, cases[i].want, "ranks of %s", cases[i].text);
    }
}

int main(void)
{
    test_valid();
    test_has();
    return tap_done();
}
