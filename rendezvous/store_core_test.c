/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests are written here as hex and text, byte for byte as the clients of
 * PyTorch 1.13 (old) and 2.13 (new) send them: see req(). Lengths on the wire
 * are in the byte order of the machine, so they are built, not spelled.
 */
#include <config.h>

#include "rendezvous/store_core.h"

#include "base/buf.h"
#include "rendezvous/store_wire.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static const uint8_t seed[16] = {1, 2, 3};

static void put(struct buf *b, const void *data, size_t len)
{
    buf_append(b, data, len);
}

static void put_u64(struct buf *b, uint64_t v)
{
    put(b, &v, sizeof(v));
}

static void put_blob(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    buf_puts(b, s);
}

/* A command and its fields: s a key or value, n a 64-bit number, u the number
 * of VALIDATE or PING. */
static void req(struct buf *b, int command, const char *fields, ...)
{
    va_list ap;

    va_start(ap, fields);
    buf_putc(b, (char)command);
    for (; *fields; fields++) {
        if (*fields == 's') {
            put_blob(b, va_arg(ap, const char *));
        } else if (*fields == 'n') {
            put_u64(b, va_arg(ap, uint64_t));
        } else {
            uint32_t v = va_arg(ap, uint32_t);

            put(b, &v, sizeof(v));
        }
    }
    va_end(ap);
}

#define N(v) ((uint64_t)(v))

/* Takes what `c` was answered, as if it were sent at once. */
static void take(struct store *s, struct store_conn *c, struct buf *to)
{
    size_t len;
    _free_ char *data = store_take(c, &len);

    buf_clear(to);
    if (data) {
        put(to, data, len);
    }
    store_sent(s, c, len);
    while (store_next_ready(s)) {
    }
}

static bool is_bytes(const struct buf *got, const struct buf *want,
                     const char *name)
{
    bool same = got->len == want->len &&
                (got->len == 0 ||
                 memcmp(got->data, want->data, got->len) == 0);

    if (!ok(same, "%s", name)) {
        diag("got %zu bytes, want %zu", got->len, want->len);
    }
    return same;
}

static struct store_conn *open_new(struct store *s)
{
    struct store_conn *c = store_open(s, NULL);
    _buf_ struct buf b = {0};

    req(&b, STORE_VALIDATE, "u", STORE_MAGIC);
    if (!c || store_feed(s, c, b.data, b.len, NULL) < 0) {
        bail_out("cannot open a connection");
    }
    return c;
}

static struct store *make(const struct store_limits *limits)
{
    struct store *s = store_create(limits, seed);

    if (!s) {
        bail_out("no memory");
    }
    return s;
}

/* One request on a connection; its answer in `out`. */
static int ask(struct store *s, struct store_conn *c, struct buf *in,
               struct buf *out)
{
    struct error e = {0};
    int rc = store_feed(s, c, in->data, in->len, &e);

    buf_clear(in);
    take(s, c, out);
    return rc;
}

/* A session with one of everything, and what it must be answered. */
static void make_session(struct buf *in, struct buf *want)
{
    const uint32_t nonce = 0x66c3;

    req(in, STORE_VALIDATE, "u", STORE_MAGIC);
    req(in, STORE_PING, "u", nonce);
    put(want, &nonce, sizeof(nonce));
    req(in, STORE_SET, "ss", "/k", "v");
    req(in, STORE_WAIT, "ns", N(1), "/k");
    buf_putc(want, STORE_STOP_WAITING);
    req(in, STORE_GET, "s", "/k");
    put_blob(want, "v");
    req(in, STORE_ADD, "sn", "/n", N(-3));
    put_u64(want, N(-3));
    req(in, STORE_ADD, "sn", "/n", N(10));
    put_u64(want, 7);
    req(in, STORE_COMPARE_SET, "sss", "/k", "v", "w");
    put_blob(want, "w");
    req(in, STORE_COMPARE_SET, "sss", "/k", "v", "x");
    put_blob(want, "w");
    req(in, STORE_COMPARE_SET, "sss", "/none", "v", "x");
    put_blob(want, "v");
    req(in, STORE_COMPARE_SET, "sss", "/made", "", "x");
    put_blob(want, "x");
    req(in, STORE_CHECK, "nss", N(2), "/k", "/z");
    buf_putc(want, STORE_NOT_READY);
    req(in, STORE_CHECK, "nss", N(2), "/k", "/n");
    buf_putc(want, STORE_READY);
    req(in, STORE_WAIT, "ns", N(1), "/never");
    req(in, STORE_CANCEL_WAIT, "");
    buf_putc(want, STORE_WAIT_CANCELED);
    req(in, STORE_NUM_KEYS, "");
    put_u64(want, 3);
    req(in, STORE_DELETE_KEY, "s", "/k");
    put_u64(want, 1);
    req(in, STORE_DELETE_KEY, "s", "/k");
    put_u64(want, 0);
    req(in, STORE_GET, "s", "/k");
    put_blob(want, "");
    req(in, STORE_APPEND, "ss", "/k", "1");
    req(in, STORE_APPEND, "ss", "/k", "23");
    req(in, STORE_MULTI_SET, "nssss", N(2), "/a", "1", "/b", "");
    req(in, STORE_MULTI_GET, "nssss", N(4), "/k", "/n", "/none", "/b");
    put_blob(want, "123");
    put_blob(want, "7");
    put_blob(want, "");
    put_blob(want, "");
    req(in, STORE_QUEUE_PUSH, "ss", "/q", "x");
    req(in, STORE_QUEUE_PUSH, "ss", "/q", "y");
    req(in, STORE_QUEUE_LEN, "s", "/q");
    put_u64(want, 2);
    req(in, STORE_WAIT, "ns", N(1), "/q");
    buf_putc(want, STORE_STOP_WAITING);
    req(in, STORE_QUEUE_POP, "s", "/q");
    put_u64(want, 2);
    put_blob(want, "x");
    req(in, STORE_QUEUE_POP, "s", "/q");
    put_u64(want, 1);
    put_blob(want, "y");
    req(in, STORE_QUEUE_POP, "s", "/q");
    put_u64(want, 0);
    req(in, STORE_BARRIER, "sn", "/bar", N(1));
    buf_putc(want, STORE_STOP_WAITING);
    req(in, STORE_DELETE_KEY, "s", "/a");
    put_u64(want, 1);
    req(in, STORE_DELETE_KEY, "s", "/b");
    put_u64(want, 1);
    req(in, STORE_DELETE_KEY, "s", "/bar");
    put_u64(want, 1);
    req(in, STORE_DELETE_KEY, "s", "/k");
    put_u64(want, 1);
    req(in, STORE_DELETE_KEY, "s", "/made");
    put_u64(want, 1);
    req(in, STORE_LIST_KEYS, "");
    put_u64(want, 1);
    put_blob(want, "/n");
    req(in, STORE_CHECK, "n", N(0));
    buf_putc(want, STORE_READY);
    req(in, STORE_WAIT, "n", N(0));
    buf_putc(want, STORE_STOP_WAITING);
    req(in, STORE_MULTI_GET, "n", N(0));
    req(in, STORE_MULTI_SET, "n", N(0));
    req(in, STORE_ADD, "sn", "/n", N(0));
    put_u64(want, 7);
}

/* Feeds in pieces: `first` bytes, then `step` at a time. */
static bool run_session(size_t first, size_t step)
{
    _buf_ struct buf in = {0};
    _buf_ struct buf want = {0};
    _buf_ struct buf got = {0};
    _cleanup_(store) struct store *s = make(NULL);
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
    take(s, c, &got);
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
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *n = store_open(s, NULL);
    struct store_conn *o = store_open(s, NULL);
    _buf_ struct buf out = {0};
    const uint16_t probe = 1;

    if (*(const uint8_t *)&probe != 1) {
        skip("captured on a little-endian machine");
    } else {
        store_feed(s, n, new_start, sizeof(new_start) - 1, NULL);
        take(s, n, &out);
        ok(out.len == 4 && memcmp(out.data, "\xc3"
                                            "f\0\0", 4) == 0,
           "new: validate and ping");
        is_int(store_feed(s, n, new_set, sizeof(new_set) - 1, NULL), 0, "set");
        is_int(store_feed(s, o, old_set, 1, NULL), 0, "old: set, first byte");
        is_int(store_feed(s, o, old_set + 1, sizeof(old_set) - 2, NULL), 0,
               "and the others");
        store_feed(s, o, old_get, sizeof(old_get) - 1, NULL);
        take(s, o, &out);
        ok(out.len == 9 && memcmp(out.data, "\1\0\0\0\0\0\0\0v", 9) == 0,
           "old: get");
    }
    store_close(s, n);
    store_close(s, o);
}

static void test_old_dialect(void)
{
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *c = store_open(s, NULL);
    struct store_conn *silent = store_open(s, NULL);
    struct store_conn *watcher = store_open(s, NULL);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    _buf_ struct buf want = {0};

    req(&in, 3, "sn", "init/", N(1)); /* ADD */
    req(&in, 0, "ss", "k", "v");      /* SET */
    req(&in, 1, "sss", "k", "v", "w");
    req(&in, 2, "s", "k");
    req(&in, 4, "ns", N(1), "k");
    req(&in, 5, "ns", N(1), "k");
    req(&in, 6, "");
    req(&in, 8, "s", "k");
    put_u64(&want, 1);
    put_blob(&want, "w");
    put_blob(&want, "w");
    buf_putc(&want, STORE_READY);
    buf_putc(&want, STORE_STOP_WAITING);
    put_u64(&want, 2);
    put_u64(&want, 1);
    is_int(ask(s, c, &in, &out), 0, "old commands");
    is_bytes(&out, &want, "are answered as their new ones");
    is_int(store_conn_partial(silent), 0, "a silent connection is in nothing");
    req(&in, 7, "s", "k");
    is_int(ask(s, watcher, &in, &out), -EPROTO, "WATCH_KEY is refused");
    store_close(s, c);
    store_close(s, silent);
    store_close(s, watcher);
}

/* A wait that the client gave up without a word (old clients cannot cancel)
 * must not be answered into the middle of its next request. */
static void test_abandoned_wait(void)
{
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *a = store_open(s, NULL);
    struct store_conn *b = open_new(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;

    req(&in, 5, "ns", N(1), "late");
    is_int(ask(s, a, &in, &out), 0, "old client waits");
    store_get_stats(s, &stats);
    is_int(stats.n_waiting, 1, "it is waiting");
    req(&in, 6, "");
    ask(s, a, &in, &out);
    is_int(out.len, 8, "asks something else instead");
    store_get_stats(s, &stats);
    is_int(stats.n_waiting, 0, "it waits no more");
    req(&in, STORE_SET, "ss", "late", "x");
    ask(s, b, &in, &out);
    take(s, a, &out);
    is_int(out.len, 0, "and is told nothing");
    store_close(s, a);
    store_close(s, b);
}

static void test_waiters(void)
{
    enum { N_CONNS = 5 };
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *c[N_CONNS];
    struct store_conn *setter = open_new(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    bool in_order = true;

    for (int i = 0; i < N_CONNS; i++) {
        c[i] = open_new(s);
        req(&in, STORE_WAIT, "nsss", N(3), "a", "b", "a");
        ask(s, c[i], &in, &out);
        is_int(out.len, 0, "conn %d waits for two keys, one named twice", i);
    }
    req(&in, STORE_SET, "ss", "a", "1");
    store_feed(s, setter, in.data, in.len, NULL);
    buf_clear(&in);
    ok(store_next_ready(s) == NULL, "one of them is not enough");
    store_close(s, c[1]);
    req(&in, STORE_WAIT, "ns", N(1), "other");
    store_feed(s, c[3], in.data, in.len, NULL);
    buf_clear(&in);
    req(&in, STORE_ADD, "sn", "b", N(1));
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
    take(s, c[0], &out);
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
        _cleanup_(store) struct store *s = make(NULL);
        struct store_conn *a = open_new(s);
        struct store_conn *b = open_new(s);
        _buf_ struct buf in = {0};
        _buf_ struct buf out = {0};

        req(&in, STORE_WAIT, "ns", N(1), "k");
        ask(s, a, &in, &out);
        if (strcmp(t[i].fields, "sn") == 0) {
            req(&in, t[i].command, "sn", "k", N(1));
        } else {
            req(&in, t[i].command, t[i].fields, "k", "", "");
        }
        is_int(ask(s, b, &in, &out), 0, "%s", t[i].name);
        take(s, a, &out);
        is_int(out.len, t[i].wakes ? 1 : 0, "%s %s", t[i].name,
               t[i].wakes ? "wakes" : "does not wake");
        store_close(s, a);
        store_close(s, b);
    }
}

static void test_queue_waiters(void)
{
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *a = open_new(s);
    struct store_conn *b = open_new(s);
    struct store_conn *c = open_new(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};

    req(&in, STORE_WAIT, "nss", N(2), "q", "more");
    ask(s, c, &in, &out);
    req(&in, STORE_WAIT, "ns", N(1), "q");
    store_feed(s, a, in.data, in.len, NULL);
    store_feed(s, b, in.data, in.len, NULL);
    buf_clear(&in);
    req(&in, STORE_QUEUE_PUSH, "ss", "q", "1");
    store_feed(s, c, in.data, in.len, NULL); /* also ends its wait */
    ok(store_next_ready(s) == a && !store_next_ready(s), "one item, one waiter");
    store_feed(s, c, in.data, in.len, NULL);
    ok(store_next_ready(s) == b && !store_next_ready(s), "the next, the next");
    store_close(s, a);
    store_close(s, b);
    store_close(s, c);
}

static void test_barrier(void)
{
    enum { WORLD = 4 };
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *c[WORLD];
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};

    for (int i = 0; i < WORLD; i++) {
        c[i] = open_new(s);
        req(&in, STORE_BARRIER, "sn", "b", N(WORLD));
        is_int(ask(s, c[i], &in, &out), 0, "arrives");
        is_int(out.len, i == WORLD - 1 ? 1 : 0, "%d of %d", i + 1, WORLD);
    }
    for (int i = 0; i < WORLD - 1; i++) {
        take(s, c[i], &out);
        is_int(out.len, 1, "%d is released", i);
    }
    req(&in, STORE_GET, "s", "b");
    ask(s, c[0], &in, &out);
    ok(out.len == 9 && out.data[8] == '4', "its key has the count");
    for (int i = 0; i < WORLD; i++) {
        store_close(s, c[i]);
    }
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
        {"                                        3", 1, 0, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        _cleanup_(store) struct store *s = make(NULL);
        struct store_conn *c = open_new(s);
        _buf_ struct buf in = {0};
        _buf_ struct buf out = {0};
        int64_t sum = 0;

        req(&in, STORE_SET, "ss", "n", t[i].value);
        req(&in, STORE_ADD, "sn", "n", N(t[i].delta));
        is_int(ask(s, c, &in, &out), t[i].rc, "ADD %lld to \"%s\"",
               (long long)t[i].delta, t[i].value);
        if (out.len == sizeof(sum)) {
            memcpy(&sum, out.data, sizeof(sum));
        }
        is_int(sum, t[i].sum, "gives that");
        store_close(s, c);
    }
}

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
        _cleanup_(store) struct store *s = make(&tight);
        struct store_conn *c = open_new(s);
        _buf_ struct buf in = {0};
        _buf_ struct buf out = {0};
        struct store_stats stats;

        req(&in, t[i].command, t[i].fields, t[i].a, t[i].b, t[i].c);
        is_int(ask(s, c, &in, &out), t[i].rc, "%s", t[i].name);
        store_close(s, c);
        store_get_stats(s, &stats);
        ok(stats.n_conns == 0 && (stats.n_keys > 0 || stats.used_bytes == 0),
           "leaves nothing behind");
    }
}

static void test_validate(void)
{
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *c = open_new(s);
    struct store_conn *d = store_open(s, NULL);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};

    req(&in, STORE_VALIDATE, "u", STORE_MAGIC);
    is_int(ask(s, c, &in, &out), -EPROTO, "a second VALIDATE");
    req(&in, STORE_VALIDATE, "u", STORE_MAGIC + 1);
    buf_puts(&in, "12345");
    is_int(ask(s, d, &in, &out), -EMSGSIZE,
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
            _cleanup_(store) struct store *s = make(&tight);
            struct store_conn *c = open_new(s);
            _buf_ struct buf in = {0};
            _buf_ struct buf out = {0};
            bool legal = !t[i].is_count && lengths[j] == 9;

            req(&in, t[i].command, "n", lengths[j]);
            is_int(ask(s, c, &in, &out), legal ? 0 : -EMSGSIZE,
                   "command %d, length %llu", t[i].command,
                   (unsigned long long)lengths[j]);
            is_int(store_conn_partial(c), 2, "it is in its second request");
            store_close(s, c);
        }
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
        _cleanup_(store) struct store *s = make(NULL);
        struct store_conn *c = open_new(s);
        _buf_ struct buf in = {0}, out = {0}, want = {0};

        if (cases[i].has) {
            req(&in, STORE_SET, "ss", "k", cases[i].has);
        }
        req(&in, STORE_COMPARE_SET, "sss", "k", cases[i].expected, "new");
        put_blob(&want, cases[i].want);
        ask(s, c, &in, &out);
        is_bytes(&out, &want, cases[i].expected);
        store_close(s, c);
    }
}

/* A key that is only waited for is not there. */
static void test_awaited_key(void)
{
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *c = open_new(s), *waiter = open_new(s);
    _buf_ struct buf in = {0}, out = {0}, want = {0};

    req(&in, STORE_WAIT, "ns", N(1), "k");
    ask(s, waiter, &in, &out);
    req(&in, STORE_CHECK, "ns", N(1), "k");
    buf_putc(&want, STORE_NOT_READY);
    req(&in, STORE_LIST_KEYS, "");
    put_u64(&want, 0);
    req(&in, STORE_QUEUE_PUSH, "ss", "q", "x");
    req(&in, STORE_LIST_KEYS, "");
    put_u64(&want, 0);
    req(&in, STORE_DELETE_KEY, "s", "k");
    put_u64(&want, 0);
    ask(s, c, &in, &out);
    is_bytes(&out, &want, "neither to CHECK, nor listed, nor deleted");
    store_close(s, waiter);
    store_close(s, c);
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
        _cleanup_(store) struct store *s = make(&tight);
        struct store_conn *c = open_new(s);
        _buf_ struct buf in = {0}, out = {0};
        struct store_stats stats;
        int rc = 0;

        for (int k = 0; k < 1000 && rc == 0; k++) {
            char key[8];

            snprintf(key, sizeof(key), "%d", cases[i].many ? k : 0);
            req(&in, cases[i].command, "ss", key,
                "some words that take their room");
            rc = ask(s, c, &in, &out);
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
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *c = open_new(s);
    _buf_ struct buf in = {0};
    struct store_stats stats;
    size_t before;

    store_get_stats(s, &stats);
    before = stats.used_bytes;
    for (int i = 0; i < 100; i++) {
        req(&in, STORE_NUM_KEYS, "");
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
    _cleanup_(store) struct store *s = make(&tight);
    struct store_conn *c = open_new(s);
    struct store_conn *d = open_new(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;
    char key[8];
    int rc = 0;

    for (int i = 0; i < 1000 && rc == 0; i++) {
        snprintf(key, sizeof(key), "%d", i);
        req(&in, STORE_SET, "ss", key, "some value that takes its room");
        rc = ask(s, c, &in, &out);
    }
    is_int(rc, -ENOMEM, "a full store takes no more");
    store_get_stats(s, &stats);
    ok(stats.used_bytes <= tight.memory_bytes, "%zu bytes of %zu in use",
       stats.used_bytes, tight.memory_bytes);
    store_close(s, c);
    req(&in, STORE_DELETE_KEY, "s", "0");
    req(&in, STORE_SET, "ss", "0", "short");
    req(&in, STORE_GET, "s", "0");
    is_int(ask(s, d, &in, &out), 0, "others go on");
    is_int(out.len, 8 + 8 + 5, "and are answered");
    store_clear(s);
    store_get_stats(s, &stats);
    ok(stats.n_keys == 0 && stats.used_bytes == 0, "cleared");
    for (int i = 0; i < 1000 && rc != -EMSGSIZE; i++) {
        req(&in, STORE_APPEND, "ss", "log", "0123456789");
        rc = ask(s, d, &in, &out);
    }
    is_int(rc, -EMSGSIZE, "APPEND stops at the largest value");
    store_close(s, d);
}

static void test_unread_answers(void)
{
    _cleanup_(store) struct store *s = make(&tight);
    struct store_conn *c = open_new(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    char value[91];
    size_t total = 0;
    int rounds = 0;

    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    req(&in, STORE_SET, "ss", "k", value);
    for (int i = 0; i < 10; i++) {
        req(&in, STORE_GET, "s", "k");
    }
    is_int(store_feed(s, c, in.data, in.len, NULL), 0, "ten at once");
    ok(store_conn_held(c), "some are held back");
    is_int(store_conn_partial(c), 0, "which is not the client's delay");
    while (store_conn_held(c) && rounds++ < 100) {
        take(s, c, &out);
        total += out.len;
        is_int(store_resume(s, c, NULL), 0, "goes on");
    }
    take(s, c, &out);
    is_int(total + out.len, 10 * 98, "all are answered in the end");
    buf_clear(&in);
    req(&in, STORE_MULTI_GET, "nssss", N(4), "k", "k", "k", "k");
    is_int(ask(s, c, &in, &out), -EMSGSIZE, "an answer that is too large");
    store_close(s, c);
}

static void test_close_and_clear_while_waiting(void)
{
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *a = open_new(s);
    struct store_conn *b = open_new(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;

    req(&in, STORE_WAIT, "nss", N(2), "x", "y");
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
    req(&in, STORE_SET, "ss", "x", "1");
    is_int(ask(s, b, &in, &out), 0, "the connection is still good");
    store_close(s, b);
}

/* Beyond the first size of the hash table, and back. */
static void test_many_keys(void)
{
    enum { N_KEYS = 5000 };
    _cleanup_(store) struct store *s = make(NULL);
    struct store_conn *c = open_new(s);
    _buf_ struct buf in = {0};
    _buf_ struct buf out = {0};
    struct store_stats stats;
    char key[16];
    bool all = true;

    for (int i = 0; i < N_KEYS; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        req(&in, STORE_SET, "ss", key, key);
    }
    is_int(ask(s, c, &in, &out), 0, "many keys");
    for (int i = 0; i < N_KEYS; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        req(&in, STORE_GET, "s", key);
        ask(s, c, &in, &out);
        all = all && out.len == 8 + strlen(key) &&
              memcmp(out.data + 8, key, strlen(key)) == 0;
    }
    ok(all, "each has its value");
    store_get_stats(s, &stats);
    is_int(stats.n_keys, N_KEYS, "counted");
    for (int i = 0; i < N_KEYS; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        req(&in, STORE_DELETE_KEY, "s", key);
    }
    ask(s, c, &in, &out);
    store_get_stats(s, &stats);
    is_int(stats.used_bytes, 0, "and gone without a trace");
    store_close(s, c);
}

int main(void)
{
    test_every_command();
    test_captured();
    test_old_dialect();
    test_abandoned_wait();
    test_waiters();
    test_wakers();
    test_queue_waiters();
    test_barrier();
    test_numbers();
    test_refused();
    test_validate();
    test_absurd_lengths();
    test_compare_set();
    test_awaited_key();
    test_all_memory_counts();
    test_close_with_answers();
    test_memory();
    test_unread_answers();
    test_close_and_clear_while_waiting();
    test_many_keys();
    return tap_done();
}
