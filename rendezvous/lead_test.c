/* SPDX-License-Identifier: Apache-2.0 */
/* How a run begins and goes on, and what the lead does not believe. */
#include <config.h>

#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void test_success(void)
{
    struct lead_config config = bed_config(3);
    struct bench t;

    config.resume_path = "ckpt/7";
    config.resume_step = 7;
    config.n_restarts = 1;
    config.first_generation = 5;
    bed_open(&t, &config);
    ok(!lead_order(t.lead) && !lead_verdict(t.lead), "nothing is said yet");
    bed_tell_all(&t, 2, REPORT_JOINED, 0);
    ok(!t.a.order, "not while one is missing");
    ok(t.a.wake_ms == 30100, "wakes at the gang timeout");
    (void)bed_tell(&t, (struct report){.rank = 2, .n_procs = 3});
    ok(bed_ordered(&t, ORDER_PREPARE, 5) && t.a.order->store_rank == 0 &&
           t.a.order->stop == ORDER_STOP_NONE, "prepares when all are there");
    ok(bed_note(&t, LEAD_NOTE_GATHERED) != NULL, "and says so");
    (void)bed_tell(&t, (struct report){.rank = 1, .state = REPORT_STOPPED,
                                       .generation = 5});
    (void)bed_tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                       .generation = 5});
    ok(!t.a.order, "does not run while one is not ready");
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_STOPPED,
                                       .generation = 5, .n_procs = 3});
    ok(bed_ordered(&t, ORDER_RUN, 5) && t.a.order->n_nodes == 3 &&
           t.a.order->n_procs[0] == 2 && t.a.order->n_procs[2] == 3,
       "runs the processes that nodes told");
    is_str(t.a.order->master_addr, "10.0.0.1", "with the store's address");
    is_int(t.a.order->master_port, 29500, "and port");
    is_str(t.a.order->past.resume_path, "ckpt/7", "from the given checkpoint");
    is_int(t.a.order->past.n_restarts, 1, "restarts are counted on");
    is_int(t.a.order->max_restarts, 2, "of as many as there may be");
    bed_tell_all(&t, 3, REPORT_RUNNING, 5);
    ok(bed_note(&t, LEAD_NOTE_RUNNING) != NULL, "all run");
    bed_tell_all(&t, 2, REPORT_DONE, 5);
    ok(!t.a.order && !strcmp(lead_phase_name(t.lead), "run"),
       "some are done before others");
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_DONE,
                                       .generation = 5});
    ok(bed_ordered(&t, ORDER_END, 5) && t.a.order->status == 0 &&
           t.a.order->stop == ORDER_STOP_NONE, "END 0 when all are");
    ok(!t.a.finished, "not over yet");
    bed_tell_all(&t, 3, REPORT_ENDED, 5);
    ok(bed_ordered(&t, ORDER_LEAVE, 5) && t.a.finished, "LEAVE");
    is_int(t.a.order->stop, ORDER_STOP_FORCE, "with whatever is left");
    is_int(lead_verdict(t.lead)->status, 0, "success");
    ok(t.a.wake_ms == LEAD_NEVER, "nothing to wake for");
    (void)bed_tick(&t, 1000000);
    ok(t.a.finished && !t.a.order, "stays over");
    lead_destroy(t.lead);
}

static void test_gang_timeout(void)
{
    struct lead_config config = bed_config(4);
    struct bench t;

    bed_open(&t, &config);
    (void)bed_tell(&t, (struct report){.rank = 1});
    (void)bed_tick(&t, 29999);
    ok(!lead_verdict(t.lead), "waits until the timeout");
    (void)bed_tick(&t, 1);
    is_int(lead_verdict(t.lead)->status, 69, "69");
    is_str(lead_verdict(t.lead)->reason, "3 of 4 nodes did not join within "
           "30 s: n0, node 2, node 3", "names who is missing");
    ok(bed_ordered(&t, ORDER_END, 0), "END");
    (void)bed_tell(&t, (struct report){.rank = 1, .state = REPORT_ENDED});
    ok(t.a.finished, "waits only for who has joined");
    lead_destroy(t.lead);
}

static void test_no_process(void)
{
    struct lead_config config = bed_config(1);
    struct report r = {.serial = 1};
    struct bench t;

    bed_open(&t, &config);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_REPORT, .report = &r});
    is_int(lead_verdict(t.lead)->status, 1, "no process to run");
    lead_destroy(t.lead);
}

/* Worker 0 is where the first processes are, and so is the store. */
static void test_store_place(void)
{
    struct lead_config config = bed_config(3);
    struct bench t;

    bed_open(&t, &config);
    for (uint32_t i = 0; i < 3; i++) {
        struct report r = {.rank = i, .serial = ++t.serial,
                           .n_procs = (uint16_t)(i ? 2 : 0)};

        (void)bed_step(&t, (struct lead_event){.type = LEAD_REPORT,
                                               .report = &r});
    }
    is_int((int)t.a.order->store_rank, 1, "on the first node with processes");
    lead_destroy(t.lead);
}

/* A store of the generation before, told late. */
static void test_old_store(void)
{
    struct lead_config config = bed_config(2);
    struct report old = {.rank = 1, .state = REPORT_STOPPED, .generation = 1,
                         .store_port = 666, .store_addr = "10.6.6.6"};
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    t.now_ms += 4000;
    (void)bed_fail(&t, 1, 1, 3, 1000, 0);
    (void)bed_tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                       .generation = 2});
    (void)bed_tell(&t, old);
    (void)bed_tell(&t, (struct report){.rank = 1, .state = REPORT_STOPPED,
                                       .generation = 2});
    ok(bed_ordered(&t, ORDER_RUN, 2), "runs again");
    is_int(t.a.order->master_port, 29500, "with the new store's port");
    is_str(t.a.order->master_addr, "10.0.0.1", "and address");
    lead_destroy(t.lead);
}

static void test_saved(void)
{
    struct lead_config config = bed_config(1);
    struct report r = {.state = REPORT_RUNNING, .generation = 1,
                       .saved_generation = 1, .saved_step = 10,
                       .saved_path = "ckpt/10"};
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 1, 1);
    (void)bed_tell(&t, r);
    is_str(bed_note(&t, LEAD_NOTE_SAVED)->text, "ckpt/10", "noted");
    (void)bed_tell(&t, r);
    ok(!bed_note(&t, LEAD_NOTE_SAVED), "once");
    r.saved_step = 9;
    (void)bed_tell(&t, r);
    ok(!bed_note(&t, LEAD_NOTE_SAVED), "an older step is not taken");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED,
                                           .text = "found/12",
                                           .step = 12});
    t.now_ms += 5000;
    (void)bed_fail(&t, 0, 1, 1, 1, 0);
    (void)bed_tell(&t, (struct report){.state = REPORT_STOPPED,
                                       .generation = 2});
    is_str(t.a.order->resume_path, "found/12", "resumed from the newest");
    r.generation = 2;
    r.saved_step = 99;
    (void)bed_tell(&t, r);
    ok(!bed_note(&t, LEAD_NOTE_SAVED), "nothing of an older generation");
    r.saved_generation = 2;
    r.saved_step = 11;
    snprintf(r.saved_path, sizeof(r.saved_path), "ckpt/11");
    (void)bed_tell(&t, r);
    ok(bed_note(&t, LEAD_NOTE_SAVED) != NULL,
       "the newest generation counts, at whatever step");
    lead_destroy(t.lead);
}

/* What was told last of one step counts: by whom, and how often it is said again, does not. */
static void test_saved_again(void)
{
    struct lead_config config = bed_config(2);
    struct report r[2];
    int64_t step;
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 2, 1);
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = (struct report){.rank = i, .state = REPORT_RUNNING, .generation = 1,
                               .saved_generation = 1, .saved_step = 5};
        snprintf(r[i].saved_path, sizeof(r[i].saved_path), "ckpt/%c", 'a' + (char)i);
    }
    (void)bed_tell(&t, r[0]);
    (void)bed_tell(&t, r[1]);
    is_str(lead_resume(t.lead, &step), "ckpt/b", "told later, by another node");
    (void)bed_tell(&t, r[0]);
    ok(!bed_note(&t, LEAD_NOTE_SAVED), "what is only said again is no news");
    snprintf(r[0].saved_path, sizeof(r[0].saved_path), "ckpt/c");
    (void)bed_tell(&t, r[0]);
    (void)bed_tell(&t, r[1]);
    is_str(lead_resume(t.lead, &step), "ckpt/c", "by the one node again");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "ckpt/d", .step = 5,
                                           .generation = 1});
    is_str(lead_resume(t.lead, &step), "ckpt/c", "one that may have come before");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "ckpt/d", .step = 5,
                                           .generation = 1, .is_later = true});
    is_str(lead_resume(t.lead, &step), "ckpt/d", "one that has not");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "ckpt/d", .step = 5,
                                           .generation = 1, .is_later = true});
    ok(!bed_note(&t, LEAD_NOTE_SAVED), "once");
    t.now_ms += 5000;
    (void)bed_fail(&t, 0, 1, 1, 1, 0);
    for (uint32_t i = 0; i < 2; i++) {
        r[i].state = REPORT_STOPPED;
        r[i].generation = 2;
        (void)bed_tell(&t, r[i]);
    }
    is_str(t.a.order ? t.a.order->resume_path : "", "ckpt/d", "and the next ones start from it");
    lead_destroy(t.lead);
}

/* One that is finished by others than those who saved it, who are no more: newer than what
 * is known, and no news of the workers that run. */
static void test_saved_late(void)
{
    struct lead_config config = bed_config(1);
    struct report r = {.state = REPORT_RUNNING, .generation = 2, .saved_generation = 2,
                       .saved_step = 5, .saved_path = "ckpt/5"};
    int64_t step;
    struct bench t;

    bed_open(&t, &config);
    bed_run_to(&t, 1, 1);
    t.now_ms += 5000;
    (void)bed_fail(&t, 0, 1, 1, 1, 0);
    (void)bed_tell(&t, (struct report){.state = REPORT_STOPPED, .generation = 2});
    ok(bed_ordered(&t, ORDER_RUN, 2), "others run");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "ckpt/10",
                                           .step = 10, .generation = 1});
    is_str(lead_resume(t.lead, &step), "ckpt/10", "what is finished late counts");
    is_int((int)bed_note(&t, LEAD_NOTE_SAVED)->generation, 1, "for those who saved it");
    (void)bed_tell(&t, r);
    is_str(lead_resume(t.lead, &step), "ckpt/5", "those that run have one of their own");
    is_int((int)bed_note(&t, LEAD_NOTE_SAVED)->generation, 2, "which is theirs");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "ckpt/20",
                                           .step = 20, .generation = 1});
    ok(!bed_note(&t, LEAD_NOTE_SAVED), "and comes after all that others have");
    lead_destroy(t.lead);
}

/* Older than what is known, or nothing: whoever has looked at them says so. */
static void test_chosen(void)
{
    struct lead_config config = bed_config(1);
    int64_t step = 0;
    struct bench t;

    config.resume_path = "ckpt/10";
    config.resume_step = 10;
    bed_open(&t, &config);
    bed_run_to(&t, 1, 1);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_CHOSEN,
                                           .text = "found/8", .step = 8});
    ok(!t.a.order && !bed_note(&t, LEAD_NOTE_SAVED), "nothing was saved");
    is_str(lead_resume(t.lead, &step), "found/8", "an older one is taken");
    is_int((int)step, 8, "with its step");
    is_str(lead_order(t.lead)->past.resume_path, "found/8", "into the order");
    is_str(lead_order(t.lead)->resume_path, "found/8", "and for its workers");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_CHOSEN, .text = "",
                                           .step = -1});
    is_str(lead_resume(t.lead, &step), "", "or nothing");
    t.now_ms += 5000;
    (void)bed_fail(&t, 0, 1, 1, 1, 0);
    (void)bed_tell(&t, (struct report){.state = REPORT_STOPPED,
                                       .generation = 2});
    is_str(t.a.order->past.resume_path, "", "from which the next ones start");
    lead_destroy(t.lead);
}

static void test_hostile(void)
{
    struct lead_config config = bed_config(2);
    struct report old = {.rank = 0, .serial = 1, .state = REPORT_JOINED};
    struct bench t;

    is_int(lead_create(&(struct lead_config){.n_nodes = 0}, 0, &t.lead, NULL),
           -EINVAL, "no nodes");
    is_int(lead_create(&(struct lead_config){.n_nodes = ORDER_MAX_NODES + 1},
                       0, &t.lead, NULL), -EINVAL, "too many");
    bed_open(&t, &config);
    is_int(bed_tell(&t, (struct report){.rank = 2}), -EPROTO, "no such rank");
    is_int(bed_tell(&t, (struct report){.rank = 1, .state = REPORT_RUNNING,
                                        .generation = 1}), -EPROTO,
           "a generation that never was");
    is_int(bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 7}),
           -EPROTO, "lost, but no such rank");
    is_int(bed_step(&t, (struct lead_event){.type = 99}), -EPROTO,
           "no such event");
    bed_run_to(&t, 2, 1);
    is_int(bed_step(&t, (struct lead_event){.type = LEAD_REPORT,
                                            .report = &old}),
           0, "an old report");
    is_int(lead_node(t.lead, 0)->state, REPORT_STOPPED, "changes nothing");
    t.now_ms = 0;
    (void)bed_tick(&t, 0);
    ok(!t.a.order, "nor does time that goes back");
    (void)bed_tell(&t, (struct report){.rank = 1, .state = REPORT_JOINED});
    is_int(lead_verdict(t.lead)->status, 75, "an agent that started again");
    like(lead_verdict(t.lead)->reason, "started again", "is lost");
    (void)bed_tell(&t, (struct report){.rank = 1, .state = REPORT_STOPPED,
                                       .generation = 1});
    ok(lead_node(t.lead, 1)->lost &&
           lead_node(t.lead, 1)->state == REPORT_STOPPED,
       "and is not heard any more");
    lead_destroy(t.lead);
}

static void test_misfit(void)
{
    struct lead_config config = bed_config(2);
    struct bench t;

    bed_open(&t, &config);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_MISFIT,
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
    struct lead_config config = bed_config(n);
    struct bench t;

    config.names = NULL;
    bed_open(&t, &config);
    bed_run_to(&t, n, 1);
    ok(bed_ordered(&t, ORDER_RUN, 1), "%u nodes run", n);
    bed_tell_all(&t, n, REPORT_RUNNING, 1);
    bed_tell_all(&t, n, REPORT_DONE, 1);
    bed_tell_all(&t, n, REPORT_ENDED, 1);
    ok(t.a.finished, "and end");
    lead_destroy(t.lead);
}

int main(void)
{
    test_success();
    test_gang_timeout();
    test_no_process();
    test_store_place();
    test_old_store();
    test_saved();
    test_saved_again();
    test_saved_late();
    test_chosen();
    test_hostile();
    test_misfit();
    test_many();
    return tap_done();
}
