/* SPDX-License-Identifier: Apache-2.0 */
/* What the store refuses, and how much it keeps for anybody. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct store_limits tight = {
    .key_bytes = 16,
    .value_bytes = 100,
    .request_bytes = 240,
    .request_keys = 8,
    .reply_bytes = 300,
    .memory_bytes = 4096,
    .pipeline_bytes = 200,
};

/* Everything that must close a connection, and its neighbour that must not. */
static void test_refused(void)
{
    static const char key17[] = "12345678901234567";
    char value100[102];
    struct {
        const char *name;
        int command;
        const char *fields;
        const void *a, *b, *c;
        int rc;
    } t[] = {
        {"command 19", 19, "", NULL, NULL, NULL, -EPROTO},
        {"command 255", 255, "", NULL, NULL, NULL, -EPROTO},
        {"a key that just fits", STORE_GET, "s", key17 + 1, NULL, NULL, 0},
        {"a key too long", STORE_GET, "s", key17, NULL, NULL, -EMSGSIZE},
        {"a value that just fits", STORE_SET, "ss", "k", value100 + 1, NULL, 0},
        {"a value too long", STORE_SET, "ss", "k", value100, NULL, -EMSGSIZE},
        {"a request too long", STORE_COMPARE_SET, "sss", key17 + 1,
         value100 + 1, value100 + 1, -EMSGSIZE},
    };

    memset(value100, 'v', sizeof(value100));
    value100[101] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        _cleanup_(store) struct store *s = bed_store(&tight);
        struct store_conn *c = bed_open(s);
        _buf_ struct buf in = {0};
        _buf_ struct buf out = {0};
        struct store_stats stats;

        bed_req(&in, t[i].command, t[i].fields, t[i].a, t[i].b, t[i].c);
        is_int(bed_ask(s, c, &in, &out), t[i].rc, "%s", t[i].name);
        store_close(s, c);
        store_get_stats(s, &stats);
        ok(stats.n_conns == 0 && (stats.n_keys > 0 || stats.used_bytes == 0),
           "leaves nothing behind");
    }
}

static void test_validate(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c = bed_open(s);
    struct store_conn *d = store_open(s, NULL);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};

    bed_req(&in, STORE_VALIDATE, "u", STORE_MAGIC);
    is_int(bed_ask(s, c, &in, &out), -EPROTO, "a second VALIDATE");
    bed_req(&in, STORE_VALIDATE, "u", STORE_MAGIC + 1);
    buf_puts(&in, "12345");
    is_int(bed_ask(s, d, &in, &out), -EMSGSIZE,
           "another number there is the length of an old client's key");
    store_close(s, c);
    store_close(s, d);
}

/* A length is judged when it is read: nothing of that size is waited for. */
static void test_absurd_lengths(void)
{
    static const struct {
        int command;
        bool is_count;
    } t[] = {{STORE_GET, false}, {STORE_WAIT, true}, {STORE_MULTI_SET, true}};
    static const uint64_t lengths[] = {9, 1000, UINT32_MAX, UINT64_MAX,
                                       (uint64_t)1 << 63};

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(lengths); j++) {
            _cleanup_(store) struct store *s = bed_store(&tight);
            struct store_conn *c = bed_open(s);
            _buf_ struct buf in = {0};
            _buf_ struct buf out = {0};
            bool legal = !t[i].is_count && lengths[j] == 9;

            bed_req(&in, t[i].command, "n", lengths[j]);
            is_int(bed_ask(s, c, &in, &out), legal ? 0 : -EMSGSIZE,
                   "command %d, length %llu", t[i].command,
                   (unsigned long long)lengths[j]);
            is_int(store_conn_partial(c), 2, "it is in its second request");
            store_close(s, c);
        }
    }
}

/* Whatever a client makes the store keep counts. */
static void test_all_memory_counts(void)
{
    static const struct {
        const char *what;
        int command;
        bool many; /* keys */
    } cases[] = {
        {"values", STORE_SET, true},
        {"queues", STORE_QUEUE_PUSH, true},
        {"a queue", STORE_QUEUE_PUSH, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(store) struct store *s = bed_store(&tight);
        struct store_conn *c = bed_open(s);
        _buf_ struct buf in = {0}, out = {0};
        struct store_stats stats;
        int rc = 0;

        for (int k = 0; k < 1000 && rc == 0; k++) {
            char key[8];

            snprintf(key, sizeof(key), "%d", cases[i].many ? k : 0);
            bed_req(&in, cases[i].command, "ss", key,
                    "some words that take their room");
            rc = bed_ask(s, c, &in, &out);
        }
        is_int(rc, -ENOMEM, "%s are bounded", cases[i].what);
        store_get_stats(s, &stats);
        ok(stats.used_bytes <= tight.memory_bytes, "to %zu bytes of %zu",
           stats.used_bytes, tight.memory_bytes);
        store_close(s, c);
    }
}

/* Answers that nobody has read go with their connection. */
static void test_close_with_answers(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c = bed_open(s);
    _buf_ struct buf in = {0};
    struct store_stats stats;
    size_t before;

    store_get_stats(s, &stats);
    before = stats.used_bytes;
    for (int i = 0; i < 100; i++) {
        bed_req(&in, STORE_NUM_KEYS, "");
    }
    store_feed(s, c, in.data, in.len, NULL);
    store_get_stats(s, &stats);
    is_int(stats.used_bytes, before + 800, "answers count");
    store_close(s, c);
    store_get_stats(s, &stats);
    is_int(stats.used_bytes, 0, "as long as their connection is there");
}

static void test_memory(void)
{
    _cleanup_(store) struct store *s = bed_store(&tight);
    struct store_conn *c = bed_open(s);
    struct store_conn *d = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;
    char key[8];
    int rc = 0;

    for (int i = 0; i < 1000 && rc == 0; i++) {
        snprintf(key, sizeof(key), "%d", i);
        bed_req(&in, STORE_SET, "ss", key, "some value that takes its room");
        rc = bed_ask(s, c, &in, &out);
    }
    is_int(rc, -ENOMEM, "a full store takes no more");
    store_get_stats(s, &stats);
    ok(stats.used_bytes <= tight.memory_bytes, "%zu bytes of %zu in use",
       stats.used_bytes, tight.memory_bytes);
    store_close(s, c);
    bed_req(&in, STORE_DELETE_KEY, "s", "0");
    bed_req(&in, STORE_SET, "ss", "0", "short");
    bed_req(&in, STORE_GET, "s", "0");
    is_int(bed_ask(s, d, &in, &out), 0, "others go on");
    is_int(out.len, 8 + 8 + 5, "and are answered");
    store_clear(s);
    store_get_stats(s, &stats);
    ok(stats.n_keys == 0 && stats.used_bytes == 0, "cleared");
    for (int i = 0; i < 1000 && rc != -EMSGSIZE; i++) {
        bed_req(&in, STORE_APPEND, "ss", "log", "0123456789");
        rc = bed_ask(s, d, &in, &out);
    }
    is_int(rc, -EMSGSIZE, "APPEND stops at the largest value");
    store_close(s, d);
}

static void test_unread_answers(void)
{
    _cleanup_(store) struct store *s = bed_store(&tight);
    struct store_conn *c = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    char value[91];
    size_t total = 0;
    int rounds = 0;

    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    bed_req(&in, STORE_SET, "ss", "k", value);
    for (int i = 0; i < 10; i++) {
        bed_req(&in, STORE_GET, "s", "k");
    }
    is_int(store_feed(s, c, in.data, in.len, NULL), 0, "ten at once");
    ok(store_conn_held(c), "some are held back");
    is_int(store_conn_partial(c), 0, "which is not the client's delay");
    while (store_conn_held(c) && rounds++ < 100) {
        bed_take(s, c, &out);
        total += out.len;
        is_int(store_resume(s, c, NULL), 0, "goes on");
    }
    bed_take(s, c, &out);
    is_int(total + out.len, 10 * 98, "all are answered in the end");
    buf_clear(&in);
    bed_req(&in, STORE_MULTI_GET, "nssss", N(4), "k", "k", "k", "k");
    is_int(bed_ask(s, c, &in, &out), -EMSGSIZE, "an answer that is too large");
    store_close(s, c);
}

int main(void)
{
    test_refused();
    test_validate();
    test_absurd_lengths();
    test_all_memory_counts();
    test_close_with_answers();
    test_memory();
    test_unread_answers();
    return tap_done();
}
