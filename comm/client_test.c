/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's end of its socket, and an agent that says what it likes: descriptors that
 * come are for this process alone, none is kept that was not asked for, and what makes
 * no sense is an error.
 */
#include <config.h>

#include "comm/agent_bed.h"
#include "comm/client.h"
#include "comm/worker_proto.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAVE "000000000000000000000000000000aa"
#define OTHER "000000000000000000000000000000bb"

/* One answer: a message or two, and so many descriptors beside them. */
struct answer {
    struct worker_msg m[2];
    int n, n_fds;
};

struct agent {
    struct agent_bed place;
    int listener, fd;
    pthread_t thread;
    struct answer welcome;
    const struct answer *next; /* to what is asked after the welcome; NULL: nothing */
};

static void say(int fd, const struct answer *a)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    _buf_ struct buf b = {0};
    struct iovec iov;
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    for (int i = 0; i < a->n; i++) {
        worker_msg_encode(&b, &a->m[i]);
    }
    iov = (struct iovec){.iov_base = b.data, .iov_len = b.len};
    if (a->n_fds > 0) {
        struct cmsghdr *h;

        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE((size_t)a->n_fds * sizeof(int));
        h = CMSG_FIRSTHDR(&msg);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN((size_t)a->n_fds * sizeof(int));
        for (int i = 0; i < a->n_fds; i++) {
            memcpy(CMSG_DATA(h) + (size_t)i * sizeof(int), &fd, sizeof(fd));
        }
    }
    if (sendmsg(fd, &msg, MSG_NOSIGNAL) < 0) {
        diag("the agent cannot answer: %s", strerror(errno));
    }
}

static void *serve(void *arg)
{
    struct agent *a = arg;
    char question[4096];

    a->fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
    if (recv(a->fd, question, sizeof(question), 0) > 0) {
        say(a->fd, &a->welcome);
    }
    if (a->next && recv(a->fd, question, sizeof(question), 0) > 0) {
        say(a->fd, a->next);
    }
    return NULL;
}

/* Connects to an agent that has one more answer. */
static struct client *open_client(struct agent *a, const struct answer *next)
{
    struct client *c = NULL;
    struct error e = {0};

    *a = (struct agent){.fd = -1, .next = next, .welcome = {.n = 1}};
    a->welcome.m[0].type = WORKER_WELCOME;
    a->welcome.m[0].welcome = (struct worker_welcome){.version = WORKER_PROTO_VERSION,
                                                      .world = 1, .local_world = 1,
                                                      .n_nodes = 1, .generation = 1};
    a->listener = agent_bed_open(&a->place);
    if (pthread_create(&a->thread, NULL, serve, a) != 0) {
        bail_out("no thread");
    }
    if (client_connect(a->place.path, &c, &e) < 0) {
        bail_out("no client: %s", e.text);
    }
    return c;
}

static void close_client(struct agent *a, struct client *c)
{
    client_destroy(c);
    pthread_join(a->thread, NULL);
    close(a->fd);
    close(a->listener);
    agent_bed_remove(&a->place);
}

static bool is_private(int fd)
{
    return fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void test_join(void)
{
    static const struct {
        int n_fds, rc;
    } cases[] = {{2, 0}, {0, -EPROTO}, {1, -EPROTO}, {4, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct answer comm = {.n = 1, .n_fds = cases[i].n_fds};
        int before = fds_n_open(), fds[2] = {-1, -1};
        struct error e = {0};
        struct client *c;
        struct agent a;

        comm.m[0].type = WORKER_COMM;
        comm.m[0].comm.segment_bytes = 4096;
        c = open_client(&a, &comm);
        ok(is_private(client_fd(c)), "its socket is for this process alone");
        is_int(client_join(c, &fds[0], &fds[1], &e), cases[i].rc,
               "%d descriptors come: %s", cases[i].n_fds, e.text);
        if (cases[i].rc == 0) {
            ok(is_private(fds[0]) && is_private(fds[1]), "two, likewise");
            close(fds[0]);
            close(fds[1]);
        }
        close_client(&a, c);
        is_int(fds_n_open(), before, "none is left");
    }
}

static void test_snap(void)
{
    static const struct {
        int n_fds;
        uint32_t error;
        int rc;
    } cases[] = {{1, 0, 0}, {0, 0, -EPROTO}, {2, 0, -EPROTO}, {0, ENOENT, -ENOENT},
                 {1, ENOENT, -ENOENT}, {0, 1 << 16, -EPROTO}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct answer snap = {.n = 1, .n_fds = cases[i].n_fds};
        int before = fds_n_open(), fd = -1;
        struct worker_snap got;
        struct error e = {0};
        struct client *c;
        struct agent a;

        snap.m[0].type = WORKER_SNAP;
        snap.m[0].snap.error = cases[i].error;
        str_copy(snap.m[0].snap.uuid, sizeof(snap.m[0].snap.uuid), SAVE);
        c = open_client(&a, &snap);
        is_int(client_snap_find(c, 0, SAVE, &got, &fd, &e), cases[i].rc,
               "%d descriptors, error %u: %s", cases[i].n_fds, cases[i].error, e.text);
        ok((fd >= 0) == (cases[i].rc == 0), "memory comes, or none does");
        close_fd(&fd);
        close_client(&a, c);
        is_int(fds_n_open(), before, "nothing is left");
    }
}

static int hand_over(struct client *c, const struct worker_snap_done *done, struct error *e)
{
    int rc = client_snap_send(c, done, NULL, e);

    return rc < 0 ? rc : client_snap_taken(c, done->uuid, e);
}

/* What is said of another save meanwhile is no answer, but is known afterwards. */
static void test_done(void)
{
    static const struct {
        uint32_t error;
        int rc;
    } cases[] = {{0, 0}, {EIO, -EIO}, {1 << 16, -EPROTO}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct worker_snap_done done = {.image_bytes = 1};
        struct answer both = {.n = 2};
        struct worker_snap_status s = {0};
        struct error e = {0};
        struct client *c;
        struct agent a;

        for (int k = 0; k < 2; k++) {
            both.m[k].type = WORKER_SNAP_STATUS;
            both.m[k].snap_status.level = WORKER_SNAP_HELD;
        }
        both.m[0].snap_status.error = ENOSPC;
        both.m[1].snap_status.error = cases[i].error;
        str_copy(both.m[0].snap_status.uuid, WORKER_UUID_SIZE, OTHER);
        str_copy(both.m[1].snap_status.uuid, WORKER_UUID_SIZE, SAVE);
        str_copy(done.uuid, sizeof(done.uuid), SAVE);
        c = open_client(&a, &both);
        is_int(hand_over(c, &done, &e), cases[i].rc, "handed over: error %u",
               cases[i].error);
        ok(client_snap_status(c, OTHER, &s, NULL) == 0 && s.error == ENOSPC,
           "what was said of another one is known");
        is_int(client_snap_status(c, "", &s, NULL), -ENOENT, "of none nothing is");
        close_client(&a, c);
    }
}

/* Nobody reads any more: an error, and no signal that would end the program. */
static void test_gone(void)
{
    struct worker_snap_done done = {.image_bytes = 1};
    struct error e = {0};
    struct client *c;
    struct agent a;

    signal(SIGPIPE, SIG_DFL);
    str_copy(done.uuid, sizeof(done.uuid), SAVE);
    c = open_client(&a, NULL);
    pthread_join(a.thread, NULL);
    close_fd(&a.fd);
    for (int i = 0; i < 2; i++) {
        is_int(hand_over(c, &done, &e), -ECONNABORTED, "the agent is gone: %s",
               e.text);
    }
    client_destroy(c);
    close(a.listener);
    agent_bed_remove(&a.place);
}

int main(void)
{
    test_join();
    test_snap();
    test_done();
    test_gone();
    return tap_done();
}
