/* SPDX-License-Identifier: Apache-2.0 */
/* Those that wait for keys, queues and barriers, and what wakes them. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

/* A wait that the client gave up without a word (old clients cannot cancel)
 * must not be answered into the middle of its next request. */
static void test_abandoned_wait(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *a = store_open(s, NULL);
    struct store_conn *b = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;

    bed_req(&in, 5, "ns", N(1), "late");
    is_int(bed_ask(s, a, &in, &out), 0, "old client waits");
    store_get_stats(s, &stats);
    is_int(stats.n_waiting, 1, "it is waiting");
    bed_req(&in, 6, "");
    bed_ask(s, a, &in, &out);
    is_int(out.len, 8, "asks something else instead");
    store_get_stats(s, &stats);
    is_int(stats.n_waiting, 0, "it waits no more");
    bed_req(&in, STORE_SET, "ss", "late", "x");
    bed_ask(s, b, &in, &out);
    bed_take(s, a, &out);
    is_int(out.len, 0, "and is told nothing");
    store_close(s, a);
    store_close(s, b);
}

static void list_key(void *arg, const char *key, size_t len)
{
    buf_printf(arg, "%.*s ", (int)len, key);
}

static void test_awaited(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *a = bed_open(s);
    struct store_conn *b = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    _buf_ struct buf keys = {0};

    store_awaited(s, list_key, &keys);
    is_str(buf_str(&keys), "", "nobody waits for anything");
    bed_req(&in, STORE_WAIT, "nss", N(2), "here", "there");
    bed_ask(s, a, &in, &out);
    bed_req(&in, STORE_SET, "ss", "here", "x");
    bed_ask(s, b, &in, &out);
    store_awaited(s, list_key, &keys);
    is_str(buf_str(&keys), "there ", "one waits for what is not there");
    buf_clear(&keys);
    bed_req(&in, STORE_SET, "ss", "there", "x");
    bed_ask(s, b, &in, &out);
    store_awaited(s, list_key, &keys);
    is_str(buf_str(&keys), "", "and then it is");
    store_close(s, a);
    store_close(s, b);
}

static void test_waiters(void)
{
    enum { N_CONNS = 5 };
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c[N_CONNS];
    struct store_conn *setter = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    bool in_order = true;

    for (int i = 0; i < N_CONNS; i++) {
        c[i] = bed_open(s);
        bed_req(&in, STORE_WAIT, "nsss", N(3), "a", "b", "a");
        bed_ask(s, c[i], &in, &out);
        is_int(out.len, 0, "conn %d waits for two keys, one named twice", i);
    }
    bed_req(&in, STORE_SET, "ss", "a", "1");
    store_feed(s, setter, in.data, in.len, NULL);
    buf_clear(&in);
    ok(store_next_ready(s) == NULL, "one of them is not enough");
    store_close(s, c[1]);
    bed_req(&in, STORE_WAIT, "ns", N(1), "other");
    store_feed(s, c[3], in.data, in.len, NULL);
    buf_clear(&in);
    bed_req(&in, STORE_ADD, "sn", "b", N(1));
    store_feed(s, setter, in.data, in.len, NULL);
    buf_clear(&in);
    for (int i = 0; i < N_CONNS; i++) {
        if (i != 1 && i != 3) {
            in_order = in_order && store_next_ready(s) == c[i];
        }
    }
    ok(in_order, "released in order, without the closed and the changed one");
    ok(store_next_ready(s) == setter && store_next_ready(s) == NULL,
       "then the answer of the one that set it");
    bed_take(s, c[0], &out);
    ok(out.len == 1 && out.data[0] == STORE_STOP_WAITING, "with STOP_WAITING");
    for (int i = 0; i < N_CONNS; i++) {
        if (i != 1) {
            store_close(s, c[i]);
        }
    }
    store_close(s, setter);
}

/* What makes a key that is waited for. */
static void test_wakers(void)
{
    static const struct {
        const char *name;
        int command;
        const char *fields;
        bool wakes;
    } t[] = {
        {"SET", STORE_SET, "ss", true},
        {"COMPARE_SET", STORE_COMPARE_SET, "sss", true},
        {"ADD", STORE_ADD, "sn", true},
        {"APPEND", STORE_APPEND, "ss", true},
        {"QUEUE_PUSH", STORE_QUEUE_PUSH, "ss", true},
        {"DELETE_KEY", STORE_DELETE_KEY, "s", false},
        {"GET", STORE_GET, "s", false},
        {"QUEUE_POP", STORE_QUEUE_POP, "s", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        _cleanup_(store) struct store *s = bed_store(NULL);
        struct store_conn *a = bed_open(s);
        struct store_conn *b = bed_open(s);
        _buf_ struct buf in = {0};
        _buf_ struct buf out = {0};

        bed_req(&in, STORE_WAIT, "ns", N(1), "k");
        bed_ask(s, a, &in, &out);
        if (strcmp(t[i].fields, "sn") == 0) {
            bed_req(&in, t[i].command, "sn", "k", N(1));
        } else {
            bed_req(&in, t[i].command, t[i].fields, "k", "", "");
        }
        is_int(bed_ask(s, b, &in, &out), 0, "%s", t[i].name);
        bed_take(s, a, &out);
        is_int(out.len, t[i].wakes ? 1 : 0, "%s %s", t[i].name,
               t[i].wakes ? "wakes" : "does not wake");
        store_close(s, a);
        store_close(s, b);
    }
}

static void test_queue_waiters(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *a = bed_open(s);
    struct store_conn *b = bed_open(s);
    struct store_conn *c = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};

    bed_req(&in, STORE_WAIT, "nss", N(2), "q", "more");
    bed_ask(s, c, &in, &out);
    bed_req(&in, STORE_WAIT, "ns", N(1), "q");
    store_feed(s, a, in.data, in.len, NULL);
    store_feed(s, b, in.data, in.len, NULL);
    buf_clear(&in);
    bed_req(&in, STORE_QUEUE_PUSH, "ss", "q", "1");
    store_feed(s, c, in.data, in.len, NULL); /* also ends its wait */
    ok(store_next_ready(s) == a && !store_next_ready(s),
       "one item, one waiter");
    store_feed(s, c, in.data, in.len, NULL);
    ok(store_next_ready(s) == b && !store_next_ready(s), "the next, the next");
    store_close(s, a);
    store_close(s, b);
    store_close(s, c);
}

static void test_barrier(void)
{
    enum { WORLD = 4 };
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c[WORLD];
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};

    for (int i = 0; i < WORLD; i++) {
        c[i] = bed_open(s);
        bed_req(&in, STORE_BARRIER, "sn", "b", N(WORLD));
        is_int(bed_ask(s, c[i], &in, &out), 0, "arrives");
        is_int(out.len, i == WORLD - 1 ? 1 : 0, "%d of %d", i + 1, WORLD);
    }
    for (int i = 0; i < WORLD - 1; i++) {
        bed_take(s, c[i], &out);
        is_int(out.len, 1, "%d is released", i);
    }
    bed_req(&in, STORE_GET, "s", "b");
    bed_ask(s, c[0], &in, &out);
    ok(out.len == 9 && out.data[8] == '4', "its key has the count");
    for (int i = 0; i < WORLD; i++) {
        store_close(s, c[i]);
    }
}

/* A key that is only waited for is not there. */
static void test_awaited_key(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *c = bed_open(s), *waiter = bed_open(s);
    _buf_ struct buf in = {0}, out = {0}, want = {0};

    bed_req(&in, STORE_WAIT, "ns", N(1), "k");
    bed_ask(s, waiter, &in, &out);
    bed_req(&in, STORE_CHECK, "ns", N(1), "k");
    buf_putc(&want, STORE_NOT_READY);
    bed_req(&in, STORE_LIST_KEYS, "");
    bed_put_u64(&want, 0);
    bed_req(&in, STORE_QUEUE_PUSH, "ss", "q", "x");
    bed_req(&in, STORE_LIST_KEYS, "");
    bed_put_u64(&want, 0);
    bed_req(&in, STORE_DELETE_KEY, "s", "k");
    bed_put_u64(&want, 0);
    bed_ask(s, c, &in, &out);
    bed_is(&out, &want, "neither to CHECK, nor listed, nor deleted");
    store_close(s, waiter);
    store_close(s, c);
}

static void test_close_and_clear_while_waiting(void)
{
    _cleanup_(store) struct store *s = bed_store(NULL);
    struct store_conn *a = bed_open(s);
    struct store_conn *b = bed_open(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;

    bed_req(&in, STORE_WAIT, "nss", N(2), "x", "y");
    store_feed(s, a, in.data, in.len, NULL);
    store_feed(s, b, in.data, in.len, NULL);
    store_close(s, a);
    store_get_stats(s, &stats);
    is_int(stats.n_waiting, 1, "closed while it waits");
    store_clear(s);
    store_get_stats(s, &stats);
    is_int(stats.n_waiting, 0, "cleared while it waits");
    is_int(stats.used_bytes, 0, "nothing is held");
    buf_clear(&in);
    bed_req(&in, STORE_SET, "ss", "x", "1");
    is_int(bed_ask(s, b, &in, &out), 0, "the connection is still good");
    store_close(s, b);
}

int main(void)
{
    test_abandoned_wait();
    test_awaited();
    test_waiters();
    test_wakers();
    test_queue_waiters();
    test_barrier();
    test_awaited_key();
    test_close_and_clear_while_waiting();
    return tap_done();
}
