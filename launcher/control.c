/* SPDX-License-Identifier: Apache-2.0 */
/* The server side of the control socket. */
#include <config.h>

#include "launcher/control.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/control_path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PEERS = 32, IDLE_MS = 10000, BACKLOG = 64 };

struct peer {
    struct control_server *server; /* NULL once it is destroyed */
    struct peer *next;
    uv_pipe_t pipe;
    uv_timer_t idle;
    uv_write_t write;
    struct buf in;
    struct buf out;
    bool is_writing;
    bool is_closing;
    unsigned n_open; /* handles not yet closed */
};

struct control_server {
    uv_pipe_t pipe;
    uv_loop_t *loop;
    control_f *on_request;
    void *arg;
    struct peer *peers;
    unsigned n_peers;
    int dir_fd;
    char name[CONTROL_NAME_SIZE];
};

static void peer_freed(uv_handle_t *h)
{
    struct peer *p = h->data;

    if (--p->n_open == 0) {
        buf_release(&p->in);
        buf_release(&p->out);
        free(p);
    }
}

static void close_peer(struct peer *p)
{
    if (p->is_closing) {
        return;
    }
    p->is_closing = true;
    if (p->server) {
        struct peer **at = &p->server->peers;

        while (*at != p) {
            at = &(*at)->next;
        }
        *at = p->next;
        p->server->n_peers--;
    }
    uv_close((uv_handle_t *)&p->pipe, peer_freed);
    uv_close((uv_handle_t *)&p->idle, peer_freed);
}

static void on_idle(uv_timer_t *t)
{
    close_peer(t->data);
}

static void process_input(struct peer *p);

static void on_written(uv_write_t *req, int status)
{
    struct peer *p = req->data;

    p->is_writing = false;
    buf_clear(&p->out);
    if (p->is_closing) {
        return;
    }
    if (status < 0) {
        close_peer(p);
        return;
    }
    process_input(p);
}

static void send_out(struct peer *p)
{
    uv_buf_t b = uv_buf_init(p->out.data, (unsigned)p->out.len);

    p->write.data = p;
    p->is_writing = true;
    if (p->out.failed ||
        uv_write(&p->write, (uv_stream_t *)&p->pipe, &b, 1, on_written) < 0) {
        p->is_writing = false;
        close_peer(p);
    }
}

int control_dispatch(control_f *on_request, void *arg, const char *text,
                     size_t len, struct jsonw *reply, struct error *e)
{
    json_error_t je;
    json_t *root = json_loadb(text, len, 0, &je);
    const json_t *version = json_object_get(root, "v");
    const char *op = json_string_value(json_object_get(root, "op"));
    int rc;

    if (!root) {
        return error_text(e, ERR_FORMAT, "request: %.200s", je.text);
    }
    if (!json_is_integer(version) || json_integer_value(version) < 1 || !op) {
        rc = error_text(e, ERR_FORMAT, "request: expected an object with 'v' "
                        "and 'op'");
    } else if (json_integer_value(version) > CONTROL_VERSION) {
        rc = error_text(e, ERR_VERSION, "request: of a newer muster");
    } else {
        rc = on_request(arg, op, root, reply, e);
    }
    json_decref(root);
    return rc;
}

/* Answers one line. What the callee added to the reply before it failed is
 * dropped. */
static void answer(struct peer *p, const char *line, size_t len)
{
    struct control_server *s = p->server;
    struct jsonw w = jsonw_start(&p->out);
    struct error e = {0};
    int rc;

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", CONTROL_VERSION);
    jsonw_bool(&w, "ok", true);
    rc = control_dispatch(s->on_request, s->arg, line, len, &w, &e);
    if (rc < 0) {
        buf_clear(&p->out);
        w = jsonw_start(&p->out);
        jsonw_object(&w, NULL);
        jsonw_int(&w, "v", CONTROL_VERSION);
        jsonw_bool(&w, "ok", false);
        jsonw_str(&w, "text", e.text);
    }
    jsonw_end_object(&w);
    buf_putc(&p->out, '\n');
}

/* One request at a time: the next line waits until the answer is written. */
static void process_input(struct peer *p)
{
    char *end = p->in.len ? memchr(p->in.data, '\n', p->in.len) : NULL;

    if (p->is_writing || p->is_closing) {
        return;
    }
    if (!end) {
        if (p->in.len >= CONTROL_MAX_LINE) {
            close_peer(p);
        }
        return;
    }
    answer(p, p->in.data, (size_t)(end - p->in.data));
    buf_consume(&p->in, (size_t)(end - p->in.data) + 1);
    uv_timer_again(&p->idle);
    send_out(p);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    struct peer *p = h->data;
    size_t room = CONTROL_MAX_LINE + 1 - p->in.len;
    char *at;

    (void)suggested;
    room = room > 4096 ? 4096 : room;
    at = p->in.len > CONTROL_MAX_LINE ? NULL : buf_reserve(&p->in, room);
    *b = uv_buf_init(at, at ? (unsigned)room : 0);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b)
{
    struct peer *p = stream->data;

    (void)b;
    if (n < 0) {
        close_peer(p);
        return;
    }
    p->in.len += (size_t)n;
    process_input(p);
}

static bool is_same_user(uv_pipe_t *pipe)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    uv_os_fd_t fd;

    if (uv_fileno((uv_handle_t *)pipe, &fd) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
        return false;
    }
    return cred.uid == geteuid() || cred.uid == 0;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct control_server *s = stream->data;
    struct peer *p = status < 0 ? NULL : calloc(1, sizeof(*p));

    if (!p) {
        return;
    }
    p->server = s;
    p->n_open = 2;
    uv_pipe_init(s->loop, &p->pipe, 0);
    uv_timer_init(s->loop, &p->idle);
    p->pipe.data = p;
    p->idle.data = p;
    p->next = s->peers;
    s->peers = p;
    s->n_peers++;
    if (uv_accept(stream, (uv_stream_t *)&p->pipe) < 0 ||
        s->n_peers > MAX_PEERS || !is_same_user(&p->pipe) ||
        uv_timer_start(&p->idle, on_idle, IDLE_MS, IDLE_MS) < 0 ||
        uv_read_start((uv_stream_t *)&p->pipe, on_alloc, on_read) < 0) {
        close_peer(p);
    }
}

/* Listens under a name inside a directory that only this user can enter; by way
 * of the descriptor, because a socket's path is at most 107 bytes. The name is
 * there only once the socket listens: one that does not is taken for a leftover. */
static int listen_at(struct control_server *s, int *ret_fd, struct error *e)
{
    _close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                            0);
    struct sockaddr_un sa;
    char name[CONTROL_NAME_SIZE + 16];
    mode_t old;
    int rc;

    if (fd < 0) {
        return error_set(e, errno, "make a socket");
    }
    snprintf(name, sizeof(name), "%s.%ld", s->name, (long)getpid());
    control_address(s->dir_fd, name, &sa);
    unlinkat(s->dir_fd, name, 0);
    old = umask(0177);
    rc = bind(fd, (struct sockaddr *)&sa, sizeof(sa));
    umask(old);
    if (rc < 0 || listen(fd, BACKLOG) < 0 ||
        renameat(s->dir_fd, name, s->dir_fd, s->name) < 0) {
        rc = error_set(e, errno, "listen as %s", s->name);
        unlinkat(s->dir_fd, name, 0);
        return rc;
    }
    *ret_fd = take_fd(&fd);
    return 0;
}

int control_server_create(uv_loop_t *loop, const char *run_id, const char *name,
                          control_f *on_request, void *arg,
                          struct control_server **ret, struct error *e)
{
    struct control_server *s = calloc(1, sizeof(*s));
    _close_ int dir_fd = -1, fd = -1;
    int rc;

    if (!s) {
        return error_set(e, ENOMEM, "open the control socket");
    }
    rc = fs_path(s->name, sizeof(s->name), e, "%s" CONTROL_SUFFIX, name);
    rc = rc < 0 ? rc : control_open_dir(run_id, true, &dir_fd, e);
    if (rc == 0) {
        s->dir_fd = dir_fd;
        rc = listen_at(s, &fd, e);
    }
    if (rc < 0) {
        free(s);
        return error_wrap(e, "control socket");
    }
    s->loop = loop;
    s->on_request = on_request;
    s->arg = arg;
    uv_pipe_init(loop, &s->pipe, 0);
    s->pipe.data = s;
    rc = uv_pipe_open(&s->pipe, fd);
    if (rc == 0) {
        take_fd(&fd);
        rc = uv_listen((uv_stream_t *)&s->pipe, BACKLOG, on_connection);
    }
    take_fd(&dir_fd);
    if (rc < 0) {
        control_server_destroy(s);
        return error_set(e, -rc, "listen on the control socket");
    }
    *ret = s;
    return 0;
}

static void server_freed(uv_handle_t *h)
{
    free(h->data);
}

void control_server_destroy(struct control_server *s)
{
    if (!s) {
        return;
    }
    while (s->peers) {
        struct peer *p = s->peers;

        s->peers = p->next;
        p->server = NULL;
        close_peer(p);
    }
    unlinkat(s->dir_fd, s->name, 0);
    control_remove_dir(s->dir_fd);
    close_fd(&s->dir_fd);
    uv_close((uv_handle_t *)&s->pipe, server_freed);
}
