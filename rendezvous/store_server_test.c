/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server on loopback, with blocking clients on plain sockets: a client's
 * call first lets the loop run until its answer is there.
 */
#include <config.h>

#include "rendezvous/store_server.h"

#include "base/buf.h"
#include "base/clock.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { WAIT_MS = 10000 };

static const char validate[] = "\0\xce\xf7\x85<";

struct refusals {
    int n;
    char why[256];
    struct store_server *reset; /* what the callback does in return */
};

static void on_refused(void *ctx, const char *peer, const char *why)
{
    struct refusals *r = ctx;

    r->n++;
    snprintf(r->why, sizeof(r->why), "%s: %s", peer, why);
    if (r->reset) {
        store_server_reset(r->reset);
    }
}

static struct store_server *serve(uv_loop_t *loop, struct store_config *config,
                                  struct refusals *refusals)
{
    static const char *const loopback[] = {"127.0.0.1", NULL};
    struct store_server *srv = NULL;
    struct error e = {0};

    if (!config->addresses) {
        config->addresses = loopback;
    }
    config->on_refused = on_refused;
    config->ctx = refusals;
    if (store_server_create(loop, config, &srv, &e) < 0 ||
        store_server_set_allowed(srv, loopback, 1, &e) < 0) {
        bail_out("%s", e.text);
    }
    return srv;
}

static void on_done(void *ctx)
{
    *(bool *)ctx = true;
}

static void stop(uv_loop_t *loop, struct store_server *srv)
{
    bool done = false;

    store_server_destroy(srv, on_done, &done);
    uv_run(loop, UV_RUN_DEFAULT);
    ok(done, "the server is gone");
    is_int(uv_loop_close(loop), 0, "and left no handle");
}

static int dial(const struct store_server *srv)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(store_server_port(srv))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 &&
                   errno != EINPROGRESS)) {
        bail_out("connect: %s", strerror(errno));
    }
    return fd;
}

static void send_all(uv_loop_t *loop, int fd, const void *data, size_t len)
{
    uint64_t deadline = clock_mono_ms() + WAIT_MS;
    size_t at = 0;

    while (at < len && clock_mono_ms() < deadline) {
        ssize_t n = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);

        at += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno != EAGAIN && errno != ENOTCONN) {
            return; /* closed: the reader sees it */
        }
        uv_run(loop, UV_RUN_NOWAIT);
    }
}

/* `want` bytes, or fewer at the end of the connection; -1 without either. */
static ssize_t receive(uv_loop_t *loop, int fd, char *to, size_t want)
{
    uint64_t deadline = clock_mono_ms() + WAIT_MS;
    size_t at = 0;

    while (at < want && clock_mono_ms() < deadline) {
        ssize_t n;

        uv_run(loop, UV_RUN_NOWAIT);
        n = recv(fd, to + at, want - at, 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            return (ssize_t)at;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return at == want ? (ssize_t)at : -1;
}

static bool is_closed(uv_loop_t *loop, int fd)
{
    char byte;

    return receive(loop, fd, &byte, 1) == 0;
}

static void put(struct buf *b, char command, const char *key, const char *value)
{
    uint64_t len = strlen(key);

    buf_putc(b, command);
    buf_append(b, &len, sizeof(len));
    buf_puts(b, key);
    if (value) {
        len = strlen(value);
        buf_append(b, &len, sizeof(len));
        buf_puts(b, value);
    }
}

static void put_wait(struct buf *b, const char *key)
{
    uint64_t n = 1;

    buf_putc(b, 6);
    buf_append(b, &n, sizeof(n));
    put(b, 0, key, NULL);
    /* put() began with a command, which a key in a list has not */
    memmove(b->data + b->len - strlen(key) - 9,
            b->data + b->len - strlen(key) - 8, strlen(key) + 8);
    b->len--;
}

/* Until `n` connections wait. */
static bool run_until_waiting(uv_loop_t *loop, struct store_server *srv,
                              size_t n)
{
    uint64_t deadline = clock_mono_ms() + WAIT_MS;
    struct store_stats stats;

    do {
        uv_run(loop, UV_RUN_NOWAIT);
        store_server_stats(srv, &stats);
    } while (stats.n_waiting != n && clock_mono_ms() < deadline);
    return stats.n_waiting == n;
}

static void test_serve(void)
{
    uv_loop_t loop;
    struct store_config config = {0};
    struct refusals refused = {0};
    struct store_server *srv;
    _buf_ struct buf in = {0};
    char out[64];
    int a;
    int b;

    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    ok(store_server_port(srv) != 0, "has a port");
    a = dial(srv);
    b = dial(srv);
    buf_append(&in, validate, 5);
    put_wait(&in, "k");
    send_all(&loop, a, in.data, in.len);
    ok(run_until_waiting(&loop, srv, 1), "one waits");
    buf_clear(&in);
    buf_append(&in, validate, 5);
    put(&in, 1, "k", "value");
    put(&in, 3, "k", NULL);
    send_all(&loop, b, in.data, in.len);
    ok(receive(&loop, b, out, 13) == 13 && memcmp(out + 8, "value", 5) == 0,
       "the other sets and gets");
    ok(receive(&loop, a, out, 1) == 1 && out[0] == 0, "and so releases it");
    send_all(&loop, a, "\x63", 1);
    ok(is_closed(&loop, a), "an unknown command closes");
    like(refused.why, "127.0.0.1: unknown command 99", "and says so");
    buf_clear(&in);
    put(&in, 3, "k", NULL);
    send_all(&loop, b, in.data, in.len);
    is_int(receive(&loop, b, out, 13), 13, "but only that connection");
    close(a);
    close(b);
    stop(&loop, srv);
}

static void test_allowed(void)
{
    static const char *const elsewhere[] = {"192.0.2.1", "2001:db8::1"};
    static const char *const mapped[] = {"::ffff:127.0.0.1"};
    static const char *const wrong[] = {"127.0.0.1", "localhost"};
    static const char *const all[] = {"*"};
    uv_loop_t loop;
    struct store_config config = {0};
    struct refusals refused = {0};
    struct store_server *srv;
    struct error e = {0};
    _buf_ struct buf in = {0};
    char out[16];
    int a;
    int b;

    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    buf_append(&in, validate, 5);
    buf_append(&in, "\x0d" "1234", 5);
    a = dial(srv);
    send_all(&loop, a, in.data, in.len);
    is_int(receive(&loop, a, out, 4), 4, "an allowed host is served");
    is_int(store_server_set_allowed(srv, wrong, 2, &e), -EINVAL,
           "a name is no address");
    send_all(&loop, a, "\x0d" "1234", 5);
    is_int(receive(&loop, a, out, 4), 4, "and changes nothing");
    is_int(store_server_set_allowed(srv, elsewhere, 2, &e), 0, "others");
    ok(is_closed(&loop, a), "who is not allowed any more is closed");
    b = dial(srv);
    ok(is_closed(&loop, b), "and does not come in again");
    like(refused.why, "127.0.0.1: not a host of this run", "which is told");
    close(a);
    close(b);
    store_server_set_allowed(srv, mapped, 1, &e);
    a = dial(srv);
    send_all(&loop, a, in.data, in.len);
    is_int(receive(&loop, a, out, 4), 4, "IPv4 in IPv6 is the same host");
    store_server_set_allowed(srv, all, 1, &e);
    b = dial(srv);
    send_all(&loop, b, in.data, in.len);
    is_int(receive(&loop, b, out, 4), 4, "everybody");
    close(a);
    close(b);
    stop(&loop, srv);
}

static void test_reset(void)
{
    uv_loop_t loop;
    struct store_config config = {0};
    struct refusals refused = {0};
    struct store_server *srv;
    struct store_stats stats;
    _buf_ struct buf in = {0};
    uint16_t port;
    int a;
    int b;

    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    port = store_server_port(srv);
    a = dial(srv);
    buf_append(&in, validate, 5);
    put(&in, 1, "k", "old");
    put_wait(&in, "never");
    send_all(&loop, a, in.data, in.len);
    ok(run_until_waiting(&loop, srv, 1), "one waits, one key");
    store_server_reset(srv);
    store_server_stats(srv, &stats);
    ok(stats.n_conns == 0 && stats.n_keys == 0 && stats.used_bytes == 0,
       "a reset leaves nothing");
    ok(is_closed(&loop, a), "and closes");
    is_int(store_server_port(srv), port, "the port stays");
    close(a);
    a = dial(srv);
    b = dial(srv);
    buf_clear(&in);
    buf_append(&in, validate, 5);
    put_wait(&in, "never");
    send_all(&loop, a, in.data, in.len);
    run_until_waiting(&loop, srv, 1);
    refused.reset = srv;
    send_all(&loop, b, "\x63", 1);
    ok(is_closed(&loop, b) && is_closed(&loop, a),
       "a reset from the callback is fine");
    close(a);
    close(b);
    stop(&loop, srv);
}

static void test_slow_request(void)
{
    uv_loop_t loop;
    struct store_config config = {.request_timeout_ms = 200};
    struct refusals refused = {0};
    struct store_server *srv;
    _buf_ struct buf in = {0};
    char out[16];
    int slow;
    int slower;
    int silent;
    int waiting;

    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    silent = dial(srv);
    slow = dial(srv);
    slower = dial(srv);
    waiting = dial(srv);
    send_all(&loop, slow, validate, 3);
    buf_append(&in, validate, 5);
    put_wait(&in, "k");
    send_all(&loop, waiting, in.data, in.len);
    put(&in, 1, "k", "never complete");
    send_all(&loop, slower, in.data, in.len - 1);
    ok(is_closed(&loop, slow), "never finished its first request");
    ok(is_closed(&loop, slower), "or a later one");
    like(refused.why, "not finished in time", "which is told");
    is_int(refused.n, 2, "of two");
    send_all(&loop, silent, validate, 5);
    send_all(&loop, silent, "\x0d" "1234", 5);
    is_int(receive(&loop, silent, out, 4), 4, "a silent one stays");
    send_all(&loop, waiting, "\x0c", 1);
    is_int(receive(&loop, waiting, out, 1), 1, "and a waiting one");
    close(silent);
    close(slow);
    close(slower);
    close(waiting);
    stop(&loop, srv);
}

/* A client that asks and asks and never reads. */
static void test_never_reads(void)
{
    uv_loop_t loop;
    struct store_config config = {.limits = {.pipeline_bytes = 64 * 1024}};
    struct refusals refused = {0};
    struct store_server *srv;
    struct store_stats stats;
    _buf_ struct buf in = {0};
    _free_ char *value = calloc(1, 10001);
    _free_ char *out = malloc(10008);
    size_t most = 0;
    size_t asked = 0;
    int fd;

    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    fd = dial(srv);
    memset(value, 'x', 10000);
    buf_append(&in, validate, 5);
    put(&in, 1, "k", value);
    send_all(&loop, fd, in.data, in.len);
    buf_clear(&in);
    put(&in, 3, "k", NULL);
    for (int i = 0; i < 200000; i++) {
        ssize_t n = send(fd, in.data, in.len, MSG_NOSIGNAL);

        if (n != (ssize_t)in.len) {
            break; /* the kernel's buffers are full as well */
        }
        asked++;
        if (i % 100 == 0) {
            uv_run(&loop, UV_RUN_NOWAIT);
            store_server_stats(srv, &stats);
            most = stats.used_bytes > most ? stats.used_bytes : most;
        }
    }
    ok(asked > 1000, "asked %zu times", asked);
    ok(most < 512 * 1024, "the server held at most %zu bytes", most);
    for (size_t i = 0; i < asked; i++) {
        if (receive(&loop, fd, out, 10008) != 10008) {
            asked = i;
        }
    }
    ok(asked > 1000, "all were answered when it read at last");
    close(fd);
    stop(&loop, srv);
}

static void test_many(void)
{
    enum { N_CONNS = 2000 };
    uv_loop_t loop;
    struct store_config config = {.max_conns = N_CONNS};
    struct refusals refused = {0};
    struct store_server *srv;
    struct rlimit files;
    _buf_ struct buf in = {0};
    int fds[N_CONNS];
    int n = N_CONNS;
    int n_released = 0;
    int extra;

    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2 * N_CONNS + 100) {
        skip("only %llu descriptors", (unsigned long long)files.rlim_cur);
        return;
    }
    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    buf_append(&in, validate, 5);
    put_wait(&in, "go");
    for (int i = 0; i < n; i++) {
        fds[i] = dial(srv);
        send_all(&loop, fds[i], in.data, in.len);
    }
    ok(run_until_waiting(&loop, srv, N_CONNS), "%d connections wait", n);
    extra = dial(srv);
    ok(is_closed(&loop, extra), "one more than allowed");
    close(extra);
    close(fds[0]);
    run_until_waiting(&loop, srv, N_CONNS - 1);
    fds[0] = dial(srv);
    buf_clear(&in);
    buf_append(&in, validate, 5);
    put(&in, 1, "go", "1");
    send_all(&loop, fds[0], in.data, in.len);
    for (int i = 1; i < n; i++) {
        char byte;

        n_released += receive(&loop, fds[i], &byte, 1) == 1;
    }
    is_int(n_released, N_CONNS - 1, "one SET releases all");
    stop(&loop, srv);
    for (int i = 0; i < n; i++) {
        close(fds[i]);
    }
}

static void test_addresses(void)
{
    static const char *const two[] = {"127.0.0.1", "127.0.0.2", NULL};
    static const char *const not_ours[] = {"127.0.0.1", "192.0.2.1", NULL};
    static const char *const wrong[] = {"example.org", NULL};
    uv_loop_t loop;
    struct store_config config = {.addresses = two};
    struct store_server *srv;
    struct store_server *other = NULL;
    struct refusals refused = {0};
    struct error e = {0};

    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    config.port = store_server_port(srv);
    is_int(store_server_create(&loop, &config, &other, &e), -EADDRINUSE,
           "a port that is taken");
    config.addresses = NULL;
    is_int(store_server_create(&loop, &config, &other, &e), -EADDRINUSE,
           "also on every address");
    config.port = 0;
    config.addresses = not_ours;
    is_int(store_server_create(&loop, &config, &other, &e), -EADDRNOTAVAIL,
           "an address of another host");
    config.addresses = wrong;
    is_int(store_server_create(&loop, &config, &other, &e), -EINVAL, "a name");
    ok(other == NULL, "nothing was made");
    config.addresses = NULL;
    is_int(store_server_create(&loop, &config, &other, &e), 0, "everywhere");
    store_server_set_allowed(other, two, 1, &e);
    {
        int fd = dial(other);
        char out[4];

        send_all(&loop, fd, validate, 5);
        send_all(&loop, fd, "\x0d" "1234", 5);
        is_int(receive(&loop, fd, out, 4), 4, "IPv4 reaches it as itself");
        close(fd);
    }
    store_server_destroy(other, NULL, NULL);
    store_server_destroy(NULL, NULL, NULL);
    stop(&loop, srv);
}

static void test_destroy_while_busy(void)
{
    uv_loop_t loop;
    struct store_config config = {0};
    struct refusals refused = {0};
    struct store_server *srv;
    _buf_ struct buf in = {0};
    int fds[3];

    uv_loop_init(&loop);
    srv = serve(&loop, &config, &refused);
    buf_append(&in, validate, 5);
    put_wait(&in, "k");
    for (int i = 0; i < 3; i++) {
        fds[i] = dial(srv);
    }
    send_all(&loop, fds[0], in.data, in.len);
    send_all(&loop, fds[1], in.data, in.len - 1);
    run_until_waiting(&loop, srv, 1);
    stop(&loop, srv);
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
}

/* A server that passes requests on to another one. */
static struct store_server *serve_for(uv_loop_t *loop,
                                      const struct store_server *keys,
                                      struct refusals *refused)
{
    struct store_config config = {.upstream = "127.0.0.1",
                                  .upstream_port = store_server_port(keys)};

    return serve(loop, &config, refused);
}

/* A value beyond what a trunk holds back, there and back. */
static bool pass_large(uv_loop_t *loop, int fd)
{
    enum { LARGE = 5 << 20 };
    _free_ char *value = malloc(LARGE + 1), *back = malloc(8 + LARGE);
    _buf_ struct buf in = {0};

    if (!value || !back) {
        bail_out("no memory");
    }
    memset(value, 'v', LARGE);
    value[LARGE] = '\0';
    put(&in, 1, "large", value);
    put(&in, 3, "large", NULL);
    send_all(loop, fd, in.data, in.len);
    return receive(loop, fd, back, 8 + LARGE) == 8 + LARGE &&
           memcmp(back + 8, value, LARGE) == 0;
}

static void test_tree(void)
{
    uv_loop_t loop;
    struct store_config config = {0};
    struct refusals refused = {0}, lost = {0};
    struct store_server *keys, *node;
    struct store_stats stats;
    _buf_ struct buf in = {0};
    int a, b, silent;

    uv_loop_init(&loop);
    keys = serve(&loop, &config, &refused);
    node = serve_for(&loop, keys, &lost);
    a = dial(node);
    b = dial(node);
    send_all(&loop, a, validate, 5);
    send_all(&loop, b, validate, 5);
    ok(pass_large(&loop, a) && pass_large(&loop, b), "5 MiB, there and back");
    store_server_stats(keys, &stats);
    is_int((intmax_t)stats.n_conns, 3, "a trunk and two channels");
    silent = dial(keys);
    send_all(&loop, silent, "\0", 1); /* a hello that is not finished */
    close(a);
    put_wait(&in, "never");
    send_all(&loop, b, in.data, in.len);
    ok(run_until_waiting(&loop, keys, 1), "a wait arrives");
    store_server_destroy(keys, NULL, NULL);
    ok(is_closed(&loop, b), "without keys there is no store");
    is_int(lost.n, 0, "which is no refusal");
    close(b);
    b = dial(node);
    ok(is_closed(&loop, b), "nor is there one later");
    close(b);
    close(silent);
    stop(&loop, node);
}

int main(void)
{
    const uint16_t probe = 1;

    if (*(const uint8_t *)&probe != 1) {
        skip("the bytes in this test are those of a little-endian machine");
        return tap_done();
    }
    test_serve();
    test_allowed();
    test_reset();
    test_slow_request();
    test_never_reads();
    test_many();
    test_addresses();
    test_destroy_while_busy();
    test_tree();
    return tap_done();
}
