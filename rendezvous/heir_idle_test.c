/* SPDX-License-Identifier: Apache-2.0 */
/* Whose lease a new lead need not wait for: who is out of the view that has ended, and
 * had no part in the generation that ran in it, as far as all of the camp know. */
#include <config.h>

#include "base/str.h"
#include "rendezvous/heir.h"
#include "tests/lib/tap.h"

#include <errno.h>

enum { N = 4, LEASE_MS = 1000, AWAY = 3 };

static struct heir *h;
static struct heir_actions a;
static uint64_t now_ms, counter;

static void step(struct heir_event event)
{
    event.now_ms = now_ms;
    is_int(heir_step(h, &event, &a), 0, "an event of type %d", event.type);
}

/* Of node 0, which leads view `number`: AWAY is in it, and takes part, or not. */
static struct order order_of(uint32_t number, bool has_it, bool takes_part, bool shared,
                             uint32_t generation, enum order_step what)
{
    static uint16_t n_procs[N];
    static uint32_t out[] = {AWAY};

    for (uint32_t i = 0; i < N; i++) {
        n_procs[i] = i != AWAY || takes_part;
    }
    return (struct order){
        .serial = ((uint64_t)number << ORDER_SERIAL_BITS) + ++counter,
        .generation = generation, .step = what, .n_nodes = N,
        .n_procs = what == ORDER_RUN ? n_procs : NULL,
        .view = {.number = number, .lead = 0, .n_nodes = N, .shared = shared,
                 .n_out = !has_it, .out = has_it ? NULL : out},
        .past = {.ran = what == ORDER_RUN ? generation : generation - 1}};
}

static void give(struct order o)
{
    step((struct heir_event){.type = HEIR_ORDER, .order = &o});
}

/* What node 2 has heard, which follows: the newest order that was given, and so many
 * more. */
static void follow(uint32_t view, uint32_t n_more, uint32_t generation, uint32_t ran)
{
    struct follow f = {
        .rank = 2, .serial = 1, .view = view, .heard_ago_ms = 0,
        .order_serial = ((uint64_t)view << ORDER_SERIAL_BITS) + counter + n_more,
        .generation = generation, .past = {.ran = ran}};

    step((struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
}

static void open_heir(void)
{
    struct heir_config config = {
        .rank = 1, .n_nodes = N, .rule = {.on = true, .min_nodes = 2},
        .lease_ms = LEASE_MS, .join_ms = 5000, .slack_ms = 50, .settle_ms = 100,
        .wait_ms = 9000};

    heir_destroy(h);
    counter = 0;
    now_ms = 10000;
    if (heir_create(&config, now_ms, &h, NULL) < 0) {
        bail_out("no heir");
    }
}

/* Node 0 ends, and this agent takes the lead of nodes 1 and 2: who is idle? */
static void take_over(void)
{
    step((struct heir_event){.type = HEIR_TOP});
    step((struct heir_event){.type = HEIR_DEAD, .rank = 0});
    if (a.claim) {
        step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    }
}

static bool is_idle(uint32_t rank)
{
    return a.lead && a.lead->idle[rank] && !a.lead->dead[rank] && !a.lead->follows[rank];
}

static void test_idle(void)
{
    open_heir();
    give(order_of(1, true, true, true, 1, ORDER_RUN));
    give(order_of(2, false, false, true, 2, ORDER_RUN));
    follow(2, 0, 2, 2);
    take_over();
    ok(a.lead && is_idle(AWAY), "who is out of the view, and had no part, is idle");
    ok(a.lead && !a.lead->idle[0] && !a.lead->idle[2], "and no member is");
    open_heir();
    give(order_of(1, true, false, true, 1, ORDER_RUN));
    take_over();
    follow(1, 0, 1, 1);
    ok(!a.claim, "a member that had no part may come yet");
    now_ms += 3 * LEASE_MS;
    step((struct heir_event){.type = HEIR_TICK});
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    ok(a.lead && !is_idle(AWAY), "and be in another generation, if it does not");
    open_heir();
    give(order_of(2, false, true, true, 1, ORDER_RUN));
    follow(2, 0, 1, 1);
    take_over();
    ok(a.lead && !is_idle(AWAY), "who took part is not idle");
}

/* The lead has done more since that generation was ordered to run. */
static void test_newer(void)
{
    open_heir();
    give(order_of(2, false, false, true, 2, ORDER_RUN));
    give(order_of(2, false, false, true, 3, ORDER_PREPARE));
    follow(2, 0, 3, 2);
    take_over();
    ok(a.lead && !is_idle(AWAY), "not where a newer order has come");
    open_heir();
    give(order_of(2, false, false, true, 2, ORDER_RUN));
    follow(2, 1, 2, 2);
    take_over();
    ok(a.lead && !is_idle(AWAY), "or has come to another of the camp");
    open_heir();
    give(order_of(2, false, false, true, 2, ORDER_RUN));
    follow(2, 0, 3, 2);
    take_over();
    ok(a.lead && !is_idle(AWAY), "nor where a newer generation is known");
    open_heir();
    give(order_of(1, true, false, true, 3, ORDER_RUN));
    give(order_of(2, false, false, true, 2, ORDER_RUN));
    follow(2, 0, 3, 2);
    take_over();
    ok(a.lead && !is_idle(AWAY), "nor where two leads have not known of each other");
    open_heir();
    give(order_of(1, true, false, true, 2, ORDER_RUN));
    give(order_of(2, false, false, true, 4, ORDER_PREPARE));
    follow(2, 0, 4, 3);
    take_over();
    ok(a.lead && !is_idle(AWAY), "one that ran where this agent did not hear of it");
}

/* It may have run in the view that came between. */
static void test_other_view(void)
{
    struct order told = order_of(2, false, false, true, 0, ORDER_VIEW);

    open_heir();
    give(order_of(1, true, false, true, 2, ORDER_RUN));
    told.serial = (uint64_t)2 << ORDER_SERIAL_BITS;
    give(told);
    follow(2, 0, 2, 2);
    take_over();
    ok(a.lead && !is_idle(AWAY), "who is out of a view in which nothing ran may run");
    open_heir();
    give(order_of(1, true, false, true, 2, ORDER_RUN));
    give(told);
    step((struct heir_event){.type = HEIR_FOLLOW, .follow = &(struct follow){
        .rank = 2, .serial = 1, .view = 2, .heard_ago_ms = HEIR_NEVER,
        .order_serial = (uint64_t)1 << ORDER_SERIAL_BITS | counter, .generation = 2,
        .past.ran = 2}});
    take_over();
    ok(a.lead && !is_idle(AWAY), "also where all of the camp know no more than that");
}

/* A newcomer runs, and is no member. */
static void test_majority(void)
{
    open_heir();
    give(order_of(2, false, false, false, 2, ORDER_RUN));
    follow(2, 0, 2, 2);
    take_over();
    ok(a.lead && !is_idle(AWAY), "nobody is where a majority decides");
}

int main(void)
{
    test_idle();
    test_newer();
    test_other_view();
    test_majority();
    heir_destroy(h);
    return tap_done();
}
