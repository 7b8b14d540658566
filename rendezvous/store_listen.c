/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses on which a store's server takes clients, all with one port. */
#include <config.h>

#include "rendezvous/store_server_priv.h"

#include <errno.h>
#include <stdlib.h>

enum {
    BACKLOG = 4096, /* all workers of a job connect at the same moment */
    PORT_TRIES = 16,
};

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;
    struct store_server *srv = listener->srv;

    free(listener);
    store_server_handle_gone(srv);
}

static void on_connection(uv_stream_t *stream, int status)
{
    if (status == 0) {
        store_server_accept(stream->data);
    }
}

static int listen_on(struct store_server *srv, const char *address,
                     struct error *e)
{
    struct sockaddr_storage sa;
    int len = sizeof(sa);
    struct listener *listener;
    int rc = addr_parse(address, srv->port, &sa, e);

    if (rc < 0) {
        return rc;
    }
    listener = calloc(1, sizeof(*listener));
    if (!listener) {
        return error_set(e, ENOMEM, "store server");
    }
    listener->srv = srv;
    listener->tcp.data = listener;
    listener->next = srv->listeners;
    srv->listeners = listener;
    srv->n_handles++;
    uv_tcp_init(srv->loop, &listener->tcp);
    rc = uv_tcp_bind(&listener->tcp, (struct sockaddr *)&sa, 0);
    if (rc == 0) {
        rc = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, on_connection);
    }
    if (rc == 0) {
        rc = uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&sa, &len);
    }
    if (rc < 0) {
        return error_set(e, -rc, "listen on %s port %u", address, srv->port);
    }
    addr_format((struct sockaddr *)&sa, (char[ADDR_MAX]){0}, &srv->port);
    return 0;
}

void store_listen_end(struct store_server *srv)
{
    while (srv->listeners) {
        struct listener *listener = srv->listeners;

        srv->listeners = listener->next;
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
    }
}

static int listen_anywhere(struct store_server *srv, struct error *e)
{
    srv->port = srv->config.port;
    if (listen_on(srv, "::", e) == 0) {
        return 0;
    }
    store_listen_end(srv); /* a host without IPv6 */
    srv->port = srv->config.port;
    return listen_on(srv, "0.0.0.0", e);
}

/* A port that is free on the first address may be taken on another. */
static int listen_on_all(struct store_server *srv,
                         const char *const *addresses, struct error *e)
{
    int rc = -EADDRINUSE;
    int tries = srv->config.port ? 1 : PORT_TRIES;

    while (tries-- > 0 && rc == -EADDRINUSE) {
        store_listen_end(srv);
        srv->port = srv->config.port;
        rc = 0;
        for (size_t i = 0; addresses[i] && rc == 0; i++) {
            rc = listen_on(srv, addresses[i], e);
        }
    }
    return rc;
}

int store_listen(struct store_server *srv, const char *const *addresses,
                 struct error *e)
{
    return addresses && addresses[0] ? listen_on_all(srv, addresses, e)
                                     : listen_anywhere(srv, e);
}
