/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/worker_conn.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    READ_SIZE = 16384,
    IN_MAX = WORKER_FRAME_HEAD + WORKER_FRAME_MAX,
};

static void connection_closed(uv_handle_t *h)
{
    struct connection *c = h->data;

    close_fd(&c->fd);
    close_fd(&c->snap_fd);
    buf_release(&c->in);
    buf_release(&c->out);
    worker_socket_drop(c->w);
    free(c);
}

void worker_conn_end(struct connection *c, const char *why)
{
    struct worker_socket *w = c->w;

    if (c->closing) {
        return;
    }
    c->closing = true;
    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        if (w->connections[i] == c) {
            w->connections[i] = NULL;
        }
    }
    uv_close((uv_handle_t *)&c->poll, connection_closed);
    if (c->said_hello && !w->closing && w->ops->on_disconnect) {
        w->ops->on_disconnect(w->arg, w->welcome.local_rank, c->joined, why);
    }
}

/* Sending failed. A peer that has closed may have said something before, a last
 * report for instance: that is read to its end, and there comes the goodbye. */
static void send_failed(struct connection *c, int code)
{
    if (code == EPIPE || code == ECONNRESET) {
        c->deaf = true;
        buf_clear(&c->out);
    } else {
        worker_conn_end(c, strerror(code));
    }
}

/* Sends what is in `out`. False if that has to wait or failed. */
static bool flush(struct connection *c)
{
    if (c->deaf) {
        buf_clear(&c->out);
    }
    while (c->out.len > 0) {
        ssize_t n = send(c->fd, c->out.data, c->out.len,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return false;
        }
        if (n < 0) {
            send_failed(c, errno);
            return !c->closing;
        }
        buf_consume(&c->out, (size_t)n);
    }
    return true;
}

static void put(struct connection *c, const struct worker_msg *m)
{
    worker_msg_encode(&c->out, m);
    if (c->out.failed) {
        worker_conn_end(c, "out of memory");
    }
}

/* False: somebody is in collectives already. Who has finished is not, even if
 * its goodbye has not been read yet. */
static bool make_room(struct worker_socket *w)
{
    bool finished = segment_take_over(w->segment, w->welcome.local_rank);

    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        struct connection *c = w->connections[i];

        if (c && c->joined && !finished) {
            return false;
        }
        if (c) {
            c->joined = false;
        }
    }
    return true;
}

void worker_conn_tell(struct connection *c, const struct worker_msg *m)
{
    if (!c->deaf && !c->closing) {
        put(c, m);
    }
}

/* Sends a message with descriptors, `out` being empty. False: has to wait. */
static bool send_fds(struct connection *c, const struct worker_msg *m,
                     const int *fds, size_t n_fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct iovec iov;
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = CMSG_SPACE(n_fds * sizeof(int)),
    };
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    ssize_t n;

    put(c, m);
    if (c->closing) {
        return false;
    }
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    memcpy(CMSG_DATA(h), fds, n_fds * sizeof(int));
    iov = (struct iovec){c->out.data, c->out.len};
    do {
        n = sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        buf_clear(&c->out);
        return false;
    }
    if (n < 0) {
        send_failed(c, errno);
        return !c->closing;
    }
    buf_consume(&c->out, (size_t)n);
    return true;
}

static bool send_comm(struct connection *c)
{
    const struct segment *s = c->w->segment;
    const int fds[WORKER_COMM_FDS] = {s->fd, s->event_fd};
    struct worker_msg m = {.type = WORKER_COMM};

    m.comm.segment_bytes = s->size;
    if (!send_fds(c, &m, fds, WORKER_COMM_FDS)) {
        return false;
    }
    c->joined = !c->deaf;
    c->wants_comm = false;
    return true;
}

static bool send_snap(struct connection *c)
{
    struct worker_msg m = {.type = WORKER_SNAP, .snap = c->snap};

    if (c->snap_fd < 0) {
        put(c, &m);
    } else if (!send_fds(c, &m, &c->snap_fd, 1)) {
        return false;
    }
    close_fd(&c->snap_fd);
    c->wants_snap = c->has_snap = false;
    return true;
}

static void refuse_comm(struct connection *c)
{
    struct worker_msg m = {.type = WORKER_COMM};

    str_copy(m.comm.why, sizeof(m.comm.why),
             "this worker is in them already");
    c->wants_comm = false;
    put(c, &m);
}

/* True if everything that can be said now was sent. */
static bool send_all(struct connection *c)
{
    if (!flush(c)) {
        return false;
    }
    if (c->wants_comm && c->w->segment && !c->deaf) {
        if (!make_room(c->w)) {
            refuse_comm(c);
        } else if (!send_comm(c)) {
            return false;
        }
    }
    if (c->has_snap && !c->deaf && !c->closing &&
        (!flush(c) || !send_snap(c))) {
        return false;
    }
    if (c->state_is_old && !c->closing) {
        struct worker_msg m = {.type = WORKER_STATE};

        m.state = c->w->state;
        c->state_is_old = false;
        put(c, &m);
    }
    return !c->closing && flush(c);
}

static void refuse(struct connection *c, const struct worker_msg *m)
{
    put(c, m);
    c->ends = true;
}

/* The kernel's word for who has connected. False: it belongs to another worker. */
static bool is_own(const struct connection *c, struct worker_msg *m)
{
    const struct worker_socket *w = c->w;
    int whose = w->ops->whose ? w->ops->whose(w->arg, c->pid) : -1;

    if (whose < 0 || (uint32_t)whose == w->welcome.local_rank) {
        return true;
    }
    snprintf(m->refused.why, sizeof(m->refused.why),
             "process %d belongs to the worker with local rank %d, and this is "
             "the socket of local rank %u: leave MUSTER_SOCKET as it was set",
             c->pid, whose, w->welcome.local_rank);
    return false;
}

static void got_hello(struct connection *c, const struct worker_hello *hello)
{
    struct worker_socket *w = c->w;
    struct worker_msg m = {.type = WORKER_REFUSED,
                           .refused.version = WORKER_PROTO_VERSION};

    if (hello->version != WORKER_PROTO_VERSION) {
        snprintf(m.refused.why, sizeof(m.refused.why),
                 "the worker speaks version %u of the worker socket, this "
                 "muster version %d", hello->version, WORKER_PROTO_VERSION);
        refuse(c, &m);
        return;
    }
    if (!is_own(c, &m)) {
        refuse(c, &m);
        return;
    }
    m = (struct worker_msg){.type = WORKER_WELCOME};
    m.welcome = w->welcome;
    m.welcome.version = WORKER_PROTO_VERSION;
    put(c, &m);
    if (w->has_store) {
        put(c, &(struct worker_msg){.type = WORKER_STORE});
    }
    c->said_hello = true;
    c->state_is_old = true;
    if (!c->closing && w->ops->on_hello) {
        w->ops->on_hello(w->arg, w->welcome.local_rank, c->pid);
    }
}

static void refuse_snap(struct connection *c, int error, const char *why)
{
    c->has_snap = true;
    c->snap = (struct worker_snap){.error = (uint32_t)error};
    str_copy(c->snap.why, sizeof(c->snap.why), why);
}

static void got_snap(struct connection *c, const struct worker_msg *m)
{
    struct worker_socket *w = c->w;
    const struct worker_socket_ops *ops = w->ops;
    uint32_t rank = w->welcome.local_rank;

    if (m->type == WORKER_SNAP_FILL) {
        if (ops->on_snap_fill) {
            ops->on_snap_fill(w->arg, rank, &m->snap_fill);
        }
        return;
    }
    if (m->type == WORKER_SNAP_DONE) {
        if (ops->on_snap_done) {
            ops->on_snap_done(w->arg, rank, &m->snap_done);
        }
        return;
    }
    if (m->type == WORKER_SNAP_WANT) {
        if (ops->on_snap_want) {
            ops->on_snap_want(w->arg, rank, &m->snap_want);
        }
        return;
    }
    if (c->wants_snap) {
        worker_conn_end(c, "a second question for a snapshot");
        return;
    }
    c->wants_snap = true;
    if (m->type == WORKER_SNAP_BEGIN && ops->on_snap_begin) {
        ops->on_snap_begin(w->arg, rank, c->id, &m->snap_begin);
    } else if (m->type == WORKER_SNAP_FIND && ops->on_snap_find) {
        ops->on_snap_find(w->arg, rank, c->id, &m->snap_find);
    } else {
        refuse_snap(c, ENOTSUP, "this agent holds no snapshots");
    }
}

static void got_message(struct connection *c, const struct worker_msg *m)
{
    struct worker_socket *w = c->w;
    uint32_t rank = w->welcome.local_rank;

    if (c->said_hello != (m->type != WORKER_HELLO)) {
        worker_conn_end(c, "a message out of turn");
        return;
    }
    switch (m->type) {
    case WORKER_HELLO:
        got_hello(c, &m->hello);
        break;
    case WORKER_JOIN_COMM:
        c->wants_comm = true;
        break;
    case WORKER_REPORT:
        if (w->ops->on_report) {
            w->ops->on_report(w->arg, rank, &m->report);
        }
        break;
    case WORKER_CHECKPOINT_SAVED:
        if (w->ops->on_checkpoint_saved) {
            w->ops->on_checkpoint_saved(w->arg, rank, m->checkpoint.path,
                                        m->checkpoint.step);
        }
        break;
    case WORKER_CHECKPOINT_HEARD:
        if (w->ops->on_checkpoint_heard) {
            w->ops->on_checkpoint_heard(w->arg, rank, &m->heard);
        }
        break;
    case WORKER_SAVE_PLAN:
        if (w->ops->on_save_plan) {
            w->ops->on_save_plan(w->arg, rank, &m->save_plan);
        }
        break;
    case WORKER_SNAP_BEGIN:
    case WORKER_SNAP_FILL:
    case WORKER_SNAP_DONE:
    case WORKER_SNAP_FIND:
    case WORKER_SNAP_WANT:
        got_snap(c, m);
        break;
    case WORKER_UNKNOWN:
        break;
    default:
        worker_conn_end(c, "a message that only an agent sends");
    }
}

/* Handles the whole frames in `in`. */
static void take_frames(struct connection *c)
{
    struct worker_msg m;
    struct error e = {0};
    size_t len;
    int rc = 0;

    while (!c->closing && !c->ends &&
           (rc = worker_frame_next(c->in.data, c->in.len, &len, &e)) == 1) {
        rc = worker_msg_decode(c->in.data, len, &m, &e);
        if (rc < 0) {
            break;
        }
        buf_consume(&c->in, len);
        got_message(c, &m);
    }
    if (rc < 0) {
        worker_conn_end(c, e.text);
    }
}

/* False when there was nothing, or the connection has ended. */
static bool receive(struct connection *c)
{
    char *to = buf_reserve(&c->in, READ_SIZE);
    ssize_t n;

    if (!to || c->in.len > IN_MAX) {
        worker_conn_end(c, "out of memory");
        return false;
    }
    n = recv(c->fd, to, READ_SIZE, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (n <= 0) {
        /* Reset: it closed without having read all that we said. */
        worker_conn_end(c, n < 0 && errno != ECONNRESET ? strerror(errno) : "");
        return false;
    }
    c->in.len += (size_t)n;
    take_frames(c);
    return !c->closing;
}

static void connection_ready(uv_poll_t *h, int status, int events)
{
    struct connection *c = h->data;

    if (status < 0) { /* the socket has an error: nothing comes after it */
        while (receive(c)) {
        }
        worker_conn_end(c, uv_strerror(status));
        return;
    }
    if (events & UV_READABLE) {
        receive(c);
    }
    worker_conn_update(c);
}

void worker_conn_update(struct connection *c)
{
    bool sent = !c->closing && send_all(c);

    if (!c->closing && sent && c->ends) {
        worker_conn_end(c, "");
    }
    if (!c->closing) {
        int rc = uv_poll_start(&c->poll,
                               sent ? UV_READABLE : UV_READABLE | UV_WRITABLE,
                               connection_ready);

        if (rc < 0) {
            worker_conn_end(c, uv_strerror(rc));
        }
    }
}
