/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_server_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { RETRY_MS = 200 };

/* One try to connect, and the connection when it succeeds. */
struct line {
    uv_tcp_t tcp;
    uv_connect_t request;
    struct store_uplink *up;
};

struct store_uplink {
    struct store_server *srv;
    struct store_relay *relay;
    struct sockaddr_storage to;
    struct line *line; /* NULL between two tries, and when it is lost */
    bool is_connected;
    bool is_closed;
    uv_timer_t retry;
    char read_buffer[STORE_READ_BYTES];
};

struct load {
    uv_write_t request;
    struct store_uplink *up;
    size_t len;
    char *data;
};

static void on_line_closed(uv_handle_t *handle)
{
    struct line *line = handle->data;
    struct store_server *srv = line->up->srv;

    free(line);
    store_server_handle_gone(srv);
}

static void drop_line(struct store_uplink *up)
{
    if (up->line) {
        uv_close((uv_handle_t *)&up->line->tcp, on_line_closed);
        up->line = NULL;
    }
    up->is_connected = false;
}

static void lose(struct store_uplink *up)
{
    if (up->is_closed || !up->line) {
        return;
    }
    drop_line(up);
    store_server_lost(up->srv);
}

static void on_written(uv_write_t *request, int status)
{
    struct load *load = request->data;
    struct store_uplink *up = load->up;
    bool was_held = store_relay_held(up->relay);

    store_relay_sent(up->relay, load->len);
    free(load->data);
    free(load);
    if (status < 0) {
        lose(up);
    } else if (was_held && !store_relay_held(up->relay)) {
        store_server_go_on(up->srv);
    }
}

/* Takes over `data`, of which `at` bytes have gone. */
static int write_rest(struct store_uplink *up, char *data, size_t len,
                      size_t at)
{
    struct load *load = calloc(1, sizeof(*load));
    uv_buf_t buf = uv_buf_init(data + at, (unsigned)(len - at));
    int rc = -ENOMEM;

    if (load) {
        *load = (struct load){.up = up, .len = len - at, .data = data};
        load->request.data = load;
        rc = uv_write(&load->request, (uv_stream_t *)&up->line->tcp, &buf, 1,
                      on_written);
    }
    if (rc < 0) {
        store_relay_sent(up->relay, len - at);
        free(data);
        free(load);
    }
    return rc;
}

void store_uplink_flush(struct store_uplink *up)
{
    bool was_held = store_relay_held(up->relay);
    size_t len;
    char *data = up->is_connected ? store_relay_take(up->relay, &len) : NULL;
    uv_buf_t buf;
    int n = 0;

    if (!data) {
        return;
    }
    buf = uv_buf_init(data, (unsigned)len);
    /* Who was held goes on in on_written(). */
    if (!was_held) {
        n = uv_try_write((uv_stream_t *)&up->line->tcp, &buf, 1);
    }
    if (n > 0) {
        store_relay_sent(up->relay, (size_t)n);
    }
    if (n == (int)len) {
        free(data);
        return;
    }
    n = write_rest(up, data, len, n > 0 ? (size_t)n : 0);
    if (n < 0) {
        lose(up);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct line *line = handle->data;

    (void)suggested;
    *ret = uv_buf_init(line->up->read_buffer, STORE_READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct line *line = stream->data;

    if (n < 0 || (n > 0 && store_relay_feed(line->up->relay, buf->base,
                                            (size_t)n, NULL) < 0)) {
        lose(line->up);
    }
}

static void on_retry(uv_timer_t *timer);

static void try_later(struct store_uplink *up)
{
    drop_line(up);
    if (!up->is_closed) {
        uv_timer_start(&up->retry, on_retry, RETRY_MS, 0);
    }
}

static void on_connected(uv_connect_t *request, int status)
{
    struct line *line = request->data;
    struct store_uplink *up = line->up;

    if (up->line != line) {
        return; /* closed meanwhile */
    }
    if (status < 0) {
        try_later(up);
        return;
    }
    up->is_connected = true;
    uv_tcp_nodelay(&line->tcp, 1);
    uv_tcp_keepalive(&line->tcp, 1, STORE_KEEPALIVE_S);
    uv_read_start((uv_stream_t *)&line->tcp, on_alloc, on_read);
    store_uplink_flush(up);
}

static void try_now(struct store_uplink *up)
{
    struct line *line = calloc(1, sizeof(*line));

    if (!line) {
        try_later(up);
        return;
    }
    line->up = up;
    line->tcp.data = line;
    line->request.data = line;
    uv_tcp_init(up->srv->loop, &line->tcp);
    up->srv->n_handles++;
    up->line = line;
    if (uv_tcp_connect(&line->request, &line->tcp,
                       (struct sockaddr *)&up->to, on_connected) < 0) {
        try_later(up);
    }
}

static void on_retry(uv_timer_t *timer)
{
    try_now(timer->data);
}

int store_uplink_open(struct store_server *srv, const char *address,
                      uint16_t port, struct error *e)
{
    struct store_uplink *up = calloc(1, sizeof(*up));
    int rc = up ? addr_parse(address, port, &up->to, e)
                : error_set(e, ENOMEM, "store server");

    if (rc == 0) {
        up->srv = srv;
        up->relay = store_relay_create(srv->store);
        rc = up->relay ? 0 : error_set(e, ENOMEM, "store server");
    }
    if (rc < 0) {
        free(up);
        return rc;
    }
    uv_timer_init(srv->loop, &up->retry);
    up->retry.data = up;
    srv->n_handles++;
    srv->uplink = up;
    try_now(up);
    return 0;
}

static void on_retry_closed(uv_handle_t *handle)
{
    struct store_uplink *up = handle->data;

    store_server_handle_gone(up->srv);
}

void store_uplink_close(struct store_uplink *up)
{
    if (up) {
        up->is_closed = true;
        drop_line(up);
        uv_close((uv_handle_t *)&up->retry, on_retry_closed);
    }
}

void store_uplink_free(struct store_uplink *up)
{
    if (up) {
        store_relay_destroy(up->relay);
        free(up);
    }
}
