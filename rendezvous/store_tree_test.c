/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that pass requests on to another one, over trunks, on loopback. */
#include <config.h>

#include "rendezvous/store_frame.h"
#include "rendezvous/store_line.h"
#include "rendezvous/store_net_bed.h"
#include "rendezvous/store_wire.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t key[CHANNEL_KEY_BYTES] = {7};
static char *const loopback[] = {(char *)"127.0.0.1", NULL};

enum { GENERATION = 3, TRUNK_MS = 1000, MAX_CHANNELS = 8 };

/* The node with the keys, and another one. */
struct world {
    uv_loop_t loop;
    struct link_listener *trunks;
    struct store_server *keys;
    struct store_server *node;
    struct net_refusals at_keys, at_node;
    uint32_t generation; /* that is there */
    int n_turned_away;

    /* Instead of the keys, a peer that does as the test says. */
    bool is_rogue;
    struct link *rogue;
    size_t n_bytes; /* that it got */
    bool takes_all; /* and says so, as if all requests were done */
    struct store_frames frames;
    size_t credit[MAX_CHANNELS];
};

static void give_credit(struct world *w, struct link *l, uint32_t channel)
{
    _buf_ struct buf word = {0};

    store_frame_put(&word, STORE_CONTROL_CHANNEL, 0, 1 + sizeof(channel));
    buf_putc(&word, STORE_MORE);
    buf_append(&word, &channel, sizeof(channel));
    link_send_buf(l, STORE_LINE_DATA, &word);
    w->credit[channel] -= STORE_CREDIT_BYTES;
}

static void on_rogue_frame(struct link *l, const struct channel_frame *f,
                           void *ctx)
{
    struct world *w = ctx;
    const char *at = (const char *)f->data, *part;
    size_t left = f->len, len;

    w->n_bytes += f->len;
    while (w->takes_all &&
           store_frames_next(&w->frames, &at, &left, &part, &len)) {
        uint32_t channel = w->frames.frame.channel;

        if (channel >= MAX_CHANNELS) {
            bail_out("channel %u", channel);
        }
        w->credit[channel] += len;
        while (w->credit[channel] >= STORE_CREDIT_BYTES) {
            give_credit(w, l, channel);
        }
    }
}

static void on_rogue_up(struct link *l, void *ctx)
{
    (void)l;
    (void)ctx;
}

static void on_rogue_down(struct link *l, bool closed, const struct error *why,
                          void *ctx)
{
    struct world *w = ctx;

    (void)closed;
    (void)why;
    link_close(l);
    w->rogue = NULL;
}

static const struct link_ops rogue_ops = {
    .on_up = on_rogue_up,
    .on_frame = on_rogue_frame,
    .on_down = on_rogue_down,
};

/* As an agent does: those who know the key, and come for that. */
static void on_peer(struct link *l, const struct channel_frame *first,
                    void *ctx)
{
    struct world *w = ctx;
    struct store_hello h;

    if (!store_hello_decode(first, &h) || h.generation != w->generation) {
        w->n_turned_away++;
        link_close(l);
    } else if (w->is_rogue) {
        w->rogue = l;
        link_adopt(l, &rogue_ops, w);
        link_send(l, STORE_LINE_WELCOME, NULL, 0);
    } else {
        store_server_add_trunk(w->keys, l, h.rank);
    }
}

static struct store_server *serve_node(struct world *w)
{
    struct store_upstream to = {.addrs = loopback,
                                .port = link_listener_port(w->trunks),
                                .key = key, .rank = 1,
                                .generation = GENERATION};
    struct store_config config = {.upstream = &to};

    return net_serve(&w->loop, &config, &w->at_node);
}

static void begin(struct world *w)
{
    struct store_config config = {.trunk_timeout_ms = TRUNK_MS};

    memset(w, 0, sizeof(*w));
    w->generation = GENERATION;
    uv_loop_init(&w->loop);
    w->keys = net_serve(&w->loop, &config, &w->at_keys);
    if (link_listen(&w->loop, true, &w->trunks, NULL) < 0) {
        bail_out("cannot listen");
    }
    link_listener_open(w->trunks, key, on_peer, w);
    w->node = serve_node(w);
}

static void end(struct world *w)
{
    link_listener_close(w->trunks);
    if (w->rogue) {
        link_close(w->rogue);
    }
    store_server_destroy(w->keys, NULL, NULL);
    net_stop(&w->loop, w->node);
}

static int open_client(struct world *w, struct store_server *srv)
{
    int fd = net_dial(srv);

    net_send(&w->loop, fd, net_validate, 5);
    return fd;
}

static void ask(struct world *w, int fd, char command, const char *name,
                const char *value)
{
    _buf_ struct buf in = {0};

    net_put(&in, command, name, value);
    net_send(&w->loop, fd, in.data, in.len);
}

/* Until what has come is what was waited for. */
static void run_until(struct world *w, const int *n, int least)
{
    for (int i = 0; i < 1000000 && *n < least; i++) {
        uv_run(&w->loop, UV_RUN_ONCE);
    }
}

static size_t used_bytes(const struct store_server *srv)
{
    struct store_stats stats;

    store_server_stats(srv, &stats);
    return stats.used_bytes;
}

/* A value beyond what a trunk holds back, there and back. */
static bool pass_large(struct world *w, int fd)
{
    enum { LARGE = 5 << 20 };
    _free_ char *value = malloc(LARGE + 1), *back = malloc(8 + LARGE);

    if (!value || !back) {
        bail_out("no memory");
    }
    memset(value, 'v', LARGE);
    value[LARGE] = '\0';
    ask(w, fd, 1, "large", value);
    ask(w, fd, 3, "large", NULL);
    return net_receive(&w->loop, fd, back, 8 + LARGE) == 8 + LARGE &&
           memcmp(back + 8, value, LARGE) == 0;
}

static void test_tree(void)
{
    struct world w;
    struct store_stats stats;
    _buf_ struct buf in = {0};
    int a, b;

    begin(&w);
    a = open_client(&w, w.node);
    b = open_client(&w, w.node);
    ok(pass_large(&w, a) && pass_large(&w, b), "5 MiB, there and back");
    store_server_stats(w.keys, &stats);
    is_int((intmax_t)stats.n_conns, 2, "two channels");
    is_int((intmax_t)store_server_trunks(w.keys), 1, "of one trunk");
    close(a);
    net_put_wait(&in, "never");
    net_send(&w.loop, b, in.data, in.len);
    ok(net_until_waiting(&w.loop, w.keys, 1), "a wait arrives");
    store_server_destroy(w.keys, NULL, NULL);
    w.keys = NULL;
    ok(net_is_closed(&w.loop, b), "without keys there is no store");
    is_int(w.at_node.n, 0, "which is no refusal");
    close(b);
    b = net_dial(w.node);
    ok(net_is_closed(&w.loop, b), "nor is there one later");
    close(b);
    end(&w);
}

/* The keys are of a generation that this node is not in yet. */
static void test_generations(void)
{
    struct world w;
    char answer[13];
    int a;

    begin(&w);
    w.generation = GENERATION - 1;
    a = open_client(&w, w.node);
    ask(&w, a, 1, "k", "value");
    ask(&w, a, 3, "k", NULL);
    run_until(&w, &w.n_turned_away, 2);
    is_int(w.n_turned_away, 2, "of another generation, and tried again");
    is_int((intmax_t)store_server_trunks(w.keys), 0, "that is no trunk");
    w.generation = GENERATION;
    ok(net_receive(&w.loop, a, answer, 13) == 13 &&
       memcmp(answer + 8, "value", 5) == 0,
       "what was asked meanwhile is answered in the right one");
    close(a);
    end(&w);
}

/* A clean store for the next generation: whoever waits in this one is out. */
static void test_reset(void)
{
    struct world w;
    struct store_stats stats;
    _buf_ struct buf in = {0};
    int a;

    begin(&w);
    a = open_client(&w, w.node);
    ask(&w, a, 1, "old", "value");
    net_put_wait(&in, "never");
    net_send(&w.loop, a, in.data, in.len);
    ok(net_until_waiting(&w.loop, w.keys, 1), "a wait arrives");
    store_server_reset(w.keys);
    ok(net_is_closed(&w.loop, a), "and ends with the generation");
    store_server_stats(w.keys, &stats);
    is_int((intmax_t)(stats.n_keys + stats.n_waiting + stats.n_conns), 0,
           "of which nothing is left");
    close(a);
    end(&w);
}

static void test_two_of_one(void)
{
    struct world w;
    struct store_server *again;
    char answer[9];
    int a, b;

    begin(&w);
    a = open_client(&w, w.node);
    ask(&w, a, 1, "k", "v");
    ask(&w, a, 3, "k", NULL);
    ok(net_receive(&w.loop, a, answer, 9) == 9, "a trunk of node 1");
    again = serve_node(&w);
    b = open_client(&w, again);
    ask(&w, b, 3, "k", NULL);
    ok(net_receive(&w.loop, b, answer, 9) == 9, "another one");
    ok(net_is_closed(&w.loop, a), "takes the place of the first");
    is_int((intmax_t)store_server_trunks(w.keys), 1, "a node has one");
    close(a);
    close(b);
    store_server_destroy(again, NULL, NULL);
    end(&w);
}

/* The trunk ends in the middle of a frame. */
static void test_cut(void)
{
    struct world w;
    char byte;
    int a;
    _buf_ struct buf part = {0};

    begin(&w);
    w.is_rogue = true;
    a = open_client(&w, w.node);
    ask(&w, a, 3, "k", NULL);
    while (w.n_bytes == 0) {
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    store_frame_put(&part, 0, 1, 100);
    buf_puts(&part, "only a part of it");
    link_send_buf(w.rogue, STORE_LINE_DATA, &part);
    ok(net_receive(&w.loop, a, &byte, 1) == 1, "what came of it is passed on");
    link_close(w.rogue);
    w.rogue = NULL;
    while (net_receive(&w.loop, a, &byte, 1) == 1) {
    }
    ok(net_is_closed(&w.loop, a), "and that is the end of the client");
    close(a);
    end(&w);
}

static void is_lost_by(uint16_t type, const char *data, size_t len,
                       const char *name)
{
    struct world w;
    int a;

    begin(&w);
    w.is_rogue = true;
    a = open_client(&w, w.node);
    ask(&w, a, 3, "k", NULL);
    while (w.n_bytes == 0) {
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    link_send(w.rogue, type, data, len);
    ok(net_is_closed(&w.loop, a), "%s from the keys", name);
    close(a);
    end(&w);
}

static struct link *connect_rogue(struct world *w)
{
    struct link *l = NULL;
    struct link_target to = {.addrs = loopback, .timeout_ms = NET_WAIT_MS,
                             .port = link_listener_port(w->trunks)};
    struct store_hello h = {.rank = 2, .generation = GENERATION};
    _buf_ struct buf hello = {0};

    if (link_connect(&w->loop, &to, key, &rogue_ops, w, &l, NULL) < 0) {
        bail_out("cannot connect");
    }
    w->rogue = l;
    store_hello_encode(&h, &hello);
    link_send_buf(l, STORE_LINE_HELLO, &hello);
    return l;
}

/* What a trunk must not carry: the end of that trunk, and of nothing else. */
static void is_refused(uint16_t type, const char *data, size_t len,
                       const char *why)
{
    struct world w;
    int a;
    char answer[9];

    begin(&w);
    link_send(connect_rogue(&w), type, data, len);
    run_until(&w, &w.at_keys.n, 1);
    like(w.at_keys.why, why, "told");
    a = open_client(&w, w.node);
    ask(&w, a, 1, "k", "v");
    ask(&w, a, 3, "k", NULL);
    ok(net_receive(&w.loop, a, answer, 9) == 9, "others do not notice");
    close(a);
    end(&w);
}

/* An agent that is stopped, after it was told the value of "k". */
static void stop_another(struct world *w)
{
    _buf_ struct buf frame = {0}, get = {0};

    connect_rogue(w);
    net_put(&get, 3, "k", NULL);
    store_frame_put(&frame, 0, 0, (uint32_t)get.len);
    buf_append(&frame, get.data, get.len);
    link_send_buf(w->rogue, STORE_LINE_DATA, &frame);
    for (size_t least = 2 * STORE_FRAME_BYTES + 2 * 9; w->n_bytes < least;) {
        uv_run(&w->loop, UV_RUN_ONCE);
    }
}

/* It does not say that it has dropped what a client of the keys' own node, and one of
 * another, change. */
static void test_stopped(void)
{
    struct world w;
    char answer[10];
    int a, b;

    begin(&w);
    a = open_client(&w, w.node);
    b = open_client(&w, w.keys);
    ask(&w, a, 1, "k", "v");
    ask(&w, a, 3, "k", NULL);
    ok(net_receive(&w.loop, a, answer, 9) == 9, "a value, kept at a node");
    stop_another(&w);
    ask(&w, b, 1, "k", "v2");
    ask(&w, a, 1, "k", "v3");
    ask(&w, b, 3, "k", NULL);
    ok(net_receive(&w.loop, b, answer, 10) == 10 && answer[8] == 'v' &&
       (answer[9] == '2' || answer[9] == '3'),
       "changes do not wait for it for ever");
    is_int(w.at_keys.n, 1, "it is closed instead");
    like(w.at_keys.why, "does not say that it has dropped", "and why");
    ask(&w, a, 3, "k", NULL);
    ok(net_receive(&w.loop, a, answer, 10) == 10 && answer[9] == '3',
       "others go on");
    is_int((intmax_t)store_server_trunks(w.keys), 1, "with their trunk");
    close(a);
    close(b);
    end(&w);
}

static void test_hostile(void)
{
    static const char close_none[STORE_FRAME_BYTES] = {0, 0, 0, 3};
    static const char beyond[STORE_FRAME_BYTES + 1] = {
        [1] = 1, [STORE_FRAME_BYTES - 1] = 1};

    is_refused(99, "x", 1, "a frame of type 99 on a trunk");
    is_refused(STORE_LINE_DATA, close_none, sizeof(close_none),
               "closes what is not open");
    is_refused(STORE_LINE_DATA, beyond, sizeof(beyond), "channel 65536");
    is_lost_by(99, "x", 1, "a frame of another type");
    is_lost_by(STORE_LINE_DATA, close_none, sizeof(close_none),
               "an answer to nobody");
    is_lost_by(STORE_LINE_WELCOME, "", 0, "a second welcome");
}

enum { N_PUSHERS = 4, PUSH_BYTES = 256 * 1024, N_PUSHES = 64 };

/* Sends what the sockets take; true if that was anything. */
static bool push(struct world *w, const int *fds, size_t *at,
                 const struct buf *in)
{
    size_t total = (in->len - 5) * N_PUSHES;
    bool any = false;

    for (int i = 0; i < N_PUSHERS; i++) {
        size_t in_one = at[i] % (in->len - 5);
        ssize_t n = at[i] < total
                        ? send(fds[i], in->data + 5 + in_one,
                               in->len - 5 - in_one, MSG_NOSIGNAL)
                        : 0;

        at[i] += n > 0 ? (size_t)n : 0;
        any = any || n > 0;
    }
    uv_run(&w->loop, UV_RUN_NOWAIT);
    return any;
}

/* Clients that change it again and again meanwhile have to wait, and nothing piles
 * up. */
static void test_pile(void)
{
    struct world w;
    _buf_ struct buf in = {0};
    char value[PUSH_BYTES];
    int fds[N_PUSHERS], a;
    size_t at[N_PUSHERS] = {0}, most = 0, now;
    bool more = true;

    begin(&w);
    a = open_client(&w, w.keys);
    ask(&w, a, 1, "k", "v");
    stop_another(&w);
    for (int i = 0; i < N_PUSHERS; i++) {
        fds[i] = open_client(&w, w.node);
    }
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    buf_append(&in, "first", 5);
    net_put(&in, 1, "k", value);
    while (w.at_keys.n == 0) {
        push(&w, fds, at, &in);
        now = used_bytes(w.keys);
        most = now > most ? now : most;
    }
    ok(most < N_PUSHERS * (STORE_WINDOW_BYTES + 2 * PUSH_BYTES),
       "%zu bytes wait where the keys are", most);
    like(w.at_keys.why, "does not say that it has dropped", "for one that is closed");
    while (more) {
        push(&w, fds, at, &in);
        more = false;
        for (int i = 0; i < N_PUSHERS; i++) {
            more = more || at[i] < (in.len - 5) * N_PUSHES;
        }
    }
    for (int i = 0; i < N_PUSHERS; i++) {
        char answer[8];

        ask(&w, fds[i], 16, "none", NULL);
        ok(net_receive(&w.loop, fds[i], answer, 8) == 8, "then all is done");
        close(fds[i]);
    }
    close(a);
    end(&w);
}

/* The keys' node does not read: who asks has to wait, and nothing piles up. */
static void test_slow_trunk(void)
{
    struct world w;
    _buf_ struct buf in = {0};
    char value[PUSH_BYTES];
    int fds[N_PUSHERS];
    size_t at[N_PUSHERS] = {0}, sent = 0, most = 0, now;
    int idle = 0;

    begin(&w);
    w.is_rogue = w.takes_all = true;
    for (int i = 0; i < N_PUSHERS; i++) {
        fds[i] = open_client(&w, w.node);
    }
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    buf_append(&in, "first", 5);
    net_put(&in, 1, "k", value);
    while (!w.rogue) {
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    link_hold(w.rogue, true);
    while (idle < 1000) {
        idle = push(&w, fds, at, &in) ? 0 : idle + 1;
        now = used_bytes(w.node);
        most = now > most ? now : most;
    }
    for (int i = 0; i < N_PUSHERS; i++) {
        sent += at[i];
    }
    ok(sent < (in.len - 5) * N_PUSHES * N_PUSHERS, "they are held back");
    ok(most < 4 << 20, "with %zu bytes here of %zu", most, sent);
    link_hold(w.rogue, false);
    sent = (in.len - 5 + STORE_FRAME_BYTES) * N_PUSHES * N_PUSHERS;
    for (idle = 0; w.n_bytes < sent && idle < 1000000; idle++) {
        push(&w, fds, at, &in);
    }
    is_int((intmax_t)w.n_bytes, (intmax_t)sent, "all goes on when it reads");
    for (int i = 0; i < N_PUSHERS; i++) {
        close(fds[i]);
    }
    end(&w);
}

/* A client that asks for more than it reads. */
static void test_never_reads(void)
{
    enum { N = 200, VALUE = 1 << 20 };
    struct world w;
    _free_ char *value = calloc(1, VALUE + 1), *back = malloc(VALUE + 8);
    _buf_ struct buf in = {0};
    size_t most = 0, now;
    bool all = true;
    int a;

    if (!value || !back) {
        bail_out("no memory");
    }
    begin(&w);
    a = open_client(&w, w.node);
    memset(value, 'v', VALUE);
    ask(&w, a, 1, "k", value);
    for (int i = 0; i < N; i++) {
        net_put(&in, 3, "k", NULL);
    }
    net_send(&w.loop, a, in.data, in.len);
    for (int i = 0; i < 5000; i++) {
        uv_run(&w.loop, UV_RUN_NOWAIT);
        now = used_bytes(w.node);
        most = now > most ? now : most;
    }
    ok(most < 32 << 20, "%zu bytes wait for it", most);
    for (int i = 0; i < N && all; i++) {
        all = net_receive(&w.loop, a, back, VALUE + 8) == VALUE + 8 &&
              memcmp(back + 8, value, VALUE) == 0;
    }
    ok(all, "it gets all of them when it reads");
    close(a);
    end(&w);
}

int main(void)
{
    const uint16_t probe = 1;

    if (*(const uint8_t *)&probe != 1) {
        skip("the bytes in this test are those of a little-endian machine");
        return tap_done();
    }
    test_tree();
    test_generations();
    test_reset();
    test_two_of_one();
    test_cut();
    test_hostile();
    test_stopped();
    test_pile();
    test_slow_trunk();
    test_never_reads();
    return tap_done();
}
