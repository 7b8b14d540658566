/* SPDX-License-Identifier: Apache-2.0 */
/* What passes from one lead to the next: how a new one begins, and what orders say so
 * that it can. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/view_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

enum { N = VIEW_BED_N };

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
    struct lead_config config = view_bed_config(2);
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
    view_bed_say(&t, 1, REPORT_STOPPED, 7, 5);
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
    view_bed_say(&t, 1, REPORT_STOPPED, 7, 5);
    view_bed_say(&t, 2, REPORT_STOPPED, 7, 5);
    ok(!t.a.order, "who is back, and has not told where it stands, is waited for");
    view_bed_say(&t, 3, REPORT_STOPPED, 7, 5);
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
    view_bed_say(&t, 1, REPORT_STOPPED, 2, 5);
    view_bed_say(&t, 2, REPORT_STOPPED, 2, 5);
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
    struct lead_config config = view_bed_config(2);
    struct bench t;

    config.rank = 1;
    config.heritage = &h;
    bed_open(&t, &config);
    bed_tick(&t, 0);
    for (uint32_t i = 1; i < N; i++) {
        view_bed_say(&t, i, REPORT_STOPPED, 7, 5);
    }
    ok(bed_ordered(&t, ORDER_RUN, 7) && t.a.order->n_procs[1] &&
           !t.a.order->n_procs[2] && t.a.order->n_procs[3],
       "who was excluded under another lead stays that");
    ok(t.a.order->past.n_marks == 1 && t.a.order->past.marks[0].excluded == EXCLUSION_HANGS,
       "and under the next, for what it was");
    lead_destroy(t.lead);
}

/* Nobody waits for the lease of who has no workers, wherever it is. */
static void test_inherit_idle(void)
{
    static const bool follows[N] = {false, true, true, false};
    static const bool dead[N] = {true, false, false, false};
    static const uint16_t n_procs[N] = {2, 2, 2, 0};
    uint32_t out[] = {0, 3};
    bool idle[N] = {false, false, false, true};
    struct heritage h = {
        .view = {.number = 5, .lead = 1, .n_nodes = N, .shared = true,
                 .n_out = 2, .out = out},
        .generation = 6, .follows = follows, .dead = dead, .n_nodes = N,
        .n_procs = n_procs, .n_procs_len = N, .clear_ms = 900, .idle = idle,
        .past = {.ran = 6}};
    struct lead_config config = view_bed_config(2);
    struct bench t;

    config.rank = 1;
    config.heritage = &h;
    for (int is_idle = 1; is_idle >= 0; is_idle--) {
        idle[3] = is_idle;
        bed_open(&t, &config);
        bed_tick(&t, 0);
        view_bed_say(&t, 1, REPORT_STOPPED, 7, 5);
        view_bed_say(&t, 2, REPORT_STOPPED, 7, 5);
        ok(is_idle ? bed_ordered(&t, ORDER_RUN, 7) : !t.a.order && t.a.wake_ms == 900,
           is_idle ? "who is idle elsewhere is not waited for"
           : "who may not be is, also where it had no part in what was heard of");
        lead_destroy(t.lead);
    }
}

/* One is lost, and the others run on: whoever leads next finds no member that it would
 * wait for, where the lead has seen that it has ended. */
static void test_departed(void)
{
    static const struct {
        const char *what;
        bool dead, shared;
    } cases[] = {
        {"who has ended is taken out of the view", true, true},
        {"who is silent is not: it may come back", false, true},
        {"nor anybody where a majority decides", true, false},
    };
    struct bench t;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool is_out = cases[i].dead && cases[i].shared;

        view_bed_open(&t, 2, cases[i].shared);
        (void)bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 3,
                                               .dead = cases[i].dead, .text = "gone"});
        view_bed_say_each(&t, 3, REPORT_STOPPED, 2, 1);
        if (!cases[i].dead) {
            bed_tick(&t, VIEW_BED_LEASE_MS + VIEW_BED_SLACK_MS);
        }
        ok(bed_ordered(&t, ORDER_RUN, 2), "the others run");
        ok(is_out ? t.a.claim && !view_has(t.a.claim, 3) && view_has(t.a.claim, 2)
                  : !t.a.claim && lead_view(t.lead)->number == 1, "%s", cases[i].what);
        if (is_out) {
            view_bed_answer(&t, HEIR_WON);
            ok(bed_ordered(&t, ORDER_RUN, 2) && !view_has(&t.a.order->view, 3),
               "and they run on");
            bed_tick(&t, 1);
            ok(!t.a.claim, "once");
        }
        lead_destroy(t.lead);
    }
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

    view_bed_open(&t, 2, true);
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
    view_bed_answer(&t, HEIR_WON);
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
    test_inherit();
    test_inherit_excluded();
    test_inherit_idle();
    test_departed();
    return tap_done();
}
