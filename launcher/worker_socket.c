/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uv_poll on sockets of our own rather than uv_pipe, because a uv_pipe can not
 * pass a memfd. Whatever a callback does, objects live until the loop has closed
 * their handles, so code here only looks at `closing` after each callback.
 */
#include <config.h>

#include "launcher/worker_conn.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { ACCEPT_PAUSE_MS = 1000 };

void worker_socket_drop(struct worker_socket *w)
{
    w->n_handles--;
    if (w->n_handles == 0 && w->closing) {
        free(w);
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
    c->id = ++w->n_connections;
    c->snap_fd = -1;
    c->pid = pid;
    c->fd = take_fd(&fd);
    w->n_handles++;
    *place = c;
    worker_conn_update(c);
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
    worker_socket_drop(w);
}

static void pause_closed(uv_handle_t *h)
{
    worker_socket_drop(h->data);
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
            worker_conn_end(w->connections[i], "");
        }
    }
    uv_close((uv_handle_t *)&w->listener, listener_closed);
    uv_close((uv_handle_t *)&w->pause, pause_closed);
}

static void update_all(struct worker_socket *w)
{
    for (size_t i = 0; i < ARRAY_SIZE(w->connections) && !w->closing; i++) {
        if (w->connections[i] && w->connections[i]->said_hello) {
            worker_conn_update(w->connections[i]);
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

void worker_socket_answer_snap(struct worker_socket *w, uint64_t connection,
                               const struct worker_snap *snap, int take_this)
{
    _close_ int fd = take_this;

    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        struct connection *c = w->connections[i];

        if (c && c->id == connection && c->wants_snap && !c->has_snap) {
            c->snap = *snap;
            c->snap_fd = take_fd(&fd);
            c->has_snap = true;
            worker_conn_update(c);
            return;
        }
    }
}

void worker_socket_set_store(struct worker_socket *w)
{
    w->has_store = true;
}

void worker_socket_tell_snap(struct worker_socket *w,
                             const struct worker_snap_status *status)
{
    struct worker_msg m = {.type = WORKER_SNAP_STATUS, .snap_status = *status};

    for (size_t i = 0; i < ARRAY_SIZE(w->connections); i++) {
        if (w->connections[i] && w->connections[i]->said_hello) {
            worker_conn_tell(w->connections[i], &m);
        }
    }
    update_all(w);
}

const char *worker_socket_path(const struct worker_socket *w)
{
    return w->addr.sun_path;
}
