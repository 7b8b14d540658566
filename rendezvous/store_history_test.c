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

#include "rendezvous/store_bed.h"
#include "rendezvous/store_player_bed.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_ASKED = 32, /* of a history; more are asked in its end */
    N_HISTORIES = 4, /* on one bed */
    N_RUNS = 200,
};

static void read_all(struct world *w)
{
    players_read(w);
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
        any = world_up(&w->nodes[i], SIZE_MAX) || any;
    }
    world_collect(w);
    for (int i = 0; i < N_NODES; i++) {
        any = world_down(&w->nodes[i], SIZE_MAX) || any;
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

static void step(struct world *w)
{
    int node = (int)world_draw(w, N_NODES);
    size_t most = 1 + world_draw(w, 60);

    if (node == w->slow && world_draw(w, 10)) {
        node = (node + 1) % N_NODES;
    }
    switch (world_draw(w, 8)) {
    case 0:
    case 1:
        player_act(w, &w->players[world_draw(w, N_PLAYERS)], N_ASKED);
        break;
    case 2:
    case 3:
        world_up(&w->nodes[node], most);
        break;
    case 4:
        world_collect(w);
        break;
    case 5:
    case 6:
        world_down(&w->nodes[node], most);
        break;
    default:
        if (world_draw(w, 80) == 0) {
            players_lose(w, node);
        }
    }
    read_all(w);
}

/* --- the end of a history --- */

static struct history_op *ask(struct world *w, struct player *p,
                              enum store_command command, unsigned key)
{
    struct history_op *op = player_ask(w, p, command, key);

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
    struct player *p = &w->players[world_draw(w, N_PLAYERS)];

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
            player_cancel(w, p);
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
    w->slow = (int)world_draw(w, N_NODES + 1);
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
    world_begin(w, seed, limits);
    players_begin(w);
    for (int i = 0; i < N_HISTORIES && right; i++) {
        right = play(w);
        if (right && world_draw(w, 2)) {
            delete_all(w);
        }
    }
    players_end(w);
    right = world_end(w) && right;
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
