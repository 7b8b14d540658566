/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/link_bed.h"
#include "tests/lib/tap.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_frames(void)
{
    struct world w;
    static char big[1 << 20];

    world_open(&w);
    world_dial(&w, world_key, link_listener_port(w.listener));
    for (int i = 0; i < 1000; i++) {
        link_send(w.connector, 3, "0123456789", 10);
    }
    link_send(w.connector, 4, big, sizeof(big));
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    w.stop_after = 1001;
    world_run(&w);
    is_int(w.n_peers, 1, "one peer");
    is_int(w.n_frames, 1001, "every frame");
    is_int((intmax_t)w.bytes, 10000 + (1 << 20), "every byte");
    is_int(w.last_type, 4, "in order");
    is_str(link_peer(w.accepted), "127.0.0.1", "peer's address");
    w.stop_after = w.n_frames + 1;
    link_send(w.accepted, 5, "back", 4);
    world_run(&w);
    is_int(w.last_type, 5, "and the other way");
    world_close(&w);
}

static void test_local(void)
{
    static char big[3 << 20];
    struct world w;
    struct buf *b;

    world_open(&w);
    ok(link_listener_open_local(w.listener, "test") < 0, "not without the key");
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    is_int(link_listener_open_local(w.listener, "test"), 0, "a local name");
    world_dial_local(&w, world_key, "test", link_listener_port(w.listener));
    is_int(w.n_up, 0, "up is told from the loop");
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    world_run(&w);
    is_str(link_peer(w.accepted), "this host", "a process of this host");
    is_str(link_peer(w.connector), "this host", "and so is the other");
    link_send(w.accepted, 2, "y", 1); /* a first frame is held to be small */
    link_send(w.accepted, 2, big, sizeof(big));
    b = link_begin(w.accepted, 3);
    buf_append(b, big, sizeof(big));
    is_int(link_end(w.accepted), 0, "a frame in place");
    w.stop_after = 4;
    world_run(&w);
    is_int((intmax_t)w.bytes, 2 + 2 * (intmax_t)sizeof(big), "every byte");
    is_int(w.last_type, 3, "in order");
    world_close(&w);
}

/* Others who run on this host have other keys, or listen at other ports. */
static void test_local_elsewhere(void)
{
    static const struct { const char *name; const uint8_t *key; } c[] = {
        {"another", world_key}, {"test", world_other_key},
        {"test", world_key},
    };

    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        struct link_listener *other = NULL;
        struct world w;

        world_open(&w);
        link_listen(&w.loop, true, &other, NULL);
        link_listener_open(other, c[i].key, world_on_peer, &w);
        link_listener_open_local(other, c[i].name);
        link_listener_open(w.listener, world_key, world_on_peer, &w);
        world_dial_local(&w, world_key, "test", link_listener_port(w.listener));
        link_send(w.connector, 1, "x", 1);
        w.stop_after = 1;
        world_run(&w);
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
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    link_listener_open_local(w.listener, "test");
    port = link_listener_port(w.listener);
    w.stop_after = 1;
    if (write(port_fd, &port, sizeof(port)) == sizeof(port)) {
        world_run(&w);
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
    world_dial_local(&w, world_key, "test", port);
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    world_run(&w);
    is_str(link_peer(w.connector), "this host", "a process of this host");
    if (write(go[1], "x", 1) != 1 || waitpid(pid, NULL, 0) != pid) {
        bail_out("the other process does not end");
    }
    link_send(w.connector, 1, "to nobody", 9);
    w.stop_after = 0;
    world_run(&w);
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
    world_meet(&w);
    w.stop_after = 3;
    link_send(w.accepted, 2, "last", 4);
    link_send(w.accepted, 6, "words", 5);
    link_close(w.accepted);
    w.accepted = NULL;
    world_run(&w);
    is_int(w.last_type, 6, "what was queued before link_close() arrives");
    if (w.n_down == 0) {
        world_run(&w);
    }
    is_int(w.n_down, 1, "then the link is down");
    like(w.why, "closed", "because it was closed");
    world_close(&w);
}

static void test_close_in_callback(void)
{
    struct world w;

    world_open(&w);
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    world_dial(&w, world_key, link_listener_port(w.listener));
    w.close_on_frame = true;
    link_send(w.connector, 1, "x", 1);
    link_send(w.connector, 2, "y", 1);
    world_run(&w);
    is_int(w.n_frames, 1, "no frame after link_close()");
    world_close(&w);
}

static void test_nobody_there(void)
{
    struct world w;

    world_open(&w);
    world_dial(&w, world_key, 1);
    world_run(&w);
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
    link_listener_open(w.listener, world_key, world_on_peer, &w);
    link_connect(&w.loop, &target, world_key, &world_ops, &w, &w.connector,
                 NULL);
    link_send(w.connector, 1, "x", 1);
    w.stop_after = 1;
    world_run(&w);
    is_int(w.n_frames, 1, "came through another address");
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
    link_connect(&w.loop, &target, world_key, &world_ops, &w, &w.connector,
                 NULL);
    world_run(&w);
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
    world_meet(&w);
    /* No turn of the loop: nobody reads at the other end. */
    while (n < 1000 && link_send(w.accepted, 2, big, sizeof(big)) == 0) {
        n++;
    }
    ok(n > 32 && n < 100, "the queue is bounded (%d MiB)", n);
    world_run(&w);
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
    world_meet(&w);
    link_send(w.accepted, 2, "y", 1);
    w.stop_after = 2;
    world_run(&w);
    is_int(w.last_type, 2, "two that have met");
    w.bytes = 0;
    w.stop_after = 2 + N_FRAMES;
    link_send(w.connector, 3, "unread", 6);
    for (int i = 0; i < N_FRAMES; i++) {
        link_send(w.accepted, 7, big, sizeof(big));
    }
    link_close(w.accepted);
    w.accepted = NULL;
    world_run(&w);
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
    test_close_in_callback();
    test_nobody_there();
    test_second_address();
    test_mute_peer();
    test_peer_does_not_read();
    return tap_done();
}
