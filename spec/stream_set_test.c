/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/stream_set.h"
#include "tests/lib/tap.h"

static void test_valid(void)
{
    static const char *const bad[] = {
        "", "some", "Both", "both,", ",both", "both,,0:none", "0", "0:",
        ":both", "0:both,none", "both,none", "-1:both", "65536:both",
        "123456:both", "0:both;1:both", "0:both 1:both", "0-1:both", "0::both",
    };
    static const char *const good[] = {
        "both", "stdout", "stderr", "none", "0:none", "none,0:both",
        "stderr,3:none,0:both", "65535:both", "0:both,0:none",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ok(!stream_set_is_valid(bad[i]), "'%s' is none", bad[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        ok(stream_set_is_valid(good[i]), "'%s' is one", good[i]);
    }
}

static void test_of(void)
{
    static const struct {
        const char *text, *want; /* of local ranks 0 to 3 */
    } cases[] = {
        {"both", "3333"},         {"none", "0000"},
        {"stdout", "1111"},       {"stderr", "2222"},
        {"0:stderr", "2333"},     {"none,1:both,3:stdout", "0301"},
        {"3:none,3:stdout", "3331"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[5] = "";

        for (uint32_t r = 0; r < 4; r++) {
            got[r] = (char)('0' + stream_set_of(cases[i].text, r));
        }
        is_str(got, cases[i].want, "streams of %s", cases[i].text);
    }
    is_str(stream_set_word(STREAM_STDERR), "stderr", "a word for bits");
    is_str(stream_set_word(0), "none", "also for no bit");
}

int main(void)
{
    test_valid();
    test_of();
    return tap_done();
}
