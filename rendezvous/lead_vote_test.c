/* SPDX-License-Identifier: Apache-2.0 */
/* The lead where a majority decides: who of those that have ended may have been bound
 * to another before, and what an end is that not enough know of. */
#include <config.h>

#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { N = 5, LEASE_MS = 1000, SLACK_MS = 50, STAND_MS = 3000, VIEW = 65537 };

static struct lead_config config_of(void)
{
    struct lead_config config = bed_config(N);

    config.min_nodes = 1;
    config.max_losses = 9;
    config.lease_ms = LEASE_MS;
    config.lease_slack_ms = SLACK_MS;
    config.claim_ms = 5000;
    config.rule = (struct view_rule){.on = true, .min_nodes = 1};
    return config;
}

static void say(struct bench *t, uint32_t rank, enum report_state state,
                uint32_t generation, uint32_t floor)
{
    (void)bed_tell(t, (struct report){.rank = rank, .state = state,
                                      .generation = generation, .floor = floor,
                                      .heard_ago_ms = UINT64_MAX});
}

static void lose(struct bench *t, uint32_t rank, bool dead)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_LOST, .rank = rank,
                                          .dead = dead, .text = "gone"});
}

/* All have come, and have stopped for generation 1. */
static void open_stopped(struct bench *t, const struct lead_config *config)
{
    bed_open(t, config);
    for (uint32_t i = 0; i < N; i++) {
        say(t, i, REPORT_JOINED, 0, 0);
    }
    for (uint32_t i = 0; i < N; i++) {
        say(t, i, REPORT_STOPPED, 1, 1);
    }
}

/* Generation 1 runs on all, led by node 0. */
static void open_running(struct bench *t)
{
    struct lead_config config = config_of();

    open_stopped(t, &config);
    ok(bed_ordered(t, ORDER_RUN, 1), "all run");
}

/* Node 1 has won with nodes 2 and 3; node 0 is dead, and of node 4 nothing is known. */
static void open_heir(struct bench *t)
{
    static const bool follows[N] = {false, true, true, true, false};
    static const bool dead[N] = {true, false, false, false, false};
    static const uint16_t n_procs[N] = {1, 1, 1, 1, 1};
    const struct heritage h = {
        .view = {.number = VIEW, .lead = 1, .n_nodes = N}, .generation = 1,
        .follows = follows, .dead = dead, .n_nodes = N, .n_procs = n_procs,
        .n_procs_len = N, .past = {.ran = 1}};
    struct lead_config config = config_of();

    config.rank = 1;
    config.heritage = &h;
    bed_open(t, &config);
    bed_tick(t, 0);
    ok(bed_ordered(t, ORDER_PREPARE, 2), "it takes over");
    say(t, 1, REPORT_STOPPED, 2, VIEW);
    say(t, 2, REPORT_STOPPED, 2, VIEW);
    bed_tick(t, LEASE_MS + SLACK_MS);
    ok(!t->a.order, "a follower is waited for");
}

/* Two candidates may have counted node 3, and node 0 may have been bound to the other
 * one before it ended. */
static void test_stale_follower(void)
{
    struct bench t;

    open_heir(&t);
    say(&t, 3, REPORT_STOPPED, 2, VIEW);
    ok(bed_ordered(&t, ORDER_RUN, 2), "three of five that are bound run");
    lead_destroy(t.lead);
    open_heir(&t);
    lose(&t, 3, false);
    is_int(lead_n_silent(t.lead), 3, "the old lead counts as one who is silent");
    say(&t, 1, REPORT_STOPPED, lead_generation(t.lead), VIEW);
    say(&t, 2, REPORT_STOPPED, lead_generation(t.lead), VIEW);
    bed_tick(&t, LEASE_MS + SLACK_MS + STAND_MS - 1);
    ok(lead_order(t.lead)->step == ORDER_PREPARE && !lead_verdict(t.lead),
       "two run nothing");
    bed_tick(&t, 1);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_RESUMABLE, "and give up");
    lead_destroy(t.lead);
    open_heir(&t);
    lose(&t, 3, false);
    say(&t, 3, REPORT_STOPPED, 1, VIEW + 1);
    is_int(lead_n_silent(t.lead), 2, "unless it comes back");
    lead_destroy(t.lead);
}

static void die(struct bench *t, uint32_t rank, bool loose)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_LOST, .rank = rank, .dead = true,
                                          .loose = loose, .text = "its agent ended"});
}

/* Who was free when it ended may have been bound to another, and had no time to say it. */
static void test_free_at_its_end(void)
{
    struct bench t;

    open_heir(&t);
    say(&t, 3, REPORT_STOPPED, 2, VIEW);
    die(&t, 2, false);
    is_int(lead_n_silent(t.lead), 2, "who is dead was bound to the end");
    die(&t, 3, true);
    is_int(lead_n_silent(t.lead), 3, "unless its lease may have been over");
    lead_destroy(t.lead);
    open_running(&t);
    die(&t, 2, true);
    is_int(lead_n_silent(t.lead), 1, "also of the first view");
    lead_destroy(t.lead);
}

/* Another lead has prepared more generations, which this one has not heard of: their
 * numbers are not used again. */
static void test_numbers(void)
{
    struct bench t;

    open_heir(&t);
    say(&t, 3, REPORT_STOPPED, 5, VIEW);
    ok(bed_ordered(&t, ORDER_PREPARE, 6), "one that was in generation 5: 6 is next");
    for (uint32_t i = 1; i < 3; i++) {
        say(&t, i, REPORT_STOPPED, 6, VIEW);
    }
    bed_tick(&t, LEASE_MS + SLACK_MS);
    ok(lead_order(t.lead)->step == ORDER_PREPARE, "which is no answer to it");
    say(&t, 3, REPORT_STOPPED, 6, VIEW);
    ok(bed_ordered(&t, ORDER_RUN, 6), "then it runs");
    lead_destroy(t.lead);
}

/* Who is back may have been bound to another lead meanwhile: it has to say so first. */
static void test_back(void)
{
    for (int is_newer = 0; is_newer < 2; is_newer++) {
        struct bench t;

        open_heir(&t);
        lose(&t, 3, false);
        is_str(lead_phase_name(t.lead), "claim", "with three silent it stands down");
        (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 3});
        ok(bed_note(&t, LEAD_NOTE_BACK) && !t.a.order && lead_n_silent(t.lead) == 3,
           "one is back, and has not said where it was");
        say(&t, 3, REPORT_STOPPED, 1, is_newer ? (2u << 16 | 3) + 1 : VIEW);
        is_int(lead_n_silent(t.lead), 2, "it has now");
        ok(bed_ordered(&t, ORDER_PREPARE, lead_generation(t.lead)) &&
               lead_view(t.lead)->number == VIEW, "and is counted");
        for (uint32_t i = 1; i < 4; i++) {
            say(&t, i, REPORT_STOPPED, lead_generation(t.lead), VIEW);
        }
        bed_tick(&t, LEASE_MS + SLACK_MS);
        ok((lead_order(t.lead)->step == ORDER_RUN) == !is_newer, "%s", is_newer
           ? "nothing runs before it has told what the newer lead did"
           : "the run goes on");
        lead_destroy(t.lead);
    }
}

/* Spares decide, too: without most of all nodes those that work do not go on, for the
 * others may. */
static void test_spares_lost(void)
{
    struct lead_config config = config_of();
    struct bench t;

    config.max_nodes = 2;
    open_stopped(&t, &config);
    ok(bed_ordered(&t, ORDER_RUN, 1), "two run, three wait");
    for (uint32_t i = 0; i < 2; i++) {
        say(&t, i, REPORT_RUNNING, 1, 1);
    }
    lose(&t, 2, false);
    lose(&t, 4, false);
    ok(lead_order(t.lead)->step == ORDER_RUN && !lead_verdict(t.lead),
       "two spares are lost, and they run on");
    lose(&t, 3, false);
    ok(bed_ordered(&t, ORDER_PREPARE, 2), "with the third one they are stopped");
    bed_tick(&t, LEASE_MS + SLACK_MS + STAND_MS);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_RESUMABLE, "and the run ends");
    like(t.a.order ? t.a.order->reason : "",
         "more than half of the nodes may go on without us", "and why");
    lead_destroy(t.lead);
}

/* Node 0 wanted to end the run, and was lost: `seen` says whether its END was seen. */
static void open_heir_of_end(struct bench *t, bool seen)
{
    static const bool follows[N] = {false, true, true, true, false};
    static const bool dead[N] = {true, false, false, false, false};
    const struct heritage h = {
        .view = {.number = VIEW, .lead = 1, .n_nodes = N}, .generation = 2,
        .follows = follows, .dead = dead, .n_nodes = N,
        .past = {.ran = 1, .has_end = true, .status = RUN_CANCELLED},
        .has_verdict = true, .is_proposed = !seen, .status = RUN_CANCELLED,
        .reason = "cancelled"};
    struct lead_config config = config_of();

    config.rank = 1;
    config.heritage = &h;
    bed_open(t, &config);
    bed_tick(t, 0);
}

/* Another may have counted those that this one has, and know nothing of it. */
static void test_heritage_of_end(void)
{
    struct bench t;

    open_heir_of_end(&t, true);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_CANCELLED, "an end that was seen is told");
    lead_destroy(t.lead);
    open_heir_of_end(&t, false);
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && t.a.order->past.has_end &&
           t.a.order->past.status == RUN_CANCELLED,
       "one that was proposed is proposed again");
    say(&t, 1, REPORT_STOPPED, 3, VIEW);
    say(&t, 2, REPORT_STOPPED, 3, VIEW);
    ok(!t.a.order && !lead_verdict(t.lead), "two do not make it one");
    say(&t, 3, REPORT_STOPPED, 3, VIEW);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_CANCELLED &&
           !strcmp(t.a.order->reason, "cancelled"), "three do");
    lead_destroy(t.lead);
    open_heir_of_end(&t, false);
    say(&t, 1, REPORT_STOPPED, 3, VIEW);
    say(&t, 2, REPORT_STOPPED, 3, VIEW);
    lose(&t, 3, false);
    bed_tick(&t, 6000);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_RESUMABLE &&
           strstr(t.a.order->reason, "too few nodes know"),
       "and with too few the others may go on");
    lead_destroy(t.lead);
}

static void test_ended(void)
{
    struct bench t;

    open_running(&t);
    lose(&t, 4, true);
    is_int(lead_n_silent(t.lead), 0, "who ends while it is bound is on no other side");
    lose(&t, 3, false);
    lose(&t, 3, true);
    is_int(lead_n_silent(t.lead), 1, "who was lost before it ended may be");
    is_int(lead_rivals(t.lead).size, 3, "and makes three with two others");
    lose(&t, 2, true);
    is_int(lead_rivals(t.lead).size, VIEW_NO_SIDE, "but not with one");
    lead_destroy(t.lead);
    open_running(&t);
    say(&t, 3, REPORT_STOPPED, 1, VIEW);
    ok(lead_node(t.lead, 3)->estranged, "one is here that was bound to another");
    lose(&t, 3, true);
    is_int(lead_n_silent(t.lead), 1, "if it ends, it may be there still");
    lead_destroy(t.lead);
}

/* What it was in before matters to nobody. */
static void test_ended_at_start(void)
{
    struct lead_config config = config_of();
    struct bench t;

    bed_open(&t, &config);
    for (uint32_t i = 0; i < N; i++) {
        say(&t, i, REPORT_JOINED, 0, 0);
    }
    lose(&t, 4, true);
    is_int(lead_n_silent(t.lead), 0, "who ends before the first order was bound to "
           "nobody");
    lead_destroy(t.lead);
}

/* Three are silent for long, and a command ends the run. */
static void open_cancelled(struct bench *t)
{
    open_running(t);
    (void)bed_step(t, (struct lead_event){.type = LEAD_QUIET, .n_quiet = 3});
    (void)bed_step(t, (struct lead_event){.type = LEAD_STOP,
                                          .stop = LEAD_STOP_CANCEL});
    ok(bed_ordered(t, ORDER_PREPARE, 2) && !t->a.order->past.has_end &&
           !lead_verdict(t->lead), "its lead stands down first");
}

/* They are lost, and may go on. */
static void test_weak_end(void)
{
    struct bench t;

    open_cancelled(&t);
    for (uint32_t i = 2; i < N; i++) {
        lose(&t, i, false);
    }
    (void)bed_step(&t, (struct lead_event){.type = LEAD_QUIET});
    say(&t, 0, REPORT_STOPPED, lead_generation(t.lead), 1);
    say(&t, 1, REPORT_STOPPED, lead_generation(t.lead), 1);
    bed_tick(&t, LEASE_MS + SLACK_MS + STAND_MS);
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_RESUMABLE &&
           strstr(t.a.order->reason, "too few nodes know"),
       "an end that nobody else has accepted is none");
    lead_destroy(t.lead);
}

/* Too few are left for the job; with who is quiet, and may be with them, those that are
 * lost are enough. */
static void test_quiet_at_loss(void)
{
    for (int n_quiet = 0; n_quiet < 2; n_quiet++) {
        struct lead_config config = config_of();
        struct bench t;

        config.min_nodes = 4;
        open_stopped(&t, &config);
        ok(bed_ordered(&t, ORDER_RUN, 1), "all run");
        lose(&t, 1, false);
        (void)bed_step(&t, (struct lead_event){.type = LEAD_QUIET,
                                               .n_quiet = (uint32_t)n_quiet});
        lose(&t, 2, false);
        if (n_quiet == 0) {
            ok(lead_order(t.lead)->step == ORDER_END, "two are lost, and three of four "
               "that it needs left: the end");
        } else {
            is_str(lead_phase_name(t.lead), "claim", "three may go on: it stands down");
            ok(lead_order(t.lead)->step == ORDER_PREPARE, "and stops its workers");
            bed_tick(&t, LEASE_MS + SLACK_MS + STAND_MS);
            ok(lead_order(t.lead)->step == ORDER_END, "if they do not, it ends");
        }
        lead_destroy(t.lead);
    }
}

/* They are heard again: what the run was to end for has not changed. */
static void test_end_after_all(void)
{
    struct bench t;

    open_cancelled(&t);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_QUIET});
    ok(bed_ordered(&t, ORDER_PREPARE, 3) && t.a.order->past.has_end &&
           t.a.order->past.status == RUN_CANCELLED, "it is proposed then");
    for (uint32_t i = 0; i < 3; i++) {
        ok(!lead_verdict(t.lead), "and has to be accepted");
        say(&t, i, REPORT_STOPPED, 3, 1);
    }
    ok(t.a.order && t.a.order->step == ORDER_END &&
           t.a.order->status == RUN_CANCELLED, "three do");
    lead_destroy(t.lead);
}

/* It stands down for nodes that are lost, and is told to end meanwhile; then they
 * come back, free. */
static void test_stopped_meanwhile(void)
{
    struct bench t;

    open_running(&t);
    for (uint32_t i = 2; i < N; i++) {
        lose(&t, i, false);
    }
    (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                           .stop = LEAD_STOP_CANCEL});
    ok(!lead_verdict(t.lead), "it stands down");
    say(&t, 2, REPORT_STOPPED, 1, 2);
    ok(t.a.order && t.a.order->past.has_end &&
           t.a.order->past.status == RUN_CANCELLED &&
           t.a.order->view.number > 1, "the end is proposed to who is back");
    lead_destroy(t.lead);
    open_running(&t);
    for (uint32_t i = 2; i < N; i++) {
        lose(&t, i, false);
    }
    say(&t, 2, REPORT_STOPPED, 1, 2);
    ok(t.a.order && !t.a.order->past.has_end, "without a command it goes on");
    lead_destroy(t.lead);
}

int main(void)
{
    test_stale_follower();
    test_free_at_its_end();
    test_numbers();
    test_back();
    test_spares_lost();
    test_heritage_of_end();
    test_ended();
    test_ended_at_start();
    test_weak_end();
    test_quiet_at_loss();
    test_end_after_all();
    test_stopped_meanwhile();
    return tap_done();
}
