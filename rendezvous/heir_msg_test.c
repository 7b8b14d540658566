/* SPDX-License-Identifier: Apache-2.0 */
/* What members without a lead say of themselves, cut, with a tail, or senseless; and what
 * a subtree has seen, in sum. */
#include <config.h>

#include "rendezvous/heir.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { AT_VERDICT = 37 }; /* where it is said whether there was one */

static struct follow make_follow(void)
{
    struct follow f = {.rank = 3, .serial = 4, .view = 5, .heard_ago_ms = 6,
                       .order_serial = 7, .generation = 8, .has_verdict = true,
                       .status = 9, .past = {.ran = 10, .n_restarts = 11}};

    str_copy(f.reason, sizeof(f.reason), "why");
    return f;
}

static void test_follow(void)
{
    struct follow f = make_follow(), back = {0};
    _buf_ struct buf b = {0}, again = {0};
    struct error e = {0};
    int n = 0;

    follow_encode(&f, &b);
    is_int(follow_decode(b.data, b.len, &back, &e), 0, "one that is whole: %s", e.text);
    ok(back.rank == 3 && back.serial == 4 && back.view == 5 && back.heard_ago_ms == 6 &&
           back.order_serial == 7 && back.generation == 8 && back.has_verdict &&
           back.status == 9 && back.past.ran == 10 && back.past.n_restarts == 11,
       "says what was said");
    is_str(back.reason, "why", "in its words");
    follow_encode(&back, &again);
    ok(again.len == b.len && memcmp(again.data, b.data, b.len) == 0, "byte by byte");
    for (size_t len = 0; len < b.len; len++) {
        n += follow_decode(b.data, len, &back, &e) != -ERR_FORMAT;
    }
    is_int(n, 0, "no part of one is one");
    buf_putc(&b, '\0');
    is_int(follow_decode(b.data, b.len, &back, &e), -ERR_FORMAT,
           "nor is one with a byte too many");
    b.data[AT_VERDICT] = 2;
    is_int(follow_decode(b.data, b.len - 1, &back, &e), -ERR_FORMAT,
           "nor one with two verdicts");
    b.data[0]++;
    is_int(follow_decode(b.data, b.len - 1, &back, &e), -ERR_VERSION,
           "one of another format: %s", e.text);
}

static void test_senseless(void)
{
    static const struct {
        const char *what;
        uint32_t rank;
        uint64_t serial;
        int rc;
    } cases[] = {
        {"the last rank", ORDER_MAX_NODES - 1, 1, 0},
        {"a rank that cannot be", ORDER_MAX_NODES, 1, -ERR_FORMAT},
        {"no serial number", 0, 0, -ERR_FORMAT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct follow f = make_follow(), back = {.rank = 99};
        _buf_ struct buf b = {0};

        f.rank = cases[i].rank;
        f.serial = cases[i].serial;
        follow_encode(&f, &b);
        is_int(follow_decode(b.data, b.len, &back, NULL), cases[i].rc, "%s",
               cases[i].what);
        is_int(back.rank, cases[i].rc == 0 ? cases[i].rank : 99,
               "what is told of it");
    }
}

static void test_seen(void)
{
    struct heir_seen sum = {.all_ms = 50, .live_ms = 60, .n_suspect = 1, .n_quiet = 2};

    heir_seen_add(&sum, &(struct heir_seen){.all_ms = 70, .live_ms = 55, .n_suspect = 3,
                                            .n_quiet = 4});
    is_int((intmax_t)sum.all_ms, 50, "the oldest of all");
    is_int((intmax_t)sum.live_ms, 55, "and of those that are not suspect");
    is_int(sum.n_suspect, 4, "all that are");
    is_int(sum.n_quiet, 6, "and all that are silent");
    heir_seen_add(&sum, &(struct heir_seen){.all_ms = 49, .live_ms = HEIR_NEVER});
    is_int((intmax_t)sum.all_ms, 49, "an older one");
    is_int((intmax_t)sum.live_ms, 55, "where none counts, none does");
}

int main(void)
{
    test_follow();
    test_senseless();
    test_seen();
    return tap_done();
}
