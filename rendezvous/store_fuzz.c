/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes from up to four clients, in any pieces. The input is a series of
 * {client, n, n bytes}. Limits are small, so that all of them are met. Checked
 * beyond memory errors: the store stays within its memory limit, and closing
 * everything leaves nothing.
 */
#include <config.h>

#include "rendezvous/store_core.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { N_CONNS = 4 };

static const struct store_limits limits = {
    .key_bytes = 32,
    .value_bytes = 512,
    .request_bytes = 2048,
    .request_keys = 16,
    .reply_bytes = 4096,
    .memory_bytes = 32 * 1024,
    .pipeline_bytes = 256,
};

/* Sends all answers. */
static void drain(struct store *s, struct store_conn **conns)
{
    struct store_conn *c;

    while ((c = store_next_ready(s)) != NULL) {
        struct store_conn **own = store_conn_owner(c);
        bool was_held = store_conn_held(c);
        size_t len;

        expect(own >= conns && own < conns + N_CONNS && *own == c);
        free(store_take(c, &len));
        store_sent(s, c, len);
        expect(!store_conn_held(c));
        if (store_conn_broken(c) ||
            (was_held && store_resume(s, c, NULL) < 0)) {
            store_close(s, c);
            *own = NULL;
        }
    }
}

static void feed(struct store *s, struct store_conn **own, const uint8_t *data,
                 size_t len)
{
    if (!*own) {
        *own = store_open(s, own);
        expect(*own != NULL);
    }
    if (store_feed(s, *own, data, len, NULL) < 0) {
        store_close(s, *own);
        *own = NULL;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t seed[16];
    struct store *s = store_create(&limits, seed);
    struct store_conn *conns[N_CONNS] = {0};
    struct store_stats stats;

    expect(s != NULL);
    while (size >= 2) {
        size_t n = data[1] < size - 2 ? data[1] : size - 2;

        feed(s, &conns[data[0] % N_CONNS], data + 2, n);
        data += 2 + n;
        size -= 2 + n;
        if (data[-1] & 1) {
            drain(s, conns);
        }
        store_get_stats(s, &stats);
        /* Room is asked for before the slots' own overhead is known. */
        expect(stats.used_bytes <= limits.memory_bytes + 4096);
    }
    drain(s, conns);
    for (int i = 0; i < N_CONNS; i++) {
        if (conns[i]) {
            store_close(s, conns[i]);
        }
    }
    store_clear(s);
    store_get_stats(s, &stats);
    expect(stats.used_bytes == 0 && stats.n_waiting == 0 && stats.n_conns == 0);
    store_destroy(s);
    return 0;
}
