/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_server_priv.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_MAX_CONNS = 65536,
    DEFAULT_REQUEST_MS = 120 * 1000,
    DEFAULT_TRUNK_MS = 30 * 1000,
    MAX_WRITE_BYTES = 1 << 30, /* libuv counts in 32 bits */
};

/* The end of handles */

void store_server_handle_gone(struct store_server *srv)
{
    void (*done)(void *) = srv->done;
    void *ctx = srv->done_ctx;

    if (--srv->n_handles > 0 || !srv->destroyed) {
        return;
    }
    store_destroy(srv->store);
    allow_release(&srv->allowed);
    free(srv);
    if (done) {
        done(ctx);
    }
}

static void on_own_closed(uv_handle_t *handle)
{
    store_server_handle_gone(handle->data);
}

static void on_client_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;
    struct store_server *srv = client->srv;

    free(client);
    store_server_handle_gone(srv);
}

static void close_client(struct client *client)
{
    struct store_server *srv = client->srv;

    if (!client->conn) {
        return;
    }
    store_close(srv->store, client->conn);
    client->conn = NULL;
    srv->n_held -= client->is_held;
    if (client->prev) {
        client->prev->next = client->next;
    } else {
        srv->clients = client->next;
    }
    if (client->next) {
        client->next->prev = client->prev;
    }
    uv_close((uv_handle_t *)&client->tcp, on_client_closed);
}

void store_server_tell_refused(struct store_server *srv, const char *peer,
                               const char *why)
{
    if (srv->config.on_refused) {
        srv->config.on_refused(srv->config.ctx, peer, why);
    }
}

/* Closes, and then tells: the callback may close others or reset. */
static void refuse(struct client *client, const char *why)
{
    char peer[ADDR_MAX];

    str_copy(peer, sizeof(peer), client->peer);
    close_client(client);
    store_server_tell_refused(client->srv, peer, why);
}

/* Answers */

static void go_on(struct client *client);
static bool go_on_held(struct store_server *srv);

static void on_written(uv_write_t *request, int status)
{
    struct answer *answer = request->data;
    struct client *client = answer->client;

    free(answer->data);
    if (client->conn) {
        bool was_held = store_conn_held(client->conn);

        store_sent(client->srv->store, client->conn, answer->len);
        if (status < 0) {
            close_client(client);
        } else if (was_held && !store_conn_held(client->conn)) {
            go_on(client);
            store_server_turn(client->srv); /* the loop may be about to wait */
        }
    }
    free(answer);
}

/* What the network does not take at once. */
static int send_later(struct client *client)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    uv_buf_t buf;
    int rc;

    if (!answer) {
        return -ENOMEM;
    }
    answer->client = client;
    answer->request.data = answer;
    answer->data = store_take(client->conn, &answer->len);
    buf = uv_buf_init(answer->data, (unsigned)answer->len);
    rc = uv_write(&answer->request, (uv_stream_t *)&client->tcp, &buf, 1,
                  on_written);
    if (rc < 0) {
        store_sent(client->srv->store, client->conn, answer->len);
        free(answer->data);
        free(answer);
    }
    return rc;
}

static int send_answers(struct client *client)
{
    size_t len;
    const char *data = store_answers(client->conn, &len);
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)len);
    int n;

    if (len == 0) {
        return 0; /* it is here to go on, after others */
    }
    /* Held requests go on when it has read, and after the others' turn. */
    if (store_conn_held(client->conn)) {
        return send_later(client);
    }
    n = uv_try_write((uv_stream_t *)&client->tcp, &buf, 1);
    if (n > 0) {
        store_sent_now(client->srv->store, client->conn, (size_t)n);
    }
    if (n < 0 && n != UV_EAGAIN) {
        return n;
    }
    return n == (int)len ? 0 : send_later(client);
}

/* Sends what all connections have to be told. */
static void flush(struct store_server *srv)
{
    struct store_conn *conn;

    while ((conn = store_next_ready(srv->store)) != NULL) {
        struct client *client = store_conn_owner(conn);

        if (store_conn_trunk(conn)) {
            store_branch_collect(store_conn_owner(conn), conn);
        } else if (store_conn_broken(conn) || send_answers(client) < 0) {
            close_client(client);
        } else if (store_conn_due(conn)) {
            go_on(client);
        }
    }
}

void store_server_turn(struct store_server *srv)
{
    bool more = true;

    while (more) {
        flush(srv);
        more = store_branches_send(srv);
        if (srv->uplink) {
            store_uplink_flush(srv->uplink);
            more = go_on_held(srv);
        }
    }
}

static void on_answer(void *ctx)
{
    store_server_turn(ctx);
}

/* Requests */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct client *client = handle->data;

    (void)suggested;
    *ret = uv_buf_init(client->srv->read_buffer, STORE_READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);
static void start_sweep(struct store_server *srv, bool at_once);

/* Closes the first client whose request is late. True if there was one. */
static bool refuse_late(struct store_server *srv, bool *ret_any_request)
{
    uint64_t now_ms = uv_now(srv->loop);

    *ret_any_request = false;
    for (struct client *c = srv->clients; c; c = c->next) {
        if (!c->request) {
            continue;
        }
        *ret_any_request = true;
        if (now_ms - c->since_ms >= srv->config.request_timeout_ms) {
            refuse(c, "request not finished in time");
            return true;
        }
    }
    return false;
}

static void on_sweep(uv_timer_t *timer)
{
    struct store_server *srv = timer->data;
    bool any_request;

    uv_timer_stop(timer);
    for (struct listener *l = srv->listeners; l; l = l->next) {
        if (l->pending) {
            store_server_accept(l);
        }
    }
    /* One at a time: telling of it may have changed the list. */
    if (refuse_late(srv, &any_request)) {
        start_sweep(srv, true);
    } else if (any_request) {
        start_sweep(srv, false);
    }
}

static void start_sweep(struct store_server *srv, bool at_once)
{
    uint64_t wait_ms = at_once ? 0 : srv->config.request_timeout_ms / 4 + 1;

    if (!uv_is_active((uv_handle_t *)&srv->sweep)) {
        uv_timer_start(&srv->sweep, on_sweep, wait_ms, 0);
    }
}

/* Keeps the time at which the request that is incomplete now began. */
static void watch_request(struct client *client)
{
    struct store_server *srv = client->srv;
    uint64_t request = store_conn_partial(client->conn);

    if (request && request != client->request) {
        client->since_ms = uv_now(srv->loop);
        start_sweep(srv, false);
    }
    client->request = request;
}

/* After requests of `client` were run with the result `rc`. */
static void after_requests(struct client *client, int rc, const char *why)
{
    if (rc < 0) {
        refuse(client, why);
        return;
    }
    watch_request(client);
    if (store_conn_held(client->conn) == client->is_held) {
        return;
    }
    client->is_held = !client->is_held;
    if (client->is_held) {
        client->srv->n_held++;
        uv_read_stop((uv_stream_t *)&client->tcp);
    } else {
        client->srv->n_held--;
        uv_read_start((uv_stream_t *)&client->tcp, on_alloc, on_read);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct client *client = stream->data;
    struct error e = {0};

    if (n > 0) {
        int rc = store_feed(client->srv->store, client->conn, buf->base,
                            (size_t)n, &e);

        store_turn_read(&client->srv->turn);
        after_requests(client, rc, e.text);
    } else if (n < 0) {
        store_server_turn(client->srv); /* it may still read what it has asked for */
        close_client(client);
    }
}

/* Its answers were read: the requests behind them are due. */
static void go_on(struct client *client)
{
    struct error e = {0};
    int rc = store_resume(client->srv->store, client->conn, &e);

    after_requests(client, rc, e.text);
}

/* Where the trunk was full: what was held back for it. True if there was any. */
static bool go_on_held(struct store_server *srv)
{
    struct client *c = srv->n_held ? srv->clients : NULL;
    bool any = false;

    while (c) {
        bool due = c->is_held && !store_conn_held(c->conn);

        if (due) {
            any = true;
            go_on(c); /* may close others: begin again */
        }
        c = due ? srv->clients : c->next;
    }
    return any;
}

/* Who may connect */

static void close_clients(struct store_server *srv, bool all)
{
    struct client *next;

    for (struct client *c = srv->clients; c; c = next) {
        next = c->next;
        if (all || !allow_has(&srv->allowed, c->peer)) {
            close_client(c);
        }
    }
}

int store_server_set_allowed(struct store_server *srv,
                             const char *const *addresses, size_t n,
                             struct error *e)
{
    int rc = allow_set(&srv->allowed, addresses, n, e);

    if (rc < 0) {
        return rc;
    }
    close_clients(srv, false);
    return 0;
}

/* Connections */

static void get_peer(struct client *client)
{
    struct sockaddr_storage sa = {0};
    int len = sizeof(sa);

    if (uv_tcp_getpeername(&client->tcp, (struct sockaddr *)&sa, &len) == 0) {
        addr_format((struct sockaddr *)&sa, client->peer, NULL);
    }
}

static void add_client(struct client *client)
{
    struct store_server *srv = client->srv;

    client->next = srv->clients;
    if (client->next) {
        client->next->prev = client;
    }
    srv->clients = client;
    uv_tcp_nodelay(&client->tcp, 1);
    uv_tcp_keepalive(&client->tcp, 1, STORE_KEEPALIVE_S);
    uv_read_start((uv_stream_t *)&client->tcp, on_alloc, on_read);
}

/* NULL if it may stay. */
static const char *find_objection(struct client *client)
{
    struct store_server *srv = client->srv;
    struct store_stats stats;

    if (!allow_has(&srv->allowed, client->peer)) {
        return "not a host of this run";
    }
    store_get_stats(srv->store, &stats);
    if (stats.n_conns >= srv->config.max_conns) {
        return "too many connections";
    }
    client->conn = store_open(srv->store, client);
    return client->conn ? NULL : "no memory";
}

/* libuv offers no further connection before this one was taken. */
void store_server_accept(struct listener *listener)
{
    struct store_server *srv = listener->srv;
    struct client *client = calloc(1, sizeof(*client));
    const char *why = NULL;

    listener->pending = !client;
    if (!client) {
        start_sweep(srv, false);
        return;
    }
    client->srv = srv;
    client->tcp.data = client;
    uv_tcp_init(srv->loop, &client->tcp);
    srv->n_handles++;
    if (uv_accept((uv_stream_t *)&listener->tcp,
                  (uv_stream_t *)&client->tcp) == 0) {
        get_peer(client);
        why = find_objection(client);
    }
    if (client->conn) {
        add_client(client);
    } else {
        char peer[ADDR_MAX];

        str_copy(peer, sizeof(peer), client->peer);
        uv_close((uv_handle_t *)&client->tcp, on_client_closed);
        if (why) {
            store_server_tell_refused(srv, peer, why);
        }
    }
}

void store_server_lost(struct store_server *srv)
{
    store_listen_end(srv);
    close_clients(srv, true);
}

static void set_config(struct store_server *srv,
                       const struct store_config *config)
{
    srv->config = *config;
    srv->config.addresses = NULL; /* the caller's */
    srv->config.upstream = NULL;
    if (!srv->config.max_conns) {
        srv->config.max_conns = DEFAULT_MAX_CONNS;
    }
    if (!srv->config.request_timeout_ms) {
        srv->config.request_timeout_ms = DEFAULT_REQUEST_MS;
    }
    if (!srv->config.trunk_timeout_ms) {
        srv->config.trunk_timeout_ms = DEFAULT_TRUNK_MS;
    }
    if (srv->config.limits.reply_bytes > MAX_WRITE_BYTES) {
        srv->config.limits.reply_bytes = MAX_WRITE_BYTES;
    }
}

int store_server_create(uv_loop_t *loop, const struct store_config *config,
                        struct store_server **ret, struct error *e)
{
    struct store_server *srv = calloc(1, sizeof(*srv));
    uint8_t seed[16];
    int rc;

    if (sodium_init() < 0) {
        free(srv);
        return error_text(e, EIO, "no source of random bytes");
    }
    randombytes_buf(seed, sizeof(seed));
    if (srv) {
        srv->loop = loop;
        set_config(srv, config);
        srv->store = store_create(&srv->config.limits, seed);
    }
    if (!srv || !srv->store) {
        free(srv);
        return error_set(e, ENOMEM, "store server");
    }
    uv_timer_init(loop, &srv->sweep);
    srv->sweep.data = srv;
    uv_timer_init(loop, &srv->patience);
    srv->patience.data = srv;
    store_turn_init(&srv->turn, loop, on_answer, srv);
    srv->n_handles = 2 + STORE_TURN_HANDLES;
    rc = config->upstream ? store_uplink_open(srv, config->upstream, e) : 0;
    if (rc == 0) {
        rc = store_listen(srv, config->addresses, e);
    }
    if (rc < 0) {
        store_server_destroy(srv, NULL, NULL);
        return rc;
    }
    *ret = srv;
    return 0;
}

uint16_t store_server_port(const struct store_server *srv)
{
    return srv->port;
}

void store_server_reset(struct store_server *srv)
{
    close_clients(srv, true);
    store_branches_close(srv);
    store_clear(srv->store);
}

void store_server_awaited(const struct store_server *srv, store_awaited_f *f,
                          void *arg)
{
    store_awaited(srv->store, f, arg);
}

void store_server_stats(const struct store_server *srv,
                        struct store_stats *ret)
{
    store_get_stats(srv->store, ret);
}

void store_server_destroy(struct store_server *srv, void (*done)(void *ctx),
                          void *ctx)
{
    if (!srv) {
        if (done) {
            done(ctx);
        }
        return;
    }
    srv->destroyed = true;
    srv->done = done;
    srv->done_ctx = ctx;
    close_clients(srv, true);
    store_branches_close(srv);
    store_listen_end(srv);
    store_uplink_close(srv->uplink);
    srv->uplink = NULL;
    uv_close((uv_handle_t *)&srv->sweep, on_own_closed);
    uv_close((uv_handle_t *)&srv->patience, on_own_closed);
    store_turn_close(&srv->turn, on_own_closed);
}
