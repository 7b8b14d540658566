/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes on a trunk, at both of its ends, and of clients beside it. The input
 * is a series of {who, n, n bytes}: up to the store, down to the relay, or of one
 * of the relay's clients. What the two ends say themselves reaches the other one
 * as long as nobody has spoken in its place. Limits are small. Checked beyond
 * memory errors: both stay within their memory, and closing all leaves nothing.
 */
#include <config.h>

#include "rendezvous/store_relay.h"
#include "rendezvous/store_trunk.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { N_CLIENTS = 3, UP = 0, DOWN = 1 };

static const struct store_limits limits = {
    .key_bytes = 32,
    .value_bytes = 512,
    .request_bytes = 2048,
    .request_keys = 16,
    .reply_bytes = 4096,
    .memory_bytes = 64 * 1024,
    .pipeline_bytes = 256,
    .kept_bytes = 512,
};

struct ends {
    struct store *keys, *node;
    struct store_trunk *trunk; /* NULL once it was of no use */
    struct store_relay *relay;
    bool is_cut; /* nothing more comes down */
    struct store_conn *clients[N_CLIENTS];
};

static void drop_trunk(struct ends *e)
{
    store_trunk_destroy(e->trunk);
    e->trunk = NULL;
    e->is_cut = true;
}

static void feed_trunk(struct ends *e, const void *data, size_t len)
{
    if (e->trunk && store_trunk_feed(e->trunk, data, len, NULL) < 0) {
        drop_trunk(e);
    }
}

static void feed_relay(struct ends *e, const void *data, size_t len)
{
    if (!e->is_cut && store_relay_feed(e->relay, data, len, NULL) < 0) {
        e->is_cut = true;
    }
}

static void close_client(struct ends *e, struct store_conn **c)
{
    store_close(e->node, *c);
    *c = NULL;
}

static void feed_client(struct ends *e, struct store_conn **c,
                        const void *data, size_t len)
{
    if (!*c) {
        *c = store_open(e->node, c);
        expect(*c != NULL);
    }
    if (store_feed(e->node, *c, data, len, NULL) < 0) {
        close_client(e, c);
    }
}

static void read_clients(struct ends *e)
{
    struct store_conn *c;
    size_t len;

    while ((c = store_next_ready(e->node)) != NULL) {
        struct store_conn **own = store_conn_owner(c);

        expect(own >= e->clients && own < e->clients + N_CLIENTS && *own == c);
        free(store_take(c, &len));
        store_sent(e->node, c, len);
        if (store_conn_broken(c)) {
            close_client(e, own);
        }
    }
}

/* What both have to say, once. */
static void pass(struct ends *e)
{
    struct store_conn *c;
    size_t len;
    char *data = store_relay_take(e->relay, &len);

    feed_trunk(e, data, data ? len : 0);
    free(data);
    store_relay_sent(e->relay, len);
    while ((c = store_next_ready(e->keys)) != NULL) {
        expect(store_conn_trunk(c) == e->trunk);
        if (!store_trunk_collect(e->trunk, c)) {
            drop_trunk(e);
        }
    }
    data = e->trunk ? store_trunk_take(e->trunk, &len) : NULL;
    if (data) {
        feed_relay(e, data, len);
        store_trunk_sent(e->trunk, len);
        if (store_trunk_resume(e->trunk, NULL) < 0) {
            drop_trunk(e);
        }
    }
    free(data);
    read_clients(e);
}

static void check(const struct store *s)
{
    struct store_stats stats;

    store_get_stats(s, &stats);
    /* Room is asked for before the slots' and frames' own overhead is known. */
    expect(stats.used_bytes <= limits.memory_bytes + 8192);
}

static void end(struct ends *e)
{
    struct store_stats stats;

    for (int i = 0; i < N_CLIENTS; i++) {
        if (e->clients[i]) {
            close_client(e, &e->clients[i]);
        }
    }
    store_relay_destroy(e->relay);
    store_get_stats(e->node, &stats);
    expect(stats.used_bytes == 0 && stats.n_waiting == 0 && stats.n_conns == 0);
    store_trunk_destroy(e->trunk);
    store_clear(e->keys);
    store_get_stats(e->keys, &stats);
    expect(stats.used_bytes == 0 && stats.n_waiting == 0 && stats.n_conns == 0);
    store_destroy(e->node);
    store_destroy(e->keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t seed[16];
    struct ends e = {.keys = store_create(&limits, seed),
                     .node = store_create(&limits, seed)};

    expect(e.keys && e.node);
    e.trunk = store_trunk_create(e.keys, &e);
    e.relay = store_relay_create(e.node);
    expect(e.trunk && e.relay);
    while (size >= 2) {
        size_t n = data[1] < size - 2 ? data[1] : size - 2;
        unsigned who = data[0] % (2 + N_CLIENTS);

        if (who == UP) {
            feed_trunk(&e, data + 2, n);
        } else if (who == DOWN) {
            feed_relay(&e, data + 2, n);
        } else {
            feed_client(&e, &e.clients[who - 2], data + 2, n);
        }
        data += 2 + n;
        size -= 2 + n;
        if (size % 2) {
            pass(&e);
        }
        check(e.keys);
        check(e.node);
    }
    pass(&e);
    end(&e);
    return 0;
}
