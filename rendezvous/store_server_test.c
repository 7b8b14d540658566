/* SPDX-License-Identifier: Apache-2.0 */
/* The server, on loopback. */
#include <config.h>

#include "rendezvous/store_net_bed.h"

#include "tests/lib/tap.h"

#include <string.h>
#include <sys/resource.h>

static void test_serve(void)
{
    uv_loop_t loop;
    struct store_config config = {0};
    struct net_refusals refused = {0};
    struct store_server *srv;
    _buf_ struct buf in = {0};
    char out[64];
    int a;
    int b;

    uv_loop_init(&loop);
    srv = net_serve(&loop, &config, &refused);
    ok(store_server_port(srv) != 0, "has a port");
    a = net_dial(srv);
    b = net_dial(srv);
    buf_append(&in, net_validate, 5);
    net_put_wait(&in, "k");
    net_send(&loop, a, in.data, in.len);
    ok(net_until_waiting(&loop, srv, 1), "one waits");
    buf_clear(&in);
    buf_append(&in, net_validate, 5);
    net_put(&in, 1, "k", "value");
    net_put(&in, 3, "k", NULL);
    net_send(&loop, b, in.data, in.len);
    ok(net_receive(&loop, b, out, 13) == 13 && memcmp(out + 8, "value", 5) == 0,
       "the other sets and gets");
    ok(net_receive(&loop, a, out, 1) == 1 && out[0] == 0, "and so releases it");
    net_send(&loop, a, "\x63", 1);
    ok(net_is_closed(&loop, a), "an unknown command closes");
    like(refused.why, "127.0.0.1: unknown command 99", "and says so");
    buf_clear(&in);
    net_put(&in, 3, "k", NULL);
    net_send(&loop, b, in.data, in.len);
    is_int(net_receive(&loop, b, out, 13), 13, "but only that connection");
    close(a);
    close(b);
    net_stop(&loop, srv);
}

static void test_allowed(void)
{
    static const char *const elsewhere[] = {"192.0.2.1", "2001:db8::1"};
    static const char *const mapped[] = {"::ffff:127.0.0.1"};
    static const char *const wrong[] = {"127.0.0.1", "localhost"};
    static const char *const all[] = {"*"};
    uv_loop_t loop;
    struct store_config config = {0};
    struct net_refusals refused = {0};
    struct store_server *srv;
    struct error e = {0};
    _buf_ struct buf in = {0};
    char out[16];
    int a;
    int b;

    uv_loop_init(&loop);
    srv = net_serve(&loop, &config, &refused);
    buf_append(&in, net_validate, 5);
    buf_append(&in, "\x0d" "1234", 5);
    a = net_dial(srv);
    net_send(&loop, a, in.data, in.len);
    is_int(net_receive(&loop, a, out, 4), 4, "an allowed host is served");
    is_int(store_server_set_allowed(srv, wrong, 2, &e), -EINVAL,
           "a name is no address");
    net_send(&loop, a, "\x0d" "1234", 5);
    is_int(net_receive(&loop, a, out, 4), 4, "and changes nothing");
    is_int(store_server_set_allowed(srv, elsewhere, 2, &e), 0, "others");
    ok(net_is_closed(&loop, a), "who is not allowed any more is closed");
    b = net_dial(srv);
    ok(net_is_closed(&loop, b), "and does not come in again");
    like(refused.why, "127.0.0.1: not a host of this run", "which is told");
    close(a);
    close(b);
    store_server_set_allowed(srv, mapped, 1, &e);
    a = net_dial(srv);
    net_send(&loop, a, in.data, in.len);
    is_int(net_receive(&loop, a, out, 4), 4, "IPv4 in IPv6 is the same host");
    store_server_set_allowed(srv, all, 1, &e);
    b = net_dial(srv);
    net_send(&loop, b, in.data, in.len);
    is_int(net_receive(&loop, b, out, 4), 4, "everybody");
    close(a);
    close(b);
    net_stop(&loop, srv);
}

static void test_reset(void)
{
    uv_loop_t loop;
    struct store_config config = {0};
    struct net_refusals refused = {0};
    struct store_server *srv;
    struct store_stats stats;
    _buf_ struct buf in = {0};
    uint16_t port;
    int a;
    int b;

    uv_loop_init(&loop);
    srv = net_serve(&loop, &config, &refused);
    port = store_server_port(srv);
    a = net_dial(srv);
    buf_append(&in, net_validate, 5);
    net_put(&in, 1, "k", "old");
    net_put_wait(&in, "never");
    net_send(&loop, a, in.data, in.len);
    ok(net_until_waiting(&loop, srv, 1), "one waits, one key");
    store_server_reset(srv);
    store_server_stats(srv, &stats);
    ok(stats.n_conns == 0 && stats.n_keys == 0 && stats.used_bytes == 0,
       "a reset leaves nothing");
    ok(net_is_closed(&loop, a), "and closes");
    is_int(store_server_port(srv), port, "the port stays");
    close(a);
    a = net_dial(srv);
    b = net_dial(srv);
    buf_clear(&in);
    buf_append(&in, net_validate, 5);
    net_put_wait(&in, "never");
    net_send(&loop, a, in.data, in.len);
    net_until_waiting(&loop, srv, 1);
    refused.reset = srv;
    net_send(&loop, b, "\x63", 1);
    ok(net_is_closed(&loop, b) && net_is_closed(&loop, a),
       "a reset from the callback is fine");
    close(a);
    close(b);
    net_stop(&loop, srv);
}

static void test_slow_request(void)
{
    uv_loop_t loop;
    struct store_config config = {.request_timeout_ms = 200};
    struct net_refusals refused = {0};
    struct store_server *srv;
    _buf_ struct buf in = {0};
    char out[16];
    int slow;
    int slower;
    int silent;
    int waiting;

    uv_loop_init(&loop);
    srv = net_serve(&loop, &config, &refused);
    silent = net_dial(srv);
    slow = net_dial(srv);
    slower = net_dial(srv);
    waiting = net_dial(srv);
    net_send(&loop, slow, net_validate, 3);
    buf_append(&in, net_validate, 5);
    net_put_wait(&in, "k");
    net_send(&loop, waiting, in.data, in.len);
    net_put(&in, 1, "k", "never complete");
    net_send(&loop, slower, in.data, in.len - 1);
    ok(net_is_closed(&loop, slow), "never finished its first request");
    ok(net_is_closed(&loop, slower), "or a later one");
    like(refused.why, "not finished in time", "which is told");
    is_int(refused.n, 2, "of two");
    net_send(&loop, silent, net_validate, 5);
    net_send(&loop, silent, "\x0d" "1234", 5);
    is_int(net_receive(&loop, silent, out, 4), 4, "a silent one stays");
    net_send(&loop, waiting, "\x0c", 1);
    is_int(net_receive(&loop, waiting, out, 1), 1, "and a waiting one");
    close(silent);
    close(slow);
    close(slower);
    close(waiting);
    net_stop(&loop, srv);
}

/* A client that asks and asks and never reads. */
static void test_never_reads(void)
{
    uv_loop_t loop;
    struct store_config config = {.limits = {.pipeline_bytes = 64 * 1024}};
    struct net_refusals refused = {0};
    struct store_server *srv;
    struct store_stats stats;
    _buf_ struct buf in = {0};
    _free_ char *value = calloc(1, 10001);
    _free_ char *out = malloc(10008);
    size_t most = 0;
    size_t asked = 0;
    int fd;

    uv_loop_init(&loop);
    srv = net_serve(&loop, &config, &refused);
    fd = net_dial(srv);
    memset(value, 'x', 10000);
    buf_append(&in, net_validate, 5);
    net_put(&in, 1, "k", value);
    net_send(&loop, fd, in.data, in.len);
    buf_clear(&in);
    net_put(&in, 3, "k", NULL);
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
        if (net_receive(&loop, fd, out, 10008) != 10008) {
            asked = i;
        }
    }
    ok(asked > 1000, "all were answered when it read at last");
    close(fd);
    net_stop(&loop, srv);
}

static void test_many(void)
{
    enum { N_CONNS = 2000 };
    uv_loop_t loop;
    struct store_config config = {.max_conns = N_CONNS};
    struct net_refusals refused = {0};
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
    srv = net_serve(&loop, &config, &refused);
    buf_append(&in, net_validate, 5);
    net_put_wait(&in, "go");
    for (int i = 0; i < n; i++) {
        fds[i] = net_dial(srv);
        net_send(&loop, fds[i], in.data, in.len);
    }
    ok(net_until_waiting(&loop, srv, N_CONNS), "%d connections wait", n);
    extra = net_dial(srv);
    ok(net_is_closed(&loop, extra), "one more than allowed");
    close(extra);
    close(fds[0]);
    net_until_waiting(&loop, srv, N_CONNS - 1);
    fds[0] = net_dial(srv);
    buf_clear(&in);
    buf_append(&in, net_validate, 5);
    net_put(&in, 1, "go", "1");
    net_send(&loop, fds[0], in.data, in.len);
    for (int i = 1; i < n; i++) {
        char byte;

        n_released += net_receive(&loop, fds[i], &byte, 1) == 1;
    }
    is_int(n_released, N_CONNS - 1, "one SET releases all");
    net_stop(&loop, srv);
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
    struct net_refusals refused = {0};
    struct error e = {0};

    uv_loop_init(&loop);
    srv = net_serve(&loop, &config, &refused);
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
        int fd = net_dial(other);
        char out[4];

        net_send(&loop, fd, net_validate, 5);
        net_send(&loop, fd, "\x0d" "1234", 5);
        is_int(net_receive(&loop, fd, out, 4), 4, "IPv4 reaches it as itself");
        close(fd);
    }
    store_server_destroy(other, NULL, NULL);
    store_server_destroy(NULL, NULL, NULL);
    net_stop(&loop, srv);
}

static void test_destroy_while_busy(void)
{
    uv_loop_t loop;
    struct store_config config = {0};
    struct net_refusals refused = {0};
    struct store_server *srv;
    _buf_ struct buf in = {0};
    int fds[3];

    uv_loop_init(&loop);
    srv = net_serve(&loop, &config, &refused);
    buf_append(&in, net_validate, 5);
    net_put_wait(&in, "k");
    for (int i = 0; i < 3; i++) {
        fds[i] = net_dial(srv);
    }
    net_send(&loop, fds[0], in.data, in.len);
    net_send(&loop, fds[1], in.data, in.len - 1);
    net_until_waiting(&loop, srv, 1);
    net_stop(&loop, srv);
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
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
    return tap_done();
}
