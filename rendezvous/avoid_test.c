/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "rendezvous/avoid.h"
#include "tests/lib/tap.h"

#include <stdint.h>
#include <string.h>

static void test_deaths(void)
{
    struct avoid a = {0};
    struct avoid_one back = {0};

    is_int(avoid_died(&a, 2, "/c/40", 40, &back), AVOID_NO, "one is none");
    ok(!avoid_has(&a, "/c/40"), "it is started from again");
    is_int(avoid_died(&a, 2, "/c/40", 40, &back), AVOID_IT, "two are");
    ok(avoid_has(&a, "/c/40") && !avoid_has(&a, "/c/4") && a.n_deaths == 0 &&
           a.list[0].step == 40 && a.list[0].n_deaths == 2,
       "it is left alone, and how often is known");
    (void)avoid_died(&a, 2, "/c/30", 30, &back);
    is_int(avoid_died(&a, 2, "/c/30", 30, &back), AVOID_IT, "the next one, too");
    (void)avoid_died(&a, 2, "/c/20", 20, &back);
    is_int(avoid_died(&a, 2, "/c/20", 20, &back), AVOID_BACK, "but no third");
    is_str(back.path, "/c/40", "the first has its turn");
    is_int(back.step, 40, "with its step");
    ok(a.n == 0 && a.is_spent, "nothing is left alone");
    for (int i = 0; i < 5; i++) {
        (void)avoid_died(&a, 2, "/c/40", 40, &back);
    }
    ok(a.n == 0, "nor will be");
    ok(avoid_moved(&a) && !avoid_moved(&a), "before something gets somewhere");
    (void)avoid_died(&a, 2, "/c/40", 40, &back);
    ok(avoid_died(&a, 2, "/c/40", 40, &back) == AVOID_IT, "from then on again");
}

static void test_not(void)
{
    struct avoid a = {0};
    struct avoid_one back;

    for (int i = 0; i < 5; i++) {
        (void)avoid_died(&a, 0, "/c/40", 40, &back);
        (void)avoid_died(&a, 2, "", -1, &back);
        (void)avoid_died(&a, 2, "/c\n/40", 40, &back);
    }
    ok(a.n == 0 && a.n_deaths == 0,
       "not where it is off, where there is none, of odd names");
    (void)avoid_died(&a, 2, "/c/40", 40, &back);
    ok(avoid_moved(&a), "one that gets somewhere in between");
    is_int(avoid_died(&a, 2, "/c/40", 40, &back), AVOID_NO, "begins the row anew");
    is_int(avoid_died(&a, 1, "/c/40", INT64_MIN, &back), AVOID_IT, "of any step");
    is_int(a.list[0].step, -1, "below 0 is none");
}

static struct avoid two(int64_t first, int64_t second)
{
    struct avoid a = {.n = 2, .list = {{.step = first, .n_deaths = 2},
                                       {.step = second, .n_deaths = 2}}};

    str_copy(a.list[0].path, sizeof(a.list[0].path), "/c/a");
    str_copy(a.list[1].path, sizeof(a.list[1].path), "/c/b");
    return a;
}

static void test_saved(void)
{
    static const struct {
        const char *name;
        int64_t first, second, saved;
        const char *want;
    } cases[] = {
        {"older", 40, 30, 25, "/c/a\n/c/b\n"},
        {"of the step of one", 40, 30, 30, "/c/a\n"},
        {"in between", 40, 30, 39, "/c/a\n"},
        {"of the newest", 40, 30, 40, ""},
        {"later", 40, 30, 41, ""},
        {"of no step", 40, 30, -1, ""},
        {"and they have none", -1, -1, 1, ""},
        {"the other order", 30, 40, 35, "/c/b\n"},
    };
    char lines[AVOID_LINES_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct avoid a = two(cases[i].first, cases[i].second);
        uint32_t n = a.n;
        bool fewer = avoid_saved(&a, cases[i].saved);

        avoid_lines(&a, lines);
        is_str(lines, cases[i].want, "a save: %s", cases[i].name);
        ok(fewer == (a.n < n), "%s: said", cases[i].name);
    }
}

static void test_lines(void)
{
    struct avoid a = two(1, 0);
    char lines[AVOID_LINES_BYTES];

    memset(a.list[0].path, 'a', AVOID_PATH_BYTES - 1);
    memset(a.list[1].path, 'b', AVOID_PATH_BYTES - 1);
    avoid_lines(&a, lines);
    is_int((intmax_t)strlen(lines), AVOID_LINES_BYTES - 1, "the longest fit");
}

static void test_wire(void)
{
    struct avoid a = two(40, INT64_MAX), back = {0};
    _buf_ struct buf b = {0};
    struct wire_reader r;
    size_t n_bad = 0;

    a.n_deaths = 1;
    avoid_put(&b, &a);
    r = wire_reader(b.data, b.len);
    avoid_get(&r, &back);
    ok(wire_done(&r) && memcmp(&a, &back, sizeof(a)) == 0, "there and back");
    for (size_t len = 0; len < b.len; len++) {
        r = wire_reader(b.data, len);
        avoid_get(&r, &back);
        n_bad += !wire_done(&r);
    }
    is_int((intmax_t)n_bad, (intmax_t)b.len, "each that is cut is bad");
}

/* Bytes that nobody here writes. */
static void test_hostile(void)
{
    static const struct {
        const char *name;
        uint8_t is_spent;
        uint32_t n;
        const char *path;
        int64_t step;
    } cases[] = {
        {"more than there is room for", 0, AVOID_MAX + 1, "/c", 1},
        {"very many", 0, UINT32_MAX, "/c", 1},
        {"an odd truth", 2, 0, NULL, 0},
        {"some, and spent", 1, 1, "/c", 1},
        {"no path", 0, 1, "", 1},
        {"two lines", 0, 1, "/c\n/d", 1},
        {"no step", 0, 1, "/c", -2},
    };
    char huge[AVOID_PATH_BYTES + 1];

    for (size_t i = 0; i <= ARRAY_SIZE(cases); i++) {
        bool is_huge = i == ARRAY_SIZE(cases);
        struct avoid back = {0};
        _buf_ struct buf b = {0};
        struct wire_reader r;

        memset(huge, 'x', sizeof(huge));
        huge[AVOID_PATH_BYTES] = '\0';
        wire_put_u32(&b, 0);
        wire_put_u8(&b, is_huge ? 0 : cases[i].is_spent);
        wire_put_u32(&b, is_huge ? 1 : cases[i].n);
        if (is_huge || cases[i].path) {
            wire_put_str(&b, is_huge ? huge : cases[i].path);
            wire_put_i64(&b, is_huge ? 1 : cases[i].step);
            wire_put_u32(&b, 2);
        }
        r = wire_reader(b.data, b.len);
        avoid_get(&r, &back);
        ok(!wire_done(&r) && back.n <= AVOID_MAX, "%s",
           is_huge ? "a path too long" : cases[i].name);
    }
}

int main(void)
{
    test_deaths();
    test_not();
    test_saved();
    test_lines();
    test_wire();
    test_hostile();
    return tap_done();
}
