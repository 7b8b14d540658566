/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

enum { N = 4, LEASE_MS = 1000, SLACK_MS = 50, STAND_MS = 3000 };

static struct lead_config config_of(uint32_t min_nodes)
{
    struct lead_config config = bed_config(N);

    config.min_nodes = min_nodes;
    config.max_nodes = N;
    config.max_losses = 9;
    config.lease_ms = LEASE_MS;
    config.lease_slack_ms = SLACK_MS;
    config.claim_ms = 5000;
    config.rule = (struct view_rule){.on = true, .min_nodes = min_nodes};
    return config;
}

static void say(struct bench *t, uint32_t rank, enum report_state state,
                uint32_t generation, uint32_t floor)
{
    (void)bed_tell(t, (struct report){.rank = rank, .state = state,
                                      .generation = generation, .floor = floor,
                                      .heard_ago_ms = UINT64_MAX});
}

/* The first n of them. */
static void say_each(struct bench *t, uint32_t n, enum report_state state,
                     uint32_t generation, uint32_t floor)
{
    for (uint32_t i = 0; i < n; i++) {
        say(t, i, state, generation, floor);
    }
}

static void say_all(struct bench *t, enum report_state state,
                    uint32_t generation, uint32_t floor)
{
    say_each(t, N, state, generation, floor);
}

/* So many are silent for long, and may go on by themselves. */
static void quiet(struct bench *t, uint32_t n)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_QUIET, .n_quiet = n});
}

static void answer(struct bench *t, enum heir_outcome outcome)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_CLAIMED,
                                          .outcome = outcome});
}

static void lose(struct bench *t, uint32_t rank, bool dead)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_LOST, .rank = rank,
                                          .dead = dead, .text = "gone"});
}

/* Generation 1 runs on four nodes. */
static void open_running(struct bench *t, uint32_t min_nodes, bool shared)
{
    struct lead_config config = config_of(min_nodes);

    bed_open(t, &config);
    (void)bed_step(t, (struct lead_event){.type = shared ? LEAD_SHARED
                                                         : LEAD_TICK});
    say_all(t, REPORT_JOINED, 0, 0);
    say_all(t, REPORT_STOPPED, 1, 1);
    ok(bed_ordered(t, ORDER_RUN, 1) && t->a.order->view.number == 1 &&
           t->a.order->view.n_nodes == N &&
           t->a.order->view.shared == shared &&
           t->a.order->serial >> ORDER_SERIAL_BITS == 1,
       "orders carry the first view");
}

/* Then one is left, and two others may go on without it. */
static void open_alone(struct bench *t)
{
    open_running(t, 2, true);
    lose(t, 3, false);
    quiet(t, 2);
    lose(t, 2, false);
    lose(t, 1, false);
}

static void test_loss(void)
{
    struct bench t;

    open_running(&t, 2, true);
    lose(&t, 3, false);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && !t.a.claim &&
           t.a.order->stop == ORDER_STOP_FORCE,
       "one that is silent cannot go on by itself: no claim, but no delay");
    is_int(lead_n_silent(t.lead), 1, "it is counted");
    lose(&t, 2, false);
    ok(t.a.claim && t.a.claim->number == 2 && !view_has(t.a.claim, 3) &&
           view_has(t.a.claim, 1) && !t.a.claim->has_verdict,
       "two could: the next view is claimed without them");
    say(&t, 0, REPORT_STOPPED, 2, 1);
    say(&t, 1, REPORT_STOPPED, 2, 1);
    bed_tick(&t, LEASE_MS + SLACK_MS);
    ok(!t.a.order, "and nothing runs before that is answered");
    answer(&t, HEIR_UNKNOWN);
    ok(t.a.claim && t.a.claim->number == 2, "without an answer, again");
    answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && t.a.order->view.number == 2,
       "a view that is won begins with a generation of its own");
    is_int(lead_n_silent(t.lead), 0, "and knows only its members");
    say(&t, 0, REPORT_STOPPED, 3, 2);
    ok(!t.a.order, "a report of the old view does not count");
    say(&t, 1, REPORT_STOPPED, 3, 1);
    ok(!t.a.order, "here neither");
    say(&t, 1, REPORT_STOPPED, 3, 2);
    ok(bed_ordered(&t, ORDER_RUN, 3), "then it runs");
    lead_destroy(t.lead);
    open_running(&t, 2, true);
    lose(&t, 3, true);
    lose(&t, 2, true);
    ok(!t.a.claim && t.a.order->stop == ORDER_STOP_GRACE,
       "the dead claim nothing, and the others may save");
    lead_destroy(t.lead);
    open_running(&t, 2, true);
    quiet(&t, 1);
    lose(&t, 3, false);
    lose(&t, 2, false);
    ok(!t.a.claim, "who may yet be too small claims nothing");
    say(&t, 0, REPORT_STOPPED, 2, 1);
    say(&t, 1, REPORT_STOPPED, 2, 1);
    bed_tick(&t, LEASE_MS + SLACK_MS);
    ok(!t.a.order && t.a.wake_ms == LEAD_NEVER, "and rests");
    quiet(&t, 0);
    ok(t.a.claim, "until that is known");
    answer(&t, HEIR_LOST);
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

    open_running(&t, 1, true);
    lose_adrift(&t);
    is_int(lead_n_silent(t.lead), 3, "who ended while the lead was stopped may have "
           "gone on");
    ok(t.a.claim || lead_order(t.lead)->step == ORDER_PREPARE,
       "so one that could go on by itself claims a view first");
    say(&t, 0, REPORT_STOPPED, lead_generation(t.lead), 1);
    bed_tick(&t, 60000);
    ok(!t.a.order && lead_order(t.lead)->step == ORDER_PREPARE,
       "and runs nothing before it has one");
    lead_destroy(t.lead);
    open_running(&t, 2, true);
    quiet(&t, 2);
    lose_adrift(&t);
    ok(!t.a.claim && !lead_verdict(t.lead), "one that cannot does not say that the run ends");
    t.now_ms += LEASE_MS + SLACK_MS + STAND_MS;
    (void)bed_step(&t, (struct lead_event){.adrift = true});
    ok(t.a.claim && t.a.claim->has_verdict && !lead_verdict(t.lead),
       "but claims it");
    answer(&t, HEIR_LOST);
    ok(!lead_verdict(t.lead) && t.a.wake_ms == LEAD_NEVER,
       "and is silent when another has it");
    lead_destroy(t.lead);
}

/* It was stopped while its claim was under way. */
static void test_adrift_in_claim(void)
{
    struct bench t;

    open_running(&t, 2, true);
    say_all(&t, REPORT_DONE, 1, 1);
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

        open_running(&t, 2, true);
        say_all(&t, REPORT_DONE, 1, 1);
        answer(&t, HEIR_WON);
        ok(t.a.order && t.a.order->step == ORDER_END, "the end is claimed, and said");
        t.now_ms += 60000;
        (void)bed_step(&t, (struct lead_event){.adrift = true});
        ok(t.a.claim && t.a.claim->has_verdict && !t.a.order && !t.a.finished,
           "who was stopped then asks whether another has seen to it");
        t.now_ms += 5000;
        answer(&t, outcomes[i]);
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

        open_running(&t, 2, true);
        say_all(&t, REPORT_DONE, 1, 1);
        answer(&t, HEIR_WON);
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

        open_running(&t, 1, false);
        (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                               .stop = LEAD_STOP_PREEMPT});
        say_all(&t, REPORT_ENDED, 1, 1);
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

    open_running(&t, 2, true);
    lose(&t, 3, false);
    lose(&t, 2, false);
    answer(&t, HEIR_UNKNOWN);
    lead_destroy(t.lead);
    open_running(&t, 3, true);
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
    answer(&t, HEIR_WON);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_RESUMABLE, "which is the verdict now");
    lead_destroy(t.lead);
    open_alone(&t);
    quiet(&t, 0);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 1});
    ok(t.a.claim && !t.a.claim->has_verdict && !lead_verdict(t.lead),
       "if they come back first it goes on with them");
    lead_destroy(t.lead);
    open_running(&t, 2, true);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_QUIET, .n_quiet = 3});
    for (uint32_t i = 1; i < N; i++) {
        lose(&t, i, false);
    }
    (void)bed_step(&t, (struct lead_event){.type = LEAD_QUIET, .n_quiet = 0});
    bed_tick(&t, LEASE_MS + SLACK_MS);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 1});
    ok(lead_node(t.lead, 1)->lost && !t.a.claim,
       "one whose lease is over does not come back as a member");
    say(&t, 1, REPORT_RUNNING, 1, 2);
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

    open_running(&t, 2, false);
    for (uint32_t i = 1; i < N; i++) {
        lose(&t, i, false);
    }
    bed_tick(&t, LEASE_MS + SLACK_MS);
    say(&t, 1, REPORT_ENDED, 3, 65538);
    ok(lead_node(t.lead, 1)->lost, "who has been in a newer view does not come back");
    say(&t, 2, REPORT_RUNNING, 1, 2);
    ok(!lead_node(t.lead, 2)->lost && !lead_verdict(t.lead) &&
           t.a.order && t.a.order->step == ORDER_PREPARE &&
           t.a.order->view.number > 65538,
       "who was in this one, and waits for the next, does");
    lead_destroy(t.lead);
}

static void test_end(void)
{
    struct bench t;

    open_running(&t, 2, true);
    say_all(&t, REPORT_DONE, 1, 1);
    ok(t.a.claim && t.a.claim->has_verdict && t.a.claim->status == 0 &&
           !t.a.order && !lead_verdict(t.lead), "success is claimed first");
    answer(&t, HEIR_WON);
    ok(t.a.order && t.a.order->step == ORDER_END && t.a.order->status == 0 &&
           t.a.order->view.number == 2, "and told then");
    lead_destroy(t.lead);
    open_running(&t, 2, true);
    say_all(&t, REPORT_DONE, 1, 1);
    bed_tick(&t, 5000);
    ok(t.a.order && t.a.order->status == RUN_RESUMABLE &&
           strstr(t.a.order->reason, "run directory does not answer"),
       "a directory that hangs makes no success");
    lead_destroy(t.lead);
    open_running(&t, 4, true);
    say_all(&t, REPORT_DONE, 1, 1);
    ok(!t.a.claim && t.a.order->step == ORDER_END, "where nobody else can go on "
       "nothing is claimed");
    lead_destroy(t.lead);
    open_running(&t, 2, false);
    say_all(&t, REPORT_DONE, 1, 1);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->past.has_end &&
           !lead_verdict(t.lead), "a majority hears of the verdict first");
    say(&t, 1, REPORT_STOPPED, 2, 1);
    ok(!t.a.order, "one is none");
    say(&t, 2, REPORT_STOPPED, 2, 1);
    say(&t, 3, REPORT_STOPPED, 2, 1);
    ok(t.a.order && t.a.order->step == ORDER_END && t.a.order->status == 0,
       "three are");
    lead_destroy(t.lead);
}

static void test_estranged(void)
{
    struct bench t;

    open_running(&t, 2, true);
    say_all(&t, REPORT_RUNNING, 1, 1);
    say(&t, 3, REPORT_RUNNING, 1, 2);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && lead_node(t.lead, 3)->estranged &&
           !lead_node(t.lead, 3)->lost,
       "one that was cut off for a lease is there, but has no workers");
    is_int(lead_n_losses(t.lead), 0, "and is no loss of a node");
    say_each(&t, 3, REPORT_STOPPED, 2, 1);
    ok(t.a.claim && view_has(t.a.claim, 3), "it is taken in by a new view");
    answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && !lead_node(t.lead, 3)->estranged,
       "which it obeys");
    say_all(&t, REPORT_STOPPED, 3, 2);
    ok(bed_ordered(&t, ORDER_RUN, 3) && t.a.order->n_procs[3], "and runs in");
    say_all(&t, REPORT_RUNNING, 3, 2);
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
    struct lead_config config = config_of(2);
    struct bench t;

    config.max_nodes = 3;
    bed_open(&t, &config);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SHARED});
    say_all(&t, REPORT_JOINED, 0, 0);
    say_all(&t, REPORT_STOPPED, 1, 1);
    say_all(&t, REPORT_RUNNING, 1, 1);
    say(&t, 3, REPORT_DONE, 1, 2);
    ok(!t.a.order && t.a.claim && view_has(t.a.claim, 3),
       "a spare that was cut off is claimed, and nobody stops");
    answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_RUN, 1) && t.a.order->view.number == 2 &&
           t.a.order->n_procs[0] && t.a.order->master_port,
       "the same generation goes on in the new view");
    lead_destroy(t.lead);
}

/* Three of four run; the fourth comes too late for the first view. */
static void open_with_newcomer(struct bench *t)
{
    struct lead_config config = config_of(2);

    bed_open(t, &config);
    (void)bed_step(t, (struct lead_event){.type = LEAD_SHARED});
    lose(t, 3, true);
    say_each(t, 3, REPORT_JOINED, 0, 0);
    say_each(t, 3, REPORT_STOPPED, 1, 1);
    ok(bed_ordered(t, ORDER_RUN, 1) && !view_has(&t->a.order->view, 3),
       "three of four run");
    (void)bed_step(t, (struct lead_event){.type = LEAD_HERE, .rank = 3});
    ok(!t->a.claim, "that the fourth is to come is no reason for another view");
    say(t, 3, REPORT_JOINED, 0, 1);
    ok(!t->a.order && t->a.claim && view_has(t->a.claim, 3) &&
           view_has(t->a.claim, 2), "that it is there is: it may be the last one");
}

static void test_newcomer(void)
{
    struct bench t;

    open_with_newcomer(&t);
    answer(&t, HEIR_WON);
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
    answer(&t, HEIR_UNKNOWN);
    lose(&t, 2, true);
    ok(bed_ordered(&t, ORDER_PREPARE, 2), "one is lost when the fourth is there");
    say(&t, 0, REPORT_STOPPED, 2, 1);
    say(&t, 1, REPORT_STOPPED, 2, 1);
    say(&t, 3, REPORT_STOPPED, 2, 1);
    ok(!t.a.order, "which runs in no view without it");
    answer(&t, HEIR_WON);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && t.a.order->view.number == 2,
       "all are asked in that view");
    for (uint32_t i = 0; i < N; i++) {
        if (i != 2) {
            say(&t, i, REPORT_STOPPED, 3, 2);
        }
    }
    ok(bed_ordered(&t, ORDER_RUN, 3) && t.a.order->n_procs[3],
       "in which the generation runs that all are ready for");
    lead_destroy(t.lead);
}

static void test_inherit(void)
{
    static const bool follows[N] = {false, true, true, false};
    static const bool dead[N] = {true, false, false, false};
    static const uint16_t n_procs[N] = {2, 2, 2, 2};
    uint32_t out[] = {0, 3};
    struct heritage h = {
        .view = {.number = 5, .lead = 1, .n_nodes = N, .shared = true,
                 .n_out = 2, .out = out},
        .generation = 6, .follows = follows, .dead = dead, .n_nodes = N,
        .n_procs = n_procs, .n_procs_len = N, .clear_ms = 900,
        .past = {.ran = 6, .n_restarts = 1, .n_losses = 1,
                 .saved_generation = 4, .resume_step = 30,
                 .resume_path = "ckpt/30", .suspended = true,
                 .avoid = {.n_deaths = 1, .n = 1,
                           .list = {{.path = "ckpt/40", .step = 40}}},
                 .n_marks = 1,
                 .marks = {{.rank = 2, .n_causes = 3}}}};
    struct lead_config config = config_of(2);
    struct bench t;

    config.rank = 1;
    config.heritage = &h;
    bed_open(&t, &config);
    bed_tick(&t, 0);
    ok(bed_ordered(&t, ORDER_PREPARE, 7) && t.a.order->view.number == 5 &&
           t.a.order->store_rank == 1, "who takes over prepares the next");
    is_int(lead_n_losses(t.lead), 3, "two more are lost");
    is_int(lead_n_restarts(t.lead), 1, "restarts count on");
    is_int(lead_node(t.lead, 2)->n_causes, 3, "and the failures of each node");
    ok(t.a.order->past.n_marks == 1 && t.a.order->past.marks[0].rank == 2 &&
           t.a.order->past.marks[0].n_causes == 3 &&
           t.a.order->past.suspended && lead_is_suspended(t.lead),
       "which the next one is told, too");
    ok(t.a.order->past.avoid.n_deaths == 1 && avoid_has(lead_avoid(t.lead), "ckpt/40"),
       "so is from which checkpoint nobody starts");
    ok(order_is_gone(t.a.order, 0) && order_is_gone(t.a.order, 3),
       "who they are is told");
    say(&t, 1, REPORT_STOPPED, 7, 5);
    ok(!t.a.order, "those who followed are waited for");
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_STOPPED,
                                       .generation = 7, .floor = 5,
                                       .heard_ago_ms = UINT64_MAX});
    ok(!t.a.order && t.a.wake_ms == 900, "and the leases of others");
    bed_tick(&t, 800);
    ok(bed_ordered(&t, ORDER_RUN, 7) && t.a.order->resume_step == 30 &&
           !strcmp(t.a.order->resume_path, "ckpt/30"),
       "then it runs, from where it was");
    lead_destroy(t.lead);
    bed_open(&t, &config);
    bed_tick(&t, 0);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 3});
    say(&t, 1, REPORT_STOPPED, 7, 5);
    say(&t, 2, REPORT_STOPPED, 7, 5);
    ok(!t.a.order, "who is back, and has not told where it stands, is waited for");
    say(&t, 3, REPORT_STOPPED, 7, 5);
    ok(t.a.claim && view_has(t.a.claim, 3), "then it is taken in");
    lead_destroy(t.lead);
    h.has_verdict = true;
    h.status = 3;
    bed_open(&t, &config);
    bed_tick(&t, 0);
    ok(t.a.order && t.a.order->step == ORDER_END && t.a.order->status == 3,
       "a verdict that was told stands");
    lead_destroy(t.lead);
    h.has_verdict = false;
    h.generation = 1; /* prepared, as far as they know: it may have been run since */
    h.past = (struct past){0};
    h.n_procs = NULL;
    bed_open(&t, &config);
    bed_tick(&t, 0);
    say(&t, 1, REPORT_STOPPED, 2, 5);
    say(&t, 2, REPORT_STOPPED, 2, 5);
    ok(!t.a.order && t.a.wake_ms == 900,
       "where nothing is known to have run leases are waited for, too");
    bed_tick(&t, 800);
    ok(t.a.order, "before anything is run");
    lead_destroy(t.lead);
}

/* It is left out, also by who leads next. */
static void test_inherit_excluded(void)
{
    static const bool follows[N] = {false, true, true, true};
    static const bool dead[N] = {true, false, false, false};
    static const uint16_t n_procs[N] = {2, 2, 0, 2};
    uint32_t out[] = {0};
    struct heritage h = {
        .view = {.number = 5, .lead = 1, .n_nodes = N, .shared = true,
                 .n_out = 1, .out = out},
        .generation = 6, .follows = follows, .dead = dead, .n_nodes = N,
        .n_procs = n_procs, .n_procs_len = N,
        .past = {.ran = 6, .n_marks = 1,
                 .marks = {{.rank = 2, .excluded = EXCLUSION_HANGS}}}};
    struct lead_config config = config_of(2);
    struct bench t;

    config.rank = 1;
    config.heritage = &h;
    bed_open(&t, &config);
    bed_tick(&t, 0);
    for (uint32_t i = 1; i < N; i++) {
        say(&t, i, REPORT_STOPPED, 7, 5);
    }
    ok(bed_ordered(&t, ORDER_RUN, 7) && t.a.order->n_procs[1] &&
           !t.a.order->n_procs[2] && t.a.order->n_procs[3],
       "who was excluded under another lead stays that");
    ok(t.a.order->past.n_marks == 1 && t.a.order->past.marks[0].excluded == EXCLUSION_HANGS,
       "and under the next, for what it was");
    lead_destroy(t.lead);
}

static void save(struct bench *t, enum report_state state, uint32_t generation,
                 int64_t step, const char *path)
{
    struct report r = {.rank = 2, .state = state, .generation = generation,
                       .floor = 1, .heard_ago_ms = UINT64_MAX,
                       .saved_generation = 1, .saved_step = step};

    snprintf(r.saved_path, sizeof(r.saved_path), "%s", path);
    (void)bed_tell(t, r);
}

/* Whether this order says that so much is saved; its workers started from nothing. */
static bool tells(const struct bench *t, int64_t step)
{
    return t->a.order && t->a.order->past.resume_step == step &&
           !t->a.order->resume_path[0];
}

/* Whoever leads next has to know the newest checkpoint: orders say it at once. */
static void test_saves_are_told(void)
{
    uint64_t serial;
    struct bench t;

    open_running(&t, 2, true);
    serial = t.a.order->serial;
    bed_tick(&t, 1000);
    save(&t, REPORT_RUNNING, 1, 10, "ckpt/10");
    ok(bed_ordered(&t, ORDER_RUN, 1) && tells(&t, 10) &&
           t.a.order->serial == serial + 1 && t.a.order->n_procs[3] &&
           t.a.order->n_nodes == N, "a save is told with the order that holds");
    save(&t, REPORT_RUNNING, 1, 20, "ckpt/20");
    save(&t, REPORT_RUNNING, 1, 30, "ckpt/30");
    ok(!t.a.order && t.a.wake_ms == t.now_ms + 250, "others, a little later");
    bed_tick(&t, 250);
    ok(tells(&t, 30) && t.a.order->serial == serial + 2, "all at once");
    save(&t, REPORT_RUNNING, 1, 25, "ckpt/25");
    bed_tick(&t, 1000);
    ok(!t.a.order && t.a.wake_ms > t.now_ms + 250, "an older one is no news");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .step = 40,
                                           .text = "ckpt/40"});
    ok(tells(&t, 40), "also one that was found");
    bed_tick(&t, 1000);
    (void)bed_fail(&t, 0, 1, 1, 1, 0);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && tells(&t, 40), "nor is it forgotten");
    bed_tick(&t, 300);
    save(&t, REPORT_STOPPED, 2, 50, "ckpt/50");
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && tells(&t, 50) &&
           t.a.order->stop == ORDER_STOP_GRACE,
       "and one that was made while all stop");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                           .stop = LEAD_STOP_PREEMPT});
    answer(&t, HEIR_WON);
    bed_tick(&t, 1000);
    save(&t, REPORT_RUNNING, 1, 60, "ckpt/60");
    ok(t.a.order && t.a.order->step == ORDER_END && tells(&t, 60) &&
           t.a.order->status == RUN_RESUMABLE, "or at the end of the run");
    lead_destroy(t.lead);
}

/* Nobody else can lead: nobody has to know before the next order. */
static void test_saves_are_kept(void)
{
    struct lead_config config = bed_config(N);
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, N, 1);
    bed_tick(&t, 1000);
    save(&t, REPORT_RUNNING, 1, 10, "ckpt/10");
    ok(bed_note(&t, LEAD_NOTE_SAVED) && !t.a.order && t.a.wake_ms == LEAD_NEVER,
       "where no other can lead no order tells of it");
    lead_destroy(t.lead);
}

int main(void)
{
    test_saves_are_told();
    test_saves_are_kept();
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
    test_inherit();
    test_inherit_excluded();
    return tap_done();
}
