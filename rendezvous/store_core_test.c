/* SPDX-License-Identifier: Apache-2.0 */
/* Every command of both dialects, and what it is answered. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A session with one of everything, and what it must be answered. */
static void make_session(struct buf *in, struct buf *want)
{
    const uint32_t nonce = 0x66c3;

    bed_req(in, STORE_VALIDATE, "u", STORE_MAGIC);
    bed_req(in, STORE_PING, "u", nonce);
    bed_put(want, &nonce, sizeof(nonce));
    bed_req(in, STORE_SET, "ss", "/k", "v");
    bed_req(in, STORE_WAIT, "ns", N(1), "/k");
    buf_putc(want, STORE_STOP_WAITING);
    bed_req(in, STORE_GET, "s", "/k");
    bed_put_blob(want, "v");
    bed_req(in, STORE_ADD, "sn", "/n", N(-3));
    bed_put_u64(want, N(-3));
    bed_req(in, STORE_ADD, "sn", "/n", N(10));
    bed_put_u64(want, 7);
    bed_req(in, STORE_COMPARE_SET, "sss", "/k", "v", "w");
    bed_put_blob(want, "w");
    bed_req(in, STORE_COMPARE_SET, "sss", "/k", "v", "x");
    bed_put_blob(want, "w");
    bed_req(in, STORE_COMPARE_SET, "sss", "/none", "v", "x");
    bed_put_blob(want, "v");
    bed_req(in, STORE_COMPARE_SET, "sss", "/made", "", "x");
    bed_put_blob(want, "x");
    bed_req(in, STORE_CHECK, "nss", N(2), "/k", "/z");
    buf_putc(want, STORE_NOT_READY);
    bed_req(in, STORE_CHECK, "nss", N(2), "/k", "/n");
    buf_putc(want, STORE_READY);
    bed_req(in, STORE_WAIT, "ns", N(1), "/never");
    bed_req(in, STORE_CANCEL_WAIT, "");
    buf_putc(want, STORE_WAIT_CANCELED);
    bed_req(in, STORE_NUM_KEYS, "");
    bed_put_u64(want, 3);
    bed_req(in, STORE_DELETE_KEY, "s", "/k");
    bed_put_u64(want, 1);
    bed_req(in, STORE_DELETE_KEY, "s", "/k");
    bed_put_u64(want, 0);
    bed_req(in, STORE_GET, "s", "/k");
    bed_put_blob(want, "");
    bed_req(in, STORE_APPEND, "ss", "/k", "1");
    bed_req(in, STORE_APPEND, "ss", "/k", "23");
    bed_req(in, STORE_MULTI_SET, "nssss", N(2), "/a", "1", "/b", "");
    bed_req(in, STORE_MULTI_GET, "nssss", N(4), "/k", "/n", "/none", "/b");
    bed_put_blob(want, "123");
    bed_put_blob(want, "7");
    bed_put_blob(want, "");
    bed_put_blob(want, "");
    bed_req(in, STORE_QUEUE_PUSH, "ss", "/q", "x");
    bed_req(in, STORE_QUEUE_PUSH, "ss", "/q", "y");
    bed_req(in, STORE_QUEUE_LEN, "s", "/q");
    bed_put_u64(want, 2);
    bed_req(in, STORE_WAIT, "ns", N(1), "/q");
    buf_putc(want, STORE_STOP_WAITING);
    bed_req(in, STORE_QUEUE_POP, "s", "/q");
    bed_put_u64(want, 2);
    bed_put_blob(want, "x");
    bed_req(in, STORE_QUEUE_POP, "s", "/q");
    bed_put_u64(want, 1);
    bed_put_blob(want, "y");
    bed_req(in, STORE_QUEUE_POP, "s", "/q");
    bed_put_u64(want, 0);
    bed_req(in, STORE_BARRIER, "sn", "/bar", N(1));
    buf_putc(want, STORE_STOP_WAITING);
    bed_req(in, STORE_DELETE_KEY, "s", "/a");
    bed_put_u64(want, 1);
    bed_req(in, STORE_DELETE_KEY, "s", "/b");
    bed_put_u64(want, 1);
    bed_req(in, STORE_DELETE_KEY, "s", "/bar");
    bed_put_u64(want, 1);
    bed_req(in, STORE_DELETE_KEY, "s", "/k");
    bed_put_u64(want, 1);
    bed_req(in, STORE_DELETE_KEY, "s", "/made");
    bed_put_u64(want, 1);
    bed_req(in, STORE_LIST_KEYS, "");
    bed_put_u64(want, 1);
    bed_put_blob(want, "/n");
    bed_req(in, STORE_CHECK, "n", N(0));
    buf_putc(want, STORE_READY);
    bed_req(in, STORE_WAIT, "n", N(0));
    buf_putc(want, STORE_STOP_WAITING);
    bed_req(in, STORE_MULTI_GET, "n", N(0));
    bed_req(in, STORE_MULTI_SET, "n", N(0));
    bed_req(in, STORE_ADD, "sn", "/n", N(0));
    bed_put_u64(want, 7);
}

/* Feeds in pieces: `first` bytes, then `step` at a time. */
static bool run_session(size_t first, size_t step)
{
    _buf_ struct buf in = {0};
    _buf_ struct buf want = {0};
    _buf_ struct buf got = {0};
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c = store_open(s, NULL);
    size_t n = first;
    size_t len;
    bool fine;
    int rc = 0;

    make_session(&in, &want);
    for (size_t at = 0; at < in.len && rc == 0; at += n, n = step) {
        n = n < in.len - at ? n : in.len - at;
        rc = store_feed(s, c, in.data + at, n, NULL);
    }
    bed_take(s, c, &got);
    fine = rc == 0 && got.len == want.len &&
           memcmp(got.data, want.data, want.len) == 0;
    len = in.len;
    if (!fine) {
        diag("rc %d, got %zu bytes, want %zu (of %zu in, cut at %zu)", rc,
             got.len, want.len, len, first);
    }
    store_close(s, c);
    return fine;
}

static void test_every_command(void)
{
    _buf_ struct buf in = {0};
    _buf_ struct buf want = {0};
    bool all = true;

    make_session(&in, &want);
    ok(run_session(in.len, 1), "every command, in one piece");
    ok(run_session(1, 1), "byte by byte");
    ok(run_session(7, 7), "in sevens");
    for (size_t cut = 1; cut < in.len; cut++) {
        all = run_session(cut, in.len) && all;
    }
    ok(all, "cut at every position");
}

/* Captured from PyTorch 2.13.0 and 1.13.0 on a little-endian machine. */
static void test_captured(void)
{
    static const char new_start[] = "\0\xce\xf7\x85<\r\xc3"
                                    "f\0\0";
    static const char new_set[] = "\1\2\0\0\0\0\0\0\0/k\1\0\0\0\0\0\0\0v";
    static const char old_set[] = "\0\2\0\0\0\0\0\0\0/k\1\0\0\0\0\0\0\0v";
    static const char old_get[] = "\2\2\0\0\0\0\0\0\0/k";
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *n = store_open(s, NULL);
    struct store_conn *o = store_open(s, NULL);
    _buf_ struct buf out = {0};
    const uint16_t probe = 1;

    if (*(const uint8_t *)&probe != 1) {
        skip("captured on a little-endian machine");
    } else {
        store_feed(s, n, new_start, sizeof(new_start) - 1, NULL);
        bed_take(s, n, &out);
        ok(out.len == 4 && memcmp(out.data, "\xc3"
                                            "f\0\0", 4) == 0,
           "new: validate and ping");
        is_int(store_feed(s, n, new_set, sizeof(new_set) - 1, NULL), 0, "set");
        is_int(store_feed(s, o, old_set, 1, NULL), 0, "old: set, first byte");
        is_int(store_feed(s, o, old_set + 1, sizeof(old_set) - 2, NULL), 0,
               "and the others");
        store_feed(s, o, old_get, sizeof(old_get) - 1, NULL);
        bed_take(s, o, &out);
        ok(out.len == 9 && memcmp(out.data, "\1\0\0\0\0\0\0\0v", 9) == 0,
           "old: get");
    }
    store_close(s, n);
    store_close(s, o);
}

static void test_old_dialect(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c = store_open(s, NULL);
    struct store_conn *silent = store_open(s, NULL);
    struct store_conn *watcher = store_open(s, NULL);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    _buf_ struct buf want = {0};

    bed_req(&in, 3, "sn", "init/", N(1)); /* ADD */
    bed_req(&in, 0, "ss", "k", "v");      /* SET */
    bed_req(&in, 1, "sss", "k", "v", "w");
    bed_req(&in, 2, "s", "k");
    bed_req(&in, 4, "ns", N(1), "k");
    bed_req(&in, 5, "ns", N(1), "k");
    bed_req(&in, 6, "");
    bed_req(&in, 8, "s", "k");
    bed_put_u64(&want, 1);
    bed_put_blob(&want, "w");
    bed_put_blob(&want, "w");
    buf_putc(&want, STORE_READY);
    buf_putc(&want, STORE_STOP_WAITING);
    bed_put_u64(&want, 2);
    bed_put_u64(&want, 1);
    is_int(bed_ask(s, c, &in, &out), 0, "old commands");
    bed_is(&out, &want, "are answered as their new ones");
    is_int(store_conn_partial(silent), 0, "a silent connection is in nothing");
    bed_req(&in, 7, "s", "k");
    is_int(bed_ask(s, watcher, &in, &out), -EPROTO, "WATCH_KEY is refused");
    store_close(s, c);
    store_close(s, silent);
    store_close(s, watcher);
}

static void test_numbers(void)
{
    static const struct {
        const char *value;
        int64_t delta;
        int rc;
        int64_t sum;
    } t[] = {
        {"41", 1, 0, 42},
        {" -7", 2, 0, -5},
        {"12abc", 1, 0, 13},
        {"+5", 0, 0, 5},
        {"", 1, -EPROTO, 0},
        {"abc", 1, -EPROTO, 0},
        {" ", 1, -EPROTO, 0},
        {"9223372036854775807", 0, 0, INT64_MAX},
        {"9223372036854775807", 1, -EPROTO, 0},
        {"9223372036854775808", 0, -EPROTO, 0},
        {"-9223372036854775808", -1, -EPROTO, 0},
        {"-9223372036854775807", -1, 0, INT64_MIN},
        {"7", -7, 0, 0},
        {"-1", -9, 0, -10},
        {"                                        3", 1, 0, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        _cleanup_(store) struct store *s = bed_store(NULL);
        struct store_conn *c = bed_open(s);
        _buf_ struct buf in = {0};
        _buf_ struct buf out = {0};
        int64_t sum = 0;

        bed_req(&in, STORE_SET, "ss", "n", t[i].value);
        bed_req(&in, STORE_ADD, "sn", "n", N(t[i].delta));
        is_int(bed_ask(s, c, &in, &out), t[i].rc, "ADD %lld to \"%s\"",
               (long long)t[i].delta, t[i].value);
        if (out.len == sizeof(sum)) {
            memcpy(&sum, out.data, sizeof(sum));
        }
        is_int(sum, t[i].sum, "gives that");
        if (t[i].rc == 0) {
            char text[32];

            buf_clear(&out);
            snprintf(text, sizeof(text), "%lld", (long long)sum);
            bed_req(&in, STORE_GET, "s", "n");
            bed_ask(s, c, &in, &out);
            ok(out.len == sizeof(int64_t) + strlen(text) &&
               memcmp(out.data + sizeof(int64_t), text, strlen(text)) == 0, "and stores \"%s\"",
               text);
        }
        store_close(s, c);
    }
}

/* What a key has, what is expected, and what it has after that: "new" only if
 * both are the same to the last byte. */
static void test_compare_set(void)
{
    static const struct {
        const char *has, *expected, *want;
    } cases[] = {
        {"abc", "abc", "new"}, {"abc", "abd", "abc"}, {"abc", "ab", "abc"},
        {"abc", "abcd", "abc"}, {"abc", "xbc", "abc"}, {"abc", "", "abc"},
        {"", "", "new"},       {"", "a", ""},
        {NULL, "", "new"},     {NULL, "a", "a"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(store) struct store *s = bed_store(NULL);
        struct store_conn *c = bed_open(s);
        _buf_ struct buf in = {0}, out = {0}, want = {0};

        if (cases[i].has) {
            bed_req(&in, STORE_SET, "ss", "k", cases[i].has);
        }
        bed_req(&in, STORE_COMPARE_SET, "sss", "k", cases[i].expected, "new");
        bed_put_blob(&want, cases[i].want);
        bed_ask(s, c, &in, &out);
        bed_is(&out, &want, cases[i].expected);
        store_close(s, c);
    }
}

/* Beyond the first size of the hash table, and back. */
static void test_many_keys(void)
{
    enum { N_KEYS = 5000 };
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;
    char key[16];
    bool all = true;

    for (int i = 0; i < N_KEYS; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        bed_req(&in, STORE_SET, "ss", key, key);
    }
    is_int(bed_ask(s, c, &in, &out), 0, "many keys");
    for (int i = 0; i < N_KEYS; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        bed_req(&in, STORE_GET, "s", key);
        bed_ask(s, c, &in, &out);
        all = all && out.len == 8 + strlen(key) &&
              memcmp(out.data + 8, key, strlen(key)) == 0;
    }
    ok(all, "each has its value");
    store_get_stats(s, &stats);
    is_int(stats.n_keys, N_KEYS, "counted");
    for (int i = 0; i < N_KEYS; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        bed_req(&in, STORE_DELETE_KEY, "s", key);
    }
    bed_ask(s, c, &in, &out);
    store_get_stats(s, &stats);
    is_int(stats.used_bytes, 0, "and gone without a trace");
    store_close(s, c);
}

int main(void)
{
    test_every_command();
    test_captured();
    test_old_dialect();
    test_numbers();
    test_compare_set();
    test_many_keys();
    return tap_done();
}
