/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uv_poll on sockets of our own rather than uv_pipe, because a uv_pipe can not
 * pass a memfd. Whatever a callback does, objects live until the loop has closed
 * their handles, so code here only looks at `closing` after each callback.
 */
#include <config.h>

#include "launcher/worker_socket.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
    READ_SIZE = 16384,
    IN_MAX = WORKER_FRAME_HEAD + WORKER_FRAME_MAX,
    ACCEPT_PAUSE_MS = 1000,
};

struct connection {
    uv_poll_t poll;
    struct worker_socket *w;
    int fd;
    int pid;
    struct buf in;
    struct buf out;
    bool said_hello;
    bool joined;
    bool wants_comm;   /* asked, not answered yet */
    bool state_is_old; /* the newest state was not put into `out` yet */
    bool ends;         /* closed once `out` is sent */
    bool deaf;         /* the peer has closed; what it said before is still read */
    bool closing;
};

struct worker_socket {
    uv_loop_t *loop;
    uv_poll_t listener;
    uv_timer_t pause; /* of accepting, when descriptors run out */
    int fd;
    int n_handles; /* open, of any kind: the last one frees this */
    bool closing;
    struct worker_welcome welcome;
    struct worker_state state;
    const struct worker_socket_ops *ops;
    void *arg;
    const struct segment *segment;
    struct connection *connections[WORKER_SOCKET_CONNECTIONS_MAX];
    struct sockaddr_un addr;
};

static void update(struct connection *c);

static void drop_handle(struct worker_socket *w)
{
    w->n_handles--;
    if (w->n_handles == 0 && w->closing) {
        free(w);
    }
}

static void connection_closed(uv_handle_t *h)
{
    struct connection *c = h->data;

    close_fd(&c->fd);
    buf_release(&c->in);
    buf_release(&c->out);
    drop_handle(c->w);
    free(c);
}

/* Ends a connection; `why` is "" for a plain close. */
static void hang_up(struct connection *c, const char *why)
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
        hang_up(c, strerror(code));
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
        hang_up(c, "out of memory");
    }
}

static bool somebody_joined(const struct worker_socket *w)
{
    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        if (w->connections[i] && w->connections[i]->joined) {
            return true;
        }
    }
    return false;
}

/* Sends COMM with its descriptors, `out` being empty. False: has to wait. */
static bool send_comm(struct connection *c)
{
    const struct segment *s = c->w->segment;
    struct worker_msg m = {.type = WORKER_COMM};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    int fds[WORKER_COMM_FDS] = {s->fd, s->event_fd};
    struct iovec iov;
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof(control),
    };
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    ssize_t n;

    m.comm.segment_bytes = s->size;
    put(c, &m);
    if (c->closing) {
        return false;
    }
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(h), fds, sizeof(fds));
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
    c->joined = true;
    c->wants_comm = false;
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
        if (somebody_joined(c->w)) {
            refuse_comm(c);
        } else if (!send_comm(c)) {
            return false;
        }
    }
    if (c->state_is_old && !c->closing) {
        struct worker_msg m = {.type = WORKER_STATE};

        m.state = c->w->state;
        c->state_is_old = false;
        put(c, &m);
    }
    return !c->closing && flush(c);
}

static void got_hello(struct connection *c, const struct worker_hello *hello)
{
    struct worker_socket *w = c->w;
    struct worker_msg m = {.type = WORKER_WELCOME};

    if (hello->version != WORKER_PROTO_VERSION) {
        m.type = WORKER_REFUSED;
        m.refused.version = WORKER_PROTO_VERSION;
        snprintf(m.refused.why, sizeof(m.refused.why),
                 "the worker speaks version %u of the worker socket, this "
                 "muster version %d", hello->version, WORKER_PROTO_VERSION);
        put(c, &m);
        c->ends = true;
        return;
    }
    m.welcome = w->welcome;
    m.welcome.version = WORKER_PROTO_VERSION;
    put(c, &m);
    c->said_hello = true;
    c->state_is_old = true;
    if (!c->closing && w->ops->on_hello) {
        w->ops->on_hello(w->arg, w->welcome.local_rank, c->pid);
    }
}

static void got_message(struct connection *c, const struct worker_msg *m)
{
    struct worker_socket *w = c->w;
    uint32_t rank = w->welcome.local_rank;

    if (c->said_hello != (m->type != WORKER_HELLO)) {
        hang_up(c, "a message out of turn");
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
    case WORKER_UNKNOWN:
        break;
    default:
        hang_up(c, "a message that only an agent sends");
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
        hang_up(c, e.text);
    }
}

/* False when there was nothing, or the connection has ended. */
static bool receive(struct connection *c)
{
    char *to = buf_reserve(&c->in, READ_SIZE);
    ssize_t n;

    if (!to || c->in.len > IN_MAX) {
        hang_up(c, "out of memory");
        return false;
    }
    n = recv(c->fd, to, READ_SIZE, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (n <= 0) {
        /* Reset: it closed without having read all that we said. */
        hang_up(c, n < 0 && errno != ECONNRESET ? strerror(errno) : "");
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
        hang_up(c, uv_strerror(status));
        return;
    }
    if (events & UV_READABLE) {
        receive(c);
    }
    update(c);
}

/* Sends, and sets what to wait for. */
static void update(struct connection *c)
{
    bool sent = !c->closing && send_all(c);

    if (!c->closing && sent && c->ends) {
        hang_up(c, "");
    }
    if (!c->closing) {
        int rc = uv_poll_start(&c->poll,
                               sent ? UV_READABLE : UV_READABLE | UV_WRITABLE,
                               connection_ready);

        if (rc < 0) {
            hang_up(c, uv_strerror(rc));
        }
    }
}

static bool peer_is_me(int fd, int *ret_pid)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
        cred.uid != geteuid()) {
        return false;
    }
    *ret_pid = cred.pid;
    return true;
}

static struct connection **free_place(struct worker_socket *w)
{
    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        if (!w->connections[i]) {
            return &w->connections[i];
        }
    }
    return NULL;
}

/* Serves a new connection, or closes it. */
static void add_connection(struct worker_socket *w, int take_this)
{
    _close_ int fd = take_this;
    struct connection **place = free_place(w);
    struct connection *c;
    int pid;

    if (!place || !peer_is_me(fd, &pid)) {
        return;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        return;
    }
    if (uv_poll_init(w->loop, &c->poll, fd) < 0) {
        free(c);
        return;
    }
    c->poll.data = c;
    c->w = w;
    c->pid = pid;
    c->fd = take_fd(&fd);
    w->n_handles++;
    *place = c;
    update(c);
}

static void listener_ready(uv_poll_t *h, int status, int events);

static void pause_over(uv_timer_t *t)
{
    struct worker_socket *w = t->data;

    uv_poll_start(&w->listener, UV_READABLE, listener_ready);
}

static void listener_ready(uv_poll_t *h, int status, int events)
{
    struct worker_socket *w = h->data;
    int fd;

    (void)events;
    if (status < 0) {
        return;
    }
    fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        add_connection(w, fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
               errno == ENOBUFS) {
        uv_poll_stop(&w->listener);
        uv_timer_start(&w->pause, pause_over, ACCEPT_PAUSE_MS, 0);
    }
}

/* A socket at addr that is 0600 from its first moment on. */
static int listen_at(const struct sockaddr_un *addr, int *ret_fd,
                     struct error *e)
{
    _close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                            0);
    struct stat st;

    if (fd < 0) {
        return error_set(e, errno, "socket");
    }
    if (lstat(addr->sun_path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(addr->sun_path);
    }
    if (fchmod(fd, 0600) < 0 ||
        bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ||
        listen(fd, WORKER_SOCKET_CONNECTIONS_MAX) < 0) {
        return error_set(e, errno, "worker socket %s", addr->sun_path);
    }
    *ret_fd = take_fd(&fd);
    return 0;
}

static void listener_closed(uv_handle_t *h)
{
    struct worker_socket *w = h->data;

    close_fd(&w->fd);
    drop_handle(w);
}

static void pause_closed(uv_handle_t *h)
{
    drop_handle(h->data);
}

static int start_listening(struct worker_socket *w, struct error *e)
{
    int rc = uv_poll_init(w->loop, &w->listener, w->fd);

    if (rc < 0) {
        return error_text(e, -rc, "worker socket: %s", uv_strerror(rc));
    }
    uv_timer_init(w->loop, &w->pause);
    w->listener.data = w;
    w->pause.data = w;
    w->n_handles = 2;
    rc = uv_poll_start(&w->listener, UV_READABLE, listener_ready);
    if (rc < 0) {
        worker_socket_destroy(w);
        return error_text(e, -rc, "worker socket: %s", uv_strerror(rc));
    }
    return 0;
}

int worker_socket_create(uv_loop_t *loop, const char *path,
                         const struct worker_welcome *welcome,
                         const struct worker_socket_ops *ops, void *arg,
                         struct worker_socket **ret, struct error *e)
{
    _free_ struct worker_socket *w = calloc(1, sizeof(*w));
    int rc;

    if (!w) {
        return error_set(e, ENOMEM, "worker socket");
    }
    w->loop = loop;
    w->welcome = *welcome;
    w->ops = ops;
    w->arg = arg;
    w->fd = -1;
    w->addr.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(w->addr.sun_path)) {
        return error_set(e, ENAMETOOLONG, "worker socket %s", path);
    }
    str_copy(w->addr.sun_path, sizeof(w->addr.sun_path), path);
    rc = listen_at(&w->addr, &w->fd, e);
    if (rc < 0) {
        return rc;
    }
    rc = start_listening(w, e);
    if (rc < 0) {
        if (w->n_handles > 0) {
            take_ptr(&w); /* goes with its handles */
        } else {
            close_fd(&w->fd);
        }
        return rc;
    }
    *ret = take_ptr(&w);
    return 0;
}

void worker_socket_destroy(struct worker_socket *w)
{
    if (!w || w->closing) {
        return;
    }
    w->closing = true;
    unlink(w->addr.sun_path);
    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        if (w->connections[i]) {
            hang_up(w->connections[i], "");
        }
    }
    uv_close((uv_handle_t *)&w->listener, listener_closed);
    uv_close((uv_handle_t *)&w->pause, pause_closed);
}

static void update_all(struct worker_socket *w)
{
    for (size_t i = 0; i < ARRAY_SIZE(w->connections) && !w->closing; i++) {
        if (w->connections[i] && w->connections[i]->said_hello) {
            update(w->connections[i]);
        }
    }
}

void worker_socket_set_segment(struct worker_socket *w,
                               const struct segment *segment)
{
    w->segment = segment;
    update_all(w);
}

void worker_socket_set_state(struct worker_socket *w, bool should_stop,
                             uint32_t checkpoint_requests)
{
    w->state.should_stop = should_stop;
    w->state.checkpoint_requests = checkpoint_requests;
    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        if (w->connections[i]) {
            w->connections[i]->state_is_old = w->connections[i]->said_hello;
        }
    }
    update_all(w);
}

const char *worker_socket_path(const struct worker_socket *w)
{
    return w->addr.sun_path;
}
