/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server on loopback, with clients on plain sockets: a call of a client runs
 * the loop until its answer is there.
 */
#include <config.h>

#include "rendezvous/kv_server.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 30000 };

static struct kv_server *serve(uv_loop_t *loop, struct kv_config *config,
                               const char *allowed)
{
    struct kv_server *srv = NULL;
    struct error e = {0};

    uv_loop_init(loop);
    config->address = "127.0.0.1";
    if (kv_server_create(loop, config, &srv, &e) < 0) {
        bail_out("%s", e.text);
    }
    kv_server_set_allowed(srv, &allowed, 1, NULL);
    return srv;
}

static void stop(uv_loop_t *loop, struct kv_server *srv)
{
    kv_server_destroy(srv);
    uv_run(loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(loop), 0, "the server leaves no handle");
}

static int dial(const struct kv_server *srv)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(kv_server_port(srv))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        bail_out("connect");
    }
    return fd;
}

/* Reads until `until` is in it, the other side closes, or time is over. */
static void hear(uv_loop_t *loop, int fd, const char *until, struct buf *to)
{
    uint64_t end_ms = clock_mono_ms() + WAIT_MS;
    char bytes[4096];

    while (clock_mono_ms() < end_ms) {
        ssize_t n;

        uv_run(loop, UV_RUN_NOWAIT);
        n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n > 0) {
            buf_append(to, bytes, (size_t)n);
        }
        if (n == 0 || (n < 0 && errno != EAGAIN) ||
            (until && strstr(buf_str(to), until))) {
            return;
        }
        usleep(200);
    }
    buf_puts(to, "TIMEOUT");
}

/* One request on a connection of its own: "200 body". */
static char *ask(uv_loop_t *loop, const struct kv_server *srv,
                 const char *head, const char *body)
{
    _close_ int fd = dial(srv);
    _buf_ struct buf text = {0}, got = {0};
    struct buf ret = {0};
    const char *end;

    buf_printf(&text, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", head);
    if (body) {
        buf_printf(&text, "Content-Length: %zu\r\n", strlen(body));
    }
    buf_printf(&text, "\r\n%s", body ? body : "");
    send(fd, text.data, text.len, MSG_NOSIGNAL);
    hear(loop, fd, NULL, &got);
    end = strstr(buf_str(&got), "\r\n\r\n");
    buf_printf(&ret, "%.3s%s%s", got.len > 9 ? got.data + 9 : "???",
               end && end[4] ? " " : "", end ? end + 4 : "");
    return buf_take(&ret);
}

static void test_requests(void)
{
    static const struct {
        const char *head, *body, *want;
    } cases[] = {
        {"GET /global/0", NULL, "404"},
        {"PUT /global/0", "10.0.0.1:7", "200"},
        {"GET /global/0", NULL, "200 10.0.0.1:7"},
        {"PUT /global/0", "new", "200"},
        {"GET /global/0", NULL, "200 new"},
        {"PUT /global/1", "", "200"},
        {"GET /global/1", NULL, "200"},
        {"DELETE /global/0", NULL, "200"},
        {"GET /global/0", NULL, "200 new"},
        {"DELETE /global/1", NULL, "200"},
        {"GET /global/0", NULL, "404"},
        {"DELETE /other/7", NULL, "200"},
        {"GET /", NULL, "400"},
        {"GET /a", NULL, "400"},
        {"GET /a/b/c", NULL, "400"},
        {"PUT /../etc", "x", "200"}, /* a name as any other */
        {"GET /%2e%2e/etc", NULL, "200 x"},
        {"GET /a%2Fb/c", NULL, "400"},
        {"POST /a/b", "x", "405"},
        {"HEAD /a/b", NULL, "405"},
        {"PUT /a/b", "0123456789abcdef0", "413"},
        {"PUT /a/b", "0123456789abcdef", "200"},
        {"GET /a/b?x=1", NULL, "200 0123456789abcdef"},
    };
    struct kv_config config = {.limits.value_bytes = 16};
    uv_loop_t loop;
    struct kv_server *srv = serve(&loop, &config, "127.0.0.1");

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *got = ask(&loop, srv, cases[i].head, cases[i].body);

        is_str(got, cases[i].want, "%s", cases[i].head);
    }
    stop(&loop, srv);
}

/* Two requests on a connection, in pieces, and a body in chunks. */
static void test_one_connection(void)
{
    static const char text[] =
        "PUT /a/1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        "GET /a/1 HTTP/1.1\r\nHost: x\r\n\r\n";
    struct kv_config config = {0};
    uv_loop_t loop;
    struct kv_server *srv = serve(&loop, &config, "127.0.0.1");
    _close_ int fd = dial(srv);
    _buf_ struct buf got = {0};

    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        send(fd, text + i, 1, MSG_NOSIGNAL);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    hear(&loop, fd, "abcde", &got);
    like(buf_str(&got), "abcde", "both are answered");
    stop(&loop, srv); /* with a connection that is open */
}

static void test_hostile(void)
{
    static const char *const texts[] = {
        "\r\n\r\n\r\n", "GET\r\n\r\n", "GET /a/b\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PUT /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "PUT /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: "
        "99999999999999999999999\r\n\r\n",
        "PUT /a/b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "ffffffffffffffffffff\r\n",
    };
    struct kv_config config = {.request_timeout_ms = 300};
    uv_loop_t loop;
    struct kv_server *srv = serve(&loop, &config, "127.0.0.1");

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        _close_ int fd = dial(srv);
        _buf_ struct buf got = {0};

        send(fd, texts[i], strlen(texts[i]), MSG_NOSIGNAL);
        hear(&loop, fd, NULL, &got);
        ok(!strstr(buf_str(&got), "TIMEOUT") &&
               !strstr(buf_str(&got), " 200 "),
           "hostile text %zu is closed upon", i);
    }
    {
        _free_ char *got = ask(&loop, srv, "GET /a/b", NULL);

        is_str(got, "404", "and the server lives");
    }
    stop(&loop, srv);
}

/* A header that never ends, kept alive byte by byte. */
static void test_slow(void)
{
    struct kv_config config = {.request_timeout_ms = 200};
    uv_loop_t loop;
    struct kv_server *srv = serve(&loop, &config, "127.0.0.1");
    _close_ int fd = dial(srv), quiet = dial(srv);
    uint64_t end_ms = clock_mono_ms() + WAIT_MS;
    _buf_ struct buf got = {0};
    bool is_closed = false;
    char byte;

    while (!is_closed && clock_mono_ms() < end_ms) {
        ssize_t n;

        send(fd, "G", 1, MSG_NOSIGNAL);
        uv_run(&loop, UV_RUN_NOWAIT);
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
        is_closed = n == 0 || (n < 0 && errno != EAGAIN);
        usleep(1000);
    }
    ok(is_closed, "a request that never ends is closed");
    hear(&loop, quiet, NULL, &got);
    is_str(buf_str(&got), "", "and so is one that never begins");
    stop(&loop, srv);
}

static void test_strangers(void)
{
    struct kv_config config = {0};
    uv_loop_t loop;
    struct kv_server *srv = serve(&loop, &config, "127.0.0.2");
    static const char *const friends[] = {"::1", "127.0.0.1"};
    _free_ char *before = ask(&loop, srv, "PUT /a/b", "x"), *after = NULL;
    struct error e = {0};

    is_str(before, "???", "who is not of the run is closed upon");
    is_int(kv_server_set_allowed(srv, (const char *const[]){"x"}, 1, &e),
           -EINVAL, "no address");
    is_int(kv_server_set_allowed(srv, friends, 2, &e), 0, "others");
    after = ask(&loop, srv, "GET /a/b", NULL);
    is_str(after, "404", "nothing was taken from it");
    stop(&loop, srv);
}

static void test_bounds(void)
{
    struct kv_config config = {.limits = {.memory_bytes = 1 << 20},
                               .max_conns = 8};
    uv_loop_t loop;
    struct kv_server *srv = serve(&loop, &config, "127.0.0.1");
    _free_ char *big = malloc(400001);
    char head[32];
    int n_stored = 0;

    memset(big, 'x', 400000);
    big[400000] = '\0';
    for (int i = 0; i < 5; i++) {
        _free_ char *got = NULL;

        snprintf(head, sizeof(head), "PUT /a/%d", i);
        got = ask(&loop, srv, head, big);
        n_stored += strcmp(got, "200") == 0;
        ok(strcmp(got, "200") == 0 || strcmp(got, "413") == 0 ||
               strcmp(got, "507") == 0, "value %d: %s", i, got);
    }
    is_int(n_stored, 2, "no more than fit");
    {
        _free_ char *got = ask(&loop, srv, "GET /a/1", NULL);

        is_int((int)strlen(got), 400004, "and those whole");
    }
    stop(&loop, srv);
}

/* A client that reads nothing of a large answer does not keep the server. */
static void test_unread(void)
{
    struct kv_config config = {.request_timeout_ms = 200};
    uv_loop_t loop;
    struct kv_server *srv = serve(&loop, &config, "127.0.0.1");
    _free_ char *big = malloc(3000001), *put = NULL, *gone = NULL;
    static const char get[] = "GET /a/b HTTP/1.1\r\nHost: x\r\n\r\n";
    _close_ int fd = dial(srv);

    memset(big, 'x', 3000000);
    big[3000000] = '\0';
    put = ask(&loop, srv, "PUT /a/b", big);
    is_str(put, "200", "a large value");
    send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL);
    free(ask(&loop, srv, "DELETE /a/b", NULL));
    gone = ask(&loop, srv, "GET /a/b", NULL);
    is_str(gone, "404", "is gone while somebody still reads it");
    stop(&loop, srv);
}

/* Why there is no server, or NULL. */
static const char *find_obstacle(struct error *e)
{
    struct kv_config config = {.address = "127.0.0.1"};
    struct kv_server *srv = NULL;
    uv_loop_t loop;
    int rc;

    uv_loop_init(&loop);
    rc = kv_server_create(&loop, &config, &srv, e);
    kv_server_destroy(srv);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return rc == -ENOTSUP ? e->text : NULL;
}

int main(void)
{
    struct error e = {0};
    const char *obstacle = find_obstacle(&e);

    if (obstacle) {
        skip("%s", obstacle);
        return tap_done();
    }
    test_requests();
    test_one_connection();
    test_hostile();
    test_slow();
    test_strangers();
    test_bounds();
    test_unread();
    return tap_done();
}
