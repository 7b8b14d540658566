/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    ANSWER_TIMEOUT_MS = 60000,
    SEND_TIMEOUT_MS = 30000,
    READ_SIZE = 16384,
    SOON_NS = 200000,
    N_SNAPS = 64, /* of which it can be asked how far they are */
};

struct client {
    int fd;
    struct buf in;
    pthread_mutex_t sends; /* held by who sends: of `out` */
    struct buf out; /* the rest of a frame that the socket took in part */
    int fds[WORKER_COMM_FDS];
    size_t n_fds;
    struct worker_welcome welcome;
    struct worker_state state;
    bool has_store;
    struct worker_snap_status snaps[N_SNAPS]; /* newest last; uuid "" for none */
    struct client_place place;
    struct client_pending pending;
};

static void drop_fds(struct client *c)
{
    for (size_t i = 0; i < c->n_fds; i++) {
        close(c->fds[i]);
    }
    c->n_fds = 0;
}

void client_destroy(struct client *c)
{
    if (!c) {
        return;
    }
    if (c->place.gone) {
        c->place.gone(c->place.data);
    }
    drop_fds(c);
    close_fd(&c->fd);
    buf_release(&c->in);
    buf_release(&c->out);
    pthread_mutex_destroy(&c->sends);
    free(c);
}

DEFINE_CLEANUP(client);

const struct worker_welcome *client_welcome(const struct client *c)
{
    return &c->welcome;
}

struct client_place *client_place(struct client *c)
{
    return &c->place;
}

struct client_pending *client_pending(struct client *c)
{
    return &c->pending;
}

int client_fd(const struct client *c)
{
    return c->fd;
}

static int open_socket(const char *path, int *ret_fd, struct error *e)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    _close_ int fd = -1;

    if (strlen(path) >= sizeof(addr.sun_path)) {
        return error_set(e, ENAMETOOLONG, "MUSTER_SOCKET=%s", path);
    }
    str_copy(addr.sun_path, sizeof(addr.sun_path), path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return error_set(e, errno, "socket");
    }
    while (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        if (errno == EINTR) {
            continue;
        }
        if (errno == ENOENT) {
            errno = ECONNREFUSED; /* it took its socket with it */
        }
        return error_set(e, errno, "the agent's socket %s", path);
    }
    *ret_fd = take_fd(&fd);
    return 0;
}

/* Waits until the socket is ready. 1 ready, 0 deadline. */
static int wait_ready(const struct client *c, short events, uint64_t deadline_ms)
{
    struct pollfd p = {.fd = c->fd, .events = events};
    int n;

    do {
        uint64_t now = clock_mono_ms();

        if (now >= deadline_ms) {
            return 0;
        }
        n = poll(&p, 1, (int)(deadline_ms - now));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

static void keep_fds(struct client *c, struct msghdr *msg)
{
    struct cmsghdr *h;

    for (h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
        size_t n;

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
            if (c->n_fds < WORKER_COMM_FDS) {
                c->fds[c->n_fds++] = fd;
            } else {
                close(fd);
            }
        }
    }
}

/* Takes what has arrived into c->in. 1 if something came, 0 if nothing. */
static int receive(struct client *c, struct error *e)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec iov = {.iov_len = READ_SIZE};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n;

    iov.iov_base = buf_reserve(&c->in, READ_SIZE);
    if (!iov.iov_base) {
        return error_set(e, ENOMEM, "worker socket");
    }
    do {
        n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return 0;
    }
    if (n <= 0) {
        return error_text(e, ECONNABORTED, "the agent of this node is gone");
    }
    keep_fds(c, &msg);
    c->in.len += (size_t)n;
    return 1;
}

static void note_snap(struct client *c, const struct worker_snap_status *s)
{
    size_t i = N_SNAPS - 1;

    while (i > 0 && strcmp(c->snaps[i].uuid, s->uuid) != 0) {
        i--;
    }
    memmove(&c->snaps[i], &c->snaps[i + 1],
            (N_SNAPS - 1 - i) * sizeof(c->snaps[0]));
    c->snaps[N_SNAPS - 1] = *s;
}

/* Takes one message out of c->in. 1, 0 if there is no whole one, or an error. */
static int next_message(struct client *c, struct worker_msg *ret,
                        struct error *e)
{
    size_t len;
    int rc = worker_frame_next(c->in.data, c->in.len, &len, e);

    if (rc == 0) {
        return 0;
    }
    if (rc == 1) {
        rc = worker_msg_decode(c->in.data, len, ret, e);
    }
    if (rc < 0) {
        if (e) {
            e->code = EPROTO;
        }
        return -EPROTO;
    }
    buf_consume(&c->in, len);
    if (ret->type == WORKER_STATE) {
        c->state = ret->state;
    } else if (ret->type == WORKER_SNAP_STATUS) {
        note_snap(c, &ret->snap_status);
    } else if (ret->type == WORKER_STORE) {
        c->has_store = true;
    }
    return 1;
}

/* Most answers are there before a thread has fallen asleep and been woken for them; who
 * else wants the processor has it meanwhile. As receive(). */
static int receive_soon(struct client *c, struct error *e)
{
    uint64_t end_ns = clock_mono_ns() + SOON_NS;
    int rc;

    do {
        rc = receive(c, e);
    } while (rc == 0 && sched_yield() == 0 && clock_mono_ns() < end_ns);
    return rc;
}

/* Waits for a message of one of two types; states on the way are noted. */
static int await(struct client *c, enum worker_msg_type a,
                 enum worker_msg_type b, struct worker_msg *ret,
                 struct error *e)
{
    uint64_t deadline_ms = clock_mono_ms() + ANSWER_TIMEOUT_MS;
    bool is_soon = true;

    for (;;) {
        int rc = next_message(c, ret, e);

        if (rc < 0) {
            return rc;
        }
        if (rc == 1 && (ret->type == a || ret->type == b)) {
            return 0;
        }
        if (rc == 1) {
            continue;
        }
        if (!is_soon && !wait_ready(c, POLLIN, deadline_ms)) {
            return error_set(e, ETIMEDOUT, "no answer from the agent in %d s",
                             ANSWER_TIMEOUT_MS / 1000);
        }
        rc = is_soon ? receive_soon(c, e) : receive(c, e);
        is_soon = false;
        if (rc < 0) {
            return rc;
        }
    }
}

/* Sends what c->out holds, as far as it goes. 1 all of it, 0 not all. */
static int flush(struct client *c, struct error *e)
{
    while (c->out.len > 0) {
        ssize_t n = send(c->fd, c->out.data, c->out.len,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return 0;
        }
        if (n < 0) {
            return error_text(e, ECONNABORTED,
                              "the agent of this node is gone");
        }
        buf_consume(&c->out, (size_t)n);
    }
    return 1;
}

/* With the lock held. */
static int send_held(struct client *c, const struct worker_msg *m, struct error *e)
{
    uint64_t deadline_ms = clock_mono_ms() + SEND_TIMEOUT_MS;
    int rc;

    worker_msg_encode(&c->out, m);
    if (c->out.failed) {
        return error_set(e, ENOMEM, "worker socket");
    }
    for (;;) {
        rc = flush(c, e);
        if (rc != 0) {
            return rc < 0 ? rc : 0;
        }
        if (!wait_ready(c, POLLOUT, deadline_ms)) {
            return error_set(e, ETIMEDOUT, "the agent took nothing in %d s",
                             SEND_TIMEOUT_MS / 1000);
        }
    }
}

static int send_wait(struct client *c, const struct worker_msg *m, struct error *e)
{
    int rc;

    pthread_mutex_lock(&c->sends);
    rc = send_held(c, m, e);
    pthread_mutex_unlock(&c->sends);
    return rc;
}

/* Until WELCOME there is no agent to be lost, only one that is not there. */
static int as_refused(int rc, struct error *e)
{
    if (rc == -ECONNABORTED) {
        return error_text(e, ECONNREFUSED,
                          "the agent closed its socket before a welcome");
    }
    return rc;
}

static int say_hello(struct client *c, struct error *e)
{
    struct worker_msg m = {.type = WORKER_HELLO};
    int rc;

    m.hello.version = WORKER_PROTO_VERSION;
    m.hello.pid = (uint32_t)getpid();
    rc = send_wait(c, &m, e);
    if (rc == 0) {
        rc = await(c, WORKER_WELCOME, WORKER_REFUSED, &m, e);
    }
    if (rc < 0) {
        return as_refused(rc, e);
    }
    if (m.type == WORKER_REFUSED) {
        return error_text(e, EPROTO, "the agent refused: %s", m.refused.why);
    }
    c->welcome = m.welcome;
    return 0;
}

int client_connect(const char *path, struct client **ret, struct error *e)
{
    _cleanup_(client) struct client *c = NULL;
    int rc;

    c = calloc(1, sizeof(*c));
    if (!c) {
        return error_set(e, ENOMEM, "worker socket");
    }
    c->fd = -1;
    pthread_mutex_init(&c->sends, NULL);
    rc = open_socket(path, &c->fd, e);
    if (rc == 0) {
        rc = say_hello(c, e);
    }
    if (rc < 0) {
        return rc;
    }
    *ret = take_ptr(&c);
    return 0;
}

/* Takes what has been said, which is noted. */
static int catch_up(struct client *c, struct error *e)
{
    struct worker_msg m;
    int rc;

    do {
        do {
            rc = next_message(c, &m, e);
        } while (rc > 0);
        if (rc == 0) {
            rc = receive(c, e);
        }
    } while (rc > 0);
    return rc;
}

int client_join(struct client *c, int *ret_segment_fd, int *ret_event_fd,
                struct error *e)
{
    struct worker_msg m = {.type = WORKER_JOIN_COMM};
    int rc;

    rc = catch_up(c, e); /* the descriptors of an answer that comes too late go */
    drop_fds(c);
    rc = rc < 0 ? rc : send_wait(c, &m, e);
    if (rc == 0) {
        rc = await(c, WORKER_COMM, WORKER_COMM, &m, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (m.comm.segment_bytes == 0) {
        return error_text(e, EOPNOTSUPP, "no collectives here: %s", m.comm.why);
    }
    if (c->n_fds != WORKER_COMM_FDS) {
        return error_text(e, EPROTO, "the agent sent %zu descriptors of %d",
                          c->n_fds, WORKER_COMM_FDS);
    }
    *ret_segment_fd = c->fds[0];
    *ret_event_fd = c->fds[1];
    c->n_fds = 0;
    return 0;
}

int client_state(struct client *c, struct worker_state *ret, struct error *e)
{
    int rc = catch_up(c, e);

    if (rc < 0) {
        return rc;
    }
    *ret = c->state;
    return 0;
}

/* --- snapshots --- */

/* What the agent says is an error is one, whatever its number. */
static int as_told(uint32_t code, const char *why, struct error *e)
{
    return error_text(e, code < 4096 ? (int)code : EPROTO, "%s", why);
}

static int ask_snap(struct client *c, const struct worker_msg *question, struct error *e)
{
    int rc = catch_up(c, e); /* an answer that was not waited for any more goes */

    drop_fds(c);
    return rc < 0 ? rc : send_wait(c, question, e);
}

int client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                       struct error *e)
{
    struct worker_msg m;
    int rc = await(c, WORKER_SNAP, WORKER_SNAP, &m, e);

    if (rc < 0) {
        return rc;
    }
    if (m.snap.error) {
        return as_told(m.snap.error, m.snap.why, e);
    }
    if (c->n_fds != 1) {
        return error_text(e, EPROTO, "the agent sent %zu descriptors of 1",
                          c->n_fds);
    }
    *ret_fd = c->fds[0];
    c->n_fds = 0;
    *ret = m.snap;
    return 0;
}

int client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                      struct error *e)
{
    struct worker_msg m = {.type = WORKER_SNAP_BEGIN, .snap_begin = *begin};

    return ask_snap(c, &m, e);
}

int client_snap_find(struct client *c, uint32_t rank, const char *uuid,
                     struct worker_snap *ret, int *ret_fd, struct error *e)
{
    struct worker_msg m = {.type = WORKER_SNAP_FIND, .snap_find.rank = rank};
    int rc;

    str_copy(m.snap_find.uuid, sizeof(m.snap_find.uuid), uuid);
    rc = ask_snap(c, &m, e);
    return rc < 0 ? rc : client_snap_answer(c, ret, ret_fd, e);
}

int client_snap_fill(struct client *c, const struct worker_snap_fill *fill, struct error *e)
{
    return send_wait(c, &(struct worker_msg){.type = WORKER_SNAP_FILL, .snap_fill = *fill}, e);
}

int client_snap_send(struct client *c, const struct worker_snap_done *done,
                     const struct worker_snap_want *want, struct error *e)
{
    struct worker_msg first = {.type = WORKER_SNAP_WANT},
                      m = {.type = WORKER_SNAP_DONE, .snap_done = *done};
    int rc;

    pthread_mutex_lock(&c->sends);
    if (want) {
        first.snap_want = *want;
        worker_msg_encode(&c->out, &first);
    }
    rc = send_held(c, &m, e);
    pthread_mutex_unlock(&c->sends);
    return rc;
}

/* NULL: nothing was said of it. */
static const struct worker_snap_status *find_snap(const struct client *c, const char *uuid)
{
    for (size_t i = 0; i < N_SNAPS; i++) {
        if (c->snaps[i].uuid[0] && strcmp(c->snaps[i].uuid, uuid) == 0) {
            return &c->snaps[i];
        }
    }
    return NULL;
}

int client_snap_taken(struct client *c, const char *uuid, struct error *e)
{
    const struct worker_snap_status *s;
    struct worker_msg m;
    int rc = 0;

    while (rc == 0 && !(s = find_snap(c, uuid))) {
        rc = await(c, WORKER_SNAP_STATUS, WORKER_SNAP_STATUS, &m, e);
    }
    return rc < 0 ? rc : s->error ? as_told(s->error, s->why, e) : 0;
}

int client_snap_want(struct client *c, const struct worker_snap_want *want,
                     struct error *e)
{
    struct worker_msg m = {.type = WORKER_SNAP_WANT, .snap_want = *want};

    return send_wait(c, &m, e);
}

int client_snap_status(struct client *c, const char *uuid,
                       struct worker_snap_status *ret, struct error *e)
{
    const struct worker_snap_status *s;
    int rc = catch_up(c, e);

    if (rc < 0) {
        return rc;
    }
    s = find_snap(c, uuid);
    if (!s) {
        return error_text(e, ENOENT, "no snapshot %s", uuid);
    }
    *ret = *s;
    return 0;
}

int client_has_store(struct client *c, struct error *e)
{
    int rc = catch_up(c, e);

    return rc < 0 ? rc : c->has_store;
}

/* With the lock held. */
static int flush_then(struct client *c, const struct worker_msg *m, struct error *e)
{
    int rc = flush(c, e);

    if (rc <= 0) {
        return rc; /* still busy with the last one: leave this one out */
    }
    worker_msg_encode(&c->out, m);
    if (c->out.failed) {
        return error_set(e, ENOMEM, "worker socket");
    }
    rc = flush(c, e);
    return rc < 0 ? rc : 0;
}

/* It is left out, too, while another thread sends. */
static int send_or_drop(struct client *c, const struct worker_msg *m,
                        struct error *e)
{
    int rc;

    if (pthread_mutex_trylock(&c->sends) != 0) {
        return 0;
    }
    rc = flush_then(c, m, e);
    pthread_mutex_unlock(&c->sends);
    return rc;
}

int client_report(struct client *c, const struct worker_report *report,
                  struct error *e)
{
    struct worker_msg m = {.type = WORKER_REPORT};

    m.report = *report;
    return send_or_drop(c, &m, e);
}

int client_save_plan(struct client *c, const struct worker_save_plan *plan,
                     struct error *e)
{
    struct worker_msg m = {.type = WORKER_SAVE_PLAN};

    m.save_plan = *plan;
    return send_or_drop(c, &m, e);
}

int client_checkpoint_saved(struct client *c, const char *path, int64_t step,
                            struct error *e)
{
    struct worker_msg m = {.type = WORKER_CHECKPOINT_SAVED};

    m.checkpoint.step = step;
    str_copy(m.checkpoint.path, sizeof(m.checkpoint.path), path);
    return send_wait(c, &m, e);
}

int client_checkpoint_heard(struct client *c, uint32_t requests, const char *uuid,
                            int64_t step, struct error *e)
{
    struct worker_msg m = {.type = WORKER_CHECKPOINT_HEARD};

    m.heard.requests = requests;
    m.heard.step = step;
    str_copy(m.heard.uuid, sizeof(m.heard.uuid), uuid);
    return send_wait(c, &m, e);
}
