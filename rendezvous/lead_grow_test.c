/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes for a run that is well: newcomers, commands, exclusion. */
#include <config.h>

#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>

enum { INTERVAL_MS = 60000 };

/* One to four of `n` nodes take part. */
static struct lead_config elastic(uint32_t n)
{
    struct lead_config c = bed_config(n);

    c.min_nodes = 1;
    c.max_nodes = 4;
    c.max_losses = 3;
    c.lease_ms = 10000;
    c.lease_slack_ms = 200;
    c.grow_interval_ms = INTERVAL_MS;
    return c;
}

/* Of those that take part in it. */
static void running(struct bench *t, uint32_t generation)
{
    for (uint32_t i = 0; i < BED_MAX_NODES; i++) {
        const struct order *o = lead_order(t->lead);

        if (i < o->n_nodes && o->n_procs[i]) {
            (void)bed_tell(t, (struct report){.rank = i,
                                              .state = REPORT_RUNNING,
                                              .generation = generation});
        }
    }
}

static void open_running(struct bench *t, const struct lead_config *config)
{
    bed_open(t, config);
    bed_run_to(t, config->n_nodes, 1);
    t->now_ms += 1000;
    running(t, 1);
    t->now_ms += 100000;
}

static void save(struct bench *t, uint32_t generation, int64_t step)
{
    struct report r = {.rank = 0, .state = REPORT_RUNNING,
                       .generation = generation,
                       .saved_generation = generation, .saved_step = step};

    snprintf(r.saved_path, sizeof(r.saved_path), "ckpt/%d", (int)step);
    (void)bed_tell(t, r);
}

/* One more agent, of the rank that is next. */
static void come(struct bench *t, uint32_t rank)
{
    if (lead_add_nodes(t->lead, rank + 1, NULL, NULL) < 0) {
        bail_out("out of memory");
    }
    (void)bed_tell(t, (struct report){.rank = rank, .state = REPORT_JOINED});
}

static int scale(struct bench *t, uint32_t n)
{
    return bed_step(t, (struct lead_event){.type = LEAD_SCALE, .n_nodes = n});
}

static int exclude(struct bench *t, uint32_t rank)
{
    return bed_step(t, (struct lead_event){.type = LEAD_EXCLUDE, .rank = rank,
                                           .why = EXCLUSION_SLOW, .text = "slow"});
}

static void test_newcomer(void)
{
    struct lead_config config = elastic(2);
    struct bench t;

    open_running(&t, &config);
    save(&t, 1, 10);
    come(&t, 2);
    ok(!t.a.order && t.a.ask_checkpoint,
       "a newcomer: all are asked to save, and go on");
    like(bed_note(&t, LEAD_NOTE_CHANGE)->text, "after the next checkpoint, or "
         "restart, node 2 comes in", "which is told");
    (void)bed_tick(&t, 10 * INTERVAL_MS);
    ok(!t.a.order && !t.a.ask_checkpoint, "without a newer one nothing "
       "happens, however long");
    save(&t, 1, 11);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->stop == ORDER_STOP_GRACE,
       "after one they are stopped");
    ok(t.a.order->grace_ms == 5000 && !t.a.order->broken,
       "with time to save together");
    bed_tell_all(&t, 3, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[2] == 2,
       "then it takes part");
    is_str(t.a.order->previous, "3 nodes: node 2 comes in", "and all know why");
    ok(t.a.order->past.n_restarts == 0 && t.a.order->past.resume_step == 11 &&
           lead_n_losses(t.lead) == 0, "it counts in no budget");
    running(&t, 2);
    come(&t, 3);
    ok(!t.a.ask_checkpoint && t.a.wake_ms > t.now_ms + INTERVAL_MS / 2,
       "the next one waits for growInterval");
    save(&t, 2, 12);
    ok(!t.a.order, "whatever is saved");
    (void)bed_tick(&t, INTERVAL_MS);
    ok(t.a.ask_checkpoint, "then for a checkpoint");
    save(&t, 2, 13);
    ok(bed_ordered(&t, ORDER_PREPARE, 3), "and comes");
    lead_destroy(t.lead);
}

/* Its lead came when one that lives was in no MPI world: where it is becomes known
 * with a later one. */
static void test_known_late(void)
{
    static const uint32_t node_of[] = {0, LEAD_NO_NODE, 2};
    struct lead_config config = elastic(3);
    struct bench t;

    config.node_of = node_of;
    open_running(&t, &config);
    save(&t, 1, 10);
    ok(!t.a.ask_checkpoint && lead_order(t.lead)->n_procs[1] == 0,
       "an agent of which no node is known takes no part");
    ok(lead_add_nodes(t.lead, 3, NULL, NULL) == 0, "it becomes known, and nobody else");
    (void)bed_tick(&t, INTERVAL_MS);
    ok(t.a.ask_checkpoint, "then it is as a newcomer is");
    save(&t, 1, 11);
    ok(bed_ordered(&t, ORDER_PREPARE, 2), "which comes in after a checkpoint");
    bed_tell_all(&t, 3, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[1] == 2, "and takes part");
    lead_destroy(t.lead);
}

static void test_restart_takes_in(void)
{
    struct lead_config config = elastic(2);
    struct bench t;

    open_running(&t, &config);
    come(&t, 2);
    (void)bed_fail(&t, 0, 1, 3, 900, 0);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->broken &&
           t.a.order->grace_ms == 500, "a failure stops all as ever");
    bed_tell_all(&t, 3, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[2] == 2,
       "and a restart takes a newcomer in");
    is_int(t.a.order->past.n_restarts, 1, "of a failure, which is counted");
    lead_destroy(t.lead);
}

/* A node is lost while all stop for a newcomer. */
static void test_loss_meanwhile(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    open_running(&t, &config);
    (void)scale(&t, 2);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && !t.a.order->broken, "fewer nodes");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 1,
                                           .dead = true, .text = "closed"});
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->broken &&
           t.a.order->grace_ms == 500,
       "one is lost: what the others wait for together is broken");
    (void)bed_tell(&t, (struct report){.rank = 0, .state = REPORT_STOPPED,
                                       .generation = 2});
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_STOPPED,
                                       .generation = 2});
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[2] == 2,
       "the one that was to go has to stay");
    lead_destroy(t.lead);
}

static void test_scale(void)
{
    struct lead_config config = elastic(4);
    struct bench t;

    config.min_nodes = 2;
    open_running(&t, &config);
    is_int(scale(&t, 1), -ERANGE, "fewer than the job needs are refused");
    is_int(scale(&t, 5), -ERANGE, "and more than it may have");
    ok(!t.a.order && lead_size(t.lead).want == 4, "nothing comes of that");
    is_int(scale(&t, 2), 0, "two are enough");
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && !t.a.order->broken &&
           t.a.order->grace_ms == 5000, "a command waits for no checkpoint, "
       "but workers may save");
    bed_tell_all(&t, 4, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[0] &&
           t.a.order->n_procs[1] && !t.a.order->n_procs[2] &&
           !t.a.order->n_procs[3], "the last ones go");
    running(&t, 2);
    (void)bed_tick(&t, 100);
    ok(!t.a.order, "and wait");
    (void)scale(&t, 2);
    ok(!t.a.order, "the same again changes nothing");
    (void)scale(&t, 3);
    ok(bed_ordered(&t, ORDER_PREPARE, 3), "until more are wanted, at any time");
    bed_tell_all(&t, 4, REPORT_STOPPED, 3);
    is_str(t.a.order->previous, "3 nodes: node 2 comes in", "which is told");
    lead_destroy(t.lead);
}

/* Those that a command wants have yet to come. */
static void test_scale_up(void)
{
    struct lead_config config = elastic(2);
    struct bench t;

    config.want_nodes = 2;
    open_running(&t, &config);
    (void)scale(&t, 4);
    ok(!t.a.order, "more are wanted than there are");
    t.now_ms += 5000;
    come(&t, 2);
    ok(!t.a.order && t.a.wake_ms == t.now_ms + 2000, "one comes: others are "
       "waited for, not long");
    come(&t, 3);
    ok(bed_ordered(&t, ORDER_PREPARE, 2), "all are there: now");
    bed_tell_all(&t, 4, REPORT_STOPPED, 2);
    running(&t, 2);
    (void)scale(&t, 2);
    bed_tell_all(&t, 4, REPORT_STOPPED, 3);
    running(&t, 3);
    (void)scale(&t, 4);
    bed_tell_all(&t, 3, REPORT_STOPPED, 4);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 3,
                                           .dead = true, .text = "closed"});
    ok(bed_ordered(&t, ORDER_RUN, 4) && t.a.order->n_procs[2],
       "one of two is lost at once: the other comes in");
    running(&t, 4);
    t.now_ms += 2 * INTERVAL_MS;
    come(&t, 4);
    ok(!t.a.order && t.a.ask_checkpoint,
       "the command is done: who comes later waits for a checkpoint");
    lead_destroy(t.lead);
}

static void test_exclusion(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    config.min_nodes = 2;
    config.max_nodes = 2;
    open_running(&t, &config);
    is_int(exclude(&t, 0), 0, "a slow node is left out, where a spare waits");
    is_str(bed_note(&t, LEAD_NOTE_EXCLUDED)->text, "excluded node 0 (n0): slow",
           "which is told");
    is_int(lead_node(t.lead, 0)->excluded, EXCLUSION_SLOW, "and known");
    ok(!t.a.order && t.a.ask_checkpoint, "but not before a checkpoint");
    save(&t, 1, 5);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->store_rank == 1,
       "then it goes");
    (void)bed_tell(&t, (struct report){
        .rank = 1, .state = REPORT_STOPPED, .generation = 2,
        .store_port = 7, .store_addr = "10.0.0.2"});
    bed_tell_all(&t, 1, REPORT_STOPPED, 2);
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_STOPPED,
                                       .generation = 2});
    ok(bed_ordered(&t, ORDER_RUN, 2) && !t.a.order->n_procs[0] &&
           t.a.order->n_procs[1] && t.a.order->n_procs[2],
       "and the spare is in its place");
    is_int(exclude(&t, 1), -ENOENT, "not another: too few would be left");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 2,
                                           .dead = true, .text = "closed"});
    ok(bed_ordered(&t, ORDER_END, 2) && t.a.order->status == RUN_RESUMABLE,
       "one that is excluded does not help out either");
    lead_destroy(t.lead);
}

/* One that all others wait for. */
static void test_readmission(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    config.min_nodes = 2;
    config.max_nodes = 3;
    open_running(&t, &config);
    is_int(bed_step(&t, (struct lead_event){.type = LEAD_EXCLUDE, .rank = 1,
                                            .force = true, .text = "hangs"}), 0,
           "a node for which all wait is left out");
    t.now_ms += 2000;
    (void)bed_step(&t, (struct lead_event){.type = LEAD_TICK});
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && !t.a.ask_checkpoint,
       "at once, and nobody waits for a checkpoint");
    bed_tell_all(&t, 3, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[0] &&
           !t.a.order->n_procs[1] && t.a.order->n_procs[2], "the others go on");
    running(&t, 2);
    is_int(bed_step(&t, (struct lead_event){.type = LEAD_READMIT, .rank = 2}), 0,
           "one that is not excluded cannot be readmitted");
    ok(!bed_note(&t, LEAD_NOTE_READMITTED), "which says nothing");
    is_int(bed_step(&t, (struct lead_event){.type = LEAD_READMIT, .rank = 9}),
           -EPROTO, "nor one that there is not");
    t.now_ms += 2 * INTERVAL_MS;
    (void)bed_step(&t, (struct lead_event){.type = LEAD_READMIT, .rank = 1});
    is_str(bed_note(&t, LEAD_NOTE_READMITTED)->text, "node 1 (n1) may be used again",
           "the one that is can be, which is told");
    ok(!lead_node(t.lead, 1)->excluded && !t.a.order && t.a.ask_checkpoint,
       "and comes in like others that wait");
    save(&t, 2, 5);
    ok(bed_ordered(&t, ORDER_PREPARE, 3), "after a checkpoint");
    bed_tell_all(&t, 3, REPORT_STOPPED, 3);
    ok(bed_ordered(&t, ORDER_RUN, 3) && t.a.order->n_procs[1] &&
           t.a.order->past.n_marks == 0, "with its workers, and nothing against it");
    lead_destroy(t.lead);
}

static int misfit(struct bench *t, uint32_t rank)
{
    return bed_step(t, (struct lead_event){.type = LEAD_MISFIT, .rank = rank,
                                           .text = "there is no GPU"});
}

/* One more agent, on a node that does not fit the job. */
static void come_unfit(struct bench *t, uint32_t rank)
{
    if (lead_add_nodes(t->lead, rank + 1, NULL, NULL) < 0) {
        bail_out("out of memory");
    }
    is_int(misfit(t, rank), 0, "node %u does not fit", rank);
}

static void test_misfit(void)
{
    static const uint32_t node_of[] = {0, 1, LEAD_NO_NODE, 3};
    struct lead_config config = elastic(2);
    const struct lead_note *note;
    struct bench t;

    open_running(&t, &config);
    come_unfit(&t, 2);
    note = bed_note(&t, LEAD_NOTE_EXCLUDED);
    is_str(note ? note->text : "", "excluded node 2 (node 2): there is no "
           "GPU", "a newcomer that does not fit is left out, in words");
    ok(bed_ordered(&t, ORDER_RUN, 1) && t.a.order->past.n_marks == 1 &&
           t.a.order->past.marks[0].excluded == EXCLUSION_MISFIT,
       "the run goes on, and an order tells it");
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_JOINED});
    ok(!t.a.order && !t.a.ask_checkpoint, "nothing is changed for it");
    is_int(misfit(&t, 2), 0, "once more");
    ok(!bed_note(&t, LEAD_NOTE_EXCLUDED) && !t.a.order, "is no news");
    is_int(misfit(&t, 9), -EPROTO, "of one that there is not");
    (void)bed_fail(&t, 1, 1, 11, 900, 0);
    bed_tell_all(&t, 3, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[1] && !t.a.order->n_procs[2],
       "nor does a restart take it in");
    running(&t, 2);
    t.now_ms += 2 * INTERVAL_MS;
    (void)lead_add_nodes(t.lead, 4, NULL, node_of);
    (void)bed_tell(&t, (struct report){.rank = 3, .state = REPORT_JOINED});
    ok(t.a.ask_checkpoint, "a later agent of that host may come in");
    lead_destroy(t.lead);
}

static void test_misfit_is_no_help(void)
{
    struct lead_config config = elastic(2);
    struct bench t;

    config.min_nodes = 2;
    open_running(&t, &config);
    come_unfit(&t, 2);
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_JOINED});
    (void)bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 1,
                                           .dead = true, .text = "closed"});
    ok(bed_ordered(&t, ORDER_END, 1) && t.a.order->status == RUN_RESUMABLE,
       "where too few are left, one that does not fit is no help");
    is_str(lead_verdict(t.lead)->reason, "lost node 1 (node 1): closed; 1 node is left, and "
           "the job needs 2", "which is said as of any loss");
    lead_destroy(t.lead);
}

/* A node whose workers fail again and again. */
static void test_weary(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    config.restart.max_per_node = 1;
    config.restart.max = 9;
    config.min_nodes = config.max_nodes = 2;
    open_running(&t, &config);
    for (uint32_t g = 1; g <= 2; g++) {
        t.now_ms += 4000;
        (void)bed_fail(&t, 1, g, 11, 900 + g, 0);
        bed_tell_all(&t, 3, REPORT_STOPPED, g + 1);
    }
    ok(bed_ordered(&t, ORDER_RUN, 3) && t.a.order->n_procs[0] &&
           !t.a.order->n_procs[1] && t.a.order->n_procs[2],
       "it is excluded, and a spare takes its place");
    is_int(lead_node(t.lead, 1)->excluded, EXCLUSION_CAUSE, "for what it has failed of");
    is_str(bed_note(&t, LEAD_NOTE_EXCLUDED)->text, "excluded node 1 (n1): it "
           "was the cause 2 times, and restart.maxPerNode is 1", "which says "
           "why");
    is_int(t.a.order->past.n_restarts, 2, "the restarts are counted");
    ok(lead_node(t.lead, 1)->excluded && !lead_node(t.lead, 2)->excluded,
       "it alone");
    lead_destroy(t.lead);
}

static void test_never(void)
{
    struct lead_config config = elastic(2);
    struct bench t;

    config.restart.kind = RESTART_NEVER;
    open_running(&t, &config);
    save(&t, 1, 1);
    come(&t, 2);
    save(&t, 1, 2);
    ok(!t.a.order && !t.a.ask_checkpoint, "restart.policy Never: a newcomer "
       "waits for ever");
    lead_destroy(t.lead);
}

int main(void)
{
    test_newcomer();
    test_known_late();
    test_restart_takes_in();
    test_loss_meanwhile();
    test_scale();
    test_scale_up();
    test_exclusion();
    test_readmission();
    test_misfit();
    test_misfit_is_no_help();
    test_weary();
    test_never();
    return tap_done();
}
