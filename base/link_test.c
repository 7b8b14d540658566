/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/link.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint8_t key[CHANNEL_KEY_BYTES] = {9};
static const uint8_t other_key[CHANNEL_KEY_BYTES] = {8};

/* What both ends saw. */
struct world {
    uv_loop_t loop;
    struct link_listener *listener;
    struct link *accepted;
    struct link *connector;
    int n_up, n_down, n_peers;
    size_t bytes;
    int last_type;
    char why[256];
    bool close_on_frame;
    int stop_after; /* frames */
    int n_frames;
};

static void on_up(struct link *l, void *ctx)
{
    (void)l;
    ((struct world *)ctx)->n_up++;
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct world *w = ctx;

    w->bytes += f->len;
    w->last_type = f->type;
    w->n_frames++;
    if (w->close_on_frame) {
        link_close(l);
        if (l == w->accepted) {
            w->accepted = NULL;
        }
    }
    if (w->n_frames == w->stop_after) {
        uv_stop(&w->loop);
    }
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    struct world *w = ctx;

    (void)l;
    (void)closed;
    if (w->n_down++ == 0) {
        str_copy(w->why, sizeof(w->why), why->text);
    }
    uv_stop(&w->loop);
}

static const struct link_ops ops = {
    .on_up = on_up, .on_frame = on_frame, .on_down = on_down,
};

static void on_peer(struct link *l, const struct channel_frame *first,
                    void *ctx)
{
    struct world *w = ctx;

    w->n_peers++;
    w->accepted = l;
    link_adopt(l, &ops, w);
    on_frame(l, first, w);
}

static void on_give_up(uv_timer_t *t)
{
    diag("test deadline");
    uv_stop(t->loop);
}

static void run(struct world *w)
{
    uv_timer_t deadline;

    uv_timer_init(&w->loop, &deadline);
    uv_timer_start(&deadline, on_give_up, 60000, 0);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

static void world_open(struct world *w)
{
    struct error e = {0};

    memset(w, 0, sizeof(*w));
    uv_loop_init(&w->loop);
    if (link_listen(&w->loop, true, &w->listener, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void dial(struct world *w, const uint8_t *with_key, uint16_t port)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {.addrs = addrs, .port = port,
                                 .timeout_ms = 30000};

    link_connect(&w->loop, &target, with_key, &ops, w, &w->connector, NULL);
}

/* Both ends are there; the first frame was the connector's. */
static void meet(struct world *w)
{
    link_listener_open(w->listener, key, on_peer, w);
    dial(w, key, link_listener_port(w->listener));
    link_send(w->connector, 1, "x", 1);
    w->stop_after = 1;
    run(w);
}

static void world_close(struct world *w)
{
    link_close(w->accepted);
    link_close(w->connector);
    link_listener_close(w->listener);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&w->loop), 0, "nothing is left on the loop");
}

static void test_frames(void)
{
    struct world w;
    static char big[1 << 20];

    world_open(&w);
    dial(&w, key, link_listener_port(w.listener));
    for (int i = 0; i < 1000; i++) {
        link_send(w.connector, 3, "0123456789", 10);
    }
    link_send(w.connector, 4, big, sizeof(big));
    link_listener_open(w.listener, key, on_peer, &w);
    w.stop_after = 1001;
    run(&w);
    is_int(w.n_peers, 1, "one peer");
    is_int(w.n_frames, 1001, "every frame");
    is_int((intmax_t)w.bytes, 10000 + (1 << 20), "every byte");
    is_int(w.last_type, 4, "in order");
    is_str(link_peer(w.accepted), "127.0.0.1", "peer's address");
    w.stop_after = w.n_frames + 1;
    link_send(w.accepted, 5, "back", 4);
    run(&w);
    is_int(w.last_type, 5, "and the other way");
    world_close(&w);
}

static void dial_local(struct world *w, const uint8_t *with_key,
                       const char *name, uint16_t port)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {.addrs = addrs, .local_name = name,
                                 .port = port, .timeout_ms = 60000};

    link_connect(&w->loop, &target, with_key, &ops, w, &w->connector, NULL);
}

static void test_local(void)
{
    static char big[3 << 20];
    struct world w;
    struct buf *b;

    world_open(&w);
    ok(link_listener_open_local(w.listener, "test") < 0, "not without the key");
    link_listener_open(w.listener, key, on_peer, &w);
    is_int(link_listener_open_local(w.listener, "test"), 0, "a local name");
    dial_local(&w, key, "test", link_listener_port(w.listener));
    is_int(w.n_up, 0, "up is told from the loop");
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    run(&w);
    is_str(link_peer(w.accepted), "this host", "a process of this host");
    is_str(link_peer(w.connector), "this host", "and so is the other");
    link_send(w.accepted, 2, "y", 1); /* a first frame is held to be small */
    link_send(w.accepted, 2, big, sizeof(big));
    b = link_begin(w.accepted, 3);
    buf_append(b, big, sizeof(big));
    is_int(link_end(w.accepted), 0, "a frame in place");
    w.stop_after = 4;
    run(&w);
    is_int((intmax_t)w.bytes, 2 + 2 * (intmax_t)sizeof(big), "every byte");
    is_int(w.last_type, 3, "in order");
    world_close(&w);
}

/* Others who run on this host have other keys, or listen at other ports. */
static void test_local_elsewhere(void)
{
    static const struct { const char *name; const uint8_t *key; } c[] = {
        {"another", key}, {"test", other_key}, {"test", key},
    };

    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        struct link_listener *other = NULL;
        struct world w;

        world_open(&w);
        link_listen(&w.loop, true, &other, NULL);
        link_listener_open(other, c[i].key, on_peer, &w);
        link_listener_open_local(other, c[i].name);
        link_listener_open(w.listener, key, on_peer, &w);
        dial_local(&w, key, "test", link_listener_port(w.listener));
        link_send(w.connector, 1, "x", 1);
        w.stop_after = 1;
        run(&w);
        is_str(link_peer(w.accepted), "127.0.0.1", "by TCP to the right one");
        link_listener_close(other);
        world_close(&w);
    }
}

/* Answers the first frame; says a last one when it is told to, and is gone. */
static _Noreturn void short_life(int port_fd, int go_fd)
{
    struct world w;
    uint16_t port;
    char go;

    world_open(&w);
    link_listener_open(w.listener, key, on_peer, &w);
    link_listener_open_local(w.listener, "test");
    port = link_listener_port(w.listener);
    w.stop_after = 1;
    if (write(port_fd, &port, sizeof(port)) == sizeof(port)) {
        run(&w);
        link_send(w.accepted, 2, "here", 4);
        if (read(go_fd, &go, 1) == 1) {
            link_send(w.accepted, 8, "last words", 10);
        }
    }
    _exit(0);
}

/* Who writes to a process that has gone can read what that one said before. */
static void test_last_words_of_the_dead(void)
{
    int ports[2], go[2];
    struct world w;
    uint16_t port = 0;
    pid_t pid;

    if (pipe(ports) < 0 || pipe(go) < 0) {
        bail_out("pipe");
    }
    pid = fork();
    if (pid == 0) {
        short_life(ports[1], go[0]);
    }
    world_open(&w);
    if (read(ports[0], &port, sizeof(port)) != sizeof(port)) {
        bail_out("no word of the other process");
    }
    dial_local(&w, key, "test", port);
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    run(&w);
    is_str(link_peer(w.connector), "this host", "a process of this host");
    if (write(go[1], "x", 1) != 1 || waitpid(pid, NULL, 0) != pid) {
        bail_out("the other process does not end");
    }
    link_send(w.connector, 1, "to nobody", 9);
    w.stop_after = 0;
    run(&w);
    is_int(w.last_type, 8, "is gone, and its last words are read");
    is_int(w.n_down, 1, "then the link is down");
    like(w.why, "closed", "because it was closed");
    for (int i = 0; i < 2; i++) {
        close(ports[i]);
        close(go[i]);
    }
    world_close(&w);
}

static void test_goodbye_is_delivered(void)
{
    struct world w;

    world_open(&w);
    meet(&w);
    w.stop_after = 3;
    link_send(w.accepted, 2, "last", 4);
    link_send(w.accepted, 6, "words", 5);
    link_close(w.accepted);
    w.accepted = NULL;
    run(&w);
    is_int(w.last_type, 6, "what was queued before link_close() arrives");
    if (w.n_down == 0) {
        run(&w);
    }
    is_int(w.n_down, 1, "then the link is down");
    like(w.why, "closed", "because it was closed");
    world_close(&w);
}

static void test_wrong_key(void)
{
    struct world w;

    world_open(&w);
    link_listener_open(w.listener, key, on_peer, &w);
    dial(&w, other_key, link_listener_port(w.listener));
    link_send(w.connector, 1, "x", 1);
    run(&w);
    is_int(w.n_peers, 0, "a peer without the key is never seen");
    is_int(w.n_down, 1, "its link goes down");
    world_close(&w);
}

static void test_close_in_callback(void)
{
    struct world w;

    world_open(&w);
    link_listener_open(w.listener, key, on_peer, &w);
    dial(&w, key, link_listener_port(w.listener));
    w.close_on_frame = true;
    link_send(w.connector, 1, "x", 1);
    link_send(w.connector, 2, "y", 1);
    run(&w);
    is_int(w.n_frames, 1, "no frame after link_close()");
    world_close(&w);
}

static void test_nobody_there(void)
{
    struct world w;

    world_open(&w);
    dial(&w, key, 1);
    run(&w);
    is_int(w.n_down, 1, "refused");
    like(w.why, "connect to 127.0.0.1 port 1", "says where");
    world_close(&w);
}

/* The first address leads nowhere: the second one wins. */
static void test_second_address(void)
{
    struct world w;
    char *addrs[] = {(char *)"127.0.0.2", (char *)"127.0.0.1", NULL};
    struct link_target target = {.addrs = addrs, .timeout_ms = 5000};

    world_open(&w);
    target.port = link_listener_port(w.listener);
    link_listener_open(w.listener, key, on_peer, &w);
    link_connect(&w.loop, &target, key, &ops, &w, &w.connector, NULL);
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    run(&w);
    is_int(w.n_frames, 1, "came through another address");
    world_close(&w);
}

/* A connection that says nothing by itself, or -1. */
static int stranger(const struct world *w)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    _close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(link_listener_port(w->listener));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        return -1;
    }
    return take_fd(&fd);
}

/* A listener whose owner closes it while a stranger is half-way. */
static void test_stranger_outlives_listener(void)
{
    struct world w;
    int fd;

    world_open(&w);
    link_listener_open(w.listener, key, on_peer, &w);
    fd = stranger(&w);
    ok(fd >= 0, "stranger");
    ok(write(fd, "MSTR", 4) == 4, "half a preamble");
    for (int i = 0; i < 5; i++) {
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    link_listener_close(w.listener);
    for (int i = 0; i < 5; i++) {
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    w.listener = NULL;
    close(fd);
    world_close(&w);
}

enum { N_STRANGERS = 200 };

struct crowd {
    struct world *w;
    int fds[N_STRANGERS];
    int want; /* how many are to be closed */
    int n_closed;
    int n_turns;
};

static bool is_closed(int fd)
{
    char what[256];
    ssize_t n;

    do {
        n = recv(fd, what, sizeof(what), MSG_DONTWAIT);
    } while (n > 0);
    return n == 0 || errno == ECONNRESET;
}

/* What a peer may begin with: a greeting, and a frame of the largest length. */
static char drop_of(int at)
{
    static const char begin[] = "MSTR\0\2";
    static const char length[] = "\0\0\x20";
    int n = (int)sizeof(begin) - 1;

    return at < n ? begin[at] : at < n + 32 ? (char)(at + 1)
           : at < n + 35 ? length[at - n - 32] : 0;
}

/* Counts those that were hung up on. Every other one says a byte meanwhile. */
static void on_look(uv_timer_t *t)
{
    struct crowd *c = t->data;

    for (int i = 0; i < N_STRANGERS; i++) {
        char byte = drop_of(c->n_turns);

        if (c->fds[i] >= 0 && i % 2 &&
            send(c->fds[i], &byte, 1, MSG_NOSIGNAL) < 0) {
            /* It is closed, as the next lines see. */
        }
        if (c->fds[i] >= 0 && is_closed(c->fds[i])) {
            close_fd(&c->fds[i]);
            c->n_closed++;
        }
    }
    if (c->n_closed >= c->want || ++c->n_turns > 1200) {
        uv_stop(t->loop);
    }
}

static void wait_for_closed(struct crowd *c, int want)
{
    uv_timer_t look;

    c->want = want;
    uv_timer_init(&c->w->loop, &look);
    look.data = c;
    uv_timer_start(&look, on_look, 50, 50);
    uv_run(&c->w->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&look, NULL);
    uv_run(&c->w->loop, UV_RUN_NOWAIT);
}

/* Connections that say nothing, or a byte at a time: only so many are kept, and
 * none for ever. Who knows the key finds its place among them, and does not lose
 * it. */
static void test_crowd_of_strangers(void)
{
    struct world w;
    struct crowd c = {.w = &w};
    int n_refused;

    world_open(&w);
    link_listener_open(w.listener, key, on_peer, &w);
    for (int i = 0; i < N_STRANGERS; i++) {
        c.fds[i] = stranger(&w);
        if (c.fds[i] < 0) {
            bail_out("connect");
        }
    }
    wait_for_closed(&c, 1);
    n_refused = c.n_closed;
    ok(n_refused > 0 && n_refused < N_STRANGERS, "some of %d strangers at once "
       "are turned away (%d)", N_STRANGERS, n_refused);
    dial(&w, key, link_listener_port(w.listener));
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    run(&w);
    is_int(w.n_peers, 1, "a peer finds its place among them");
    if (w.accepted) {
        link_send(w.accepted, 2, "x", 1);
    }
    wait_for_closed(&c, N_STRANGERS);
    is_int(c.n_closed, N_STRANGERS, "those who show no key go in the end");
    is_str(w.n_down ? w.why : "", "", "the peer stays");
    world_close(&w);
}

static int count_fds(void)
{
    DIR *all = opendir("/proc/self/fd");
    int n = 0;

    while (all && readdir(all)) {
        n++;
    }
    if (all) {
        closedir(all);
    }
    return n;
}

enum { N_FLOOD = 4000, N_FLOOD_PEERS = 8 };

/* Opens connections as fast as they are taken, each left as it is, and stays. */
static _Noreturn void flood(struct world *w, int n_kept)
{
    int kept[64];

    for (int i = 0; i < N_FLOOD; i++) {
        int fd = stranger(w);

        if (fd >= 0 && write(fd, "MSTR", 4) < 0) {
            close_fd(&fd);
        }
        if (i >= n_kept && kept[i % n_kept] >= 0) {
            close(kept[i % n_kept]);
        }
        kept[i % n_kept] = fd;
    }
    pause();
    _exit(0);
}

/* Thousands of them, one after the other: descriptors stay few, and peers that
 * come meanwhile get in, one after the other, at the first try. */
static void test_flood(void)
{
    struct world w;
    int most = 0, n_met = 0;
    pid_t pid;

    world_open(&w);
    link_listener_open(w.listener, key, on_peer, &w);
    pid = fork();
    if (pid == 0) {
        flood(&w, 64);
    }
    for (int i = 0; i < N_FLOOD_PEERS; i++) {
        int n;

        w.n_frames = 0;
        w.n_down = 0;
        dial(&w, key, link_listener_port(w.listener));
        link_send(w.connector, 1, "x", 1);
        w.stop_after = 1;
        run(&w);
        n_met += w.n_frames == 1 && w.n_down == 0;
        n = count_fds();
        most = n > most ? n : most;
        link_close(w.accepted);
        link_close(w.connector);
        w.accepted = w.connector = NULL;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    is_int(n_met, N_FLOOD_PEERS, "peers get in beside a flood of strangers");
    ok(most < 300, "at most %d descriptors are open", most);
    world_close(&w);
}

/* Between a peer and the listener: passes all on, and what the peer says to
 * `record` as well. */
static _Noreturn void spy(int from, uint16_t to_port, int record)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(to_port)};
    int peer = accept(from, NULL, NULL);
    int fds[2] = {peer, socket(AF_INET, SOCK_STREAM, 0)};
    char data[4096];

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fds[1], (struct sockaddr *)&to, sizeof(to)) < 0) {
        _exit(1);
    }
    for (;;) {
        struct pollfd p[2] = {{.fd = fds[0], .events = POLLIN},
                              {.fd = fds[1], .events = POLLIN}};

        poll(p, 2, -1);
        for (int i = 0; i < 2; i++) {
            ssize_t n = p[i].revents ? read(fds[i], data, sizeof(data)) : 0;

            if (p[i].revents && n <= 0) {
                _exit(0);
            }
            if (n > 0 && (write(fds[!i], data, (size_t)n) < n ||
                          (i == 0 && write(record, data, (size_t)n) < n))) {
                _exit(1);
            }
        }
    }
}

static int listen_local(uint16_t *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t len = sizeof(sa);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 4) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &len) < 0) {
        bail_out("listen");
    }
    *ret_port = ntohs(sa.sin_port);
    return fd;
}

/* All that a peer has said, said again by who has recorded it. */
static void test_replay(void)
{
    struct world w;
    struct crowd c = {.w = &w};
    int record[2], from;
    char data[65536];
    uint16_t port;
    ssize_t n;
    pid_t pid;

    world_open(&w);
    link_listener_open(w.listener, key, on_peer, &w);
    from = listen_local(&port);
    if (pipe(record) < 0) {
        bail_out("pipe");
    }
    pid = fork();
    if (pid == 0) {
        spy(from, link_listener_port(w.listener), record[1]);
    }
    close(from);
    close(record[1]);
    dial(&w, key, port);
    link_send(w.connector, 1, "x", 1);
    link_send(w.connector, 2, "more", 4);
    w.stop_after = 2;
    run(&w);
    is_int(w.n_frames, 2, "two frames of a peer");
    n = read(record[0], data, sizeof(data));
    link_close(w.accepted);
    link_close(w.connector);
    w.accepted = w.connector = NULL;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(record[0]);
    ok(n > 38, "and all %zd bytes of them, recorded", n);
    for (int i = 0; i < N_STRANGERS; i++) {
        c.fds[i] = -1;
    }
    c.fds[0] = stranger(&w);
    is_int((int)send(c.fds[0], data, (size_t)n, MSG_NOSIGNAL), (int)n,
           "they are said again");
    wait_for_closed(&c, 1);
    is_int(c.n_closed, 1, "who says them is hung up on");
    is_int(w.n_peers, 1, "and is no peer");
    is_int(w.n_frames, 2, "nor is a frame taken");
    world_close(&w);
}

/* The kernel takes the connection; nobody answers. */
static void test_mute_peer(void)
{
    struct world w;
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {.addrs = addrs, .timeout_ms = 100};

    world_open(&w);
    target.port = link_listener_port(w.listener);
    link_connect(&w.loop, &target, key, &ops, &w, &w.connector, NULL);
    run(&w);
    is_int(w.n_up, 1, "connected");
    is_int(w.n_down, 1, "a peer that never says a word is given up");
    like(w.why, "does not answer", "with the reason");
    world_close(&w);
}

/* The peer never reads: what waits for it is bounded. */
static void test_peer_does_not_read(void)
{
    struct world w;
    static char big[1 << 20];
    int n = 0;

    world_open(&w);
    meet(&w);
    /* No turn of the loop: nobody reads at the other end. */
    while (n < 1000 && link_send(w.accepted, 2, big, sizeof(big)) == 0) {
        n++;
    }
    ok(n > 32 && n < 100, "the queue is bounded (%d MiB)", n);
    run(&w);
    like(w.why, "does not read", "then the link is given up");
    world_close(&w);
}

/* An end that closes while it has not read all that came, with more on its way
 * than the other end has room for: that must arrive all the same. */
static void test_close_with_unread(void)
{
    enum { FRAME_BYTES = 256 << 10, N_FRAMES = 6 };
    static char big[FRAME_BYTES];
    struct world w;

    world_open(&w);
    meet(&w);
    link_send(w.accepted, 2, "y", 1);
    w.stop_after = 2;
    run(&w);
    is_int(w.last_type, 2, "two that have met");
    w.bytes = 0;
    w.stop_after = 2 + N_FRAMES;
    link_send(w.connector, 3, "unread", 6);
    for (int i = 0; i < N_FRAMES; i++) {
        link_send(w.accepted, 7, big, sizeof(big));
    }
    link_close(w.accepted);
    w.accepted = NULL;
    run(&w);
    is_int((intmax_t)w.bytes, (intmax_t)N_FRAMES * FRAME_BYTES,
           "all last words arrive: %s", w.why);
    world_close(&w);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_frames();
    test_local();
    test_local_elsewhere();
    test_last_words_of_the_dead();
    test_goodbye_is_delivered();
    test_close_with_unread();
    test_wrong_key();
    test_close_in_callback();
    test_nobody_there();
    test_second_address();
    test_stranger_outlives_listener();
    test_crowd_of_strangers();
    test_flood();
    test_replay();
    test_mute_peer();
    test_peer_does_not_read();
    return tap_done();
}
