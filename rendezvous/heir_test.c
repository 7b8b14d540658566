/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/str.h"
#include "rendezvous/heir_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

static struct heir_bed t;

static void test_bound(void)
{
    heir_bed_open(&t, 1, 2);
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_PREPARE));
    ok(t.a.obey && t.a.floor == 1, "the first order binds");
    heir_bed_hear(&t, 2, 500, 0);
    ok(!t.a.obey, "a word of another view is none");
    heir_bed_hear(&t, 1, 500, 100);
    ok(t.a.obey, "a word of this one is");
    is_int(heir_seen_ms(t.h), 500, "its stamp is acknowledged");
    heir_bed_tick(&t, HEIR_BED_LEASE_MS - 1);
    ok(!heir_is_free(t.h) && t.a.wake_ms == t.now_ms + 1, "as long as the lease lasts");
    heir_bed_hear(&t, 1, 600, HEIR_NEVER);
    ok(!t.a.obey, "a lead that has no word renews nothing ...");
    is_int(heir_seen_ms(t.h), 600, "... but was heard");
    heir_bed_tick(&t, 1);
    ok(heir_is_free(t.h) && t.a.floor == 2 && t.a.follow &&
           t.a.heard_ms == t.now_ms - 1, "then it is free, and promises");
    heir_bed_hear(&t, 1, 700, 0);
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 2, ORDER_RUN));
    ok(!t.a.obey, "the old lead has nothing more to say");
    is_int(heir_seen_ms(t.h), 600, "and is not acknowledged");
    heir_bed_give(&t, heir_bed_order(&t, 2, 3, true, 2, ORDER_PREPARE));
    ok(t.a.obey && !heir_is_free(t.h), "another view binds it again");
    heir_bed_open_bound(&t, 1, 2, true);
    heir_bed_give(&t, heir_bed_order(&t, 2, 3, true, 2, ORDER_PREPARE));
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 3, ORDER_RUN));
    ok(!t.a.obey, "an older view does not");
}

static void test_rigid(void)
{
    heir_bed_open(&t, 1, 0);
    heir_bed_give(&t, heir_bed_order(&t, 0, 0, false, 1, ORDER_RUN));
    ok(t.a.obey, "where nobody else leads all orders count");
    heir_bed_tick(&t, HEIR_BED_LEASE_MS * 2);
    ok(!t.a.leave, "and the member sees to itself");
    heir_bed_open_bound(&t, 1, 4, true);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 0});
    ok(!heir_is_free(t.h) && !t.a.leave, "a job that needs all waits for its lease");
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    ok(t.a.leave && strstr(t.a.leave, "no word from the lead for 1 s"), "and ends");
    heir_bed_open(&t, 1, 2);
    heir_bed_tick(&t, 4999);
    ok(!t.a.leave, "before the first order there is time to gather");
    heir_bed_tick(&t, 1);
    ok(t.a.leave, "and an end of it");
}

static void test_candidate(void)
{
    heir_bed_open_bound(&t, 1, 2, true);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_follow(&t, 2, 30, 1);
    ok(!t.a.claim, "node 3 may come yet");
    heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2 - 1);
    ok(!t.a.claim && t.a.wake_ms == t.now_ms + 1, "and the larger part goes first");
    heir_bed_tick(&t, 1);
    ok(t.a.claim && t.a.claim->number == 2 && t.a.claim->lead == 1 &&
           view_has(t.a.claim, 2) && !view_has(t.a.claim, 0) &&
           !view_has(t.a.claim, 3), "then it claims the next view for its camp");
    heir_bed_follow(&t, 3, 200, 2);
    ok(!t.a.claim, "once");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_UNKNOWN});
    ok(t.a.claim && !view_has(t.a.claim, 3), "without an answer, the same again");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    ok(t.a.lead && heir_is_lead(t.h) && t.a.lead->view.number == 2, "it leads");
    is_int(t.a.lead->clear_ms, t.now_ms - 200 + HEIR_BED_LEASE_MS + HEIR_BED_SLACK_MS,
           "a lease after anybody has heard of the old one");
    is_int(t.a.lead->generation, 2, "the newest generation that one of them knows");
    ok(t.a.lead->n_procs && t.a.lead->past.ran == 1 &&
           t.a.lead->past.n_restarts == 1, "and what was");
    ok(t.a.lead->follows[3] && t.a.lead->follows[1] && !t.a.lead->follows[0],
       "those who follow now");
    is_int(heir_word_age_ms(t.h, t.now_ms), 0,
           "two are in it, and one alone cannot go on: its word is new");
}

static void test_dead_lead(void)
{
    heir_bed_open_bound(&t, 1, 2, true);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 0});
    ok(heir_is_free(t.h) && t.a.follow && !t.a.claim, "free at once");
    heir_bed_follow(&t, 2, 0, 1);
    ok(!t.a.claim, "not all have come");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 3});
    ok(t.a.claim, "all that live have");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    ok(t.a.lead && t.a.lead->dead[0] && t.a.lead->dead[3], "who is dead is known");
    heir_bed_give(&t, (struct order){.serial = 1, .view = {.number = 1}});
    ok(!t.a.obey, "nobody leads the lead");
}

static void test_lost(void)
{
    struct view found = {.number = 2, .lead = 3, .n_nodes = HEIR_BED_N, .shared = true};
    uint32_t out[] = {1};

    heir_bed_open_bound(&t, 1, 1, true);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                                          .found = &found});
    ok(!t.a.leave && t.a.seek == 3 && t.a.floor == 2 && !heir_is_free(t.h),
       "who is named in it looks for its lead");
    ok(t.a.order && t.a.order->step == ORDER_VIEW && t.a.order->view.number == 2 &&
           t.a.order->view.lead == 3 && t.a.order->serial == 2ull << ORDER_SERIAL_BITS &&
           t.a.order->past.ran == 0, "and tells those below whose it is, and no more");
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    ok(heir_is_free(t.h), "for a lease");
    found.number = 3;
    found.n_out = 1;
    found.out = out;
    heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2);
    ok(t.a.claim && t.a.claim->number == 3, "and claims the next");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                                          .found = &found});
    ok(t.a.leave && strstr(t.a.leave, "the others go on without this node"),
       "who is not named leaves");
    heir_bed_open_bound(&t, 1, 1, true);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2);
    found = (struct view){.number = 2, .lead = 0, .n_nodes = HEIR_BED_N, .shared = true,
                          .has_verdict = true, .status = 3, .reason = "why"};
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                                          .found = &found});
    ok(t.a.leave && t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == 3 && !strcmp(t.a.order->reason, "why"),
       "a verdict that is found is the verdict");
}

/* Its lease was over long before it went on: the others look for it only now. */
static void test_stopped(void)
{
    for (int is_complete = 0; is_complete < 2; is_complete++) {
        heir_bed_open_bound(&t, 1, 1, true);
        heir_bed_tick(&t, HEIR_BED_LEASE_MS * 5);
        heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
        heir_bed_follow(&t, 2, HEIR_BED_LEASE_MS, 1);
        ok(heir_is_free(t.h) && !t.a.claim &&
               t.a.wake_ms == t.now_ms + HEIR_BED_SETTLE_MS * 2,
           "who was stopped waits for those whose lease ends after its own, too");
        if (is_complete) {
            heir_bed_follow(&t, 3, HEIR_BED_LEASE_MS, 1);
        } else {
            heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2);
        }
        ok(t.a.claim && view_has(t.a.claim, 2) && view_has(t.a.claim, 3) == is_complete,
           "%s", is_complete ? "all have come" : "not for ever");
    }
}

/* The view that is found has more members than this agent has been told of, the
 * lead among them. */
static void test_more_members(void)
{
    struct view found = {.number = 2, .lead = HEIR_BED_N + 1, .n_nodes = HEIR_BED_N + 2,
                         .shared = true};
    uint32_t node_of[HEIR_BED_N + 2] = {0, 1, 2, 3, 4, 5};

    heir_bed_open_bound(&t, 1, 1, true);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                                          .found = &found});
    ok(t.a.seek == HEIR_BED_N + 1 && !heir_is_free(t.h),
       "one that it does not know may lead");
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2);
    ok(heir_is_free(t.h) && !t.a.claim, "who does not know all members does not");
    is_int(heir_grow(t.h, HEIR_BED_N + 1, node_of), 0, "there is one more");
    heir_bed_tick(&t, 0);
    ok(!t.a.claim, "one it does not know yet");
    is_int(heir_grow(t.h, HEIR_BED_N + 2, node_of), 0, "and another");
    heir_bed_tick(&t, 0);
    ok(t.a.claim && t.a.claim->number == 3 && t.a.claim->n_nodes == HEIR_BED_N + 2,
       "then it claims the next view");
}

/* The lead is lost when all know the verdict, and before they were told to leave:
 * somebody has to write it down. */
static void test_end_without_lead(void)
{
    struct order end = heir_bed_order(&t, 2, 0, true, 1, ORDER_END);

    end.status = 3;
    str_copy(end.reason, sizeof(end.reason), "why");
    heir_bed_open_bound(&t, 1, 3, true);
    heir_bed_give(&t, end);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 0});
    ok(heir_is_free(t.h) && !t.a.leave && !t.a.claim, "others may have heard of it");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 2});
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 3});
    ok(t.a.claim && t.a.claim->number == 3 && t.a.claim->has_verdict &&
           t.a.claim->status == 3 && !strcmp(t.a.claim->reason, "why"),
       "who knows an end claims it again, though too few are left to go on");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
    ok(t.a.lead && t.a.lead->has_verdict && t.a.lead->status == 3,
       "and leads to see to it");
    heir_bed_open_bound(&t, 1, 3, true);
    heir_bed_give(&t, end);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 0});
    heir_bed_tick(&t, 2 * HEIR_BED_LEASE_MS - 1);
    ok(!t.a.leave, "who is not the top waits for that");
    heir_bed_tick(&t, 1);
    ok(t.a.leave && strstr(t.a.leave, "the lead is gone"), "not for ever");
}

/* Who followed out of an older view may be bound to the newer one by now. */
static void test_stale_followers(void)
{
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        heir_bed_open_bound(&t, 1, 2, is_shared);
        heir_bed_follow(&t, 2, 0, 1);
        heir_bed_follow(&t, 3, 0, 1);
        heir_bed_give(&t, heir_bed_order(&t, 1 << 16, 0, is_shared, 1, ORDER_RUN));
        heir_bed_hear(&t, 1 << 16, 600, 0);
        heir_bed_tick(&t, HEIR_BED_LEASE_MS);
        heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
        heir_bed_tick(&t, HEIR_BED_SETTLE_MS * 2);
        ok(heir_is_free(t.h) && !t.a.claim && !t.a.lead, "who followed before it was "
           "bound anew does not count, %s", is_shared ? "shared" : "majority");
        heir_bed_follow_from(&t, 1, 2, 0, 1);
        ok(!t.a.claim && !t.a.lead, "nor who comes from there late");
        heir_bed_follow_from(&t, 1 << 16, 3, 0, 1);
        if (!is_shared) {
            heir_bed_follow_from(&t, 1 << 16, 2, 0, 1);
        }
        ok(is_shared ? t.a.claim && !view_has(t.a.claim, 2)
                     : t.a.lead && t.a.lead->follows[2] && t.a.lead->follows[3],
           "who is free of this view too does");
    }
}

/* One is astray, which could not go on by itself: for the end it is enough. */
static void test_word_at_end(void)
{
    for (uint32_t n_suspect = 0; n_suspect < 2; n_suspect++) {
        heir_bed_open(&t, 0, 2);
        heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_RUN));
        heir_bed_step(&t, (struct heir_event){
            .type = HEIR_SEEN, .seen = {.all_ms = 9000, .live_ms = t.now_ms,
                                        .n_suspect = n_suspect}});
        ok(heir_is_in_office(t.h, t.now_ms), "%u of the members are silent", n_suspect);
        heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_END));
        ok(heir_is_in_office(t.h, t.now_ms) == !n_suspect, "who may claim the end that "
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

    heir_bed_open(&t, 0, 2);
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_RUN));
    ok(heir_is_lead(t.h), "the first lead hears of it by its own order");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        heir_bed_step(&t, (struct heir_event){.type = HEIR_SEEN, .seen = cases[i].seen,
                                              .rivals.n_silent = cases[i].n_silent});
        acked_ms = cases[i].acked_ms ? cases[i].acked_ms : acked_ms;
        is_int(heir_word_age_ms(t.h, t.now_ms), t.now_ms - acked_ms, "%s",
               cases[i].what);
    }
    heir_bed_open(&t, 0, 4);
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_RUN));
    is_int(heir_word_age_ms(t.h, t.now_ms), 0,
           "where nobody else can go on its word is always new");
}

static void test_found_dead(void)
{
    struct heir_event seen = {.type = HEIR_SEEN};

    for (int is_late = 0; is_late < 2; is_late++) {
        heir_bed_open(&t, 0, 2);
        heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_RUN));
        ok(!heir_is_in_office(t.h, t.now_ms), "a lead is in office when it was heard");
        seen.seen = (struct heir_seen){.all_ms = t.now_ms, .live_ms = t.now_ms};
        heir_bed_step(&t, seen);
        ok(heir_is_in_office(t.h, t.now_ms), "now");
        t.now_ms += is_late ? HEIR_BED_LEASE_MS : 0;
        ok(heir_is_in_office(t.h, t.now_ms) == !is_late, "for a lease");
        for (uint32_t i = 1; i < HEIR_BED_N; i++) {
            heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = i});
        }
        ok(heir_is_in_office(t.h, t.now_ms + 10 * HEIR_BED_LEASE_MS) == !is_late, is_late
           ? "those who are found dead later may have gone on before"
           : "with all others dead there is no other lead");
    }
}

/* Its claim was carried out, and not answered. */
static void test_died_late(void)
{
    for (int is_late = 0; is_late < 2; is_late++) {
        heir_bed_open_bound(&t, 1, 1, true);
        heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
        heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 3});
        heir_bed_follow(&t, 2, 0, 1);
        if (!is_late) {
            heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 2});
        }
        heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 0});
        ok(t.a.claim && view_has(t.a.claim, 2) == is_late, "a claim");
        heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_UNKNOWN});
        heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 2});
        heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 3});
        heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_WON});
        ok(t.a.lead && t.a.lead->dead[3] && t.a.lead->dead[2] == !is_late, is_late
           ? "who is found dead meanwhile may have gone on from it, and is silent"
           : "who was dead before it is dead");
        ok(heir_is_in_office(t.h, t.now_ms) == !is_late, "%s in office",
           is_late ? "not" : "at once");
    }
}

static void test_deposed(void)
{
    struct view found = {.number = 2, .lead = 1, .n_nodes = HEIR_BED_N, .shared = true};

    heir_bed_open(&t, 0, 2);
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_RUN));
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEPOSED, .found = &found});
    ok(t.a.quit && !heir_is_lead(t.h) && !t.a.leave && t.a.seek == 1,
       "a lead that is deposed is a member");
    ok(t.a.order && t.a.order->step == ORDER_VIEW && t.a.order->view.number == 2,
       "and tells those who obeyed it");
}

static struct order told(uint32_t number, uint32_t lead)
{
    return (struct order){
        .serial = (uint64_t)number << ORDER_SERIAL_BITS, .step = ORDER_VIEW,
        .view = {.number = number, .lead = lead, .n_nodes = HEIR_BED_N, .shared = true}};
}

/* By one above, who has read it in the run directory. */
static void test_told(void)
{
    struct order order = heir_bed_order(&t, 1, 0, true, 7, ORDER_RUN);

    heir_bed_open(&t, 1, 2);
    heir_bed_give(&t, order);
    heir_bed_hear(&t, 1, 500, 0);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS / 2);
    heir_bed_give(&t, told(2, 3));
    ok(t.a.floor == 2 && t.a.heard_ms == t.now_ms - HEIR_BED_LEASE_MS / 2 &&
           !heir_is_free(t.h) && !t.a.order,
       "who is told of a view is bound by it");
    ok(!t.a.obey, "there is nothing for its member");
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 8, ORDER_RUN));
    ok(!t.a.obey, "the older lead has nothing more to say");
    heir_bed_tick(&t, HEIR_BED_LEASE_MS - 1);
    ok(!heir_is_free(t.h), "for a lease of its own");
    heir_bed_tick(&t, 1);
    ok(heir_is_free(t.h) && t.a.floor == 3 && t.a.follow && t.a.follow->view == 2,
       "and follows from there");
    ok(t.a.follow->order_serial == order.serial && t.a.follow->generation == 7 &&
           t.a.follow->past.n_restarts == 1, "with what it has heard of the run before");
    heir_bed_give(&t, told(2, 3));
    ok(heir_is_free(t.h) && !t.a.floor, "it has promised that for good");
    heir_bed_give(&t, told(3, 1));
    ok(heir_is_free(t.h) && !t.a.floor, "nobody makes it a lead");
    heir_bed_give(&t, told(3, 2));
    heir_bed_give(&t, heir_bed_order(&t, 3, 2, true, 8, ORDER_PREPARE));
    ok(t.a.obey && !t.a.floor, "it obeys the lead of a view that it was told of");
    heir_bed_open_bound(&t, 1, 2, true);
    heir_bed_give(&t, told(2, 3));
    heir_bed_give(&t, heir_bed_order(&t, 2, 1, true, 8, ORDER_PREPARE));
    ok(!t.a.obey && !heir_is_lead(t.h), "not one that says that it leads itself");
    heir_bed_give(&t, heir_bed_order(&t, 2, 2, true, 8, ORDER_PREPARE));
    ok(t.a.obey && heir_view(t.h)->lead == 2, "who leads says so, whatever was read of it");
    heir_bed_give(&t, heir_bed_order(&t, 2, 3, true, 9, ORDER_PREPARE));
    ok(!t.a.obey && heir_view(t.h)->lead == 2, "and that is not changed any more");
    heir_bed_open_bound(&t, 1, 2, true);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 3});
    heir_bed_give(&t, told(2, 3));
    ok(heir_is_free(t.h) && t.a.follow && t.a.follow->view == 2,
       "it is free at once where that one is dead");
    heir_bed_open(&t, 0, 2);
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_RUN));
    heir_bed_give(&t, told(2, 3));
    ok(t.a.quit && !heir_is_lead(t.h), "a lead that is told leads no more");
}

/* Nodes 2 and 3 followed this one, and then go to another lead with it: by the word of
 * the arbiter, which orders follow, or do not. */
static void test_followed_before(bool has_order)
{
    struct view found = {.number = 2, .lead = 0, .shared = true, .n_nodes = HEIR_BED_N};

    heir_bed_open_bound(&t, 1, 3, true);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_follow(&t, 2, 30, 1);
    heir_bed_follow(&t, 3, 30, 1);
    ok(t.a.claim && t.a.claim->number == 2, "with two others it claims the next view");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_CLAIMED, .outcome = HEIR_LOST,
                                          .found = &found});
    is_int(t.a.floor, 2, "which is another's");
    if (has_order) {
        heir_bed_give(&t, heir_bed_order(&t, 2, 0, true, 2, ORDER_RUN));
        ok(t.a.obey, "whose orders it obeys");
        heir_bed_hear(&t, 2, 900, 0);
    }
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    ok(heir_is_free(t.h) && !t.a.claim, "who followed it before that is none of its camp");
    heir_bed_tick(&t, 2 * HEIR_BED_SETTLE_MS);
    ok(!t.a.claim, "nor later");
    heir_bed_follow_from(&t, 2, 2, 30, 2);
    heir_bed_follow_from(&t, 2, 3, 30, 2);
    ok(t.a.claim && t.a.claim->number == 3, "who follows again is");
}

/* Somebody has read in a file what nobody wrote there. */
static void test_never_won(void)
{
    heir_bed_open_bound(&t, 1, 2, true);
    heir_bed_give(&t, heir_bed_order(&t, 2, 1, true, 2, ORDER_END));
    ok(!t.a.obey && !heir_is_lead(t.h), "nobody leads by an order of others");
    is_int(heir_view(t.h)->number, 1, "and stays bound as before");
    heir_bed_open(&t, 1, 2);
    heir_bed_give(&t, heir_bed_order(&t, 2, 1, true, 2, ORDER_END));
    ok(!t.a.obey && !heir_is_lead(t.h), "not before its first order either");
    heir_bed_tick(&t, 5000);
    ok(t.a.leave != NULL, "it does not stay for ever");
    heir_bed_open(&t, 1, 2);
    heir_bed_give(&t, heir_bed_order(&t, 1, 1, true, 1, ORDER_PREPARE));
    ok(t.a.obey && heir_is_lead(t.h), "the first view has its lead without a claim");
}

/* Alone it cannot go on, but who knows the end may write it down. */
static void test_end_is_anybodys(void)
{
    struct heir_rivals none = {.size = 1};

    heir_bed_open(&t, 0, 2);
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_RUN));
    heir_bed_step(&t, (struct heir_event){.type = HEIR_SEEN, .rivals = none,
                                          .seen = {.all_ms = t.now_ms, .live_ms = t.now_ms}});
    for (uint32_t i = 1; i < 3; i++) {
        heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = i});
    }
    heir_bed_tick(&t, HEIR_BED_LEASE_MS * 2);
    ok(heir_is_in_office(t.h, t.now_ms), "a lead whose last node could not go on alone is "
       "in office");
    heir_bed_give(&t, heir_bed_order(&t, 1, 0, true, 1, ORDER_END));
    ok(!heir_is_in_office(t.h, t.now_ms), "not for the end, where it is silent");
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
    struct follow f = {.rank = HEIR_BED_N, .serial = 1};
    struct heir *none;
    struct error e;

    is_int(heir_create(&config, 0, &none, &e), -EINVAL, "a rank that is none");
    heir_bed_open_bound(&t, 1, 2, true);
    is_int(heir_step(t.h, &(struct heir_event){.type = HEIR_DEAD, .rank = 1}, &t.a),
           -EPROTO, "its own death");
    is_int(heir_step(t.h, &(struct heir_event){.type = HEIR_FOLLOW, .follow = &f},
                     &t.a), -EPROTO, "a follower that is none");
    is_int(heir_step(t.h, &(struct heir_event){.type = HEIR_UNFOLLOW, .rank = 9},
                     &t.a), -EPROTO, "nor one that goes");
    is_int(heir_grow(t.h, 9, NULL), 0, "there are more now");
    is_int(heir_step(t.h, &(struct heir_event){.type = HEIR_UNFOLLOW, .rank = 8},
                     &t.a), 0, "and it may be one of them");
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
    test_stale_followers();
    test_word();
    test_word_at_end();
    test_found_dead();
    test_died_late();
    test_deposed();
    test_told();
    test_followed_before(true);
    test_followed_before(false);
    test_never_won();
    test_end_is_anybodys();
    test_messages();
    test_senseless();
    heir_bed_close(&t);
    return tap_done();
}
