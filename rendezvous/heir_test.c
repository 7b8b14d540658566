/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/str.h"
#include "rendezvous/heir.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

enum { LEASE_MS = 1000, SLACK_MS = 50, SETTLE_MS = 100, N = 4 };

static struct heir *h;
static struct heir_actions a;
static uint64_t now_ms;

static void step(struct heir_event event)
{
    event.now_ms = now_ms;
    is_int(heir_step(h, &event, &a), 0, "an event of type %d at %llu ms",
           event.type, (unsigned long long)now_ms);
}

static void tick(uint64_t ms)
{
    now_ms += ms;
    step((struct heir_event){.type = HEIR_TICK});
}

static struct order order_of(uint32_t number, uint32_t lead, bool shared,
                             uint32_t generation, enum order_step what)
{
    static uint16_t n_procs[N] = {1, 1, 1, 1};
    static uint64_t counter;

    return (struct order){
        .serial = ((uint64_t)number << ORDER_SERIAL_BITS) + ++counter,
        .generation = generation, .step = what, .n_nodes = N,
        .n_procs = what == ORDER_RUN ? n_procs : NULL,
        .view = {.number = number, .lead = lead, .n_nodes = N,
                 .shared = shared},
        .past = {.ran = what == ORDER_RUN ? generation : generation - 1,
                 .n_restarts = 1, .resume_path = "ckpt/1"}};
}

static void give(struct order o)
{
    step((struct heir_event){.type = HEIR_ORDER, .order = &o});
}

static void hear(uint32_t view, uint64_t stamp_ms, uint64_t age_ms)
{
    step((struct heir_event){.type = HEIR_WORD, .view = view,
                             .stamp_ms = stamp_ms, .age_ms = age_ms});
}

static void follow_from(uint32_t view, uint32_t rank, uint64_t ago_ms,
                        uint32_t generation)
{
    static uint64_t serial;
    struct follow f = {.rank = rank, .serial = ++serial, .view = view,
                       .heard_ago_ms = ago_ms, .generation = generation};

    step((struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
}

static void follow(uint32_t rank, uint64_t ago_ms, uint32_t generation)
{
    follow_from(1, rank, ago_ms, generation);
}

static void open_heir(uint32_t rank, uint32_t min_nodes)
{
    struct heir_config config = {
        .rank = rank, .n_nodes = N,
        .rule = {.on = min_nodes != 0, .min_nodes = min_nodes},
        .lease_ms = LEASE_MS, .join_ms = 5000, .slack_ms = SLACK_MS,
        .settle_ms = SETTLE_MS, .wait_ms = 9000};

    heir_destroy(h);
    now_ms = 10000;
    if (heir_create(&config, now_ms, &h, NULL) < 0) {
        bail_out("no heir");
    }
}

/* Bound to node 0 in view 1, in generation 1, heard of just now. */
static void open_bound(uint32_t rank, uint32_t min_nodes, bool shared)
{
    open_heir(rank, min_nodes);
    give(order_of(1, 0, shared, 1, ORDER_RUN));
    hear(1, 500, 0);
}

static void test_bound(void)
{
    open_heir(1, 2);
    give(order_of(1, 0, true, 1, ORDER_PREPARE));
    ok(a.obey && a.floor == 1, "the first order binds");
    hear(2, 500, 0);
    ok(!a.obey, "a word of another view is none");
    hear(1, 500, 100);
    ok(a.obey, "a word of this one is");
    is_int(heir_seen_ms(h), 500, "its stamp is acknowledged");
    tick(LEASE_MS - 1);
    ok(!heir_is_free(h) && a.wake_ms == now_ms + 1, "as long as the lease lasts");
    hear(1, 600, HEIR_NEVER);
    ok(!a.obey, "a lead that has no word renews nothing ...");
    is_int(heir_seen_ms(h), 600, "... but was heard");
    tick(1);
    ok(heir_is_free(h) && a.floor == 2 && a.follow &&
           a.heard_ms == now_ms - 1, "then it is free, and promises");
    hear(1, 700, 0);
    give(order_of(1, 0, true, 2, ORDER_RUN));
    ok(!a.obey, "the old lead has nothing more to say");
    is_int(heir_seen_ms(h), 600, "and is not acknowledged");
    give(order_of(2, 3, true, 2, ORDER_PREPARE));
    ok(a.obey && !heir_is_free(h), "another view binds it again");
    open_bound(1, 2, true);
    give(order_of(2, 3, true, 2, ORDER_PREPARE));
    give(order_of(1, 0, true, 3, ORDER_RUN));
    ok(!a.obey, "an older view does not");
}

static void test_rigid(void)
{
    open_heir(1, 0);
    give(order_of(0, 0, false, 1, ORDER_RUN));
    ok(a.obey, "where nobody else leads all orders count");
    tick(LEASE_MS * 2);
    ok(!a.leave, "and the member sees to itself");
    open_bound(1, 4, true);
    step((struct heir_event){.type = HEIR_DEAD, .rank = 0});
    ok(!heir_is_free(h) && !a.leave, "a job that needs all waits for its lease");
    tick(LEASE_MS);
    ok(a.leave && strstr(a.leave, "no word from the lead for 1 s"), "and ends");
    open_heir(1, 2);
    tick(4999);
    ok(!a.leave, "before the first order there is time to gather");
    tick(1);
    ok(a.leave, "and an end of it");
}

static void test_candidate(void)
{
    open_bound(1, 2, true);
    tick(LEASE_MS);
    step((struct heir_event){.type = HEIR_TOP});
    follow(2, 30, 1);
    ok(!a.claim, "node 3 may come yet");
    tick(SETTLE_MS * 2 - 1);
    ok(!a.claim && a.wake_ms == now_ms + 1, "and the larger part goes first");
    tick(1);
    ok(a.claim && a.claim->number == 2 && a.claim->lead == 1 &&
           view_has(a.claim, 2) && !view_has(a.claim, 0) &&
           !view_has(a.claim, 3), "then it claims the next view for its camp");
    follow(3, 200, 2);
    ok(!a.claim, "once");
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_UNKNOWN});
    ok(a.claim && !view_has(a.claim, 3), "without an answer, the same again");
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    ok(a.lead && heir_is_lead(h) && a.lead->view.number == 2, "it leads");
    is_int(a.lead->clear_ms, now_ms - 200 + LEASE_MS + SLACK_MS,
           "a lease after anybody has heard of the old one");
    is_int(a.lead->generation, 2, "the newest generation that one of them knows");
    ok(a.lead->n_procs && a.lead->past.ran == 1 &&
           a.lead->past.n_restarts == 1, "and what was");
    ok(a.lead->follows[3] && a.lead->follows[1] && !a.lead->follows[0],
       "those who follow now");
    is_int(heir_word_age_ms(h, now_ms), 0,
           "two are in it, and one alone cannot go on: its word is new");
}

static void test_dead_lead(void)
{
    open_bound(1, 2, true);
    step((struct heir_event){.type = HEIR_TOP});
    step((struct heir_event){.type = HEIR_DEAD, .rank = 0});
    ok(heir_is_free(h) && a.follow && !a.claim, "free at once");
    follow(2, 0, 1);
    ok(!a.claim, "not all have come");
    step((struct heir_event){.type = HEIR_DEAD, .rank = 3});
    ok(a.claim, "all that live have");
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    ok(a.lead && a.lead->dead[0] && a.lead->dead[3], "who is dead is known");
    give((struct order){.serial = 1, .view = {.number = 1}});
    ok(!a.obey, "nobody leads the lead");
}

static void test_lost(void)
{
    struct view found = {.number = 2, .lead = 3, .n_nodes = N, .shared = true};
    uint32_t out[] = {1};

    open_bound(1, 1, true);
    tick(LEASE_MS);
    step((struct heir_event){.type = HEIR_TOP});
    tick(SETTLE_MS * 2);
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                             .found = &found});
    ok(!a.leave && a.seek == 3 && a.floor == 2 && !heir_is_free(h),
       "who is named in it looks for its lead");
    ok(a.order && a.order->step == ORDER_VIEW && a.order->view.number == 2 &&
           a.order->view.lead == 3 && a.order->serial == 2ull << ORDER_SERIAL_BITS &&
           a.order->past.ran == 0, "and tells those below whose it is, and no more");
    tick(LEASE_MS);
    ok(heir_is_free(h), "for a lease");
    found.number = 3;
    found.n_out = 1;
    found.out = out;
    tick(SETTLE_MS * 2);
    ok(a.claim && a.claim->number == 3, "and claims the next");
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                             .found = &found});
    ok(a.leave && strstr(a.leave, "the others go on without this node"),
       "who is not named leaves");
    open_bound(1, 1, true);
    tick(LEASE_MS);
    step((struct heir_event){.type = HEIR_TOP});
    tick(SETTLE_MS * 2);
    found = (struct view){.number = 2, .lead = 0, .n_nodes = N, .shared = true,
                          .has_verdict = true, .status = 3, .reason = "why"};
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                             .found = &found});
    ok(a.leave && a.order && a.order->step == ORDER_END &&
           a.order->status == 3 && !strcmp(a.order->reason, "why"),
       "a verdict that is found is the verdict");
}

/* Its lease was over long before it went on: the others look for it only now. */
static void test_stopped(void)
{
    for (int is_complete = 0; is_complete < 2; is_complete++) {
        open_bound(1, 1, true);
        tick(LEASE_MS * 5);
        step((struct heir_event){.type = HEIR_TOP});
        follow(2, LEASE_MS, 1);
        ok(heir_is_free(h) && !a.claim && a.wake_ms == now_ms + SETTLE_MS * 2,
           "who was stopped waits for those whose lease ends after its own, too");
        if (is_complete) {
            follow(3, LEASE_MS, 1);
        } else {
            tick(SETTLE_MS * 2);
        }
        ok(a.claim && view_has(a.claim, 2) && view_has(a.claim, 3) == is_complete,
           "%s", is_complete ? "all have come" : "not for ever");
    }
}

/* The view that is found has more members than this agent has been told of, the
 * lead among them. */
static void test_more_members(void)
{
    struct view found = {.number = 2, .lead = N + 1, .n_nodes = N + 2,
                         .shared = true};
    uint32_t node_of[N + 2] = {0, 1, 2, 3, 4, 5};

    open_bound(1, 1, true);
    tick(LEASE_MS);
    step((struct heir_event){.type = HEIR_TOP});
    tick(SETTLE_MS * 2);
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                             .found = &found});
    ok(a.seek == N + 1 && !heir_is_free(h), "one that it does not know may lead");
    tick(LEASE_MS);
    tick(SETTLE_MS * 2);
    ok(heir_is_free(h) && !a.claim, "who does not know all members does not");
    is_int(heir_grow(h, N + 1, node_of), 0, "there is one more");
    tick(0);
    ok(!a.claim, "one it does not know yet");
    is_int(heir_grow(h, N + 2, node_of), 0, "and another");
    tick(0);
    ok(a.claim && a.claim->number == 3 && a.claim->n_nodes == N + 2,
       "then it claims the next view");
}

/* The lead is lost when all know the verdict, and before they were told to leave:
 * somebody has to write it down. */
static void test_end_without_lead(void)
{
    struct order end = order_of(2, 0, true, 1, ORDER_END);

    end.status = 3;
    str_copy(end.reason, sizeof(end.reason), "why");
    open_bound(1, 3, true);
    give(end);
    step((struct heir_event){.type = HEIR_TOP});
    step((struct heir_event){.type = HEIR_DEAD, .rank = 0});
    ok(heir_is_free(h) && !a.leave && !a.claim, "others may have heard of it");
    step((struct heir_event){.type = HEIR_DEAD, .rank = 2});
    step((struct heir_event){.type = HEIR_DEAD, .rank = 3});
    ok(a.claim && a.claim->number == 3 && a.claim->has_verdict &&
           a.claim->status == 3 && !strcmp(a.claim->reason, "why"),
       "who knows an end claims it again, though too few are left to go on");
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    ok(a.lead && a.lead->has_verdict && a.lead->status == 3,
       "and leads to see to it");
    open_bound(1, 3, true);
    give(end);
    step((struct heir_event){.type = HEIR_DEAD, .rank = 0});
    tick(2 * LEASE_MS - 1);
    ok(!a.leave, "who is not the top waits for that");
    tick(1);
    ok(a.leave && strstr(a.leave, "the lead is gone"), "not for ever");
}

/* Its lead knows who of the dead were bound to it, and who may be on another side. */
static void test_majority_word(void)
{
    struct heir_event seen = {
        .type = HEIR_SEEN,
        .seen = {.all_ms = now_ms, .live_ms = now_ms, .n_suspect = 1},
        .rivals = {.n_silent = 1, .size = 2}};

    step(seen);
    is_int(heir_word_age_ms(h, now_ms), HEIR_NEVER, "as long as they are enough");
    seen.rivals.n_silent = 0;
    step(seen);
    is_int(heir_word_age_ms(h, now_ms), 0, "and is new then");
    step((struct heir_event){.type = HEIR_DEAD, .rank = 1});
    step((struct heir_event){.type = HEIR_DEAD, .rank = 3});
    is_int(heir_word_age_ms(h, now_ms + 500), 500,
           "who is dead may have been on another side");
    seen.rivals.size = VIEW_NO_SIDE;
    step(seen);
    is_int(heir_word_age_ms(h, now_ms + 500), 0, "or not: its lead says that");
}

static void test_majority(void)
{
    open_bound(2, 1, false);
    step((struct heir_event){.type = HEIR_TOP});
    tick(LEASE_MS + SETTLE_MS * 2);
    follow(3, 0, 1);
    ok(!a.lead, "half without the lowest is not enough");
    follow(1, 0, 1);
    ok(a.lead && !a.claim && a.lead->view.number >> 16 == 1,
       "more than half are, and nobody is asked");
    ok(view_has(&a.lead->view, 0), "all stay members");
    is_int(heir_word_age_ms(h, now_ms), HEIR_NEVER,
           "its word is none before enough have acknowledged it");
    test_majority_word();
    open_bound(1, 1, false);
    tick(LEASE_MS);
    step((struct heir_event){.type = HEIR_TOP});
    tick(8999);
    ok(!a.leave, "alone it waits");
    tick(1);
    ok(a.leave && strstr(a.leave, "no lead was found for 10 s"), "not for ever");
}

/* Only an END says that enough knew of it. */
static void test_majority_end(enum order_step step_of_end)
{
    struct order o;

    open_bound(1, 1, false);
    o = order_of(1, 0, false, 2, step_of_end);
    o.status = 3;
    o.past.has_end = step_of_end == ORDER_PREPARE;
    o.past.status = 3;
    give(o);
    step((struct heir_event){.type = HEIR_TOP});
    tick(LEASE_MS);
    follow(2, 0, 1);
    follow(3, 0, 1);
    ok(a.lead && a.lead->has_verdict && a.lead->status == 3 &&
           a.lead->is_proposed == o.past.has_end, "an end is handed over as it was");
}

/* Who followed out of an older view may be bound to the newer one by now. */
static void test_stale_followers(void)
{
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        open_bound(1, 2, is_shared);
        follow(2, 0, 1);
        follow(3, 0, 1);
        give(order_of(1 << 16, 0, is_shared, 1, ORDER_RUN));
        hear(1 << 16, 600, 0);
        tick(LEASE_MS);
        step((struct heir_event){.type = HEIR_TOP});
        tick(SETTLE_MS * 2);
        ok(heir_is_free(h) && !a.claim && !a.lead, "who followed before it was "
           "bound anew does not count, %s", is_shared ? "shared" : "majority");
        follow_from(1, 2, 0, 1);
        ok(!a.claim && !a.lead, "nor who comes from there late");
        follow_from(1 << 16, 3, 0, 1);
        if (!is_shared) {
            follow_from(1 << 16, 2, 0, 1);
        }
        ok(is_shared ? a.claim && !view_has(a.claim, 2)
                     : a.lead && a.lead->follows[2] && a.lead->follows[3],
           "who is free of this view too does");
    }
}

/* Node 1 has been made the lead by nodes 2 and 3, without a directory to ask. */
static void open_chosen(void)
{
    open_bound(1, 1, false);
    step((struct heir_event){.type = HEIR_TOP});
    tick(LEASE_MS);
    follow(2, 0, 1);
    follow(3, 0, 1);
    ok(heir_is_lead(h), "a majority has chosen it");
}

/* A lead that is followed out of a newer view knows nothing of what that one did. */
static void test_outdated(bool shared, bool has_end)
{
    struct follow f = {.rank = 3, .serial = 1000, .view = 2u << 16, .generation = 7,
                       .order_serial = 2ull << (16 + ORDER_SERIAL_BITS),
                       .past = {.ran = 7, .has_end = true, .status = 4}};

    open_chosen();
    give(order_of(1u << 16 | 1, 1, shared, 2, has_end ? ORDER_END : ORDER_RUN));
    follow(2, 0, 2);
    ok(heir_is_lead(h) && !a.quit, "who is free of an older view comes back to it");
    step((struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
    if (shared || has_end) {
        ok(heir_is_lead(h) && !a.quit, "it goes on leading where %s", shared
           ? "there is a directory to ask" : "it has told the end");
        return;
    }
    ok(a.quit && !heir_is_lead(h) && heir_is_free(h) &&
           a.floor == ((1u << 16 | 1) + 1), "it leads no more, and is free");
    follow_from(1u << 16 | 1, 2, 0, 2);
    tick(LEASE_MS + 2 * SETTLE_MS);
    ok(a.lead && a.lead->view.number == (3u << 16 | 1) && a.lead->generation == 7 &&
           a.lead->has_verdict && a.lead->is_proposed && a.lead->status == 4,
       "and may lead again, knowing that");
}

/* Nor one that is followed out of an older view of the same round, which has ended the
 * run; an end that was only given up to is no reason. */
static void test_ended_beside(uint8_t status)
{
    struct follow f = {.rank = 3, .serial = 1000, .view = 1u << 16, .generation = 2,
                       .order_serial = 1ull << (16 + ORDER_SERIAL_BITS),
                       .has_verdict = true, .status = status};

    open_chosen();
    give(order_of(1u << 16 | 1, 1, false, 2, ORDER_PREPARE));
    step((struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
    ok(heir_is_lead(h) == (status == 75) && a.quit == (status != 75),
       "status %u of a lead beside it", status);
}

/* One is astray, which could not go on by itself: for the end it is enough. */
static void test_word_at_end(void)
{
    for (uint32_t n_suspect = 0; n_suspect < 2; n_suspect++) {
        open_heir(0, 2);
        give(order_of(1, 0, true, 1, ORDER_RUN));
        step((struct heir_event){
            .type = HEIR_SEEN, .seen = {.all_ms = 9000, .live_ms = now_ms,
                                        .n_suspect = n_suspect}});
        ok(heir_is_in_office(h, now_ms), "%u of the members are silent", n_suspect);
        give(order_of(1, 0, true, 1, ORDER_END));
        ok(heir_is_in_office(h, now_ms) == !n_suspect, "who may claim the end that "
           "it knows makes the word of the lead none");
    }
}

/* Three nodes below: what they have acknowledged, and how old the word is. */
static void test_word(void)
{
    static const struct {
        const char *what;
        uint32_t min_nodes;
        struct heir_seen seen;
        uint32_t n_silent;
        uint64_t acked_ms; /* 0: as before */
    } cases[] = {
        {"all are there", 2, {9900, 9900, 0, 0}, 0, 9900},
        {"one is suspect, which cannot go on", 2, {9000, 9950, 1, 1}, 0, 9950},
        {"two are, which can", 2, {9000, 9990, 2, 2}, 0, 0},
        {"one is lost, one suspect", 2, {9995, 9995, 1, 1}, 1, 0},
        {"they are back", 2, {9996, 9996, 0, 0}, 0, 9996},
        {"more than there can be", 2, {9997, 9999, UINT32_MAX, 0}, 1, 0},
    };
    uint64_t acked_ms = 0;

    open_heir(0, 2);
    give(order_of(1, 0, true, 1, ORDER_RUN));
    ok(heir_is_lead(h), "the first lead hears of it by its own order");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        step((struct heir_event){.type = HEIR_SEEN, .seen = cases[i].seen,
                                 .rivals.n_silent = cases[i].n_silent});
        acked_ms = cases[i].acked_ms ? cases[i].acked_ms : acked_ms;
        is_int(heir_word_age_ms(h, now_ms), now_ms - acked_ms, "%s",
               cases[i].what);
    }
    open_heir(0, 4);
    give(order_of(1, 0, true, 1, ORDER_RUN));
    is_int(heir_word_age_ms(h, now_ms), 0,
           "where nobody else can go on its word is always new");
}

static void test_found_dead(void)
{
    struct heir_event seen = {.type = HEIR_SEEN};

    for (int is_late = 0; is_late < 2; is_late++) {
        open_heir(0, 2);
        give(order_of(1, 0, true, 1, ORDER_RUN));
        ok(!heir_is_in_office(h, now_ms), "a lead is in office when it was heard");
        seen.seen = (struct heir_seen){.all_ms = now_ms, .live_ms = now_ms};
        step(seen);
        ok(heir_is_in_office(h, now_ms), "now");
        now_ms += is_late ? LEASE_MS : 0;
        ok(heir_is_in_office(h, now_ms) == !is_late, "for a lease");
        for (uint32_t i = 1; i < N; i++) {
            step((struct heir_event){.type = HEIR_DEAD, .rank = i});
        }
        ok(heir_is_in_office(h, now_ms + 10 * LEASE_MS) == !is_late, is_late
           ? "those who are found dead later may have gone on before"
           : "with all others dead there is no other lead");
    }
}

/* Its claim was carried out, and not answered. */
static void test_died_late(void)
{
    for (int is_late = 0; is_late < 2; is_late++) {
        open_bound(1, 1, true);
        step((struct heir_event){.type = HEIR_TOP});
        step((struct heir_event){.type = HEIR_DEAD, .rank = 3});
        follow(2, 0, 1);
        if (!is_late) {
            step((struct heir_event){.type = HEIR_DEAD, .rank = 2});
        }
        step((struct heir_event){.type = HEIR_DEAD, .rank = 0});
        ok(a.claim && view_has(a.claim, 2) == is_late, "a claim");
        step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_UNKNOWN});
        step((struct heir_event){.type = HEIR_DEAD, .rank = 2});
        step((struct heir_event){.type = HEIR_DEAD, .rank = 3});
        step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
        ok(a.lead && a.lead->dead[3] && a.lead->dead[2] == !is_late, is_late
           ? "who is found dead meanwhile may have gone on from it, and is silent"
           : "who was dead before it is dead");
        ok(heir_is_in_office(h, now_ms) == !is_late, "%s in office",
           is_late ? "not" : "at once");
    }
}

static void test_deposed(void)
{
    struct view found = {.number = 2, .lead = 1, .n_nodes = N, .shared = true};

    open_heir(0, 2);
    give(order_of(1, 0, true, 1, ORDER_RUN));
    step((struct heir_event){.type = HEIR_DEPOSED, .found = &found});
    ok(a.quit && !heir_is_lead(h) && !a.leave && a.seek == 1,
       "a lead that is deposed is a member");
    ok(a.order && a.order->step == ORDER_VIEW && a.order->view.number == 2,
       "and tells those who obeyed it");
}

static struct order told(uint32_t number, uint32_t lead)
{
    return (struct order){
        .serial = (uint64_t)number << ORDER_SERIAL_BITS, .step = ORDER_VIEW,
        .view = {.number = number, .lead = lead, .n_nodes = N, .shared = true}};
}

/* By one above, who has read it in the run directory. */
static void test_told(void)
{
    struct order order = order_of(1, 0, true, 7, ORDER_RUN);

    open_heir(1, 2);
    give(order);
    hear(1, 500, 0);
    tick(LEASE_MS / 2);
    give(told(2, 3));
    ok(a.floor == 2 && a.heard_ms == now_ms - LEASE_MS / 2 && !heir_is_free(h) &&
           !a.order,
       "who is told of a view is bound by it");
    ok(!a.obey, "there is nothing for its member");
    give(order_of(1, 0, true, 8, ORDER_RUN));
    ok(!a.obey, "the older lead has nothing more to say");
    tick(LEASE_MS - 1);
    ok(!heir_is_free(h), "for a lease of its own");
    tick(1);
    ok(heir_is_free(h) && a.floor == 3 && a.follow && a.follow->view == 2,
       "and follows from there");
    ok(a.follow->order_serial == order.serial && a.follow->generation == 7 &&
           a.follow->past.n_restarts == 1, "with what it has heard of the run before");
    give(told(2, 3));
    ok(heir_is_free(h) && !a.floor, "it has promised that for good");
    give(told(3, 1));
    ok(heir_is_free(h) && !a.floor, "nobody makes it a lead");
    give(told(3, 2));
    give(order_of(3, 2, true, 8, ORDER_PREPARE));
    ok(a.obey && !a.floor, "it obeys the lead of a view that it was told of");
    open_bound(1, 2, true);
    give(told(2, 3));
    give(order_of(2, 1, true, 8, ORDER_PREPARE));
    ok(!a.obey && !heir_is_lead(h), "not one that says that it leads itself");
    give(order_of(2, 2, true, 8, ORDER_PREPARE));
    ok(a.obey && heir_view(h)->lead == 2, "who leads says so, whatever was read of it");
    give(order_of(2, 3, true, 9, ORDER_PREPARE));
    ok(!a.obey && heir_view(h)->lead == 2, "and that is not changed any more");
    open_bound(1, 2, true);
    step((struct heir_event){.type = HEIR_DEAD, .rank = 3});
    give(told(2, 3));
    ok(heir_is_free(h) && a.follow && a.follow->view == 2,
       "it is free at once where that one is dead");
    open_heir(0, 2);
    give(order_of(1, 0, true, 1, ORDER_RUN));
    give(told(2, 3));
    ok(a.quit && !heir_is_lead(h), "a lead that is told leads no more");
}

/* Nodes 2 and 3 followed this one, and then go to another lead with it: by the word of
 * the arbiter, which orders follow, or do not. */
static void test_followed_before(bool has_order)
{
    struct view found = {.number = 2, .lead = 0, .shared = true, .n_nodes = N};

    open_bound(1, 3, true);
    tick(LEASE_MS);
    step((struct heir_event){.type = HEIR_TOP});
    follow(2, 30, 1);
    follow(3, 30, 1);
    ok(a.claim && a.claim->number == 2, "with two others it claims the next view");
    step((struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                             .found = &found});
    is_int(a.floor, 2, "which is another's");
    if (has_order) {
        give(order_of(2, 0, true, 2, ORDER_RUN));
        ok(a.obey, "whose orders it obeys");
        hear(2, 900, 0);
    }
    tick(LEASE_MS);
    ok(heir_is_free(h) && !a.claim, "who followed it before that is none of its camp");
    tick(2 * SETTLE_MS);
    ok(!a.claim, "nor later");
    follow_from(2, 2, 30, 2);
    follow_from(2, 3, 30, 2);
    ok(a.claim && a.claim->number == 3, "who follows again is");
}

/* Somebody has read in a file what nobody wrote there. */
static void test_never_won(void)
{
    open_bound(1, 2, true);
    give(order_of(2, 1, true, 2, ORDER_END));
    ok(!a.obey && !heir_is_lead(h), "nobody leads by an order of others");
    is_int(heir_view(h)->number, 1, "and stays bound as before");
    open_heir(1, 2);
    give(order_of(2, 1, true, 2, ORDER_END));
    ok(!a.obey && !heir_is_lead(h), "not before its first order either");
    tick(5000);
    ok(a.leave != NULL, "it does not stay for ever");
    open_heir(1, 2);
    give(order_of(1, 1, true, 1, ORDER_PREPARE));
    ok(a.obey && heir_is_lead(h), "the first view has its lead without a claim");
}

/* Half of four with the lowest of them may go on, but the job needs three. */
static void test_small_majority(void)
{
    open_heir(0, 3);
    give(order_of(1, 3, false, 1, ORDER_RUN));
    hear(1, 500, 0);
    tick(LEASE_MS);
    step((struct heir_event){.type = HEIR_TOP});
    follow(1, 30, 1);
    tick(2 * SETTLE_MS);
    ok(!a.lead && heir_is_free(h), "a side that is too small for the job waits");
    tick(LEASE_MS - 1);
    ok(!a.lead, "for others");
    tick(1);
    ok(a.lead != NULL, "for a lease more");
}

/* Alone it cannot go on, but who knows the end may write it down. */
static void test_end_is_anybodys(void)
{
    struct heir_rivals none = {.size = 1};

    open_heir(0, 2);
    give(order_of(1, 0, true, 1, ORDER_RUN));
    step((struct heir_event){.type = HEIR_SEEN, .rivals = none,
                             .seen = {.all_ms = now_ms, .live_ms = now_ms}});
    for (uint32_t i = 1; i < 3; i++) {
        step((struct heir_event){.type = HEIR_DEAD, .rank = i});
    }
    tick(LEASE_MS * 2);
    ok(heir_is_in_office(h, now_ms), "a lead whose last node could not go on alone is "
       "in office");
    give(order_of(1, 0, true, 1, ORDER_END));
    ok(!heir_is_in_office(h, now_ms), "not for the end, where it is silent");
}

static void test_messages(void)
{
    struct follow f = {.rank = 3, .serial = 2, .view = 7, .heard_ago_ms = 12,
                       .order_serial = 9, .generation = 4, .has_verdict = true,
                       .status = 1, .reason = "x", .past = {.ran = 3}}, back;
    _buf_ struct buf b = {0};
    bool refused = true;
    struct heir_seen sum = {.all_ms = 50, .live_ms = 50};

    follow_encode(&f, &b);
    is_int(follow_decode(b.data, b.len, &back, NULL), 0, "a follow");
    ok(back.rank == 3 && back.view == 7 && back.heard_ago_ms == 12 &&
           back.has_verdict && back.past.ran == 3 && !strcmp(back.reason, "x"),
       "comes as it went");
    buf_putc(&b, '\0');
    for (size_t len = 0; len <= b.len; len++) {
        refused = refused && (follow_decode(b.data, len, &back, NULL) == 0) ==
                                 (len == b.len - 1);
    }
    ok(refused, "only as a whole");
    b.data[0] = 9;
    is_int(follow_decode(b.data, b.len, &back, NULL), -ERR_VERSION, "format 9");
    heir_seen_add(&sum, &(struct heir_seen){40, HEIR_NEVER, 1, 1});
    ok(sum.all_ms == 40 && sum.live_ms == 50 && sum.n_suspect == 1 &&
           sum.n_quiet == 1, "the oldest of all, and of those that live");
}

static void test_senseless(void)
{
    struct heir_config config = {.n_nodes = 2, .rank = 2};
    struct follow f = {.rank = N, .serial = 1};
    struct heir *none;
    struct error e;

    is_int(heir_create(&config, 0, &none, &e), -EINVAL, "a rank that is none");
    open_bound(1, 2, true);
    is_int(heir_step(h, &(struct heir_event){.type = HEIR_DEAD, .rank = 1}, &a),
           -EPROTO, "its own death");
    is_int(heir_step(h, &(struct heir_event){.type = HEIR_FOLLOW, .follow = &f},
                     &a), -EPROTO, "a follower that is none");
    is_int(heir_step(h, &(struct heir_event){.type = HEIR_UNFOLLOW, .rank = 9},
                     &a), -EPROTO, "nor one that goes");
    is_int(heir_grow(h, 9, NULL), 0, "there are more now");
    is_int(heir_step(h, &(struct heir_event){.type = HEIR_UNFOLLOW, .rank = 8},
                     &a), 0, "and it may be one of them");
}

int main(void)
{
    test_bound();
    test_rigid();
    test_candidate();
    test_dead_lead();
    test_lost();
    test_stopped();
    test_more_members();
    test_end_without_lead();
    test_majority();
    test_majority_end(ORDER_PREPARE);
    test_majority_end(ORDER_END);
    test_stale_followers();
    test_outdated(false, false);
    test_outdated(false, true);
    test_outdated(true, false);
    test_ended_beside(124);
    test_ended_beside(0);
    test_ended_beside(75);
    test_word();
    test_word_at_end();
    test_found_dead();
    test_died_late();
    test_deposed();
    test_told();
    test_followed_before(true);
    test_followed_before(false);
    test_never_won();
    test_small_majority();
    test_end_is_anybodys();
    test_messages();
    test_senseless();
    heir_destroy(h);
    return tap_done();
}
