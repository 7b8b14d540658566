/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's end of the companion's socket, with real sockets: who is let in,
 * who replaces whom, and what becomes of the ones that are replaced. */
#include <config.h>

#include "base/cleanup.h"
#include "base/seqsock.h"
#include "base/str.h"
#include "launcher/companion_link.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world {
    const char *why_not; /* nobody may come */
    int n_asked, asked_pid;
    uv_loop_t loop;
    char dir[64], path[80];
    struct companion_link *link;
    int n_worlds, n_lost, n_terms, n_notices, n_attached;
    uint64_t epoch, lost_epoch;
    uint32_t n_roster, tag;
};

static const char *may_come(void *ctx, int pid,
                            const struct companion_hello *h)
{
    struct world *t = ctx;

    t->n_asked++;
    t->asked_pid = pid;
    return h->epoch == 99 ? t->why_not : NULL;
}

static void on_world(void *ctx, const struct companion_world *w,
                     const struct roster *roster)
{
    struct world *t = ctx;

    t->n_worlds++;
    t->epoch = w->epoch;
    t->n_roster = roster->n;
}

static void on_attached(void *ctx, const struct companion_outcome *o)
{
    struct world *t = ctx;

    t->n_attached++;
    t->tag = o->tag;
}

static void on_term(void *ctx)
{
    ((struct world *)ctx)->n_terms++;
}

static void on_lost(void *ctx, uint64_t epoch)
{
    struct world *t = ctx;

    t->n_lost++;
    t->lost_epoch = epoch;
}

static void on_notice(void *ctx)
{
    ((struct world *)ctx)->n_notices++;
}

static const struct companion_link_ops ops = {may_come, on_world, on_attached,
                                              on_term, on_notice, on_lost};

static void turn(struct world *t)
{
    for (int i = 0; i < 5; i++) {
        uv_run(&t->loop, UV_RUN_NOWAIT);
    }
}

static void open_world(struct world *t)
{
    struct buf info = {.data = (char *)"entry", .len = 5};
    struct error e = {0};

    *t = (struct world){.dir = "/tmp/muster-companion.XXXXXX"};
    if (!mkdtemp(t->dir)) {
        bail_out("mkdtemp");
    }
    snprintf(t->path, sizeof(t->path), "%s/mpi-0", t->dir);
    uv_loop_init(&t->loop);
    if (companion_link_create(&t->loop, t->path, &info, &ops, t, &t->link,
                              &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void close_world(struct world *t)
{
    companion_link_destroy(t->link);
    uv_run(&t->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&t->loop), 0, "nothing is left on the loop");
    ok(rmdir(t->dir) == 0, "nor in the directory");
}

static int say_hello(struct world *t, uint64_t epoch, const char *version)
{
    struct companion_hello h = {.version = COMPANION_VERSION, .epoch = epoch};
    _buf_ struct buf b = {0};
    int fd = seqsock_connect(t->path, NULL);

    str_copy(h.muster_version, sizeof(h.muster_version), version);
    companion_hello_encode(&h, &b);
    seqsock_send(fd, COMPANION_HELLO, &b, NULL, 0);
    turn(t);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* The type of what has come; 0 at the end; -EAGAIN. */
static int next_type(int fd)
{
    _seqsock_msg_ struct seqsock_msg m;
    int rc;

    seqsock_msg_init(&m);
    rc = seqsock_recv(fd, &m);
    return rc == 1 ? m.type : rc;
}

static void bring_world(struct world *t, int fd, uint64_t epoch)
{
    struct companion_world w = {.epoch = epoch};
    _roster_ struct roster roster = {0};
    struct roster_entry entry = {.slots = 1, .n_addrs = 1, .port = 5};
    _buf_ struct buf b = {0};
    _buf_ struct buf bytes = {0};
    _close_ int blob = -1;

    str_copy(entry.host, sizeof(entry.host), "h");
    str_copy(entry.addrs[0], ROSTER_ADDR_BYTES, "127.0.0.1");
    roster_add(&roster, &entry);
    roster_encode(&roster, &bytes);
    blob = seqsock_blob(bytes.data, bytes.len, NULL);
    companion_world_encode(&w, &b);
    seqsock_send(fd, COMPANION_WORLD, &b, &blob, 1);
    turn(t);
}

static void test_epochs(void)
{
    struct world t;
    int first, second, old;

    open_world(&t);
    ok(!companion_link_is_up(t.link), "nobody at first");
    first = say_hello(&t, 1, PACKAGE_VERSION);
    is_int(next_type(first), COMPANION_INFO, "the first is told who is here");
    bring_world(&t, first, 1);
    is_int(t.n_worlds, 1, "its world is taken");
    is_int(t.n_roster, 1, "with its roster");
    old = say_hello(&t, 1, PACKAGE_VERSION);
    is_int(next_type(old), COMPANION_REFUSED, "no second one of this epoch");
    is_int(next_type(old), 0, "it is sent away");
    close(old);
    second = say_hello(&t, 5, PACKAGE_VERSION);
    is_int(next_type(second), COMPANION_INFO, "a newer one is let in");
    is_int(next_type(first), 0, "the older one is sent away");
    is_int(t.n_lost, 0, "which is no loss");
    bring_world(&t, second, 5);
    is_int((intmax_t)t.epoch, 5, "the newer world counts");
    seqsock_send(first, COMPANION_TERM, NULL, NULL, 0);
    turn(&t);
    is_int(t.n_terms, 0, "the older one has nothing to say");
    old = say_hello(&t, 3, PACKAGE_VERSION);
    is_int(next_type(old), COMPANION_REFUSED, "nor has one that comes late");
    close(old);
    seqsock_send(second, COMPANION_TERM, NULL, NULL, 0);
    turn(&t);
    is_int(t.n_terms, 1, "the newer one has");
    is_int(t.n_notices, 0, "which is no notice");
    seqsock_send(second, COMPANION_NOTICE, NULL, NULL, 0);
    turn(&t);
    ok(t.n_notices == 1 && t.n_terms == 1, "a notice is one");
    close(second);
    turn(&t);
    is_int(t.n_lost, 1, "its end is a loss");
    is_int((intmax_t)t.lost_epoch, 5, "of its world");
    ok(!companion_link_is_up(t.link), "nobody is there");
    close(first);
    close_world(&t);
}

static void test_hostile(void)
{
    struct world t;
    struct buf junk = {.data = (char *)"junk", .len = 4};
    struct companion_hello h = {.version = COMPANION_VERSION + 1, .epoch = 1};
    _buf_ struct buf b = {0};
    int fds[20];
    int fd, newer;

    open_world(&t);
    fd = say_hello(&t, 1, "another version");
    is_int(next_type(fd), COMPANION_REFUSED, "another version is refused");
    is_int(t.n_lost, 1, "and nobody else will come");
    t.n_lost = 0;
    close(fd);
    fd = seqsock_connect(t.path, NULL);
    bring_world(&t, fd, 9);
    is_int(t.n_worlds, 0, "a world without a hello is not taken");
    close(fd);
    fd = seqsock_connect(t.path, NULL);
    turn(&t);
    close(fd);
    turn(&t);
    is_int(t.n_lost, 0, "the end of a stranger is no loss");
    fd = seqsock_connect(t.path, NULL);
    str_copy(h.muster_version, sizeof(h.muster_version), PACKAGE_VERSION);
    companion_hello_encode(&h, &b);
    seqsock_send(fd, COMPANION_HELLO, &b, NULL, 0);
    turn(&t);
    is_int(next_type(fd), COMPANION_REFUSED, "another protocol is refused");
    t.n_lost = 0;
    close(fd);
    fd = say_hello(&t, 1, PACKAGE_VERSION);
    next_type(fd);
    seqsock_send(fd, COMPANION_ATTACHED, &junk, NULL, 0);
    seqsock_send(fd, 999, &junk, NULL, 0);
    turn(&t);
    is_int(t.n_attached, 0, "what does not parse is left aside");
    seqsock_send(fd, COMPANION_WORLD, &junk, NULL, 0);
    turn(&t);
    is_int(next_type(fd), COMPANION_REFUSED, "but not a world");
    is_int(t.n_lost, 1, "which is then lost");
    is_int((intmax_t)t.lost_epoch, 1, "although it never was one");
    close(fd);
    fd = say_hello(&t, 9, "another version");
    next_type(fd);
    is_int(t.n_lost, 1, "that one of another build came is none, later");
    close(fd);
    fd = say_hello(&t, 1, PACKAGE_VERSION);
    next_type(fd);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = seqsock_connect(t.path, NULL);
        turn(&t);
    }
    is_int(next_type(fd), -EAGAIN, "a crowd does not send away who serves");
    newer = say_hello(&t, 2, PACKAGE_VERSION);
    is_int(next_type(newer), COMPANION_INFO, "nor keeps out a newer one");
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        close(fds[i]);
    }
    close(fd);
    close(newer);
    close_world(&t);
}

/* One that must not come leaves the one that is there alone. */
static void test_unwanted(void)
{
    struct world t;
    int first, other;

    open_world(&t);
    t.why_not = "not that one";
    first = say_hello(&t, 1, PACKAGE_VERSION);
    next_type(first);
    bring_world(&t, first, 1);
    other = say_hello(&t, 99, PACKAGE_VERSION);
    is_int(next_type(other), COMPANION_REFUSED, "one is not wanted");
    is_int(t.asked_pid, getpid(), "by what it is");
    is_int(next_type(first), -EAGAIN, "the first one stays");
    ok(companion_link_is_up(t.link), "and serves");
    bring_world(&t, other, 99);
    is_int(t.n_worlds, 1, "a world of the other is not taken");
    close(other);
    turn(&t);
    is_int(t.n_lost, 0, "its end is no loss");
    other = say_hello(&t, 2, PACKAGE_VERSION);
    next_type(other);
    bring_world(&t, other, 3);
    is_int(next_type(other), COMPANION_REFUSED, "a world is that of its hello");
    close(first);
    close(other);
    close_world(&t);
}

static void test_words(void)
{
    struct world t;
    uint32_t members[] = {0, 1};
    struct companion_attach a = {7, 2, members};
    struct companion_outcome o = {.tag = 7, .ok = true};
    _buf_ struct buf b = {0};
    int fd;

    open_world(&t);
    is_int(companion_link_attach(t.link, &a, 0, 0), -EPIPE, "nobody to ask");
    companion_link_verdict(t.link, 0, "unheard");
    fd = say_hello(&t, 1, PACKAGE_VERSION);
    next_type(fd);
    is_int(companion_link_attach(t.link, &a, 0, 0), -EPIPE,
           "nobody that has a world");
    is_int(next_type(fd), -EAGAIN, "so it hears nothing");
    bring_world(&t, fd, 1);
    is_int(companion_link_attach(t.link, &a, 0, 0), 0, "asked");
    is_int(next_type(fd), COMPANION_ATTACH, "and heard");
    companion_outcome_encode(&o, &b);
    seqsock_send(fd, COMPANION_ATTACHED, &b, NULL, 0);
    turn(&t);
    is_int(t.tag, 7, "its answer");
    companion_link_detach(t.link, 7);
    is_int(next_type(fd), COMPANION_DETACH, "the end of a group");
    companion_link_verdict(t.link, 3, "over");
    is_int(next_type(fd), COMPANION_VERDICT, "the last word");
    companion_link_destroy(t.link);
    t.link = NULL;
    turn(&t);
    is_int(next_type(fd), 0, "then the connection ends");
    close(fd);
    close_world(&t);
}

static void test_kept_open(void)
{
    struct world t;
    int fd;

    open_world(&t);
    companion_link_keep_open(t.link); /* of nobody */
    fd = say_hello(&t, 1, PACKAGE_VERSION);
    next_type(fd);
    bring_world(&t, fd, 1);
    companion_link_keep_open(t.link);
    companion_link_destroy(t.link);
    t.link = NULL;
    turn(&t);
    is_int(next_type(fd), -EAGAIN, "the connection is there until the process ends");
    close(fd);
    close_world(&t);
}

int main(void)
{
    test_epochs();
    test_hostile();
    test_unwanted();
    test_words();
    test_kept_open();
    return tap_done();
}
