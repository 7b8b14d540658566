/* SPDX-License-Identifier: Apache-2.0 */
/* Failures: which one is the cause, and whether another generation runs. */
#include <config.h>

#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

static void test_restart(void)
{
    struct lead_config config = bed_config(2);
    const struct lead_note *n;
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    t.now_ms += 3000; /* within backoff_max: quick */
    (void)bed_fail(&t, 1, 1, 7, 500, 0);
    n = bed_note(&t, LEAD_NOTE_FAILED);
    ok(n && n->failure->exit_code == 7 && n->rank == 1, "the failure is told");
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->grace_ms == 500 &&
           t.a.order->broken &&
           t.a.order->stop == ORDER_STOP_GRACE, "everybody stops at once");
    (void)bed_fail(&t, 0, 1, 8, 400, 0); /* 100 ms earlier */
    bed_tell_all(&t, 2, REPORT_STOPPED, 2);
    n = bed_note(&t, LEAD_NOTE_RESTARTING);
    ok(n && n->failure->exit_code == 8, "the earlier one is the cause");
    ok(!t.a.order && t.a.wake_ms == 4100, "waits for the backoff");
    (void)bed_tick(&t, 999);
    ok(!t.a.order, "not before its end");
    (void)bed_tick(&t, 1);
    ok(bed_ordered(&t, ORDER_RUN, 2), "runs again");
    is_str(t.a.order->previous, "rank 0 (node 0, h) exited with code 8",
           "knows why");
    is_int(t.a.order->past.n_restarts, 1, "one restart");
    t.now_ms += 4000; /* long enough to be no crash loop */
    (void)bed_fail(&t, 1, 2, 9, 900, 0);
    bed_tell_all(&t, 2, REPORT_STOPPED, 3);
    ok(bed_ordered(&t, ORDER_RUN, 3), "no backoff after a long life");
    (void)bed_fail(&t, 1, 3, 11, 950, 0);
    bed_tell_all(&t, 2, REPORT_STOPPED, 4);
    ok(bed_ordered(&t, ORDER_END, 4) && t.a.order->status == 11,
       "out of budget: the worker's code");
    is_str(t.a.order->reason, "rank 2 (node 1, h) exited with code 11; all 2 "
           "restarts are used up", "says so");
    ok(lead_verdict(t.lead)->has_cause &&
           lead_verdict(t.lead)->cause.exit_code == 11, "has the cause");
    is_int(lead_verdict(t.lead)->generation, 3, "of the generation that ran");
    lead_destroy(t.lead);
}

static void test_one_restart(void)
{
    struct lead_config config = bed_config(2);
    struct bench t;

    config.restart.max = 1;
    config.n_restarts = 1; /* by an earlier start of the run */
    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    (void)bed_fail(&t, 1, 1, 11, 950, 0);
    bed_tell_all(&t, 2, REPORT_STOPPED, 2);
    is_str(t.a.order->reason, "rank 2 (node 1, h) exited with code 11; its one "
           "restart is used up", "of one, too");
    lead_destroy(t.lead);
}

/* A budget that goes unused needs a word. */
static void test_codes(void)
{
    struct lead_config config = bed_config(2);
    struct bench t;

    config.restart.kind = RESTART_EXIT_CODE;
    restart_allow(&config.restart, 11, 11);
    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    (void)bed_fail(&t, 1, 1, 11, 950, 0);
    bed_tell_all(&t, 2, REPORT_STOPPED, 2);
    ok(bed_note(&t, LEAD_NOTE_RESTARTING), "a code that is named starts again");
    (void)bed_tick(&t, 60000);
    ok(bed_ordered(&t, ORDER_RUN, 2), "and runs");
    (void)bed_fail(&t, 1, 2, 12, 950, 0);
    bed_tell_all(&t, 2, REPORT_STOPPED, 3);
    is_str(t.a.order->reason, "rank 2 (node 1, h) exited with code 12; "
           "restart.exitCodes does not name it", "another one does not");
    lead_destroy(t.lead);
}

/* Whoever asked for restarts is told why there is none. */
static void test_oom(void)
{
    struct lead_config config = bed_config(2);
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    (void)bed_tell(&t, (struct report){
        .rank = 1, .state = REPORT_RUNNING, .generation = 1, .failed = true,
        .failure = {.kind = FAILURE_OOM, .signal = 9, .generation = 1, .node = 1,
                    .rank = 2, .host = "h", .wall_ns = 950000000}});
    bed_tell_all(&t, 2, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_END, 2) && t.a.order->status == 137,
       "what the kernel killed is not started again");
    is_str(t.a.order->reason, "rank 2 (node 1, h) was killed by the kernel for lack "
           "of memory; there is no restart, which would end the same way",
           "nor is it kept quiet why not");
    lead_destroy(t.lead);
}

/* One node may not use up what others would need. */
static void test_per_node(void)
{
    struct lead_config config = bed_config(2);
    struct bench t;

    config.restart.max = 10;
    config.restart.max_per_node = 2;
    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    for (uint32_t g = 1; g <= 5; g++) {
        t.now_ms += 4000;
        (void)bed_fail(&t, g % 2, g, (uint8_t)(10 + g), 900 + g, 0);
        bed_tell_all(&t, 2, REPORT_STOPPED, g + 1);
        if (g < 5) {
            ok(bed_ordered(&t, ORDER_RUN, g + 1), "failure %u is followed by "
               "another generation", g);
        }
    }
    ok(bed_ordered(&t, ORDER_END, 6) && t.a.order->status == 15,
       "the third one of a node is not");
    like(t.a.order->reason, "exited with code 15; ", "its worker is named");
    like(t.a.order->reason, "was the cause 3 times, and restart.maxPerNode is "
         "2: there are too few nodes to do without it", "and the node");
    lead_destroy(t.lead);
}

/* Policy Always: workers that end well are started again while there is budget,
 * and a failure counts as with OnFailure. */
static void test_always(void)
{
    struct lead_config config = bed_config(2);
    const struct lead_note *n;
    struct bench t;

    config.restart.kind = RESTART_ALWAYS;
    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    t.now_ms += 4000; /* long enough to be no crash loop */
    bed_tell_all(&t, 2, REPORT_DONE, 1);
    n = bed_note(&t, LEAD_NOTE_AGAIN);
    ok(n && !n->failure, "all ended well: another generation");
    is_str(n ? n->text : "", "restart 1 of 2: all workers have ended, and "
           "restart.policy is Always", "says why");
    bed_tell_all(&t, 2, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2), "it runs");
    is_int(t.a.order->past.n_restarts, 1, "and counts as a restart");
    is_str(t.a.order->previous, "", "without a failure before it");
    (void)bed_fail(&t, 1, 2, 9, 900, 0);
    bed_tell_all(&t, 2, REPORT_STOPPED, 3);
    (void)bed_tick(&t, 1000);
    ok(bed_ordered(&t, ORDER_RUN, 3), "a failure is followed by one as well");
    bed_tell_all(&t, 2, REPORT_DONE, 3);
    ok(bed_ordered(&t, ORDER_END, 3) && t.a.order->status == RUN_SUCCEEDED,
       "at the end of the budget the run has succeeded");
    lead_destroy(t.lead);
}

/* The pause doubles with each generation that fails soon, up to its maximum;
 * one that lasted begins anew. */
static void test_backoff(void)
{
    static const struct {
        uint64_t life_ms, want_ms;
    } cases[] = {
        {100, 1000}, {3999, 2000}, {0, 4000}, {100, 4000}, {4000, 0},
        {100, 1000}, {100, 2000},  {9999, 0}, {9999, 0},   {100, 1000},
    };
    struct lead_config config = bed_config(1);
    struct bench t;

    config.restart.max = ARRAY_SIZE(cases);
    bed_open(&t, &config);
    bed_run_to(&t, 1, 1);
    for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t generation = i + 1;

        t.now_ms += cases[i].life_ms;
        (void)bed_fail(&t, 0, generation, 1, t.now_ms, 0);
        bed_tell_all(&t, 1, REPORT_STOPPED, generation + 1);
        if (cases[i].want_ms) {
            is_int((int)(t.a.wake_ms - t.now_ms), (int)cases[i].want_ms,
                   "the pause after failure %u", generation);
            (void)bed_tick(&t, cases[i].want_ms - 1);
            ok(!t.a.order, "is kept");
            (void)bed_tick(&t, 1);
        }
        ok(bed_ordered(&t, ORDER_RUN, generation + 1), "then it runs again");
    }
    lead_destroy(t.lead);
}

/* Failures that are told after the first one has been judged. */
static void test_after_judgement(void)
{
    struct lead_config config = bed_config(2);
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    t.now_ms += 100;
    (void)bed_fail(&t, 1, 1, 3, 1000, 0);
    (void)bed_fail(&t, 1, 1, 4, 900, 100);
    bed_tell_all(&t, 2, REPORT_STOPPED, 2);
    is_int(bed_note(&t, LEAD_NOTE_RESTARTING)->failure->exit_code, 4,
           "of one node what it told last of its first failure counts");
    (void)bed_tell(&t, (struct report){
        .rank = 0, .state = REPORT_STOPPED, .generation = 2, .failed = true,
        .failure = {.kind = FAILURE_EXIT, .exit_code = 5, .generation = 1,
                    .rank = 0, .wall_ns = 1, .host = "h"}});
    (void)bed_tick(&t, 1000);
    ok(bed_ordered(&t, ORDER_RUN, 2), "runs again");
    like(t.a.order->previous, "code 4", "for the reason that was given");
    lead_destroy(t.lead);

    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    (void)bed_fail(&t, 1, 1, 3, 1000, 0);
    bed_tell_all(&t, 2, REPORT_STOPPED, 2);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                           .stop = LEAD_STOP_CANCEL});
    ok(lead_verdict(t.lead)->status == 130 && !lead_verdict(t.lead)->has_cause,
       "cancelled in the pause: the failure is history");
    lead_destroy(t.lead);
}

/* Which of two failures is the cause, by clocks and by age. */
static void test_cause(void)
{
    static const struct {
        const char *name;
        uint64_t wall_ms[2];
        uint32_t age_ms[2];
        uint8_t want; /* 3: the first that is told, on node 1; 4: node 0's */
    } cases[] = {
        {"clocks agree, told late", {1000, 990}, {0, 0}, 4},
        {"clocks agree, in order", {1000, 1010}, {0, 0}, 3},
        {"a clock an hour behind", {3700000, 100000}, {0, 0}, 3},
        {"the same, but it was earlier", {3700000, 100000}, {0, 50}, 4},
        {"a clock ahead, but earlier", {1000, 500000}, {0, 50}, 4},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lead_config config = bed_config(2);
        struct bench t;

        config.restart.kind = RESTART_NEVER;
        bed_open(&t, &config);
        bed_run_to(&t, 2, 1);
        t.now_ms += 100;
        (void)bed_fail(&t, 1, 1, 3, cases[i].wall_ms[0], cases[i].age_ms[0]);
        t.now_ms += 10;
        (void)bed_fail(&t, 0, 1, 4, cases[i].wall_ms[1], cases[i].age_ms[1]);
        bed_tell_all(&t, 2, REPORT_STOPPED, 2);
        is_int(lead_verdict(t.lead)->status, cases[i].want, "%s",
               cases[i].name);
        lead_destroy(t.lead);
    }
}

/* Which is the cause by what speaks for it, whatever the clocks say. */
static void test_grades(void)
{
    static const struct {
        const char *name;
        enum failure_grade grade[2];
        uint32_t rank[2];
        uint32_t age_ms[2];
        uint8_t want; /* 3: the first that is told, 4: the second */
    } cases[] = {
        {"the one that an echo tells of comes after it",
         {FAILURE_ECHO, FAILURE_OWN}, {1, 0}, {500, 0}, 4},
        {"an echo of before is told late",
         {FAILURE_OWN, FAILURE_ECHO}, {1, 0}, {0, 500}, 3},
        {"a hint is more than an echo",
         {FAILURE_ECHO, FAILURE_HINT}, {1, 0}, {500, 0}, 4},
        {"and less than an end",
         {FAILURE_OWN, FAILURE_HINT}, {1, 0}, {0, 500}, 3},
        {"of two echoes the earlier one",
         {FAILURE_ECHO, FAILURE_ECHO}, {1, 0}, {0, 500}, 4},
        {"a node knows its own better later",
         {FAILURE_ECHO, FAILURE_OWN}, {1, 1}, {500, 0}, 4},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lead_config config = bed_config(2);
        struct bench t;

        config.restart.kind = RESTART_NEVER;
        bed_open(&t, &config);
        bed_run_to(&t, 2, 1);
        t.now_ms += 1000;
        for (int k = 0; k < 2; k++) {
            uint32_t age_ms = cases[i].age_ms[k];

            (void)bed_tell(&t, (struct report){
                .rank = cases[i].rank[k], .state = REPORT_RUNNING,
                .generation = 1, .failed = true,
                .failure = {.kind = FAILURE_EXIT, .generation = 1,
                            .exit_code = (uint8_t)(3 + k), .host = "h",
                            .grade = cases[i].grade[k],
                            .node = cases[i].rank[k], .age_ms = age_ms,
                            .wall_ns = (t.now_ms - age_ms) * 1000000}});
        }
        bed_tell_all(&t, 2, REPORT_STOPPED, 2);
        is_int(lead_verdict(t.lead)->status, cases[i].want, "%s",
               cases[i].name);
        lead_destroy(t.lead);
    }
}

/* A store that cannot be opened matters only if it would have been needed. */
static void test_obstacle(void)
{
    for (int needed = 0; needed < 2; needed++) {
        struct lead_config config = bed_config(1);
        struct bench t;

        config.restart.kind = needed ? RESTART_ON_FAILURE : RESTART_NEVER;
        bed_open(&t, &config);
        bed_run_to(&t, 1, 1);
        (void)bed_fail(&t, 0, 1, 5, 100, 0);
        (void)bed_tell(&t, (struct report){
            .state = REPORT_STOPPED, .generation = 2, .failed = true,
            .failure = {.kind = FAILURE_AGENT, .generation = 2, .rank = -1,
                        .host = "h", .text = "no port is free"}});
        is_int(lead_verdict(t.lead)->status, needed ? 1 : 5, "needed: %d",
               needed);
        like(lead_verdict(t.lead)->reason,
             needed ? "no port is free" : "code 5", "with its reason");
        is_int(lead_n_restarts(t.lead), 0, "no restart is counted");
        lead_destroy(t.lead);
    }
}

int main(void)
{
    test_restart();
    test_one_restart();
    test_codes();
    test_oom();
    test_per_node();
    test_always();
    test_backoff();
    test_after_judgement();
    test_cause();
    test_grades();
    test_obstacle();
    return tap_done();
}
