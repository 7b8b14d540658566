/* SPDX-License-Identifier: Apache-2.0 */
/* Who comes to a listener and has no place there: without the key, silent, in
 * crowds, or with what others have said. */
#include <config.h>

#include "base/cleanup.h"
#include "base/link_bed.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_wrong_key(void)
{
    struct world w;

    world_open(&w);
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    world_dial(&w, world_other_key, link_listener_port(w.listener));
    link_send(w.connector, 1, "x", 1);
    world_run(&w);
    is_int(w.n_peers, 0, "a peer without the key is never seen");
    is_int(w.n_down, 1, "its link goes down");
    world_close(&w);
}

/* A listener whose owner closes it while a stranger is half-way. */
static void test_stranger_outlives_listener(void)
{
    struct world w;
    int fd;

    world_open(&w);
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    fd = world_stranger(&w);
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
    static const char begin[] = "MSTR\0\3\1";
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
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    for (int i = 0; i < N_STRANGERS; i++) {
        c.fds[i] = world_stranger(&w);
        if (c.fds[i] < 0) {
            bail_out("connect");
        }
    }
    wait_for_closed(&c, 1);
    n_refused = c.n_closed;
    ok(n_refused > 0 && n_refused < N_STRANGERS, "some of %d strangers at once "
       "are turned away (%d)", N_STRANGERS, n_refused);
    world_dial(&w, world_key, link_listener_port(w.listener));
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    world_run(&w);
    is_int(w.n_peers, 1, "a peer finds its place among them");
    if (w.accepted) {
        link_send(w.accepted, 2, "x", 1);
    }
    wait_for_closed(&c, N_STRANGERS);
    is_int(c.n_closed, N_STRANGERS, "those who show no key go in the end");
    is_str(w.n_down ? w.why : "", "", "the peer stays");
    world_close(&w);
}

enum { N_FLOOD = 4000, N_FLOOD_PEERS = 8 };

/* Opens connections as fast as they are taken, each left as it is, and stays. */
static _Noreturn void flood(struct world *w, int n_kept)
{
    int kept[64];

    for (int i = 0; i < N_FLOOD; i++) {
        int fd = world_stranger(w);

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
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    pid = fork();
    if (pid == 0) {
        flood(&w, 64);
    }
    for (int i = 0; i < N_FLOOD_PEERS; i++) {
        int n;

        w.n_frames = 0;
        w.n_down = 0;
        world_dial(&w, world_key, link_listener_port(w.listener));
        link_send(w.connector, 1, "x", 1);
        w.stop_after = 1;
        world_run(&w);
        n_met += w.n_frames == 1 && w.n_down == 0;
        n = fds_n_open();
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
    ssize_t n, more = 1;
    pid_t pid;

    world_open(&w);
    link_listener_open(w.listener, world_key, world_on_peer, &w);
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
    world_dial(&w, world_key, port);
    link_send(w.connector, 1, "x", 1);
    link_send(w.connector, 2, "more", 4);
    w.stop_after = 2;
    world_run(&w);
    is_int(w.n_frames, 2, "two frames of a peer");
    n = read(record[0], data, sizeof(data));
    while (n > 0 && n <= 39 && more > 0) { /* it is recorded once it has gone on */
        more = read(record[0], data + n, sizeof(data) - (size_t)n);
        n += more > 0 ? more : 0;
    }
    link_close(w.accepted);
    link_close(w.connector);
    w.accepted = w.connector = NULL;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(record[0]);
    ok(n > 39, "and all %zd bytes of them, recorded", n);
    for (int i = 0; i < N_STRANGERS; i++) {
        c.fds[i] = -1;
    }
    c.fds[0] = world_stranger(&w);
    is_int((int)send(c.fds[0], data, (size_t)n, MSG_NOSIGNAL), (int)n,
           "they are said again");
    wait_for_closed(&c, 1);
    is_int(c.n_closed, 1, "who says them is hung up on");
    is_int(w.n_peers, 1, "and is no peer");
    is_int(w.n_frames, 2, "nor is a frame taken");
    world_close(&w);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_wrong_key();
    test_stranger_outlives_listener();
    test_crowd_of_strangers();
    test_flood();
    test_replay();
    return tap_done();
}
