/* SPDX-License-Identifier: Apache-2.0 */
/* Output on its way up: whole, in order, and no more than credit is given. */
#include <config.h>

#include "base/cleanup.h"
#include "base/wire.h"
#include "rendezvous/tree_bed_rogue.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

/* Without a front end output goes nowhere, and nobody waits for that. */
static void test_output_without_front(void)
{
    struct world w;
    _free_ char *data = calloc(1, 100000);
    struct tree_output o = {.node = 2, .rank = 5, .data = data, .len = 100000};
    int n_taken = 0;

    bed_start_all(&w);
    for (int i = 0; i < 100; i++) {
        if (!tree_output(w.nodes[2].tree, &o)) {
            break;
        }
        n_taken++;
    }
    ok(n_taken > 0 && n_taken < 100, "a node without credit has to wait (%d)",
       n_taken);
    w.nodes[2].blocked = true;
    for (int i = 0; i < 1000 && w.nodes[2].blocked; i++) {
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    ok(!w.nodes[2].blocked, "and is told when it may go on");
    bed_close(&w);
}

enum { PIECE_BYTES = 20000, N_PIECES = 150 };

/* Two nodes that print as fast as they may. */
struct printing {
    struct rogue front;
    uint32_t n_sent[BED_NODES];
    bool gives_credit;
};

static void print_more(struct world *w, uint32_t rank)
{
    static char text[PIECE_BYTES];
    struct printing *p = w->own;
    struct tree_output o = {.node = rank, .data = text, .len = sizeof(text)};
    _buf_ struct buf number = {0};

    while (!w->nodes[rank].blocked && p->n_sent[rank] < N_PIECES) {
        wire_put_u32(&number, p->n_sent[rank]++);
        memcpy(text, number.data, 4);
        buf_clear(&number);
        w->nodes[rank].blocked = !tree_output(w->nodes[rank].tree, &o);
    }
}

static void give_credit(struct rogue *front, uint32_t n)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, n);
    link_send_buf(front->link, TREE_CREDIT, &b);
}

static bool all_printed(struct world *w)
{
    struct printing *p = w->own;
    struct rogue *front = &p->front;

    print_more(w, 0);
    print_more(w, 2);
    if (p->gives_credit && front->owed && !front->down) {
        give_credit(front, (uint32_t)front->owed);
        front->owed = 0;
    }
    return front->n_pieces[0] == N_PIECES && front->n_pieces[2] == N_PIECES;
}

static bool beats_without_credit(struct world *w)
{
    (void)all_printed(w);
    return w->nodes[0].n_words > 10;
}

static bool front_is_gone(struct world *w)
{
    return tree_front_gone_ms(w->nodes[0].tree) > 0;
}

/* A tree of two nodes, whose output goes to a front end of this test. */
static struct link_listener *open_printing(struct world *w,
                                           struct printing *p)
{
    struct link_listener *listener;

    bed_open(w);
    w->own = p;
    listener = rogue_be_front(w, &p->front);
    bed_join(w, 2, "run");
    return listener;
}

/* Output comes in order and whole, no more of it than there is credit for. */
static void test_credit(void)
{
    struct world w;
    struct printing p = {.front = {.in_order = true}};
    struct link_listener *listener;

    listener = open_printing(&w, &p);
    ok(bed_run_until(&w, rogue_lead_has_front), "a lead with a front end");
    bed_run_until(&w, beats_without_credit);
    ok(p.front.n_output > 0 &&
           p.front.n_output <= TREE_WINDOW_BYTES + 2 * PIECE_BYTES,
       "without credit a window's worth comes (%zu bytes)", p.front.n_output);
    p.gives_credit = true;
    give_credit(&p.front, UINT32_MAX); /* far more than is owed */
    p.front.owed = 0;
    ok(bed_run_until(&w, all_printed), "with credit all of it");
    ok(p.front.in_order, "in order");
    link_listener_close(listener);
    link_close(p.front.link);
    ok(bed_run_until(&w, front_is_gone), "the front end goes, and is missed");
    bed_close(&w);
}

static bool front_hears(struct world *w)
{
    if (tree_has_uplink(w->nodes[0].tree)) {
        print_more(w, 0);
    }
    return ((struct printing *)w->own)->front.n_output > 0;
}

/* Output that was on its way to a front end that is gone is nobody's debt. */
static void test_front_comes_back(void)
{
    struct world w;
    struct printing p = {.front = {.in_order = true}};
    struct link_listener *listener;

    bed_open(&w);
    w.own = &p;
    listener = rogue_be_front(&w, &p.front);
    bed_run_until(&w, rogue_lead_has_front);
    p.n_sent[2] = N_PIECES; /* node 2 is not there */
    bed_run_until(&w, beats_without_credit); /* the window is full now */
    link_close(p.front.link);
    p.front = (struct rogue){0};
    ok(bed_run_until(&w, front_hears), "the next front end hears what is "
       "printed, though the last one gave no credit");
    link_close(p.front.link);
    link_listener_close(listener);
    bed_close(&w);
}

static bool lead_has_drained(struct world *w)
{
    (void)all_printed(w);
    return w->nodes[0].n_drained > 0;
}

/* An agent that leaves waits until its output has gone. */
static void test_finish_own(void)
{
    struct world w;
    struct printing p = {.front = {.in_order = true}};
    struct link_listener *listener;

    bed_open(&w);
    w.own = &p;
    listener = rogue_be_front(&w, &p.front);
    p.n_sent[2] = N_PIECES; /* node 2 is not there */
    bed_run_until(&w, rogue_lead_has_front);
    bed_run_until(&w, beats_without_credit);
    tree_finish(w.nodes[0].tree, TREE_FINISH_ALL);
    is_int(w.nodes[0].n_drained, 0, "what waits has to go first");
    p.n_sent[0] = N_PIECES; /* it was the last */
    p.gives_credit = true;
    ok(bed_run_until(&w, lead_has_drained), "when it has gone, that is told");
    link_close(p.front.link);
    link_listener_close(listener);
    bed_close(&w);
}

/* All print, and the front end takes nothing more. */
static struct link_listener *open_waiting(struct world *w, struct printing *p)
{
    struct link_listener *listener = open_printing(w, p);

    bed_run_until(w, rogue_lead_has_front);
    bed_run_until(w, beats_without_credit);
    return listener;
}

/* Now it does. */
static void take_all(struct printing *p)
{
    p->gives_credit = true;
    give_credit(&p->front, (uint32_t)p->front.owed);
    p->front.owed = 0;
}

/* And that from below. */
static void test_finish_below(void)
{
    struct world w;
    struct printing p = {.front = {.in_order = true}};
    struct link_listener *listener;

    listener = open_waiting(&w, &p);
    tree_finish(w.nodes[0].tree, TREE_FINISH_ALL);
    take_all(&p);
    ok(bed_run_until(&w, all_printed), "it goes");
    is_int(w.nodes[0].n_drained, 0, "and who is below could bring more");
    tree_finish(w.nodes[2].tree, TREE_FINISH_ALL);
    is_int(w.nodes[2].n_drained, 1, "who has nothing waits for nothing");
    bed_leave(&w, 2);
    ok(bed_run_until(&w, lead_has_drained), "when all below have gone, it has "
       "drained");
    is_int(w.nodes[0].n_drained, 1, "once");
    link_close(p.front.link);
    link_listener_close(listener);
    bed_close(&w);
}

/* An agent that has to leave while the run goes on: those below have to find another
 * one above them, and not to be waited for. */
static void test_finish_alone(void)
{
    struct world w;
    struct printing p = {.front = {.in_order = true}};
    struct link_listener *listener;

    listener = open_waiting(&w, &p);
    tree_finish(w.nodes[0].tree, TREE_FINISH_OWN);
    is_int(w.nodes[0].n_drained, 0, "what waits when one leaves alone goes first");
    take_all(&p);
    ok(bed_run_until(&w, lead_has_drained), "then it may leave, with others below "
       "who are there");
    ok(p.front.n_output > 0, "that which waited has arrived");
    link_close(p.front.link);
    link_listener_close(listener);
    bed_close(&w);
}

static void test_finish_without_front(void)
{
    struct world w;

    bed_start_all(&w);
    tree_finish(w.nodes[0].tree, TREE_FINISH_ALL);
    is_int(w.nodes[0].n_drained, 1, "with nobody above there is no waiting for "
           "those below");
    bed_close(&w);
}

static bool second_hears(struct world *w)
{
    return ((struct printing *)w->own)->front.n_output > 0;
}

static bool first_is_left(struct world *w)
{
    return w->rogue->down;
}

/* A new front end somewhere else, while the old one is still connected, and
 * then one after nobody has been there. */
static void test_front_elsewhere(void)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct world w;
    struct printing p = {.n_sent = {[2] = N_PIECES}};
    struct rogue first = {0};
    struct link_listener *here, *there = NULL;

    bed_open(&w);
    w.own = &p;
    w.rogue = &first;
    here = rogue_be_front(&w, &first);
    bed_run_until(&w, rogue_lead_has_front);
    link_listen(&w.loop, true, &there, NULL);
    link_listener_open(there, bed_key, rogue_accept, &p.front);
    is_int(tree_set_front(w.nodes[0].tree, addrs, link_listener_port(there)), 0,
           "the lead is told of another front end");
    ok(bed_run_until(&w, first_is_left), "it leaves the one that it had");
    bed_run_until(&w, rogue_lead_has_front);
    print_more(&w, 0);
    ok(bed_run_until(&w, second_hears), "and what is printed goes to the other");
    is_int((intmax_t)tree_front_gone_ms(w.nodes[0].tree), 0,
           "nobody counts the time without a front end");
    link_close(p.front.link);
    link_listener_close(there);
    ok(bed_run_until(&w, front_is_gone), "that goes as well");
    link_close(first.link);
    first = (struct rogue){0};
    tree_set_front(w.nodes[0].tree, addrs, link_listener_port(here));
    ok(bed_run_until(&w, rogue_lead_has_front), "and a third is found");
    link_close(first.link);
    link_listener_close(here);
    bed_close(&w);
}

int main(void)
{
    test_front_elsewhere();
    test_output_without_front();
    test_credit();
    test_front_comes_back();
    test_finish_own();
    test_finish_below();
    test_finish_alone();
    test_finish_without_front();
    return tap_done();
}
