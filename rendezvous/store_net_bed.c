/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_net_bed.h"

#include "base/clock.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static void on_refused(void *ctx, const char *peer, const char *why)
{
    struct net_refusals *r = ctx;

    r->n++;
    snprintf(r->why, sizeof(r->why), "%s: %s", peer, why);
    if (r->reset) {
        store_server_reset(r->reset);
    }
}

struct store_server *net_serve(uv_loop_t *loop, struct store_config *config,
                               struct net_refusals *refusals)
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

void net_stop(uv_loop_t *loop, struct store_server *srv)
{
    bool done = false;

    store_server_destroy(srv, on_done, &done);
    uv_run(loop, UV_RUN_DEFAULT);
    ok(done, "the server is gone");
    is_int(uv_loop_close(loop), 0, "and left no handle");
}

int net_dial(const struct store_server *srv)
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

void net_send(uv_loop_t *loop, int fd, const void *data, size_t len)
{
    uint64_t deadline = clock_mono_ms() + NET_WAIT_MS;
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

ssize_t net_receive(uv_loop_t *loop, int fd, char *to, size_t want)
{
    uint64_t deadline = clock_mono_ms() + NET_WAIT_MS;
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

bool net_is_closed(uv_loop_t *loop, int fd)
{
    char byte;

    return net_receive(loop, fd, &byte, 1) == 0;
}

void net_put(struct buf *b, char command, const char *key, const char *value)
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

void net_put_wait(struct buf *b, const char *key)
{
    uint64_t n = 1;

    buf_putc(b, 6);
    buf_append(b, &n, sizeof(n));
    net_put(b, 0, key, NULL);
    /* net_put() began with a command, which a key in a list has not */
    memmove(b->data + b->len - strlen(key) - 9,
            b->data + b->len - strlen(key) - 8, strlen(key) + 8);
    b->len--;
}

bool net_until_waiting(uv_loop_t *loop, struct store_server *srv, size_t n)
{
    uint64_t deadline = clock_mono_ms() + NET_WAIT_MS;
    struct store_stats stats;

    do {
        uv_run(loop, UV_RUN_NOWAIT);
        store_server_stats(srv, &stats);
    } while (stats.n_waiting != n && clock_mono_ms() < deadline);
    return stats.n_waiting == n;
}
