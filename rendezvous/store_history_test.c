/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of stores is one store: clients of three nodes, and of the one that has the
 * keys, ask all that there is to ask; what goes over the trunks comes in pieces and
 * in any order between them; nodes are slow, and lost. What was asked and answered
 * must be a history that is possible with one store (store_history_bed.h), all that waits
 * must be told, and nothing be left.
 *
 *   store_history_test [SEED [N]]     so many histories from that one on
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/store_bed.h"
#include "rendezvous/store_history_bed.h"
#include "rendezvous/store_relay.h"
#include "rendezvous/store_trunk.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_NODES = 3,
    PER_NODE = 2,
    N_PLAYERS = N_NODES * PER_NODE + 1, /* the last one where the keys are */
    LEAD = N_NODES,
    N_ASKED = 32, /* of a history; more are asked in its end */
    PIPELINE = 3,
    N_HISTORIES = 4, /* on one bed */
    N_RUNS = 200,
};

struct node {
    struct store *s;
    struct store_relay *relay;
    struct store_trunk *trunk;
    struct buf up, down; /* on their way */
};

struct player {
    struct store_conn *conn;
    int node;
    unsigned id; /* of a client: another one when its node was lost */
    unsigned pending[PIPELINE]; /* operations that will be answered, in order */
    unsigned n_pending;
    bool waits, cancels;
    struct buf out;
};

struct world {
    struct store *keys;
    struct node nodes[N_NODES];
    struct player players[N_PLAYERS];
    struct history h;
    uint64_t now;
    unsigned state, n_ids;
    int slow; /* a node that is seldom its turn */
};

static unsigned draw(struct world *w, unsigned n)
{
    w->state = w->state * 1103515245u + 12345u;
    return (w->state >> 16) % n;
}

static void connect(struct world *w, struct player *p)
{
    struct store *s = p->node == LEAD ? w->keys : w->nodes[p->node].s;

    p->conn = bed_open(s);
    p->id = w->n_ids++;
}

static void join(struct world *w, struct node *n)
{
    n->relay = store_relay_create(n->s);
    n->trunk = store_trunk_create(w->keys, n);
    if (!n->relay || !n->trunk) {
        bail_out("no memory");
    }
}

static void begin(struct world *w, unsigned seed,
                  const struct store_limits *limits)
{
    memset(w, 0, sizeof(*w));
    w->state = seed * 2654435761u;
    w->keys = bed_store(limits);
    for (int i = 0; i < N_NODES; i++) {
        w->nodes[i].s = bed_store(limits);
        join(w, &w->nodes[i]);
    }
    for (int i = 0; i < N_PLAYERS; i++) {
        w->players[i].node = i / PER_NODE;
        connect(w, &w->players[i]);
    }
}

static void end_node(struct node *n)
{
    store_relay_destroy(n->relay);
    store_trunk_destroy(n->trunk);
    buf_release(&n->up);
    buf_release(&n->down);
}

static bool holds_nothing(const struct store *s)
{
    struct store_stats stats;

    store_get_stats(s, &stats);
    return stats.used_bytes == 0 && stats.n_waiting == 0 && stats.n_conns == 0;
}

static bool end(struct world *w)
{
    bool clean = true;

    for (int i = 0; i < N_PLAYERS; i++) {
        struct player *p = &w->players[i];

        store_close(p->node == LEAD ? w->keys : w->nodes[p->node].s, p->conn);
        buf_release(&p->out);
    }
    for (int i = 0; i < N_NODES; i++) {
        end_node(&w->nodes[i]);
        clean = clean && holds_nothing(w->nodes[i].s);
        store_destroy(w->nodes[i].s);
    }
    store_clear(w->keys);
    clean = clean && holds_nothing(w->keys);
    store_destroy(w->keys);
    return clean;
}

/* Asking */

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
    return key == 2 ? numbers[draw(w, 4)] : words[draw(w, 4)];
}

static void draw_keys(struct world *w, struct history_op *op)
{
    op->n_keys = 1;
    op->keys[0] = draw(w, HISTORY_KEYS);
    if (op->command == STORE_ADD) {
        op->keys[0] = 2;
    } else if (op->command == STORE_APPEND) {
        op->keys[0] = draw(w, 2);
    } else if (op->command >= STORE_QUEUE_PUSH &&
               op->command <= STORE_QUEUE_LEN) {
        op->keys[0] = 3;
    } else if (op->command == STORE_CHECK || op->command == STORE_MULTI_GET ||
               op->command == STORE_MULTI_SET) {
        op->n_keys = 2;
        op->keys[1] = draw(w, HISTORY_KEYS);
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
        op->words[0] = draw(w, 2) ? "x" : "y";
        break;
    case STORE_ADD:
        op->number = 1 + (int64_t)draw(w, 3);
        break;
    default:
        break;
    }
}

static void feed(struct world *w, struct player *p, const struct buf *in)
{
    struct error e = {0};
    struct store *s = p->node == LEAD ? w->keys : w->nodes[p->node].s;

    if (store_feed(s, p->conn, in->data, in->len, &e) < 0) {
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

static void cancel(struct world *w, struct player *p)
{
    _buf_ struct buf in = {0};

    buf_putc(&in, STORE_CANCEL_WAIT);
    feed(w, p, &in);
    p->cancels = true;
}

static void act(struct world *w, struct player *p)
{
    struct history_op *op;

    if (p->waits || p->cancels) {
        if (!p->cancels && draw(w, 8) == 0) {
            cancel(w, p);
        }
        return;
    }
    if (p->n_pending == PIPELINE || w->h.n_ops >= N_ASKED) {
        return;
    }
    op = add_op(w, p, menu[draw(w, sizeof(menu) / sizeof(*menu))]);
    draw_keys(w, op);
    draw_words(w, op);
    send_op(w, p, op);
}

/* Answers */

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
    struct store *s = p->node == LEAD ? w->keys : w->nodes[p->node].s;
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

/* What is on its way */

static void collect(struct world *w)
{
    struct store_conn *c;

    while ((c = store_next_ready(w->keys)) != NULL) {
        if (store_conn_broken(c)) {
            bail_out("a connection is broken");
        }
        if (store_conn_trunk(c)) {
            if (!store_trunk_collect(store_conn_trunk(c), c)) {
                bail_out("no memory");
            }
        } else if (store_conn_due(c) && store_resume(w->keys, c, NULL) < 0) {
            bail_out("a request that waited fails");
        }
    }
}

static bool go_up(struct node *n, size_t most)
{
    struct error e = {0};
    size_t len;
    _free_ char *data = store_relay_take(n->relay, &len);

    if (data) {
        buf_append(&n->up, data, len);
        store_relay_sent(n->relay, len);
    }
    len = n->up.len < most ? n->up.len : most;
    if (len && store_trunk_feed(n->trunk, n->up.data, len, &e) < 0) {
        bail_out("up: %s", e.text);
    }
    buf_consume(&n->up, len);
    return len > 0;
}

static bool go_down(struct node *n, size_t most)
{
    struct error e = {0};
    size_t len;
    _free_ char *data = store_trunk_take(n->trunk, &len);

    if (data) {
        buf_append(&n->down, data, len);
        store_trunk_sent(n->trunk, len);
    }
    if (store_trunk_has_held(n->trunk) &&
        store_trunk_resume(n->trunk, &e) < 0) {
        bail_out("resume: %s", e.text);
    }
    len = n->down.len < most ? n->down.len : most;
    if (len && store_relay_feed(n->relay, n->down.data, len, &e) < 0) {
        bail_out("down: %s", e.text);
    }
    buf_consume(&n->down, len);
    return len > 0;
}

static void read_all(struct world *w)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        read_answers(w, &w->players[i]);
    }
    for (int i = 0; i < N_NODES; i++) {
        struct store_conn *c;

        while ((c = store_next_ready(w->nodes[i].s)) != NULL) {
            if (store_conn_broken(c)) {
                bail_out("a client is closed");
            }
        }
    }
}

static bool moves(struct world *w)
{
    bool any = false;

    for (int i = 0; i < N_NODES; i++) {
        any = go_up(&w->nodes[i], SIZE_MAX) || any;
    }
    collect(w);
    for (int i = 0; i < N_NODES; i++) {
        any = go_down(&w->nodes[i], SIZE_MAX) || any;
    }
    read_all(w);
    return any;
}

static void come_to_rest(struct world *w)
{
    for (int still = 0; still < 3; still++) {
        while (moves(w)) {
            still = 0;
        }
    }
}

/* What its clients have asked for may have been done. */
static void lose(struct world *w, int node)
{
    struct node *n = &w->nodes[node];

    for (int i = 0; i < N_PLAYERS; i++) {
        struct player *p = &w->players[i];

        if (p->node == node) {
            for (unsigned k = 0; k < w->h.n_ops; k++) {
                struct history_op *op = &w->h.ops[k];

                op->is_open = op->is_open || (op->client == p->id &&
                              op->answered_at == HISTORY_NEVER);
            }
            store_close(n->s, p->conn);
            buf_clear(&p->out);
            p->n_pending = 0;
            p->waits = p->cancels = false;
        }
    }
    end_node(n);
    join(w, n);
    for (int i = 0; i < N_PLAYERS; i++) {
        if (w->players[i].node == node) {
            connect(w, &w->players[i]);
        }
    }
}

static void step(struct world *w)
{
    int node = (int)draw(w, N_NODES);
    size_t most = 1 + draw(w, 60);

    if (node == w->slow && draw(w, 10)) {
        node = (node + 1) % N_NODES;
    }
    switch (draw(w, 8)) {
    case 0:
    case 1:
        act(w, &w->players[draw(w, N_PLAYERS)]);
        break;
    case 2:
    case 3:
        go_up(&w->nodes[node], most);
        break;
    case 4:
        collect(w);
        break;
    case 5:
    case 6:
        go_down(&w->nodes[node], most);
        break;
    default:
        if (draw(w, 80) == 0) {
            lose(w, node);
        }
    }
    read_all(w);
}

/* The end of a history */

static struct history_op *ask(struct world *w, struct player *p,
                              enum store_command command, unsigned key)
{
    struct history_op *op = add_op(w, p, command);

    op->keys[0] = key;
    op->n_keys = 1;
    send_op(w, p, op);
    come_to_rest(w);
    return op;
}

static void set_text(struct history_text *t, const char *data, size_t len)
{
    memset(t, 0, sizeof(*t));
    memcpy(t->data, data, len);
    t->len = (uint8_t)len;
}

/* What is there now, as one client reads it: the next history begins so. Nothing is
 * in the queue. */
static void look(struct world *w, struct history_state *now)
{
    struct player *p = &w->players[draw(w, N_PLAYERS)];

    memset(now, 0, sizeof(*now));
    for (unsigned k = 0; k < HISTORY_KEYS; k++) {
        struct history_op *get = ask(w, p, STORE_GET, k);
        struct history_op *check = ask(w, p, STORE_CHECK, k);

        if (check->answer[0] == STORE_READY) {
            now->keys[k].is_there = true;
            set_text(&now->keys[k].text, get->answer + 8, get->answer_len - 8);
        }
    }
}

/* A wait that nothing has answered, though its key is there. */
static bool is_forgotten(struct world *w, const struct history_state *now)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        const struct player *p = &w->players[i];
        unsigned key = p->n_pending ? w->h.ops[p->pending[0]].keys[0] : 0;

        if (p->n_pending && (!p->waits || p->n_pending > 1 ||
                             history_is_there(now, key))) {
            diag("client %u is not answered", p->id);
            return true;
        }
    }
    return false;
}

static void cancel_all(struct world *w)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        struct player *p = &w->players[i];

        if (p->waits && !p->cancels) {
            cancel(w, p);
        }
    }
    come_to_rest(w);
}

/* An idle player, to tidy up with. */
static struct player *idle_player(struct world *w)
{
    for (int i = 0; i < N_PLAYERS; i++) {
        if (!w->players[i].n_pending && !w->players[i].cancels) {
            return &w->players[i];
        }
    }
    return NULL;
}

/* Whether one store could have answered all of it so. */
static bool is_right(struct world *w)
{
    struct history_state now;
    struct player *p;
    bool waited;

    come_to_rest(w);
    p = idle_player(w);
    if (!p) {
        diag("nobody is answered");
        return false;
    }
    /* Who waits is told of what is there, and only then may give up; but one item of
     * a queue is for one. */
    memset(&now, 0, sizeof(now));
    for (unsigned k = 0; k < HISTORY_KEYS; k++) {
        now.keys[k].is_there =
            ask(w, p, STORE_CHECK, k)->answer[0] == STORE_READY &&
            (k != 3 || !ask(w, p, STORE_QUEUE_LEN, k)->answer[0]);
    }
    waited = is_forgotten(w, &now);
    cancel_all(w);
    while (!waited && ask(w, p, STORE_QUEUE_POP, 3)->answer[0]) {
    }
    if (!waited) {
        look(w, &now);
    }
    if (waited || !history_is_possible(&w->h)) {
        history_print(&w->h);
        return false;
    }
    w->h = (struct history){.begin = now};
    return true;
}

static bool play(struct world *w)
{
    w->slow = (int)draw(w, N_NODES + 1);
    while (w->h.n_ops < N_ASKED) {
        step(w);
    }
    for (int i = 0; i < 100; i++) {
        step(w);
    }
    return is_right(w);
}

/* As if they had never been. */
static void delete_all(struct world *w)
{
    for (unsigned k = 0; k < HISTORY_KEYS; k++) {
        ask(w, &w->players[k], STORE_DELETE_KEY, k);
    }
}

static bool is_one_store(unsigned seed, const struct store_limits *limits)
{
    struct world *w = malloc(sizeof(*w));
    bool right = true;

    if (!w) {
        bail_out("no memory");
    }
    begin(w, seed, limits);
    for (int i = 0; i < N_HISTORIES && right; i++) {
        right = play(w);
        if (right && draw(w, 2)) {
            delete_all(w);
        }
    }
    right = end(w) && right;
    free(w);
    if (!right) {
        diag("seed %u", seed);
    }
    return right;
}

static void test_random(unsigned seed, unsigned n)
{
    static const struct store_limits limits[] = {
        {0}, {.kept_bytes = 400}, {.pipeline_bytes = 100}};
    unsigned last = seed + n;
    bool right = true;

    for (; seed < last && right; seed++) {
        right = is_one_store(seed, &limits[seed % 3]);
    }
    ok(right, "one store could have answered so, %u times",
       N_HISTORIES * n);
}

/* What no store can have answered is found out. */
static void test_model(void)
{
    struct history h = {.n_ops = 3, .ops = {
        {.client = 0, .command = STORE_ADD, .number = 1, .keys = {2},
         .asked_at = 1, .answered_at = 3, .answer_len = 8, .answer = {1}},
        {.client = 1, .command = STORE_ADD, .number = 1, .keys = {2},
         .asked_at = 2, .answered_at = 4, .answer_len = 8, .answer = {2}},
        {.client = 2, .command = STORE_GET, .n_keys = 1, .keys = {2},
         .asked_at = 3, .answered_at = 5, .answer_len = 9,
         .answer = {1, 0, 0, 0, 0, 0, 0, 0, '1'}}}};

    ok(history_is_possible(&h), "what is read while others write");
    h.ops[2].asked_at = 5;
    h.ops[2].answered_at = 6;
    ok(!history_is_possible(&h), "what was there before the last answer");
    h.ops[2].answer[8] = '2';
    ok(history_is_possible(&h), "what is there after it");
    h.ops[1].answer[0] = 1;
    ok(!history_is_possible(&h), "both count the same");
    h.ops[1].is_open = true;
    h.ops[1].answered_at = HISTORY_NEVER;
    ok(history_is_possible(&h), "unless one has no answer");
    h.ops[2].answer[8] = '1';
    ok(history_is_possible(&h), "and then it may be as if it had not asked");
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : N_RUNS;

    test_model();
    test_random(seed, n);
    return tap_done();
}
