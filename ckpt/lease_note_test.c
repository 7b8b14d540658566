/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/lease_note.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct lease_note some = {
    .state = LEASE_HAS, .run = "charlm-7f3a", .host = "node3", .pid = 4711,
    .machine = "8d3c/pid:[4026531836]/node3", .start = 987654, .is_alone = true,
    .since_s = 1764360000,
};

static bool is_same(const struct lease_note *a, const struct lease_note *b)
{
    return a->state == b->state && strcmp(a->run, b->run) == 0 &&
           strcmp(a->host, b->host) == 0 && strcmp(a->machine, b->machine) == 0 &&
           a->pid == b->pid && a->start == b->start && a->is_alone == b->is_alone &&
           a->since_s == b->since_s;
}

static void test_line(void)
{
    char text[LEASE_NOTE_BYTES], bad[LEASE_NOTE_BYTES + 1];
    size_t len = lease_note_encode(&some, text);
    struct lease_note got = {0};
    unsigned n_wrong = 0;

    like(text, "muster-run 1 has charlm-7f3a node3 8d3c/pid:[4026531836]/node3 4711 987654 "
         "alone 1764360000 xxh3 ", "a line: %.*s", (int)len - 1, text);
    ok(lease_note_decode(text, len, &got) && is_same(&got, &some), "is read again");
    for (size_t i = 0; i < len; i++) {
        n_wrong += lease_note_decode(text, i, &got);
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, text, len);
            bad[i] = (char)(bad[i] ^ 1 << bit);
            n_wrong += lease_note_decode(bad, len, &got);
        }
    }
    is_int((int)n_wrong, 0, "cut anywhere, or with any bit changed it is none");
    memcpy(bad, text, len);
    bad[len] = '\n';
    ok(!lease_note_decode(bad, len + 1, &got), "nor with more after it");
    memset(bad, 'a', sizeof(bad));
    ok(!lease_note_decode(bad, sizeof(bad), &got), "nor any that is longer");
}

static void test_longest(void)
{
    struct lease_note n = {.state = LEASE_WANTS, .pid = INT_MAX, .start = UINT64_MAX,
                           .since_s = INT64_MIN}, got;
    char text[LEASE_NOTE_BYTES], word[LEASE_NOTE_BYTES];
    size_t len;

    memset(word, 'w', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    lease_note_put(&n, word, word, word);
    len = lease_note_encode(&n, text);
    ok(len < LEASE_NOTE_BYTES && lease_note_decode(text, len, &got) && is_same(&got, &n),
       "the longest one, of %zu bytes", len);
    lease_note_put(&n, "a b\n\xff", "", "\x7f");
    is_str(n.run, "a_b__", "what is no character of a word");
    is_str(n.host, "-", "no host");
    len = lease_note_encode(&n, text);
    ok(lease_note_decode(text, len, &got) && is_same(&got, &n), "is read again");
}

static void test_judge(void)
{
    enum { STALE = LEASE_STALE_MS, WATCH = LEASE_WATCH_MS };
    static const struct {
        bool is_whole, is_here, is_running, is_alone, is_renewed;
        int64_t age_ms;
        uint64_t still_ms;
        enum lease_fate want;
        const char *what;
    } cases[] = {
        {1, 1, 1, 1, 0, 0, 0, LEASE_HELD, "alive here"},
        {1, 1, 1, 1, 0, 10 * STALE, 10 * STALE, LEASE_HELD, "stopped here for long"},
        {1, 1, 0, 1, 0, 0, 0, LEASE_GONE, "killed here, just now"},
        {1, 1, 0, 0, 0, 0, 0, LEASE_WATCH, "killed here, with others elsewhere"},
        {1, 1, 0, 0, 1, 0, 0, LEASE_HELD, "who went on"},
        {1, 1, 0, 0, 0, STALE + 1, WATCH + 1, LEASE_GONE, "who did not"},
        {1, 0, 1, 1, 0, STALE, 0, LEASE_WATCH, "elsewhere, that pid is another one"},
        {1, 0, 0, 1, 0, STALE, WATCH + 1, LEASE_WATCH, "elsewhere, renewed lately"},
        {1, 0, 0, 1, 1, STALE + 1, STALE + 1, LEASE_HELD, "elsewhere, just now"},
        {1, 0, 0, 1, 0, STALE + 1, 0, LEASE_WATCH, "elsewhere, not renewed"},
        {1, 0, 0, 1, 0, INT64_MAX, WATCH, LEASE_WATCH, "a clock that has jumped"},
        {1, 0, 0, 1, 0, STALE + 1, WATCH + 1, LEASE_GONE, "nor while it is watched"},
        {1, 0, 0, 1, 0, -1, STALE, LEASE_WATCH, "from the future"},
        {1, 0, 0, 1, 0, INT64_MIN, STALE + 1, LEASE_GONE, "which never comes"},
        {0, 0, 0, 0, 0, STALE, 0, LEASE_WATCH, "damaged, and new"},
        {0, 1, 1, 1, 0, STALE + 1, WATCH + 1, LEASE_GONE, "damaged, and old"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct lease_sight s = {.is_whole = cases[i].is_whole, .note = some,
                                .is_here = cases[i].is_here,
                                .is_running = cases[i].is_running,
                                .is_renewed = cases[i].is_renewed,
                                .age_ms = cases[i].age_ms, .still_ms = cases[i].still_ms};

        s.note.is_alone = cases[i].is_alone;
        is_int(lease_judge(&s), cases[i].want, "%s", cases[i].what);
    }
}

int main(void)
{
    test_line();
    test_longest();
    test_judge();
    return tap_done();
}
