/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/lead.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 4

/* A lead under test, what it last said, and the serials of the reports that
 * nodes have sent. */
struct bench {
    struct lead *lead;
    struct lead_actions a;
    uint64_t now_ms;
    uint64_t serial;
};

static const char *const names[MAX_NODES] = {"n0", "n1", NULL, ""};

static struct lead_config config_of(uint32_t n_nodes)
{
    return (struct lead_config){
        .n_nodes = n_nodes,
        .names = names,
        .restart = {.kind = RESTART_ON_FAILURE, .max = 2,
                    .backoff_min_ms = 1000, .backoff_max_ms = 4000},
        .gang_timeout_ms = 30000,
        .grace_ms = 5000,
        .restart_grace_ms = 500,
        .margin_ms = 1000,
    };
}

static void setup(struct bench *t, const struct lead_config *config)
{
    struct error e;

    *t = (struct bench){.now_ms = 100};
    if (lead_create(config, t->now_ms, &t->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static int step(struct bench *t, struct lead_event event)
{
    event.now_ms = t->now_ms;
    return lead_step(t->lead, &event, &t->a);
}

static int tell(struct bench *t, struct report r)
{
    r.serial = ++t->serial;
    if (!r.n_procs) {
        r.n_procs = 2;
    }
    if (r.state == REPORT_STOPPED && r.rank == 0) {
        r.store_port = 29500;
        snprintf(r.store_addr, sizeof(r.store_addr), "10.0.0.1");
    }
    return step(t, (struct lead_event){.type = LEAD_REPORT, .report = &r});
}

static void tell_all(struct bench *t, uint32_t n, enum report_state state,
                     uint32_t generation)
{
    for (uint32_t i = 0; i < n; i++) {
        (void)tell(t, (struct report){.rank = i, .state = state,
                                      .generation = generation});
    }
}

static int tick(struct bench *t, uint64_t ms)
{
    t->now_ms += ms;
    return step(t, (struct lead_event){.type = LEAD_TICK});
}

/* A worker of `rank` fails with `code`. */
static int fail(struct bench *t, uint32_t rank, uint32_t generation,
                uint8_t code, uint64_t wall_ms, uint32_t age_ms)
{
    return tell(t, (struct report){
        .rank = rank, .state = REPORT_RUNNING, .generation = generation,
        .failed = true,
        .failure = {.kind = FAILURE_EXIT, .exit_code = code,
                    .generation = generation, .node = rank,
                    .rank = (int32_t)rank * 2, .host = "h",
                    .wall_ns = wall_ms * 1000000, .age_ms = age_ms}});
}

static void run_to(struct bench *t, uint32_t n, uint32_t generation)
{
    tell_all(t, n, REPORT_JOINED, 0);
    tell_all(t, n, REPORT_STOPPED, generation);
}

static const struct lead_note *find_note(const struct bench *t,
                                         enum lead_note_type type)
{
    for (size_t i = 0; i < t->a.n_notes; i++) {
        if (t->a.notes[i].type == type) {
            return &t->a.notes[i];
        }
    }
    return NULL;
}

static bool ordered(const struct bench *t, enum order_step step_,
                    uint32_t generation)
{
    return t->a.order && t->a.order->step == step_ &&
           t->a.order->generation == generation;
}

static void test_success(void)
{
    struct lead_config config = config_of(3);
    struct bench t;

    config.resume_path = "ckpt/7";
    config.resume_step = 7;
    config.n_restarts = 1;
    config.first_generation = 5;
    setup(&t, &config);
    ok(!lead_order(t.lead) && !lead_verdict(t.lead), "nothing is said yet");
    tell_all(&t, 2, REPORT_JOINED, 0);
    ok(!t.a.order, "not while one is missing");
    ok(t.a.wake_ms == 30100, "wakes at the gang timeout");
    (void)tell(&t, (struct report){.rank = 2, .n_procs = 3});
    ok(ordered(&t, ORDER_PREPARE, 5) && t.a.order->store_rank == 0 &&
           t.a.order->stop == ORDER_STOP_NONE, "prepares when all are there");
    ok(find_note(&t, LEAD_NOTE_GATHERED) != NULL, "and says so");
    (void)tell(&t, (struct report){.rank = 1, .state = REPORT_STOPPED,
                                   .generation = 5});
    (void)tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                   .generation = 5});
    ok(!t.a.order, "does not run while one is not ready");
    (void)tell(&t, (struct report){.rank = 2, .state = REPORT_STOPPED,
                                   .generation = 5, .n_procs = 3});
    ok(ordered(&t, ORDER_RUN, 5) && t.a.order->n_nodes == 3 &&
           t.a.order->n_procs[0] == 2 && t.a.order->n_procs[2] == 3,
       "runs the processes that nodes told");
    is_str(t.a.order->master_addr, "10.0.0.1", "with the store's address");
    is_int(t.a.order->master_port, 29500, "and port");
    is_str(t.a.order->resume_path, "ckpt/7", "from the given checkpoint");
    is_int(t.a.order->n_restarts, 1, "restarts are counted on");
    is_int(t.a.order->max_restarts, 2, "of as many as there may be");
    tell_all(&t, 3, REPORT_RUNNING, 5);
    ok(find_note(&t, LEAD_NOTE_RUNNING) != NULL, "all run");
    tell_all(&t, 2, REPORT_DONE, 5);
    ok(!t.a.order && !strcmp(lead_phase_name(t.lead), "run"),
       "some are done before others");
    (void)tell(&t, (struct report){.rank = 2, .state = REPORT_DONE,
                                   .generation = 5});
    ok(ordered(&t, ORDER_END, 5) && t.a.order->status == 0 &&
           t.a.order->stop == ORDER_STOP_NONE, "END 0 when all are");
    ok(!t.a.finished, "not over yet");
    tell_all(&t, 3, REPORT_ENDED, 5);
    ok(ordered(&t, ORDER_LEAVE, 5) && t.a.finished, "LEAVE");
    is_int(t.a.order->stop, ORDER_STOP_FORCE, "with whatever is left");
    is_int(lead_verdict(t.lead)->status, 0, "success");
    ok(t.a.wake_ms == LEAD_NEVER, "nothing to wake for");
    (void)tick(&t, 1000000);
    ok(t.a.finished && !t.a.order, "stays over");
    lead_destroy(t.lead);
}

static void test_gang_timeout(void)
{
    struct lead_config config = config_of(4);
    struct bench t;

    setup(&t, &config);
    (void)tell(&t, (struct report){.rank = 1});
    (void)tick(&t, 29999);
    ok(!lead_verdict(t.lead), "waits until the timeout");
    (void)tick(&t, 1);
    is_int(lead_verdict(t.lead)->status, 69, "69");
    is_str(lead_verdict(t.lead)->reason, "3 of 4 nodes did not join within "
           "30 s: n0, node 2, node 3", "names who is missing");
    ok(ordered(&t, ORDER_END, 0), "END");
    (void)tell(&t, (struct report){.rank = 1, .state = REPORT_ENDED});
    ok(t.a.finished, "waits only for who has joined");
    lead_destroy(t.lead);
}

static void test_no_process(void)
{
    struct lead_config config = config_of(1);
    struct report r = {.serial = 1};
    struct bench t;

    setup(&t, &config);
    (void)step(&t, (struct lead_event){.type = LEAD_REPORT, .report = &r});
    is_int(lead_verdict(t.lead)->status, 1, "no process to run");
    lead_destroy(t.lead);
}

static void test_restart(void)
{
    struct lead_config config = config_of(2);
    const struct lead_note *n;
    struct bench t;

    setup(&t, &config);
    run_to(&t, 2, 1);
    t.now_ms += 3000; /* within backoff_max: quick */
    (void)fail(&t, 1, 1, 7, 500, 0);
    n = find_note(&t, LEAD_NOTE_FAILED);
    ok(n && n->failure->exit_code == 7 && n->rank == 1, "the failure is told");
    ok(ordered(&t, ORDER_PREPARE, 2) && t.a.order->grace_ms == 500 &&
           t.a.order->broken &&
           t.a.order->stop == ORDER_STOP_GRACE, "everybody stops at once");
    (void)fail(&t, 0, 1, 8, 400, 0); /* 100 ms earlier */
    tell_all(&t, 2, REPORT_STOPPED, 2);
    n = find_note(&t, LEAD_NOTE_RESTARTING);
    ok(n && n->failure->exit_code == 8, "the earlier one is the cause");
    ok(!t.a.order && t.a.wake_ms == 4100, "waits for the backoff");
    (void)tick(&t, 999);
    ok(!t.a.order, "not before its end");
    (void)tick(&t, 1);
    ok(ordered(&t, ORDER_RUN, 2), "runs again");
    is_str(t.a.order->previous, "rank 0 (node 0, h) exited with code 8",
           "knows why");
    is_int(t.a.order->n_restarts, 1, "one restart");
    t.now_ms += 4000; /* long enough to be no crash loop */
    (void)fail(&t, 1, 2, 9, 900, 0);
    tell_all(&t, 2, REPORT_STOPPED, 3);
    ok(ordered(&t, ORDER_RUN, 3), "no backoff after a long life");
    (void)fail(&t, 1, 3, 11, 950, 0);
    tell_all(&t, 2, REPORT_STOPPED, 4);
    ok(ordered(&t, ORDER_END, 4) && t.a.order->status == 11,
       "out of budget: the worker's code");
    is_str(t.a.order->reason, "rank 2 (node 1, h) exited with code 11; all 2 "
           "restarts are used up", "says so");
    ok(lead_verdict(t.lead)->has_cause &&
           lead_verdict(t.lead)->cause.exit_code == 11, "has the cause");
    is_int(lead_verdict(t.lead)->generation, 3, "of the generation that ran");
    lead_destroy(t.lead);
}

/* Policy Always: workers that end well are started again while there is budget,
 * and a failure counts as with OnFailure. */
static void test_always(void)
{
    struct lead_config config = config_of(2);
    const struct lead_note *n;
    struct bench t;

    config.restart.kind = RESTART_ALWAYS;
    setup(&t, &config);
    run_to(&t, 2, 1);
    t.now_ms += 4000; /* long enough to be no crash loop */
    tell_all(&t, 2, REPORT_DONE, 1);
    n = find_note(&t, LEAD_NOTE_AGAIN);
    ok(n && !n->failure, "all ended well: another generation");
    is_str(n ? n->text : "", "restart 1 of 2: all workers have ended, and "
           "restart.policy is Always", "says why");
    tell_all(&t, 2, REPORT_STOPPED, 2);
    ok(ordered(&t, ORDER_RUN, 2), "it runs");
    is_int(t.a.order->n_restarts, 1, "and counts as a restart");
    is_str(t.a.order->previous, "", "without a failure before it");
    (void)fail(&t, 1, 2, 9, 900, 0);
    tell_all(&t, 2, REPORT_STOPPED, 3);
    (void)tick(&t, 1000);
    ok(ordered(&t, ORDER_RUN, 3), "a failure is followed by one as well");
    tell_all(&t, 2, REPORT_DONE, 3);
    ok(ordered(&t, ORDER_END, 3) && t.a.order->status == RUN_SUCCEEDED,
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
    struct lead_config config = config_of(1);
    struct bench t;

    config.restart.max = ARRAY_SIZE(cases);
    setup(&t, &config);
    run_to(&t, 1, 1);
    for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t generation = i + 1;

        t.now_ms += cases[i].life_ms;
        (void)fail(&t, 0, generation, 1, t.now_ms, 0);
        tell_all(&t, 1, REPORT_STOPPED, generation + 1);
        if (cases[i].want_ms) {
            is_int((int)(t.a.wake_ms - t.now_ms), (int)cases[i].want_ms,
                   "the pause after failure %u", generation);
            (void)tick(&t, cases[i].want_ms - 1);
            ok(!t.a.order, "is kept");
            (void)tick(&t, 1);
        }
        ok(ordered(&t, ORDER_RUN, generation + 1), "then it runs again");
    }
    lead_destroy(t.lead);
}

/* Failures that are told after the first one has been judged. */
static void test_after_judgement(void)
{
    struct lead_config config = config_of(2);
    struct bench t;

    setup(&t, &config);
    run_to(&t, 2, 1);
    t.now_ms += 100;
    (void)fail(&t, 1, 1, 3, 1000, 0);
    (void)fail(&t, 1, 1, 4, 900, 100);
    tell_all(&t, 2, REPORT_STOPPED, 2);
    is_int(find_note(&t, LEAD_NOTE_RESTARTING)->failure->exit_code, 4,
           "of one node what it told last of its first failure counts");
    (void)tell(&t, (struct report){
        .rank = 0, .state = REPORT_STOPPED, .generation = 2, .failed = true,
        .failure = {.kind = FAILURE_EXIT, .exit_code = 5, .generation = 1,
                    .rank = 0, .wall_ns = 1, .host = "h"}});
    (void)tick(&t, 1000);
    ok(ordered(&t, ORDER_RUN, 2), "runs again");
    like(t.a.order->previous, "code 4", "for the reason that was given");
    lead_destroy(t.lead);

    setup(&t, &config);
    run_to(&t, 2, 1);
    (void)fail(&t, 1, 1, 3, 1000, 0);
    tell_all(&t, 2, REPORT_STOPPED, 2);
    (void)step(&t, (struct lead_event){.type = LEAD_STOP,
                                       .stop = LEAD_STOP_CANCEL});
    ok(lead_verdict(t.lead)->status == 130 && !lead_verdict(t.lead)->has_cause,
       "cancelled in the pause: the failure is history");
    lead_destroy(t.lead);
}

/* Worker 0 is where the first processes are, and so is the store. */
static void test_store_place(void)
{
    struct lead_config config = config_of(3);
    struct bench t;

    setup(&t, &config);
    for (uint32_t i = 0; i < 3; i++) {
        struct report r = {.rank = i, .serial = ++t.serial,
                           .n_procs = (uint16_t)(i ? 2 : 0)};

        (void)step(&t, (struct lead_event){.type = LEAD_REPORT, .report = &r});
    }
    is_int((int)t.a.order->store_rank, 1, "on the first node with processes");
    lead_destroy(t.lead);
}

/* A store of the generation before, told late. */
static void test_old_store(void)
{
    struct lead_config config = config_of(2);
    struct report old = {.rank = 1, .state = REPORT_STOPPED, .generation = 1,
                         .store_port = 666, .store_addr = "10.6.6.6"};
    struct bench t;

    setup(&t, &config);
    run_to(&t, 2, 1);
    t.now_ms += 4000;
    (void)fail(&t, 1, 1, 3, 1000, 0);
    (void)tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                   .generation = 2});
    (void)tell(&t, old);
    (void)tell(&t, (struct report){.rank = 1, .state = REPORT_STOPPED,
                                   .generation = 2});
    ok(ordered(&t, ORDER_RUN, 2), "runs again");
    is_int(t.a.order->master_port, 29500, "with the new store's port");
    is_str(t.a.order->master_addr, "10.0.0.1", "and address");
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
        struct lead_config config = config_of(2);
        struct bench t;

        config.restart.kind = RESTART_NEVER;
        setup(&t, &config);
        run_to(&t, 2, 1);
        t.now_ms += 100;
        (void)fail(&t, 1, 1, 3, cases[i].wall_ms[0], cases[i].age_ms[0]);
        t.now_ms += 10;
        (void)fail(&t, 0, 1, 4, cases[i].wall_ms[1], cases[i].age_ms[1]);
        tell_all(&t, 2, REPORT_STOPPED, 2);
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
        struct lead_config config = config_of(2);
        struct bench t;

        config.restart.kind = RESTART_NEVER;
        setup(&t, &config);
        run_to(&t, 2, 1);
        t.now_ms += 1000;
        for (int k = 0; k < 2; k++) {
            uint32_t age_ms = cases[i].age_ms[k];

            (void)tell(&t, (struct report){
                .rank = cases[i].rank[k], .state = REPORT_RUNNING,
                .generation = 1, .failed = true,
                .failure = {.kind = FAILURE_EXIT, .generation = 1,
                            .exit_code = (uint8_t)(3 + k), .host = "h",
                            .grade = cases[i].grade[k],
                            .node = cases[i].rank[k], .age_ms = age_ms,
                            .wall_ns = (t.now_ms - age_ms) * 1000000}});
        }
        tell_all(&t, 2, REPORT_STOPPED, 2);
        is_int(lead_verdict(t.lead)->status, cases[i].want, "%s",
               cases[i].name);
        lead_destroy(t.lead);
    }
}

static void test_lost(void)
{
    static const char *const phases[] = {"gather", "prepare", "run"};

    for (int phase = 0; phase < 3; phase++) {
        struct lead_config config = config_of(2);
        struct bench t;

        setup(&t, &config);
        (void)tell(&t, (struct report){.rank = 0});
        if (phase > 0) {
            (void)tell(&t, (struct report){.rank = 1});
        }
        if (phase > 1) {
            tell_all(&t, 2, REPORT_STOPPED, 1);
        }
        is_str(lead_phase_name(t.lead), phases[phase], "lost in %s",
               phases[phase]);
        (void)step(&t, (struct lead_event){
            .type = LEAD_LOST, .rank = 1, .text = "no heartbeat for 10 s"});
        is_int(lead_verdict(t.lead)->status, 75, "resumable");
        is_str(lead_verdict(t.lead)->reason,
               "lost node 1 (n1): no heartbeat for 10 s", "with the reason");
        is_int(t.a.order->stop,
               phase == 2 ? ORDER_STOP_GRACE : ORDER_STOP_NONE, "how");
        (void)tell(&t, (struct report){.rank = 0, .state = REPORT_ENDED});
        ok(t.a.finished, "does not wait for the lost one");
        lead_destroy(t.lead);
    }
}

static void test_lost_after_failure(void)
{
    struct lead_config config = config_of(3);
    struct bench t;

    setup(&t, &config);
    run_to(&t, 3, 1);
    (void)fail(&t, 0, 1, 1, 100, 0);
    (void)step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 2});
    is_str(lead_verdict(t.lead)->reason,
           "lost node 2 (node 2): no word from it; before that rank 0 (node "
           "0, h) exited with code 1", "both are told");
    is_int(lead_verdict(t.lead)->status, 75, "resumable");
    lead_destroy(t.lead);
}

static void test_stops(void)
{
    static const struct {
        enum lead_stop stop;
        int status;
    } cases[] = {{LEAD_STOP_CANCEL, 130}, {LEAD_STOP_PREEMPT, 75},
                 {LEAD_STOP_DEADLINE, 124}};

    for (size_t i = 0; i < 3; i++) {
        struct lead_config config = config_of(1);
        struct bench t;

        setup(&t, &config);
        run_to(&t, 1, 1);
        (void)step(&t, (struct lead_event){.type = LEAD_STOP,
                                           .stop = cases[i].stop,
                                           .text = "by hand"});
        ok(ordered(&t, ORDER_END, 1) &&
               t.a.order->stop == ORDER_STOP_GRACE &&
               t.a.order->grace_ms == 5000 && !t.a.order->broken,
           "asks first, and the group is whole");
        is_int(t.a.order->status, cases[i].status, "stop %zu", i);
        is_str(t.a.order->reason, "by hand", "the given reason");
        (void)step(&t, (struct lead_event){
            .type = LEAD_STOP, .stop = (cases[i].stop + 1) % 3});
        ok(!t.a.order, "a second one changes nothing");
        (void)step(&t, (struct lead_event){
            .type = LEAD_STOP, .stop = (cases[i].stop + 1) % 3,
            .force = true});
        ok(t.a.order && t.a.order->stop == ORDER_STOP_FORCE &&
               t.a.order->status == cases[i].status,
           "force kills, with the same verdict");
        (void)step(&t, (struct lead_event){.type = LEAD_STOP, .force = true});
        ok(!t.a.order, "once");
        (void)fail(&t, 0, 1, 9, 1, 0);
        is_int(lead_verdict(t.lead)->status, cases[i].status,
               "what it breaks does not matter");
        (void)tick(&t, 999);
        ok(!t.a.finished, "waits for it");
        (void)tick(&t, 1);
        ok(t.a.finished, "but not for ever");
        like(find_note(&t, LEAD_NOTE_STRAGGLER)->text, "n0", "names it");
        lead_destroy(t.lead);
    }
}

/* Workers that were asked get their grace, and the margin, before LEAVE. */
static void test_grace(void)
{
    struct lead_config config = config_of(1);
    struct bench t;

    setup(&t, &config);
    run_to(&t, 1, 1);
    (void)step(&t, (struct lead_event){.type = LEAD_STOP,
                                       .stop = LEAD_STOP_PREEMPT});
    (void)tick(&t, 5999);
    ok(!t.a.finished, "waits for the grace to pass");
    (void)tick(&t, 1);
    ok(ordered(&t, ORDER_LEAVE, 1), "and no longer");
    lead_destroy(t.lead);
}

static void test_deadline(void)
{
    struct lead_config config = config_of(1);
    struct bench t;

    config.deadline_ms = 5000;
    setup(&t, &config);
    run_to(&t, 1, 1);
    ok(t.a.wake_ms == 5000, "wakes for the deadline");
    t.now_ms = 4999;
    (void)tick(&t, 0);
    ok(!t.a.order, "not before");
    (void)tick(&t, 1);
    is_int(t.a.order->status, 124, "124");
    (void)tell(&t, (struct report){.state = REPORT_ENDED, .generation = 1});
    ok(t.a.finished, "over");
    lead_destroy(t.lead);
}

static void test_late_stop(void)
{
    struct lead_config config = config_of(2);
    struct bench t;

    setup(&t, &config);
    run_to(&t, 2, 1);
    (void)fail(&t, 0, 1, 1, 100, 0);
    (void)tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                   .generation = 2});
    (void)tick(&t, 1500);
    is_int(lead_verdict(t.lead)->status, 75, "a node that does not stop");
    like(lead_verdict(t.lead)->reason, "not ready for generation 2 in time: n1",
         "is named");
    is_int(t.a.order->stop, ORDER_STOP_FORCE, "and everything is killed");
    lead_destroy(t.lead);
}

/* A store that cannot be opened matters only if it would have been needed. */
static void test_obstacle(void)
{
    for (int needed = 0; needed < 2; needed++) {
        struct lead_config config = config_of(1);
        struct bench t;

        config.restart.kind = needed ? RESTART_ON_FAILURE : RESTART_NEVER;
        setup(&t, &config);
        run_to(&t, 1, 1);
        (void)fail(&t, 0, 1, 5, 100, 0);
        (void)tell(&t, (struct report){
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

static void test_saved(void)
{
    struct lead_config config = config_of(1);
    struct report r = {.state = REPORT_RUNNING, .generation = 1,
                       .saved_generation = 1, .saved_step = 10,
                       .saved_path = "ckpt/10"};
    struct bench t;

    setup(&t, &config);
    run_to(&t, 1, 1);
    (void)tell(&t, r);
    is_str(find_note(&t, LEAD_NOTE_SAVED)->text, "ckpt/10", "noted");
    (void)tell(&t, r);
    ok(!find_note(&t, LEAD_NOTE_SAVED), "once");
    r.saved_step = 9;
    (void)tell(&t, r);
    ok(!find_note(&t, LEAD_NOTE_SAVED), "an older step is not taken");
    (void)step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "found/12",
                                       .step = 12});
    t.now_ms += 5000;
    (void)fail(&t, 0, 1, 1, 1, 0);
    (void)tell(&t, (struct report){.state = REPORT_STOPPED, .generation = 2});
    is_str(t.a.order->resume_path, "found/12", "resumed from the newest");
    r.generation = 2;
    r.saved_step = 99;
    (void)tell(&t, r);
    ok(!find_note(&t, LEAD_NOTE_SAVED), "nothing of an older generation");
    r.saved_generation = 2;
    r.saved_step = 11;
    snprintf(r.saved_path, sizeof(r.saved_path), "ckpt/11");
    (void)tell(&t, r);
    ok(find_note(&t, LEAD_NOTE_SAVED) != NULL,
       "the newest generation counts, at whatever step");
    lead_destroy(t.lead);
}

static void test_hostile(void)
{
    struct lead_config config = config_of(2);
    struct report old = {.rank = 0, .serial = 1, .state = REPORT_JOINED};
    struct bench t;

    is_int(lead_create(&(struct lead_config){.n_nodes = 0}, 0, &t.lead, NULL),
           -EINVAL, "no nodes");
    is_int(lead_create(&(struct lead_config){.n_nodes = ORDER_MAX_NODES + 1},
                       0, &t.lead, NULL), -EINVAL, "too many");
    setup(&t, &config);
    is_int(tell(&t, (struct report){.rank = 2}), -EPROTO, "no such rank");
    is_int(tell(&t, (struct report){.rank = 1, .state = REPORT_RUNNING,
                                    .generation = 1}), -EPROTO,
           "a generation that never was");
    is_int(step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 7}),
           -EPROTO, "lost, but no such rank");
    is_int(step(&t, (struct lead_event){.type = 99}), -EPROTO, "no such event");
    run_to(&t, 2, 1);
    is_int(step(&t, (struct lead_event){.type = LEAD_REPORT, .report = &old}),
           0, "an old report");
    is_int(lead_node(t.lead, 0)->state, REPORT_STOPPED, "changes nothing");
    t.now_ms = 0;
    (void)tick(&t, 0);
    ok(!t.a.order, "nor does time that goes back");
    (void)tell(&t, (struct report){.rank = 1, .state = REPORT_JOINED});
    is_int(lead_verdict(t.lead)->status, 75, "an agent that started again");
    like(lead_verdict(t.lead)->reason, "started again", "is lost");
    (void)tell(&t, (struct report){.rank = 1, .state = REPORT_STOPPED,
                                   .generation = 1});
    ok(lead_node(t.lead, 1)->lost &&
           lead_node(t.lead, 1)->state == REPORT_STOPPED,
       "and is not heard any more");
    lead_destroy(t.lead);
}

static void test_misfit(void)
{
    struct lead_config config = config_of(2);
    struct bench t;

    setup(&t, &config);
    (void)step(&t, (struct lead_event){.type = LEAD_MISFIT,
                                       .text = "versions differ"});
    is_int(lead_verdict(t.lead)->status, 1, "misfit");
    is_str(lead_verdict(t.lead)->reason, "versions differ", "reason");
    ok(t.a.finished, "nobody to wait for");
    lead_destroy(t.lead);
}

/* Work per report does not grow with the number of nodes. */
static void test_many(void)
{
    const uint32_t n = ORDER_MAX_NODES;
    struct lead_config config = config_of(n);
    struct bench t;

    config.names = NULL;
    setup(&t, &config);
    run_to(&t, n, 1);
    ok(ordered(&t, ORDER_RUN, 1), "%u nodes run", n);
    tell_all(&t, n, REPORT_RUNNING, 1);
    tell_all(&t, n, REPORT_DONE, 1);
    tell_all(&t, n, REPORT_ENDED, 1);
    ok(t.a.finished, "and end");
    lead_destroy(t.lead);
}

int main(void)
{
    test_success();
    test_gang_timeout();
    test_no_process();
    test_restart();
    test_always();
    test_backoff();
    test_after_judgement();
    test_store_place();
    test_old_store();
    test_cause();
    test_grades();
    test_lost();
    test_lost_after_failure();
    test_stops();
    test_grace();
    test_deadline();
    test_late_stop();
    test_obstacle();
    test_saved();
    test_hostile();
    test_misfit();
    test_many();
    return tap_done();
}
