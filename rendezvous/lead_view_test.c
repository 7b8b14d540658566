/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/view_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

enum {
    N = VIEW_BED_N,
    LEASE_MS = VIEW_BED_LEASE_MS,
    SLACK_MS = VIEW_BED_SLACK_MS,
    STAND_MS = 3000,
};

/* So many are silent for long, and may go on by themselves. */
static void quiet(struct bench *t, uint32_t n)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_QUIET, .n_quiet = n});
}

static void lose(struct bench *t, uint32_t rank, bool dead)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_LOST, .rank = rank,
                                          .dead = dead, .text = "gone"});
}

/* Then one is left, and two others may go on without it. */
static void open_alone(struct bench *t)
{
    view_bed_open(t, 2, true);
    lose(t, 3, false);
    quiet(t, 2);
    lose(t, 2, false);
    lose(t, 1, false);
}

static void test_loss(void)
{
    struct bench t;

    view_bed_open(&t, 2, true);
    lose(&t, 3, false);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && !t.a.claim &&
           t.a.order->stop == ORDER_STOP_FORCE,
       "one that is silent cannot go on by itself: no claim, but no delay");
    is_int(lead_n_silent(t.lead), 1, "it is counted");
    lose(&t, 2, false);
    ok(t.a.claim && t.a.claim->number == 2 && !view_has(t.a.claim, 3) &&
           view_has(t.a.claim, 1) && !t.a.claim->has_verdict,
       "two could: the next view is claimed without them");
    view_bed_say(&t, 0, REPORT_STOPPED, 2, 1);
    view_bed_say(&t, 1, REPORT_STOPPED, 2, 1);
    bed_tick(&t, LEASE_MS + SLACK_MS);
    ok(!t.a.order, "and nothing runs before that is answered");
    view_bed_answer(&t, HEIR_UNKNOWN);
    ok(t.a.claim && t.a.claim->number == 2, "without an answer, again");
    view_bed_answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && t.a.order->view.number == 2,
       "a view that is won begins with a generation of its own");
    is_int(lead_n_silent(t.lead), 0, "and knows only its members");
    view_bed_say(&t, 0, REPORT_STOPPED, 3, 2);
    ok(!t.a.order, "a report of the old view does not count");
    view_bed_say(&t, 1, REPORT_STOPPED, 3, 1);
    ok(!t.a.order, "here neither");
    view_bed_say(&t, 1, REPORT_STOPPED, 3, 2);
    ok(bed_ordered(&t, ORDER_RUN, 3), "then it runs");
    lead_destroy(t.lead);
    view_bed_open(&t, 2, true);
    lose(&t, 3, true);
    lose(&t, 2, true);
    ok(!t.a.claim && t.a.order->stop == ORDER_STOP_GRACE,
       "the dead claim nothing, and the others may save");
    lead_destroy(t.lead);
    view_bed_open(&t, 2, true);
    quiet(&t, 1);
    lose(&t, 3, false);
    lose(&t, 2, false);
    ok(!t.a.claim, "who may yet be too small claims nothing");
    view_bed_say(&t, 0, REPORT_STOPPED, 2, 1);
    view_bed_say(&t, 1, REPORT_STOPPED, 2, 1);
    bed_tick(&t, LEASE_MS + SLACK_MS);
    ok(!t.a.order && t.a.wake_ms == LEAD_NEVER, "and rests");
    quiet(&t, 0);
    ok(t.a.claim, "until that is known");
    view_bed_answer(&t, HEIR_LOST);
    bed_tick(&t, 60000);
    ok(!t.a.order && !t.a.finished && t.a.wake_ms == LEAD_NEVER,
       "a lead that has lost says nothing more");
    lead_destroy(t.lead);
}

/* Of those that a lead finds dead once it is adrift nobody knows what they did before. */
static void lose_adrift(struct bench *t)
{
    for (uint32_t i = 1; i < N; i++) {
        (void)bed_step(t, (struct lead_event){.type = LEAD_LOST, .rank = i,
                                              .dead = true, .adrift = true});
    }
}

static void test_adrift(void)
{
    struct bench t;

    view_bed_open(&t, 1, true);
    lose_adrift(&t);
    is_int(lead_n_silent(t.lead), 3, "who ended while the lead was stopped may have "
           "gone on");
    ok(t.a.claim || lead_order(t.lead)->step == ORDER_PREPARE,
       "so one that could go on by itself claims a view first");
    view_bed_say(&t, 0, REPORT_STOPPED, lead_generation(t.lead), 1);
    bed_tick(&t, 60000);
    ok(!t.a.order && lead_order(t.lead)->step == ORDER_PREPARE,
       "and runs nothing before it has one");
    lead_destroy(t.lead);
    view_bed_open(&t, 2, true);
    quiet(&t, 2);
    lose_adrift(&t);
    ok(!t.a.claim && !lead_verdict(t.lead), "one that cannot does not say that the run ends");
    t.now_ms += LEASE_MS + SLACK_MS + STAND_MS;
    (void)bed_step(&t, (struct lead_event){.adrift = true});
    ok(t.a.claim && t.a.claim->has_verdict && !lead_verdict(t.lead),
       "but claims it");
    view_bed_answer(&t, HEIR_LOST);
    ok(!lead_verdict(t.lead) && t.a.wake_ms == LEAD_NEVER,
       "and is silent when another has it");
    lead_destroy(t.lead);
}

/* It was stopped while its claim was under way. */
static void test_adrift_in_claim(void)
{
    struct bench t;

    view_bed_open(&t, 2, true);
    view_bed_say_all(&t, REPORT_DONE, 1, 1);
    t.now_ms += 60000;
    (void)bed_step(&t, (struct lead_event){.adrift = true});
    ok(!t.a.order && !lead_verdict(t.lead) && t.a.wake_ms == t.now_ms + 5000,
       "who was stopped has not waited for the answer yet");
    t.now_ms += 5000;
    (void)bed_step(&t, (struct lead_event){.adrift = true});
    ok(t.a.order && t.a.order->status == RUN_RESUMABLE &&
           lead_verdict(t.lead)->is_unsure,
       "without one it leaves, with a verdict that is not for the records");
    lead_destroy(t.lead);
}

/* It was stopped after END had gone out. */
static void test_adrift_at_end(void)
{
    static const enum heir_outcome outcomes[] = {HEIR_WON, HEIR_LOST,
                                                 HEIR_UNKNOWN};

    for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++) {
        struct bench t;

        view_bed_open(&t, 2, true);
        view_bed_say_all(&t, REPORT_DONE, 1, 1);
        view_bed_answer(&t, HEIR_WON);
        ok(t.a.order && t.a.order->step == ORDER_END, "the end is claimed, and said");
        t.now_ms += 60000;
        (void)bed_step(&t, (struct lead_event){.adrift = true});
        ok(t.a.claim && t.a.claim->has_verdict && !t.a.order && !t.a.finished,
           "who was stopped then asks whether another has seen to it");
        t.now_ms += 5000;
        view_bed_answer(&t, outcomes[i]);
        ok(t.a.finished == (outcomes[i] != HEIR_LOST), "%s",
           outcomes[i] == HEIR_LOST ? "and is silent then" : "and sees to it else");
        ok(lead_verdict(t.lead)->is_unsure == (outcomes[i] == HEIR_UNKNOWN),
           "without an answer not for the records");
        lead_destroy(t.lead);
    }
}

/* It is stopped once more, when it asks whether another has seen to its end. */
static void test_adrift_again(void)
{
    for (int is_answered = 0; is_answered < 2; is_answered++) {
        struct bench t;

        view_bed_open(&t, 2, true);
        view_bed_say_all(&t, REPORT_DONE, 1, 1);
        view_bed_answer(&t, HEIR_WON);
        t.now_ms += 60000;
        (void)bed_step(&t, (struct lead_event){.adrift = true});
        t.now_ms += 60000;
        (void)bed_step(&t, (struct lead_event){.adrift = true});
        ok(!t.a.finished && t.a.wake_ms == t.now_ms + 5000,
           "it has not waited for the answer yet");
        if (is_answered) {
            (void)bed_step(&t, (struct lead_event){
                .type = LEAD_CLAIMED, .outcome = HEIR_WON, .adrift = true});
        } else {
            t.now_ms += 5000;
            (void)bed_step(&t, (struct lead_event){.adrift = true});
        }
        ok(t.a.finished && lead_verdict(t.lead)->is_unsure == !is_answered, "%s",
           is_answered ? "it sees to the end" : "not for ever");
        lead_destroy(t.lead);
    }
}

/* What was begun before LEAVE takes effect as long as the lead's word is good. */
static void test_lost_after_leave(void)
{
    for (int is_adrift = 0; is_adrift < 2; is_adrift++) {
        struct bench t;

        view_bed_open(&t, 1, false);
        (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                               .stop = LEAD_STOP_PREEMPT});
        view_bed_say_all(&t, REPORT_ENDED, 1, 1);
        ok(t.a.finished, "LEAVE");
        (void)bed_step(&t, (struct lead_event){
            .type = LEAD_LOST, .rank = 1, .dead = true, .adrift = is_adrift});
        is_int(lead_n_silent(t.lead), is_adrift, "who is dead then is %s", is_adrift
               ? "silent, if it may have gone on" : "silent no more than before");
        lose(&t, 2, false);
        lose(&t, 3, false);
        is_int(lead_n_silent(t.lead), 2 + is_adrift, "who is lost then is silent");
        ok(!t.a.order && !t.a.n_notes && t.a.wake_ms == LEAD_NEVER && t.a.finished,
           "nothing follows from it");
        lead_destroy(t.lead);
    }
}

static void test_stand_down(void)
{
    struct bench t;

    view_bed_open(&t, 2, true);
    lose(&t, 3, false);
    lose(&t, 2, false);
    view_bed_answer(&t, HEIR_UNKNOWN);
    lead_destroy(t.lead);
    view_bed_open(&t, 3, true);
    lose(&t, 3, false);
    lose(&t, 2, false);
    ok(t.a.claim && t.a.claim->has_verdict, "two of four that need three claim "
       "the end at once: the other two cannot go on either");
    lead_destroy(t.lead);
    open_alone(&t);
    ok(!t.a.claim && bed_ordered(&t, ORDER_PREPARE, 3) &&
           t.a.order->stop == ORDER_STOP_FORCE && !lead_verdict(t.lead),
       "one that others may go on without stops, and says nothing");
    bed_tick(&t, LEASE_MS + SLACK_MS + STAND_MS - 1);
    ok(!t.a.claim, "they have the time to claim");
    bed_tick(&t, 1);
    ok(t.a.claim && t.a.claim->has_verdict &&
           t.a.claim->status == RUN_RESUMABLE, "then it claims the end");
    view_bed_answer(&t, HEIR_WON);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_RESUMABLE, "which is the verdict now");
    lead_destroy(t.lead);
    open_alone(&t);
    quiet(&t, 0);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 1});
    ok(t.a.claim && !t.a.claim->has_verdict && !lead_verdict(t.lead),
       "if they come back first it goes on with them");
    lead_destroy(t.lead);
    view_bed_open(&t, 2, true);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_QUIET, .n_quiet = 3});
    for (uint32_t i = 1; i < N; i++) {
        lose(&t, i, false);
    }
    (void)bed_step(&t, (struct lead_event){.type = LEAD_QUIET, .n_quiet = 0});
    bed_tick(&t, LEASE_MS + SLACK_MS);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 1});
    ok(lead_node(t.lead, 1)->lost && !t.a.claim,
       "one whose lease is over does not come back as a member");
    view_bed_say(&t, 1, REPORT_RUNNING, 1, 2);
    ok(!lead_node(t.lead, 1)->lost && t.a.claim && !t.a.claim->has_verdict &&
           view_has(t.a.claim, 1) && !lead_verdict(t.lead),
       "but when it waits for another view, which is claimed with it");
    lead_destroy(t.lead);
}

/* Where there is no directory to ask, who comes back to a lead of before may know of
 * an end that another one has led to. */
static void test_stand_down_by_majority(void)
{
    struct bench t;

    view_bed_open(&t, 2, false);
    for (uint32_t i = 1; i < N; i++) {
        lose(&t, i, false);
    }
    bed_tick(&t, LEASE_MS + SLACK_MS);
    view_bed_say(&t, 1, REPORT_ENDED, 3, 65538);
    ok(lead_node(t.lead, 1)->lost, "who has been in a newer view does not come back");
    view_bed_say(&t, 2, REPORT_RUNNING, 1, 2);
    ok(!lead_node(t.lead, 2)->lost && !lead_verdict(t.lead) &&
           t.a.order && t.a.order->step == ORDER_PREPARE &&
           t.a.order->view.number > 65538,
       "who was in this one, and waits for the next, does");
    lead_destroy(t.lead);
}

static void test_end(void)
{
    struct bench t;

    view_bed_open(&t, 2, true);
    view_bed_say_all(&t, REPORT_DONE, 1, 1);
    ok(t.a.claim && t.a.claim->has_verdict && t.a.claim->status == 0 &&
           !t.a.order && !lead_verdict(t.lead), "success is claimed first");
    view_bed_answer(&t, HEIR_WON);
    ok(t.a.order && t.a.order->step == ORDER_END && t.a.order->status == 0 &&
           t.a.order->view.number == 2, "and told then");
    lead_destroy(t.lead);
    view_bed_open(&t, 2, true);
    view_bed_say_all(&t, REPORT_DONE, 1, 1);
    bed_tick(&t, 5000);
    ok(t.a.order && t.a.order->status == RUN_RESUMABLE &&
           strstr(t.a.order->reason, "run directory does not answer"),
       "a directory that hangs makes no success");
    lead_destroy(t.lead);
    view_bed_open(&t, 4, true);
    view_bed_say_all(&t, REPORT_DONE, 1, 1);
    ok(!t.a.claim && t.a.order->step == ORDER_END, "where nobody else can go on "
       "nothing is claimed");
    lead_destroy(t.lead);
    view_bed_open(&t, 2, false);
    view_bed_say_all(&t, REPORT_DONE, 1, 1);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->past.has_end &&
           !lead_verdict(t.lead), "a majority hears of the verdict first");
    view_bed_say(&t, 1, REPORT_STOPPED, 2, 1);
    ok(!t.a.order, "one is none");
    view_bed_say(&t, 2, REPORT_STOPPED, 2, 1);
    view_bed_say(&t, 3, REPORT_STOPPED, 2, 1);
    ok(t.a.order && t.a.order->step == ORDER_END && t.a.order->status == 0,
       "three are");
    lead_destroy(t.lead);
}

static void test_estranged(void)
{
    struct bench t;

    view_bed_open(&t, 2, true);
    view_bed_say_all(&t, REPORT_RUNNING, 1, 1);
    view_bed_say(&t, 3, REPORT_RUNNING, 1, 2);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && lead_node(t.lead, 3)->estranged &&
           !lead_node(t.lead, 3)->lost,
       "one that was cut off for a lease is there, but has no workers");
    is_int(lead_n_losses(t.lead), 0, "and is no loss of a node");
    view_bed_say_each(&t, 3, REPORT_STOPPED, 2, 1);
    ok(t.a.claim && view_has(t.a.claim, 3), "it is taken in by a new view");
    view_bed_answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && !lead_node(t.lead, 3)->estranged,
       "which it obeys");
    view_bed_say_all(&t, REPORT_STOPPED, 3, 2);
    ok(bed_ordered(&t, ORDER_RUN, 3) && t.a.order->n_procs[3], "and runs in");
    view_bed_say_all(&t, REPORT_RUNNING, 3, 2);
    (void)bed_tell(&t, (struct report){.rank = 1, .state = REPORT_RUNNING,
                                       .generation = 3, .floor = 2,
                                       .fenced = 3,
                                       .heard_ago_ms = UINT64_MAX});
    ok(bed_ordered(&t, ORDER_PREPARE, 4), "so is one that has killed its workers");
    lead_destroy(t.lead);
}

/* A spare comes back while others run. */
static void test_run_on(void)
{
    struct lead_config config = view_bed_config(2);
    struct bench t;

    config.max_nodes = 3;
    bed_open(&t, &config);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SHARED});
    view_bed_say_all(&t, REPORT_JOINED, 0, 0);
    view_bed_say_all(&t, REPORT_STOPPED, 1, 1);
    view_bed_say_all(&t, REPORT_RUNNING, 1, 1);
    view_bed_say(&t, 3, REPORT_DONE, 1, 2);
    ok(!t.a.order && t.a.claim && view_has(t.a.claim, 3),
       "a spare that was cut off is claimed, and nobody stops");
    view_bed_answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_RUN, 1) && t.a.order->view.number == 2 &&
           t.a.order->n_procs[0] && t.a.order->master_port,
       "the same generation goes on in the new view");
    lead_destroy(t.lead);
}

/* Three of four run; the fourth comes too late for the first view. */
static void open_with_newcomer(struct bench *t)
{
    struct lead_config config = view_bed_config(2);

    bed_open(t, &config);
    (void)bed_step(t, (struct lead_event){.type = LEAD_SHARED});
    lose(t, 3, true);
    view_bed_say_each(t, 3, REPORT_JOINED, 0, 0);
    view_bed_say_each(t, 3, REPORT_STOPPED, 1, 1);
    ok(bed_ordered(t, ORDER_RUN, 1) && !view_has(&t->a.order->view, 3),
       "three of four run");
    (void)bed_step(t, (struct lead_event){.type = LEAD_HERE, .rank = 3});
    ok(!t->a.claim, "that the fourth is to come is no reason for another view");
    view_bed_say(t, 3, REPORT_JOINED, 0, 1);
    ok(!t->a.order && t->a.claim && view_has(t->a.claim, 3) &&
           view_has(t->a.claim, 2), "that it is there is: it may be the last one");
}

static void test_newcomer(void)
{
    struct bench t;

    open_with_newcomer(&t);
    view_bed_answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_RUN, 1) && t.a.order->view.number == 2 &&
           view_has(&t.a.order->view, 3) && !t.a.order->n_procs[3],
       "nobody stops for it, and it waits");
    lose(&t, 2, true);
    ok(bed_ordered(&t, ORDER_PREPARE, 2), "one is lost");
    lead_destroy(t.lead);
}

/* It takes the place of one that is lost before the view is answered. */
static void test_newcomer_needed(void)
{
    struct bench t;

    open_with_newcomer(&t);
    view_bed_answer(&t, HEIR_UNKNOWN);
    lose(&t, 2, true);
    ok(bed_ordered(&t, ORDER_PREPARE, 2), "one is lost when the fourth is there");
    view_bed_say(&t, 0, REPORT_STOPPED, 2, 1);
    view_bed_say(&t, 1, REPORT_STOPPED, 2, 1);
    view_bed_say(&t, 3, REPORT_STOPPED, 2, 1);
    ok(!t.a.order, "which runs in no view without it");
    view_bed_answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && t.a.order->view.number == 2,
       "all are asked in that view");
    for (uint32_t i = 0; i < N; i++) {
        if (i != 2) {
            view_bed_say(&t, i, REPORT_STOPPED, 3, 2);
        }
    }
    ok(bed_ordered(&t, ORDER_RUN, 3) && t.a.order->n_procs[3],
       "in which the generation runs that all are ready for");
    lead_destroy(t.lead);
}

/* A run that is well grows by it, but asks nobody to stop before the view is answered:
 * all would have to be asked again in that one. */
static void test_newcomer_grows(void)
{
    struct bench t;

    open_with_newcomer(&t);
    view_bed_say_each(&t, 3, REPORT_RUNNING, 1, 1);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SCALE, .n_nodes = N});
    bed_tick(&t, 1000);
    is_int(lead_order(t.lead)->generation, 1, "nothing changes before the answer");
    view_bed_answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->view.number == 2,
       "then all are asked, once");
    lead_destroy(t.lead);
}

/* Node 1 leads after node 0, by a view that was claimed before node 3 followed: all of
 * them have stopped. */
static void open_follower(struct bench *t, struct view *v)
{
    static const bool in[N] = {false, true, true, false};
    static const bool follows[N] = {false, true, true, true};
    static const bool dead[N] = {false, false, false, false};
    struct lead_config config = view_bed_config(2);
    struct heritage h = {.generation = 1, .follows = follows, .dead = dead,
                         .n_nodes = N, .past = {.ran = 1}};

    *v = (struct view){.number = 2, .lead = 1, .shared = true};
    if (view_set(v, in, N) < 0) {
        bail_out("no memory");
    }
    h.view = *v;
    config.rank = 1;
    config.heritage = &h;
    bed_open(t, &config);
    bed_tick(t, 0);
    ok(bed_ordered(t, ORDER_PREPARE, 2), "it takes over");
    for (uint32_t i = 1; i < N; i++) {
        view_bed_say(t, i, REPORT_STOPPED, 2, 2);
    }
    ok(!t->a.order && t->a.claim && view_has(t->a.claim, 3),
       "one is to be taken in, for which all are ready");
}

/* What the claim was made for may have to wait when it is answered: whoever comes until
 * then has not stopped in that view, and nobody else would tell it. */
static void test_follower(void)
{
    struct view v;
    struct bench t;

    open_follower(&t, &v);
    (void)bed_tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                       .generation = 1, .floor = 2, .heard_ago_ms = 0});
    view_bed_answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && t.a.order->view.number == 3,
       "all are asked again where others may have workers yet");
    lead_destroy(t.lead);
    view_release(&v);
}

int main(void)
{
    test_loss();
    test_adrift();
    test_adrift_in_claim();
    test_adrift_at_end();
    test_adrift_again();
    test_lost_after_leave();
    test_stand_down();
    test_stand_down_by_majority();
    test_end();
    test_estranged();
    test_run_on();
    test_newcomer();
    test_newcomer_needed();
    test_newcomer_grows();
    test_follower();
    return tap_done();
}
