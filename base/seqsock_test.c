/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/seqsock.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct pair {
    int near, far;
};

static struct pair make_pair(void)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   ends) < 0) {
        bail_out("socketpair");
    }
    return (struct pair){ends[0], ends[1]};
}

static void close_pair(struct pair *p)
{
    close_fd(&p->near);
    close_fd(&p->far);
}

static int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void test_path(void)
{
    char dir[] = "/tmp/muster-seqsock.XXXXXX", path[64], lengthy[300];
    struct error e = {0};
    struct stat st;
    int listener, client, peer;

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/s", dir);
    is_int(seqsock_connect(path, &e), -ENOENT, "nobody there");
    listener = seqsock_listen(path, &e);
    ok(listener >= 0, "listens");
    is_int(stat(path, &st) < 0 ? 0 : st.st_mode & 07777, 0600, "privately");
    is_int(seqsock_accept(listener, &e), -EAGAIN, "nobody waits");
    client = seqsock_connect(path, &e);
    peer = seqsock_accept(listener, &e);
    ok(client >= 0 && peer >= 0, "connected");
    ok(fcntl(client, F_GETFD) & FD_CLOEXEC && fcntl(peer, F_GETFD) & FD_CLOEXEC
       && fcntl(listener, F_GETFD) & FD_CLOEXEC, "no worker inherits any");
    close(listener);
    is_int(seqsock_connect(path, &e), -ECONNREFUSED, "a stale socket");
    listener = seqsock_listen(path, &e);
    ok(listener >= 0, "is replaced");
    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = '\0';
    is_int(seqsock_listen(lengthy, &e), -ENAMETOOLONG, "a path that is too long");
    like(e.text, "XDG_RUNTIME_DIR", "says what to do");
    close(listener);
    close(client);
    close(peer);
    unlink(path);
    rmdir(dir);
}

/* A socket that others could reach all the same: the peer's user decides. */
static void test_other_user(void)
{
    char dir[] = "/tmp/muster-seqsock.XXXXXX", path[64];
    struct error e = {0};
    int listener, client;

    if (geteuid() != 0) {
        skip("only root can stand for two users");
        return;
    }
    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/s", dir);
    listener = seqsock_listen(path, &e);
    client = seqsock_connect(path, &e);
    if (seteuid(65534) < 0) {
        bail_out("seteuid");
    }
    is_int(seqsock_accept(listener, &e), -EPERM, "another user is refused");
    /* Leak checkers cannot look into what has changed its user. */
    if (seteuid(0) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0) {
        bail_out("seteuid");
    }
    close(listener);
    close(client);
    unlink(path);
    rmdir(dir);
}

static void send_text(int fd, uint16_t type, const char *text, size_t len)
{
    struct buf b = {.data = (char *)text, .len = len};

    is_int(seqsock_send(fd, type, &b, NULL, 0), 0, "%zu bytes are sent", len);
}

static void test_messages(void)
{
    struct pair p = make_pair();
    _free_ char *big = calloc(1, SEQSOCK_MAX + 1);
    struct buf too_big = {.data = big, .len = SEQSOCK_MAX + 1};
    _seqsock_msg_ struct seqsock_msg m;

    seqsock_msg_init(&m);
    is_int(seqsock_recv(p.far, &m), -EAGAIN, "nothing yet");
    send_text(p.near, 0xabcd, "hello", 5);
    send_text(p.near, 2, big, SEQSOCK_MAX);
    is_int(seqsock_send(p.near, 3, NULL, NULL, 0), 0, "no bytes at all");
    is_int(seqsock_send(p.near, 4, &too_big, NULL, 0), -EMSGSIZE, "too many");
    is_int(seqsock_recv(p.far, &m), 1, "the first");
    is_int(m.type, 0xabcd, "its type");
    is_str(buf_str(&m.data), "hello", "its text");
    seqsock_msg_release(&m);
    is_int(seqsock_recv(p.far, &m), 1, "the second");
    is_int((intmax_t)m.data.len, SEQSOCK_MAX, "whole");
    seqsock_msg_release(&m);
    is_int(seqsock_recv(p.far, &m), 1, "the empty one");
    is_int((intmax_t)m.data.len, 0, "is empty");
    seqsock_msg_release(&m);
    close_fd(&p.near);
    is_int(seqsock_recv(p.far, &m), 0, "the end");
    is_int(seqsock_send(p.far, 1, NULL, NULL, 0), -EPIPE, "nobody reads");
    close_pair(&p);
}

/* The kernel tells of what was left unread before it gives what was sent. */
static void test_last_words(void)
{
    struct pair p = make_pair();
    _seqsock_msg_ struct seqsock_msg m;

    seqsock_msg_init(&m);
    send_text(p.far, 1, "unread", 6);
    send_text(p.near, 7, "bye", 3);
    close_fd(&p.near);
    is_int(seqsock_recv(p.far, &m), 1, "what a peer sent last");
    is_str(buf_str(&m.data), "bye", "though it left something unread");
    seqsock_msg_release(&m);
    is_int(seqsock_recv(p.far, &m), 0, "then the end");
    close_pair(&p);
    p = make_pair();
    send_text(p.far, 1, "unread", 6);
    close_fd(&p.near);
    is_int(seqsock_recv(p.far, &m), 0, "the end alone");
    close_pair(&p);
}

static void test_cut_messages(void)
{
    struct pair p = make_pair();
    _free_ char *big = calloc(1, SEQSOCK_MAX + 100);
    _seqsock_msg_ struct seqsock_msg m;

    seqsock_msg_init(&m);
    ok(send(p.near, "x", 1, 0) == 1, "half a type");
    is_int(seqsock_recv(p.far, &m), -ERR_FORMAT, "is no message");
    ok(send(p.near, big, SEQSOCK_MAX + 100, 0) > 0, "more than the limit");
    is_int(seqsock_recv(p.far, &m), -ERR_FORMAT, "is cut, and said so");
    while (seqsock_send(p.near, 1, NULL, NULL, 0) == 0) {
    }
    is_int(seqsock_send(p.near, 1, NULL, NULL, 0), -EAGAIN,
           "a peer that does not read");
    close_pair(&p);
}

static void test_descriptors(void)
{
    struct pair p = make_pair();
    int before = count_fds();
    int fds[SEQSOCK_MAX_FDS + 1] = {0, 1, 2, p.near, p.far, 0};
    _seqsock_msg_ struct seqsock_msg m;

    seqsock_msg_init(&m);
    is_int(seqsock_send(p.near, 1, NULL, fds, SEQSOCK_MAX_FDS + 1), -EMSGSIZE,
           "too many descriptors");
    is_int(seqsock_send(p.near, 1, NULL, fds, SEQSOCK_MAX_FDS), 0, "as many as there may be");
    is_int(seqsock_recv(p.far, &m), 1, "arrive");
    is_int(count_fds(), before + SEQSOCK_MAX_FDS, "all of them");
    for (int i = 0; i < SEQSOCK_MAX_FDS; i++) {
        ok(m.fds[i] >= 0 && fcntl(m.fds[i], F_GETFD) & FD_CLOEXEC,
           "descriptor %d is close-on-exec", i);
    }
    seqsock_msg_release(&m);
    is_int(count_fds(), before, "and are closed");
    is_int(seqsock_send(p.near, 1, NULL, fds, 2), 0, "sent again");
    close_pair(&p);
    is_int(count_fds(), before - 2, "unread ones do not stay");
}

static void test_blob(void)
{
    struct error e = {0};
    _buf_ struct buf b = {0};
    static const int too_few[] = {F_SEAL_WRITE | F_SEAL_GROW,
                                  F_SEAL_SHRINK | F_SEAL_GROW};
    int fd = seqsock_blob("0123456789", 10, &e), open_fd;

    is_int(seqsock_blob_read(fd, 10, &b, &e), 0, "a blob is read");
    is_str(buf_str(&b), "0123456789", "as it was");
    is_int(seqsock_blob_read(fd, 9, &b, &e), -EFBIG, "not one over the limit");
    ok(write(fd, "x", 1) < 0 && ftruncate(fd, 0) < 0 &&
           ftruncate(fd, 20) < 0, "nobody can change it");
    close(fd);
    is_int(seqsock_blob_read(-1, 10, &b, &e), -ERR_FORMAT, "none at all");
    open_fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    is_int(seqsock_blob_read(open_fd, 10, &b, &e), -ERR_FORMAT,
           "one that its sender could still change");
    for (size_t i = 0; i < ARRAY_SIZE(too_few); i++) {
        fcntl(open_fd, F_ADD_SEALS, too_few[i]);
        is_int(seqsock_blob_read(open_fd, 10, &b, &e), -ERR_FORMAT,
               "or with seals %x alone", too_few[i]);
        close(open_fd);
        open_fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    close(open_fd);
    fd = seqsock_blob("", 0, &e);
    buf_clear(&b);
    is_int(seqsock_blob_read(fd, 10, &b, &e), 0, "an empty one");
    is_int((intmax_t)b.len, 0, "is empty");
    close(fd);
}

int main(void)
{
    test_path();
    test_other_user();
    test_messages();
    test_last_words();
    test_cut_messages();
    test_descriptors();
    test_blob();
    return tap_done();
}
