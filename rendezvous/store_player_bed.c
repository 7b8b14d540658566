/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_player_bed.h"

#include "base/cleanup.h"
#include "rendezvous/store_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

static void connect(struct world *w, struct player *p)
{
    p->conn = bed_open(world_store(w, p));
    p->id = w->n_ids++;
}

void players_begin(struct world *w)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        w->players[i].node = i / PER_NODE;
        connect(w, &w->players[i]);
    }
}

void players_end(struct world *w)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        struct player *p = &w->players[i];

        store_close(world_store(w, p), p->conn);
        buf_release(&p->out);
    }
}

/* --- asking --- */

static const char *const names[HISTORY_KEYS] = {"k0", "k1", "k2", "k3"};
static const char *const words[] = {"", "a", "b", "aa"};
static const char *const numbers[] = {"0", "1", "2", "17"};

/* Of these k2 holds numbers, and k3 has a queue as well. */
static const enum store_command menu[] = {
    STORE_SET,       STORE_SET,         STORE_GET,        STORE_GET,
    STORE_GET,       STORE_GET,         STORE_GET,        STORE_GET,
    STORE_ADD,       STORE_CHECK,       STORE_WAIT,       STORE_WAIT,
    STORE_APPEND,    STORE_COMPARE_SET, STORE_DELETE_KEY, STORE_MULTI_GET,
    STORE_MULTI_GET, STORE_MULTI_SET,   STORE_QUEUE_PUSH, STORE_QUEUE_POP,
    STORE_QUEUE_LEN, STORE_NUM_KEYS,
};

static void put_keys(struct buf *b, const struct history_op *op)
{
    bed_put_u64(b, op->n_keys);
    for (unsigned i = 0; i < op->n_keys; i++) {
        bed_put_blob(b, names[op->keys[i]]);
        if (op->command == STORE_MULTI_SET) {
            bed_put_blob(b, op->words[i]);
        }
    }
}

static void put_request(struct buf *b, const struct history_op *op)
{
    buf_putc(b, (char)op->command);
    switch (op->command) {
    case STORE_CHECK:
    case STORE_WAIT:
    case STORE_MULTI_GET:
    case STORE_MULTI_SET:
        put_keys(b, op);
        return;
    case STORE_NUM_KEYS:
        return;
    default:
        bed_put_blob(b, names[op->keys[0]]);
    }
    if (op->command == STORE_ADD) {
        bed_put_u64(b, (uint64_t)op->number);
    }
    for (int i = 0; i < 2 && op->words[i]; i++) {
        bed_put_blob(b, op->words[i]);
    }
}

static const char *draw_word(struct world *w, unsigned key)
{
    return key == 2 ? numbers[world_draw(w, 4)] : words[world_draw(w, 4)];
}

static void draw_keys(struct world *w, struct history_op *op)
{
    op->n_keys = 1;
    op->keys[0] = world_draw(w, HISTORY_KEYS);
    if (op->command == STORE_ADD) {
        op->keys[0] = 2;
    } else if (op->command == STORE_APPEND) {
        op->keys[0] = world_draw(w, 2);
    } else if (op->command >= STORE_QUEUE_PUSH &&
               op->command <= STORE_QUEUE_LEN) {
        op->keys[0] = 3;
    } else if (op->command == STORE_CHECK || op->command == STORE_MULTI_GET ||
               op->command == STORE_MULTI_SET) {
        op->n_keys = 2;
        op->keys[1] = world_draw(w, HISTORY_KEYS);
    }
}

static void draw_words(struct world *w, struct history_op *op)
{
    switch (op->command) {
    case STORE_COMPARE_SET:
    case STORE_MULTI_SET:
        op->words[0] = draw_word(w, op->keys[0]);
        op->words[1] = draw_word(w, op->keys[op->n_keys - 1]);
        if (op->command == STORE_COMPARE_SET && !*op->words[1]) {
            op->words[1] = "c";
        }
        break;
    case STORE_SET:
    case STORE_APPEND:
        op->words[0] = draw_word(w, op->keys[0]);
        break;
    case STORE_QUEUE_PUSH:
        op->words[0] = world_draw(w, 2) ? "x" : "y";
        break;
    case STORE_ADD:
        op->number = 1 + (int64_t)world_draw(w, 3);
        break;
    default:
        break;
    }
}

static void feed(struct world *w, struct player *p, const struct buf *in)
{
    struct error e = {0};

    if (store_feed(world_store(w, p), p->conn, in->data,
                   in->len, &e) < 0) {
        bail_out("a request fails: %s", e.text);
    }
}

static struct history_op *add_op(struct world *w, struct player *p,
                                 enum store_command command)
{
    struct history_op *op = &w->h.ops[w->h.n_ops];

    if (w->h.n_ops == HISTORY_OPS) {
        bail_out("a history is too long");
    }
    *op = (struct history_op){.client = p->id, .command = command,
                              .answered_at = HISTORY_NEVER};
    if (history_has_answer(command)) {
        p->pending[p->n_pending++] = w->h.n_ops;
    }
    w->h.n_ops++;
    return op;
}

static void send_op(struct world *w, struct player *p, struct history_op *op)
{
    _buf_ struct buf in = {0};

    op->asked_at = ++w->now;
    put_request(&in, op);
    feed(w, p, &in);
    p->waits = op->command == STORE_WAIT;
}

void player_cancel(struct world *w, struct player *p)
{
    _buf_ struct buf in = {0};

    buf_putc(&in, STORE_CANCEL_WAIT);
    feed(w, p, &in);
    p->cancels = true;
}

void player_act(struct world *w, struct player *p, unsigned n_asked)
{
    struct history_op *op;

    if (p->waits || p->cancels) {
        if (!p->cancels && world_draw(w, 8) == 0) {
            player_cancel(w, p);
        }
        return;
    }
    if (p->n_pending == PIPELINE || w->h.n_ops >= n_asked) {
        return;
    }
    op = add_op(w, p, menu[world_draw(w, sizeof(menu) / sizeof(*menu))]);
    draw_keys(w, op);
    draw_words(w, op);
    send_op(w, p, op);
}

struct history_op *player_ask(struct world *w, struct player *p,
                              enum store_command command, unsigned key)
{
    struct history_op *op = add_op(w, p, command);

    op->keys[0] = key;
    op->n_keys = 1;
    send_op(w, p, op);
    return op;
}

/* --- answers --- */

static uint64_t number_at(const struct buf *b, size_t at)
{
    uint64_t n = 0;

    if (b->len >= at + sizeof(n)) {
        memcpy(&n, b->data + at, sizeof(n));
    }
    return n;
}

/* As long as the answer at the front will be, as far as it can be known. */
static size_t answer_length(const struct history_op *op, const struct buf *out)
{
    size_t len = 0;

    switch (op->command) {
    case STORE_CHECK:
    case STORE_WAIT:
        return 1;
    case STORE_GET:
    case STORE_COMPARE_SET:
    case STORE_MULTI_GET:
        for (unsigned i = 0; i < op->n_keys; i++) {
            len += 8 + number_at(out, len);
        }
        return len;
    case STORE_QUEUE_POP:
        return number_at(out, 0) ? 16 + number_at(out, 8) : 8;
    default:
        return 8;
    }
}

/* The answer at the front, if it is all there. */
static bool take_answer(struct world *w, struct player *p)
{
    struct history_op *op = &w->h.ops[p->pending[0]];
    size_t len = answer_length(op, &p->out);

    if (p->out.len < len) {
        return false;
    }
    if (len > sizeof(op->answer)) {
        bail_out("an answer of %zu bytes", len);
    }
    if (p->waits && p->cancels && p->n_pending == 1 &&
        p->out.data[0] == STORE_WAIT_CANCELED) {
        op->is_void = true;
        p->cancels = false;
    }
    memcpy(op->answer, p->out.data, len);
    op->answer_len = len;
    op->answered_at = ++w->now;
    buf_consume(&p->out, len);
    memmove(p->pending, p->pending + 1, --p->n_pending * sizeof(p->pending[0]));
    if (p->n_pending == 0) {
        p->waits = false;
    }
    return true;
}

static void read_answers(struct world *w, struct player *p)
{
    size_t len;
    struct store *s = world_store(w, p);
    _free_ char *data = store_take(p->conn, &len);

    if (data) {
        buf_append(&p->out, data, len);
    }
    store_sent(s, p->conn, len);
    while (p->out.len > 0 && p->n_pending > 0 && take_answer(w, p)) {
    }
    if (p->out.len > 0 && p->n_pending == 0 && p->cancels) {
        p->cancels = false; /* it had been answered already */
        buf_consume(&p->out, 1);
    }
    if (store_conn_partial(p->conn) &&
        store_resume(s, p->conn, NULL) < 0) {
        bail_out("a request fails later");
    }
}

void players_read(struct world *w)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        read_answers(w, &w->players[i]);
    }
}

/* --- loss --- */

static void lose(struct world *w, struct player *p)
{
    for (unsigned k = 0; k < w->h.n_ops; k++) {
        struct history_op *op = &w->h.ops[k];

        op->is_open = op->is_open || (op->client == p->id &&
                                      op->answered_at == HISTORY_NEVER);
    }
    store_close(world_store(w, p), p->conn);
    buf_clear(&p->out);
    p->n_pending = 0;
    p->waits = p->cancels = false;
}

void players_lose(struct world *w, int node)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        if (w->players[i].node == node) {
            lose(w, &w->players[i]);
        }
    }
    world_rejoin(w, &w->nodes[node]);
    for (int i = 0; i < N_PLAYERS; i++) {
        if (w->players[i].node == node) {
            connect(w, &w->players[i]);
        }
    }
}
