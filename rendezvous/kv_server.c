/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd without threads: it has its own epoll set, whose descriptor is
 * polled by the loop, and says how long it may be left alone.
 */
#include <config.h>

#include "rendezvous/kv_server.h"

#include "base/cleanup.h"

#include <errno.h>

#ifndef HAVE_MICROHTTPD_H

bool kv_server_is_built(void)
{
    return false;
}

int kv_server_create(uv_loop_t *loop, const struct kv_config *config,
                     struct kv_server **ret, struct error *e)
{
    (void)loop;
    (void)config;
    (void)ret;
    return error_text(e, ENOTSUP, "this muster was built without "
                      "libmicrohttpd: Horovod's rendezvous cannot be served");
}

uint16_t kv_server_port(const struct kv_server *srv)
{
    (void)srv;
    return 0;
}

int kv_server_set_allowed(struct kv_server *srv, const char *const *addresses,
                          size_t n, struct error *e)
{
    (void)srv;
    (void)addresses;
    (void)n;
    (void)e;
    return 0;
}

void kv_server_destroy(struct kv_server *srv)
{
    (void)srv;
}

#else

#include "base/addr.h"
#include "base/buf.h"
#include "base/symbol.h"
#include "rendezvous/allow.h"

#include <dlfcn.h>
#include <microhttpd.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY "libmicrohttpd.so.12"

enum {
    DEFAULT_MAX_CONNS = 16384,
    DEFAULT_REQUEST_MS = 30 * 1000,
    CONN_BYTES = 8 * 1024, /* of memory for headers */
    BACKLOG = 4096,        /* all workers of a job connect at the same moment */
};

/* The library's functions, by their own names. */
#define FUNCTIONS(X)                                                          \
    X(MHD_start_daemon)                                                       \
    X(MHD_stop_daemon)                                                        \
    X(MHD_run)                                                                \
    X(MHD_get_timeout)                                                        \
    X(MHD_get_daemon_info)                                                    \
    X(MHD_get_connection_info)                                                \
    X(MHD_queue_response)                                                     \
    X(MHD_create_response_from_buffer)                                        \
    X(MHD_create_response_from_buffer_with_free_callback)                     \
    X(MHD_destroy_response)

#define MEMBER(name) __typeof__(&name) name;
struct library {
    FUNCTIONS(MEMBER)
};

/* A client's connection, which outlives its requests. */
struct peer {
    struct kv_server *srv;
    struct peer *prev;
    struct peer *next;
    int fd;
    uint64_t since_ms; /* its beginning, or the end of its last request */
};

/* What comes of a PUT so far. */
struct request {
    struct kv_server *srv;
    struct buf body;
    bool is_too_large;
};

struct kv_server {
    struct library lib;
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_timer_t timer; /* when the library wants to run */
    uv_timer_t sweep; /* closes peers that are late; runs while there are any */
    unsigned n_handles;
    struct MHD_Daemon *daemon;
    struct kv *kv;
    struct allow allowed;
    struct peer *peers;
    size_t upload_bytes; /* of requests that have not ended */
    unsigned request_timeout_ms;
    uint16_t port;
};

bool kv_server_is_built(void)
{
    return true;
}

/* --- the library --- */

/* Found once a process: it is not closed again. */
static int open_library(struct library *lib, struct error *e)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;

    if (!handle) {
        return error_text(e, ENOTSUP, "Horovod's rendezvous needs " LIBRARY
                          " on the node of rank 0: %s", dlerror());
    }
#define LOOK_UP(name)                                                         \
    missing = symbol_find(handle, #name, &lib->name) ? missing : #name;
    FUNCTIONS(LOOK_UP)
    return missing ? error_text(e, ENOTSUP, LIBRARY " has no %s", missing) : 0;
}

/* --- answers --- */

static enum MHD_Result answer(struct kv_server *srv,
                              struct MHD_Connection *conn, unsigned status)
{
    struct MHD_Response *r = srv->lib.MHD_create_response_from_buffer(
        0, (void *)(uintptr_t)"", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result rc;

    if (!r) {
        return MHD_NO;
    }
    rc = srv->lib.MHD_queue_response(conn, status, r);
    srv->lib.MHD_destroy_response(r);
    return rc;
}

static void on_value_sent(void *data)
{
    kv_value_unref((struct kv_value *)((char *)data -
                                       offsetof(struct kv_value, data)));
}

static enum MHD_Result answer_get(struct kv_server *srv,
                                  struct MHD_Connection *conn,
                                  const char *path)
{
    struct kv_value *v = kv_get(srv->kv, path);
    struct MHD_Response *r;
    enum MHD_Result rc;

    if (!v) {
        return answer(srv, conn, MHD_HTTP_NOT_FOUND);
    }
    r = srv->lib.MHD_create_response_from_buffer_with_free_callback(
        v->len, v->data, on_value_sent);
    if (!r) {
        kv_value_unref(v);
        return MHD_NO;
    }
    rc = srv->lib.MHD_queue_response(conn, MHD_HTTP_OK, r);
    srv->lib.MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result answer_put(struct kv_server *srv,
                                  struct MHD_Connection *conn,
                                  const char *path, const struct request *q)
{
    int rc = q->is_too_large
                 ? -EFBIG
                 : kv_put(srv->kv, path, q->body.data, q->body.len);

    return answer(srv, conn,
                  rc == 0         ? MHD_HTTP_OK
                  : rc == -EINVAL ? MHD_HTTP_BAD_REQUEST
                  : rc == -EFBIG  ? MHD_HTTP_CONTENT_TOO_LARGE
                                  : MHD_HTTP_INSUFFICIENT_STORAGE);
}

/* --- requests --- */

static void drop_body(struct request *q)
{
    q->srv->upload_bytes -= q->body.len;
    buf_release(&q->body);
}

static void take_body(struct request *q, const char *data, size_t len)
{
    struct kv_server *srv = q->srv;
    const struct kv_limits *limits = kv_limits(srv->kv);

    if (q->is_too_large) {
        return;
    }
    if (q->body.len + len > limits->value_bytes ||
        kv_used_bytes(srv->kv) + srv->upload_bytes + len >
            limits->memory_bytes) {
        q->is_too_large = true;
        drop_body(q);
        return;
    }
    buf_append(&q->body, data, len);
    if (q->body.failed) {
        srv->upload_bytes -= q->body.len;
        q->body.len = 0;
        q->is_too_large = true;
        return;
    }
    srv->upload_bytes += len;
}

/* Called for the headers, for each part of a body, and at the end of it. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn,
                                  const char *url, const char *method,
                                  const char *version, const char *data,
                                  size_t *data_len, void **ctx)
{
    struct kv_server *srv = arg;
    struct request *q = *ctx;
    const char *path = url[0] == '/' ? url + 1 : url;

    (void)version;
    if (!q) {
        q = calloc(1, sizeof(*q));
        if (!q) {
            return MHD_NO;
        }
        q->srv = srv;
        *ctx = q;
        return MHD_YES;
    }
    if (*data_len) {
        take_body(q, data, *data_len);
        *data_len = 0;
        return MHD_YES;
    }
    if (!kv_is_path(srv->kv, path)) {
        return answer(srv, conn, MHD_HTTP_BAD_REQUEST);
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) == 0) {
        return answer_get(srv, conn, path);
    }
    if (strcmp(method, MHD_HTTP_METHOD_PUT) == 0) {
        return answer_put(srv, conn, path, q);
    }
    if (strcmp(method, MHD_HTTP_METHOD_DELETE) == 0) {
        kv_finish(srv->kv, path);
        return answer(srv, conn, MHD_HTTP_OK);
    }
    return answer(srv, conn, MHD_HTTP_METHOD_NOT_ALLOWED);
}

static void on_completed(void *arg, struct MHD_Connection *conn, void **ctx,
                         enum MHD_RequestTerminationCode how)
{
    struct kv_server *srv = arg;
    struct request *q = *ctx;
    const union MHD_ConnectionInfo *info = srv->lib.MHD_get_connection_info(
        conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    (void)how;
    if (info && info->socket_context) {
        ((struct peer *)info->socket_context)->since_ms = uv_now(srv->loop);
    }
    if (q) {
        drop_body(q);
        free(q);
        *ctx = NULL;
    }
}

/* --- connections --- */

static enum MHD_Result on_accept(void *arg, const struct sockaddr *addr,
                                 socklen_t len)
{
    const struct kv_server *srv = arg;
    char peer[ADDR_MAX];

    (void)len;
    addr_format(addr, peer, NULL);
    return allow_has(&srv->allowed, peer) ? MHD_YES : MHD_NO;
}

static void on_sweep(uv_timer_t *timer)
{
    struct kv_server *srv = timer->data;
    uint64_t now_ms = uv_now(srv->loop);

    for (struct peer *p = srv->peers; p; p = p->next) {
        if (now_ms - p->since_ms >= srv->request_timeout_ms) {
            /* The library closes it, when it sees its end. */
            shutdown(p->fd, SHUT_RDWR);
        }
    }
}

static void add_peer(struct kv_server *srv, struct MHD_Connection *conn,
                     void **context)
{
    const union MHD_ConnectionInfo *info = srv->lib.MHD_get_connection_info(
        conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct peer *p = calloc(1, sizeof(*p));

    if (!p || !info) {
        /* One that nobody watches must not be. */
        if (info) {
            shutdown(info->connect_fd, SHUT_RDWR);
        }
        free(p);
        return;
    }
    p->srv = srv;
    p->fd = info->connect_fd;
    p->since_ms = uv_now(srv->loop);
    p->next = srv->peers;
    if (p->next) {
        p->next->prev = p;
    }
    srv->peers = p;
    *context = p;
    if (!uv_is_active((uv_handle_t *)&srv->sweep)) {
        uint64_t every_ms = srv->request_timeout_ms / 4 + 1;

        uv_timer_start(&srv->sweep, on_sweep, every_ms, every_ms);
    }
}

static void remove_peer(struct peer *p)
{
    struct kv_server *srv = p->srv;

    if (p->prev) {
        p->prev->next = p->next;
    } else {
        srv->peers = p->next;
    }
    if (p->next) {
        p->next->prev = p->prev;
    }
    free(p);
    if (!srv->peers) {
        uv_timer_stop(&srv->sweep);
    }
}

static void on_connection(void *arg, struct MHD_Connection *conn,
                          void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        add_peer(arg, conn, context);
    } else if (*context) {
        remove_peer(*context);
        *context = NULL;
    }
}

/* --- the loop --- */

static void on_timer(uv_timer_t *timer);

static void run(struct kv_server *srv)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;

    srv->lib.MHD_run(srv->daemon);
    if (srv->lib.MHD_get_timeout(srv->daemon, &wait_ms) == MHD_YES) {
        uv_timer_start(&srv->timer, on_timer, wait_ms, 0);
    } else {
        uv_timer_stop(&srv->timer);
    }
}

static void on_timer(uv_timer_t *timer)
{
    run(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run(poll->data);
}

static void on_closed(uv_handle_t *handle)
{
    struct kv_server *srv = handle->data;

    if (--srv->n_handles > 0) {
        return;
    }
    /* After the poll, which knows the library's descriptor. */
    if (srv->daemon) {
        srv->lib.MHD_stop_daemon(srv->daemon);
    }
    kv_destroy(srv->kv);
    allow_release(&srv->allowed);
    free(srv);
}

void kv_server_destroy(struct kv_server *srv)
{
    if (!srv) {
        return;
    }
    uv_close((uv_handle_t *)&srv->poll, on_closed);
    uv_close((uv_handle_t *)&srv->timer, on_closed);
    uv_close((uv_handle_t *)&srv->sweep, on_closed);
}

/* --- making one --- */

static int bind_socket(int family, const struct sockaddr *sa, socklen_t len,
                       int *ret, struct error *e)
{
    _close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                            0);
    int on = 1, off = 0;

    if (fd < 0) {
        return error_set(e, errno, "open a socket");
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(fd, sa, len) < 0 || listen(fd, BACKLOG) < 0) {
        return error_set(e, errno, "listen for Horovod's rendezvous");
    }
    *ret = take_fd(&fd);
    return 0;
}

static int open_socket(const struct kv_config *c, int *ret, uint16_t *ret_port,
                       struct error *e)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof(sa);
    char text[ADDR_MAX];
    int rc = addr_parse(c->address ? c->address : "::", c->port, &sa, e);

    rc = rc < 0 ? rc : bind_socket(sa.ss_family, (struct sockaddr *)&sa,
                                   sizeof(sa), ret, e);
    if (rc == -EAFNOSUPPORT && !c->address) {
        rc = addr_parse("0.0.0.0", c->port, &sa, e);
        rc = rc < 0 ? rc : bind_socket(AF_INET, (struct sockaddr *)&sa,
                                       sizeof(sa), ret, e);
    }
    if (rc == 0 && getsockname(*ret, (struct sockaddr *)&sa, &len) == 0) {
        addr_format((struct sockaddr *)&sa, text, ret_port);
    }
    return rc;
}

static int start_daemon(struct kv_server *srv, const struct kv_config *c,
                        struct error *e)
{
    const union MHD_DaemonInfo *info;
    _close_ int fd = -1;
    int rc = open_socket(c, &fd, &srv->port, e);

    if (rc < 0) {
        return rc;
    }
    srv->daemon = srv->lib.MHD_start_daemon(
        MHD_USE_EPOLL, 0, on_accept, srv, on_request, srv,
        MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT,
        c->max_conns ? c->max_conns : (unsigned)DEFAULT_MAX_CONNS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, srv,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, srv, MHD_OPTION_END);
    if (!srv->daemon) {
        return error_text(e, EIO, "libmicrohttpd does not start");
    }
    take_fd(&fd); /* the library's */
    info = srv->lib.MHD_get_daemon_info(srv->daemon,
                                        MHD_DAEMON_INFO_EPOLL_FD);
    rc = info ? uv_poll_init(srv->loop, &srv->poll, info->epoll_fd) : -ENOTSUP;
    if (rc < 0) {
        srv->lib.MHD_stop_daemon(srv->daemon);
        return error_text(e, -rc, "libmicrohttpd cannot be polled: %s",
                          uv_strerror(rc));
    }
    return 0;
}

int kv_server_create(uv_loop_t *loop, const struct kv_config *config,
                     struct kv_server **ret, struct error *e)
{
    struct kv_server *srv = calloc(1, sizeof(*srv));
    uint8_t seed[16];
    int rc;

    if (!srv) {
        return error_set(e, ENOMEM, "serve Horovod's rendezvous");
    }
    randombytes_buf(seed, sizeof(seed));
    srv->loop = loop;
    srv->request_timeout_ms = config->request_timeout_ms
                                  ? config->request_timeout_ms
                                  : (unsigned)DEFAULT_REQUEST_MS;
    srv->kv = kv_create(&config->limits, seed);
    rc = srv->kv ? open_library(&srv->lib, e)
                 : error_set(e, ENOMEM, "serve Horovod's rendezvous");
    rc = rc < 0 ? rc : start_daemon(srv, config, e);
    if (rc < 0) {
        kv_destroy(srv->kv);
        free(srv);
        return rc;
    }
    uv_timer_init(loop, &srv->timer);
    uv_timer_init(loop, &srv->sweep);
    srv->poll.data = srv->timer.data = srv->sweep.data = srv;
    srv->n_handles = 3;
    uv_poll_start(&srv->poll, UV_READABLE, on_poll);
    *ret = srv;
    return 0;
}

uint16_t kv_server_port(const struct kv_server *srv)
{
    return srv->port;
}

int kv_server_set_allowed(struct kv_server *srv, const char *const *addresses,
                          size_t n, struct error *e)
{
    return allow_set(&srv->allowed, addresses, n, e);
}

#endif
