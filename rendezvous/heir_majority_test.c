/* SPDX-License-Identifier: Apache-2.0 */
/* Where no directory is shared, those who follow make a lead: more than half of the nodes,
 * or half with the lowest of them. */
#include <config.h>

#include "rendezvous/heir_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

static struct heir_bed t;

/* Its lead knows who of the dead were bound to it, and who may be on another side. */
static void test_majority_word(void)
{
    struct heir_event seen = {
        .type = HEIR_SEEN,
        .seen = {.all_ms = t.now_ms, .live_ms = t.now_ms, .n_suspect = 1},
        .rivals = {.n_silent = 1, .size = 2}};

    heir_bed_step(&t, seen);
    is_int(heir_word_age_ms(t.h, t.now_ms), HEIR_NEVER, "as long as they are enough");
    seen.rivals.n_silent = 0;
    heir_bed_step(&t, seen);
    is_int(heir_word_age_ms(t.h, t.now_ms), 0, "and is new then");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 1});
    heir_bed_step(&t, (struct heir_event){.type = HEIR_DEAD, .rank = 3});
    is_int(heir_word_age_ms(t.h, t.now_ms + 500), 500,
           "who is dead may have been on another side");
    seen.rivals.size = VIEW_NO_SIDE;
    heir_bed_step(&t, seen);
    is_int(heir_word_age_ms(t.h, t.now_ms + 500), 0, "or not: its lead says that");
}

static void test_majority(void)
{
    heir_bed_open_bound(&t, 2, 1, false);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_tick(&t, HEIR_BED_LEASE_MS + HEIR_BED_SETTLE_MS * 2);
    heir_bed_follow(&t, 3, 0, 1);
    ok(!t.a.lead, "half without the lowest is not enough");
    heir_bed_follow(&t, 1, 0, 1);
    ok(t.a.lead && !t.a.claim && t.a.lead->view.number >> 16 == 1,
       "more than half are, and nobody is asked");
    ok(view_has(&t.a.lead->view, 0), "all stay members");
    is_int(heir_word_age_ms(t.h, t.now_ms), HEIR_NEVER,
           "its word is none before enough have acknowledged it");
    test_majority_word();
    heir_bed_open_bound(&t, 1, 1, false);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_tick(&t, 8999);
    ok(!t.a.leave, "alone it waits");
    heir_bed_tick(&t, 1);
    ok(t.a.leave && strstr(t.a.leave, "no lead was found for 10 s"), "not for ever");
}

/* Only an END says that enough knew of it. */
static void test_majority_end(enum order_step step_of_end)
{
    struct order o;

    heir_bed_open_bound(&t, 1, 1, false);
    o = heir_bed_order(&t, 1, 0, false, 2, step_of_end);
    o.status = 3;
    o.past.has_end = step_of_end == ORDER_PREPARE;
    o.past.status = 3;
    heir_bed_give(&t, o);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_follow(&t, 2, 0, 1);
    heir_bed_follow(&t, 3, 0, 1);
    ok(t.a.lead && t.a.lead->has_verdict && t.a.lead->status == 3 &&
           t.a.lead->is_proposed == o.past.has_end, "an end is handed over as it was");
}

/* Node 1 has been made the lead by nodes 2 and 3, without a directory to ask. */
static void open_chosen(void)
{
    heir_bed_open_bound(&t, 1, 1, false);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_follow(&t, 2, 0, 1);
    heir_bed_follow(&t, 3, 0, 1);
    ok(heir_is_lead(t.h), "a majority has chosen it");
}

/* A lead that is followed out of a newer view knows nothing of what that one did. */
static void test_outdated(bool shared, bool has_end)
{
    struct follow f = {.rank = 3, .serial = 1000, .view = 2u << 16, .generation = 7,
                       .order_serial = 2ull << (16 + ORDER_SERIAL_BITS),
                       .past = {.ran = 7, .has_end = true, .status = 4}};

    open_chosen();
    heir_bed_give(&t, heir_bed_order(&t, 1u << 16 | 1, 1, shared, 2,
                                     has_end ? ORDER_END : ORDER_RUN));
    heir_bed_follow(&t, 2, 0, 2);
    ok(heir_is_lead(t.h) && !t.a.quit, "who is free of an older view comes back to it");
    heir_bed_step(&t, (struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
    if (shared || has_end) {
        ok(heir_is_lead(t.h) && !t.a.quit, "it goes on leading where %s", shared
           ? "there is a directory to ask" : "it has told the end");
        return;
    }
    ok(t.a.quit && !heir_is_lead(t.h) && heir_is_free(t.h) &&
           t.a.floor == ((1u << 16 | 1) + 1), "it leads no more, and is free");
    heir_bed_follow_from(&t, 1u << 16 | 1, 2, 0, 2);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS + 2 * HEIR_BED_SETTLE_MS);
    ok(t.a.lead && t.a.lead->view.number == (3u << 16 | 1) && t.a.lead->generation == 7 &&
           t.a.lead->has_verdict && t.a.lead->is_proposed && t.a.lead->status == 4,
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
    heir_bed_give(&t, heir_bed_order(&t, 1u << 16 | 1, 1, false, 2, ORDER_PREPARE));
    heir_bed_step(&t, (struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
    ok(heir_is_lead(t.h) == (status == 75) && t.a.quit == (status != 75),
       "status %u of a lead beside it", status);
}

/* All have acknowledged that stamp. */
static void acked(uint64_t stamp_ms)
{
    heir_bed_step(&t, (struct heir_event){
        .type = HEIR_SEEN, .seen = {.all_ms = stamp_ms, .live_ms = stamp_ms},
        .rivals = {.size = 2}});
}

/* Leases begin with the word that came with a stamp, and not when that is acknowledged. */
static void test_hold(void)
{
    uint64_t taken_ms, told_ms;

    open_chosen();
    taken_ms = t.now_ms;
    ok(heir_has_hold(t.h, taken_ms + HEIR_BED_LEASE_MS - HEIR_BED_SLACK_MS - 1),
       "who is bound to a new lead is so for a lease");
    ok(!heir_has_hold(t.h, taken_ms + HEIR_BED_LEASE_MS - HEIR_BED_SLACK_MS),
       "and may be free then");
    acked(t.now_ms);
    heir_bed_tick(&t, 800);
    told_ms = t.now_ms;
    acked(told_ms);
    ok(heir_is_in_office(t.h, told_ms + 900), "what they acknowledge is new");
    ok(!heir_has_hold(t.h, told_ms + 200), "the word that came with it was not");
    heir_bed_tick(&t, 100);
    acked(t.now_ms);
    ok(heir_has_hold(t.h, told_ms + 900), "the next one came with that");
    ok(!heir_has_hold(t.h, told_ms + HEIR_BED_LEASE_MS - HEIR_BED_SLACK_MS),
       "for a lease from then");
    for (int i = 0; i < 1000; i++) {
        heir_bed_tick(&t, 1);
        acked(t.now_ms);
    }
    acked(told_ms + 1);
    ok(heir_has_hold(t.h, t.now_ms + 900), "however often they are heard");
    heir_bed_open_bound(&t, 1, 1, false);
    ok(!heir_has_hold(t.h, t.now_ms), "who follows holds nobody");
}

/* Half of four with the lowest of them may go on, but the job needs three. */
static void test_small_majority(void)
{
    heir_bed_open(&t, 0, 3);
    heir_bed_give(&t, heir_bed_order(&t, 1, 3, false, 1, ORDER_RUN));
    heir_bed_hear(&t, 1, 500, 0);
    heir_bed_tick(&t, HEIR_BED_LEASE_MS);
    heir_bed_step(&t, (struct heir_event){.type = HEIR_TOP});
    heir_bed_follow(&t, 1, 30, 1);
    heir_bed_tick(&t, 2 * HEIR_BED_SETTLE_MS);
    ok(!t.a.lead && heir_is_free(t.h), "a side that is too small for the job waits");
    heir_bed_tick(&t, HEIR_BED_LEASE_MS - 1);
    ok(!t.a.lead, "for others");
    heir_bed_tick(&t, 1);
    ok(t.a.lead != NULL, "for a lease more");
}

int main(void)
{
    test_majority();
    test_majority_end(ORDER_PREPARE);
    test_majority_end(ORDER_END);
    test_outdated(false, false);
    test_outdated(false, true);
    test_outdated(true, false);
    test_ended_beside(124);
    test_ended_beside(0);
    test_ended_beside(75);
    test_hold();
    test_small_majority();
    heir_bed_close(&t);
    return tap_done();
}
