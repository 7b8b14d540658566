/* SPDX-License-Identifier: Apache-2.0 */
/* Ends that are not the job's own: lost nodes, stops, and time. */
#include <config.h>

#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

static void test_lost(void)
{
    static const char *const phases[] = {"gather", "prepare", "run"};

    for (int phase = 0; phase < 3; phase++) {
        struct lead_config config = bed_config(2);
        struct bench t;

        bed_open(&t, &config);
        (void)bed_tell(&t, (struct report){.rank = 0});
        if (phase > 0) {
            (void)bed_tell(&t, (struct report){.rank = 1});
        }
        if (phase > 1) {
            bed_tell_all(&t, 2, REPORT_STOPPED, 1);
        }
        is_str(lead_phase_name(t.lead), phases[phase], "lost in %s",
               phases[phase]);
        (void)bed_step(&t, (struct lead_event){
            .type = LEAD_LOST, .rank = 1, .text = "no heartbeat for 10 s"});
        is_int(lead_verdict(t.lead)->status, 75, "resumable");
        is_str(lead_verdict(t.lead)->reason,
               "lost node 1 (n1): no heartbeat for 10 s; 1 node is left, and the "
               "job needs 2", "with the reason");
        is_int(t.a.order->stop,
               phase == 2 ? ORDER_STOP_GRACE : ORDER_STOP_NONE, "how");
        (void)bed_tell(&t, (struct report){.rank = 0, .state = REPORT_ENDED});
        ok(t.a.finished, "does not wait for the lost one");
        lead_destroy(t.lead);
    }
}

static void test_lost_after_failure(void)
{
    struct lead_config config = bed_config(3);
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 3, 1);
    (void)bed_fail(&t, 0, 1, 1, 100, 0);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 2});
    is_str(lead_verdict(t.lead)->reason,
           "lost node 2 (node 2): no word from it; before that rank 0 (node "
           "0, h) exited with code 1; 2 nodes are left, and the job needs 3",
           "both are told");
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
        struct lead_config config = bed_config(1);
        struct bench t;

        bed_open(&t, &config);
        bed_run_to(&t, 1, 1);
        (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                               .stop = cases[i].stop,
                                               .text = "by hand"});
        ok(bed_ordered(&t, ORDER_END, 1) &&
               t.a.order->stop == ORDER_STOP_GRACE &&
               t.a.order->grace_ms == 5000 && !t.a.order->broken,
           "asks first, and the group is whole");
        is_int(t.a.order->status, cases[i].status, "stop %zu", i);
        is_str(t.a.order->reason, "by hand", "the given reason");
        (void)bed_step(&t, (struct lead_event){
            .type = LEAD_STOP, .stop = (cases[i].stop + 1) % 3});
        ok(!t.a.order, "a second one changes nothing");
        (void)bed_step(&t, (struct lead_event){
            .type = LEAD_STOP, .stop = (cases[i].stop + 1) % 3,
            .force = true});
        ok(t.a.order && t.a.order->stop == ORDER_STOP_FORCE &&
               t.a.order->status == cases[i].status,
           "force kills, with the same verdict");
        (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                               .force = true});
        ok(!t.a.order, "once");
        (void)bed_fail(&t, 0, 1, 9, 1, 0);
        is_int(lead_verdict(t.lead)->status, cases[i].status,
               "what it breaks does not matter");
        (void)bed_tick(&t, 999);
        ok(!t.a.finished, "waits for it");
        (void)bed_tick(&t, 1);
        ok(t.a.finished, "but not for ever");
        like(bed_note(&t, LEAD_NOTE_STRAGGLER)->text, "n0", "names it");
        lead_destroy(t.lead);
    }
}

/* Workers that were asked get their grace, and the margin, before LEAVE. */
static void test_grace(void)
{
    struct lead_config config = bed_config(1);
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 1, 1);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                           .stop = LEAD_STOP_PREEMPT});
    (void)bed_tick(&t, 5999);
    ok(!t.a.finished, "waits for the grace to pass");
    (void)bed_tick(&t, 1);
    ok(bed_ordered(&t, ORDER_LEAVE, 1), "and no longer");
    lead_destroy(t.lead);
}

static void test_deadline(void)
{
    struct lead_config config = bed_config(1);
    struct bench t;

    config.deadline_ms = 5000;
    bed_open(&t, &config);
    bed_run_to(&t, 1, 1);
    ok(t.a.wake_ms == 5000, "wakes for the deadline");
    t.now_ms = 4999;
    (void)bed_tick(&t, 0);
    ok(!t.a.order, "not before");
    (void)bed_tick(&t, 1);
    is_int(t.a.order->status, 124, "124");
    (void)bed_tell(&t, (struct report){.state = REPORT_ENDED, .generation = 1});
    ok(t.a.finished, "over");
    lead_destroy(t.lead);
}

static void test_late_stop(void)
{
    struct lead_config config = bed_config(2);
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    (void)bed_fail(&t, 0, 1, 1, 100, 0);
    (void)bed_tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                       .generation = 2});
    (void)bed_tick(&t, 1500);
    is_int(lead_verdict(t.lead)->status, 75, "a node that does not stop");
    like(lead_verdict(t.lead)->reason, "not ready for generation 2 in time: n1",
         "is named");
    is_int(t.a.order->stop, ORDER_STOP_FORCE, "and everything is killed");
    lead_destroy(t.lead);
}

/* The end of a run waits for what is on its way to the disk, after its last order. */
static void test_saved_late(void)
{
    struct lead_config config = bed_config(1);
    struct bench t;
    int64_t step;

    bed_open(&t, &config);
    bed_run_to(&t, 1, 1);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_STOP,
                                           .stop = LEAD_STOP_PREEMPT});
    (void)bed_tell(&t, (struct report){.state = REPORT_ENDED, .generation = 1});
    ok(t.a.finished && bed_ordered(&t, ORDER_LEAVE, 1), "a run that is over");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "ckpt/10",
                                           .step = 10, .generation = 1});
    is_str(lead_resume(t.lead, &step), "ckpt/10", "has one more checkpoint");
    ok(bed_note(&t, LEAD_NOTE_SAVED) && !t.a.order && t.a.finished, "which is noted");
    lead_destroy(t.lead);
}

int main(void)
{
    test_lost();
    test_lost_after_failure();
    test_stops();
    test_grace();
    test_deadline();
    test_late_stop();
    test_saved_late();
    return tap_done();
}
