/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/log_prefix.h"
#include "tests/lib/tap.h"

#include <string.h>

static const char *const values[LOG_PREFIX_N_FIELDS] = {
    [LOG_PREFIX_RANK] = "12",       [LOG_PREFIX_LOCAL_RANK] = "4",
    [LOG_PREFIX_HOST] = "n1",       [LOG_PREFIX_STREAM] = "stderr",
    [LOG_PREFIX_TIME] = "now",      [LOG_PREFIX_GENERATION] = "2",
    [LOG_PREFIX_RUN] = "tiny-1",
};

static void test_write(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"rank", "[12] "},
        {"host", "[n1:12] "},
        {"none", ""},
        {"[{rank}] ", "[12] "},
        {"{rank}", "12"},
        {"{host}/{local_rank} {stream}: ", "n1/4 stderr: "},
        {"{time} {run}.{generation} ", "now tiny-1.2 "},
        {"{node}>", "?>"},
        {"{{{rank}}} ", "{12} "},
        {"{rank}}}{{rank}}", "12}{rank}"},
        {"\xe2\x86\x92\t{rank} ", "\xe2\x86\x92\t12 "},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf got = {0}, why = {0};

        ok(log_prefix_is_valid(cases[i].text, &why), "'%s' is one (%s)",
           cases[i].text, buf_str(&why));
        log_prefix_write(cases[i].text, values, &got);
        is_str(buf_str(&got), cases[i].want, "and makes '%s'", cases[i].want);
    }
}

static void test_bad(void)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "names no field; expected rank, host, none"},
        {"hots", "names no field; expected rank, host, none"},
        {"Rank", "names no field; expected rank, host, none"},
        {"{{rank}} ", "names no field"},
        {"[{rnak}] ", "the unknown field {rnak}; did you mean {rank}"},
        {"{rank} {localrank}", "{localrank}; did you mean {local_rank}"},
        {"{}", "the unknown field {}; expected one of {rank}, {local_rank}"},
        {"{xyzzy}", "{time}, {generation}, {run}"},
        {"{ rank}", "did you mean {rank}"},
        {"{rank", "has a { without its }"},
        {"{rank} {", "has a { without its }"},
        {"{ra{rank}", "has a { without its }"},
        {"rank}", "has a } without its {"},
        {"{rank}\n", "has bytes that cannot be shown"},
        {"\x1b[31m{rank}", "has bytes that cannot be shown"},
        {"{rank}\xff", "has bytes that cannot be shown"},
        {"{\xe2\x86\x92}", "has the unknown field {\xe2\x86\x92}"},
    };
    char longest[LOG_PREFIX_MAX_BYTES + 2] = "{rank}";
    _buf_ struct buf why = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        buf_clear(&why);
        ok(!log_prefix_is_valid(cases[i].text, &why), "'%s' is none",
           cases[i].text);
        like(buf_str(&why), cases[i].why, "and it is said why");
    }
    memset(longest + 6, 'x', LOG_PREFIX_MAX_BYTES - 6);
    ok(log_prefix_is_valid(longest, &why), "as long as can be");
    longest[LOG_PREFIX_MAX_BYTES] = 'x';
    buf_clear(&why);
    ok(!log_prefix_is_valid(longest, &why), "longer");
    is_str(buf_str(&why), "has 201 bytes; expected at most 200", "is told");
}

static void test_has(void)
{
    ok(log_prefix_has("rank", LOG_PREFIX_RANK), "rank has the rank");
    ok(!log_prefix_has("rank", LOG_PREFIX_HOST), "but no host");
    ok(!log_prefix_has("none", LOG_PREFIX_RANK), "none has none");
    ok(log_prefix_has("{host} {rank}", LOG_PREFIX_RANK), "a template");
    ok(!log_prefix_has("{{rank}} {host}", LOG_PREFIX_RANK), "braces");
}

static void test_from_torch(void)
{
    static const struct {
        const char *text, *want;
        int rc;
    } cases[] = {
        {"[${role_name}${local_rank}]:", "[a{{b}}{local_rank}]:", 1},
        {"[${rank}@${hostname}] ", "[{rank}@{host}] ", 1},
        {"$rank|$local_rank|", "{rank}|{local_rank}|", 1},
        {"{${rank}}", "{{{rank}}}", 1},
        {"", "", 0},
        {"plain ", "plain ", 0},
        {"${role_name}: ", "a{{b}}: ", 0},
        {"${rank", NULL, -1},
        {"${}", NULL, -1},
        {"$", NULL, -1},
        {"$$", NULL, -1},
        {"${world}", NULL, -1},
        {"$ranks", NULL, -1},
        {"${rank} $", NULL, -1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf to = {0}, why = {0};
        int rc = log_prefix_from_torch(cases[i].text, "a{b}", &to);

        is_int(rc, cases[i].rc, "torchrun's \"%s\"", cases[i].text);
        if (rc >= 0) {
            is_str(buf_str(&to), cases[i].want, "as muster's");
        }
        if (rc > 0) {
            ok(log_prefix_is_valid(buf_str(&to), &why), "which is valid");
        }
    }
}

int main(void)
{
    test_write();
    test_bad();
    test_has();
    test_from_torch();
    return tap_done();
}
