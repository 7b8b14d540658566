/* SPDX-License-Identifier: Apache-2.0 */
/* Lost nodes, and how the run goes on: with fewer, with spares, with newcomers. */
#include <config.h>

#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

enum { LEASE_MS = 10000, SLACK_MS = 200 };

/* Two to three of `n` nodes take part. */
static struct lead_config elastic(uint32_t n)
{
    struct lead_config c = bed_config(n);

    c.min_nodes = 2;
    c.max_nodes = 3;
    c.max_losses = 3;
    c.lease_ms = LEASE_MS;
    c.lease_slack_ms = SLACK_MS;
    return c;
}

static void lose(struct bench *t, uint32_t rank, bool dead, uint64_t quiet_ms)
{
    (void)bed_step(t, (struct lead_event){
        .type = LEAD_LOST, .rank = rank, .dead = dead, .quiet_ms = quiet_ms,
        .text = dead ? "closed" : "silent"});
}

static void stopped(struct bench *t, uint32_t rank, uint32_t generation)
{
    (void)bed_tell(t, (struct report){.rank = rank, .state = REPORT_STOPPED,
                                      .generation = generation});
}

static void open_running(struct bench *t, const struct lead_config *config)
{
    bed_open(t, config);
    bed_run_to(t, config->n_nodes, 1);
    t->now_ms += 100000;
}

static void test_shrink(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    open_running(&t, &config);
    lose(&t, 1, true, 0);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->broken &&
           t.a.order->n_gone == 1 && t.a.order->gone[0] == 1,
       "a node dies: the others stop, and read who is gone");
    is_str(bed_note(&t, LEAD_NOTE_LOST)->text, "lost node 1 (n1): closed",
           "which is told");
    ok(bed_note(&t, LEAD_NOTE_AGAIN) != NULL, "and that the run goes on");
    stopped(&t, 0, 2);
    ok(!t.a.order, "not before all others have stopped");
    stopped(&t, 2, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_nodes == 3 &&
           t.a.order->n_procs[0] == 2 && t.a.order->n_procs[1] == 0 &&
           t.a.order->n_procs[2] == 2, "then they run without it, at once");
    is_str(t.a.order->previous, "lost node 1 (n1): closed", "and know why");
    is_int(t.a.order->past.n_restarts, 0, "it is no restart");
    is_int(lead_n_losses(t.lead), 1, "but a loss");
    bed_tell_all(&t, 1, REPORT_DONE, 2);
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_DONE,
                                       .generation = 2});
    is_int(lead_verdict(t.lead)->status, 0, "two can succeed");
    lead_destroy(t.lead);
}

static void test_silent(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    open_running(&t, &config);
    lose(&t, 2, false, 4000);
    stopped(&t, 0, 2);
    stopped(&t, 1, 2);
    ok(!t.a.order && t.a.wake_ms == t.now_ms + 6000 + SLACK_MS,
       "a silent one may run until its lease is over");
    (void)bed_tick(&t, 6000 + SLACK_MS - 1);
    ok(!t.a.order, "which is waited for");
    (void)bed_tick(&t, 1);
    ok(bed_ordered(&t, ORDER_RUN, 2), "and no longer");
    lose(&t, 1, false, LEASE_MS + SLACK_MS);
    ok(lead_verdict(t.lead)->status == 75, "below the least number: the end");
    is_str(lead_verdict(t.lead)->reason, "lost node 1 (n1): silent; 1 node is "
           "left, and the job needs 2", "which says why");
    lead_destroy(t.lead);
}

/* It was only away. */
static void test_back(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    open_running(&t, &config);
    lose(&t, 2, false, 4000);
    stopped(&t, 0, 2);
    stopped(&t, 1, 2);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 2});
    ok(bed_note(&t, LEAD_NOTE_BACK) != NULL, "one that is heard of again");
    (void)bed_tick(&t, LEASE_MS);
    ok(!t.a.order, "is waited for, however long its lease is over");
    stopped(&t, 2, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[2] == 2,
       "and has its place again");
    lose(&t, 2, false, 0);
    (void)bed_tick(&t, LEASE_MS + SLACK_MS);
    (void)bed_step(&t, (struct lead_event){.type = LEAD_HERE, .rank = 2});
    ok(!bed_note(&t, LEAD_NOTE_BACK), "one whose lease is over is not back");
    stopped(&t, 2, 3);
    ok(bed_note(&t, LEAD_NOTE_BACK) != NULL,
       "unless it shows that it is none of those that go");
    lead_destroy(t.lead);
}

static void test_spare(void)
{
    struct lead_config config = elastic(4);
    struct bench t;

    config.min_nodes = 3;
    open_running(&t, &config);
    is_int(lead_order(t.lead)->n_procs[3], 0, "the fourth is a spare");
    bed_tell_all(&t, 3, REPORT_RUNNING, 1);
    ok(bed_note(&t, LEAD_NOTE_RUNNING) != NULL, "that nobody waits for");
    lose(&t, 0, true, 0);
    is_int(t.a.order->store_rank, 1, "the store moves with worker 0");
    stopped(&t, 2, 2);
    stopped(&t, 3, 2);
    (void)bed_tell(&t, (struct report){
        .rank = 1, .state = REPORT_STOPPED, .generation = 2,
        .store_port = 7, .store_addr = "10.0.0.2"});
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[0] == 0 &&
           t.a.order->n_procs[3] == 2, "it takes the place of one");
    is_str(t.a.order->master_addr, "10.0.0.2", "with the new store");
    lose(&t, 3, true, 0);
    is_int(lead_verdict(t.lead)->status, 75, "and there is no other");
    lead_destroy(t.lead);
}

static void test_lost_spare(void)
{
    struct lead_config config = elastic(4);
    struct bench t;

    open_running(&t, &config);
    lose(&t, 3, true, 0);
    ok(!t.a.order && bed_note(&t, LEAD_NOTE_LOST) != NULL,
       "a spare that goes disturbs nobody");
    is_int(lead_n_losses(t.lead), 0, "and is no loss");
    (void)bed_tell(&t, (struct report){.rank = 1, .state = REPORT_DONE,
                                       .generation = 1});
    lose(&t, 1, true, 0);
    ok(!t.a.order, "nor does one that had done its work");
    (void)bed_tell(&t, (struct report){.rank = 0, .state = REPORT_DONE,
                                       .generation = 1});
    (void)bed_tell(&t, (struct report){.rank = 2, .state = REPORT_DONE,
                                       .generation = 1});
    is_int(lead_verdict(t.lead)->status, 0, "success");
    lead_destroy(t.lead);
}

static void test_twice(void)
{
    struct lead_config config = elastic(4);
    struct bench t;

    config.min_nodes = 1;
    open_running(&t, &config);
    lose(&t, 1, true, 0);
    stopped(&t, 2, 2);
    lose(&t, 2, false, 0);
    ok(bed_ordered(&t, ORDER_PREPARE, 2) && t.a.order->n_gone == 2,
       "a second one goes meanwhile: the same generation, with both gone");
    stopped(&t, 3, 2);
    stopped(&t, 0, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2), "one that had stopped has no workers");
    is_int(t.a.order->n_procs[3], 2, "the spare is in");
    (void)bed_fail(&t, 0, 2, 9, 1, 0);
    lose(&t, 0, true, 0);
    ok(bed_ordered(&t, ORDER_PREPARE, 4) && t.a.order->store_rank == 3,
       "the one with the store goes: another generation");
    (void)bed_tell(&t, (struct report){
        .rank = 3, .state = REPORT_STOPPED, .generation = 4,
        .store_port = 7, .store_addr = "10.0.0.2"});
    ok(bed_ordered(&t, ORDER_RUN, 4) && t.a.order->past.n_restarts == 0,
       "a worker that failed with it is explained by it");
    is_int(lead_n_losses(t.lead), 3, "three losses");
    lead_destroy(t.lead);
}

static void test_limits(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    config.max_losses = 0;
    open_running(&t, &config);
    lose(&t, 1, true, 0);
    like(lead_verdict(t.lead)->reason, "a run may lose 0 (limits.nodeFailures)",
         "a budget that is used up");
    lead_destroy(t.lead);
    config = elastic(3);
    config.restart.kind = RESTART_NEVER;
    open_running(&t, &config);
    lose(&t, 1, true, 0);
    like(lead_verdict(t.lead)->reason, "restart.policy is Never",
         "nothing is started again");
    lead_destroy(t.lead);
}

static void test_gather(void)
{
    struct lead_config config = elastic(4);
    struct bench t;

    bed_open(&t, &config);
    bed_tell_all(&t, 3, REPORT_JOINED, 0);
    ok(!t.a.order, "one is waited for");
    lose(&t, 3, true, 0);
    ok(bed_ordered(&t, ORDER_PREPARE, 1), "unless it goes");
    lead_destroy(t.lead);
    bed_open(&t, &config);
    bed_tell_all(&t, 2, REPORT_JOINED, 0);
    (void)bed_tick(&t, 30000);
    ok(bed_ordered(&t, ORDER_PREPARE, 1), "or the time is over, and there are "
       "enough");
    like(bed_note(&t, LEAD_NOTE_STRAGGLER)->text, "starting without node 2, "
         "node 3", "who is missing is told");
    lead_destroy(t.lead);
}

static void test_newcomer(void)
{
    struct lead_config config = elastic(3);
    struct bench t;

    open_running(&t, &config);
    ok(lead_add_nodes(t.lead, 4, NULL, NULL) == 0, "a newcomer");
    (void)bed_tell(&t, (struct report){.rank = 3});
    ok(!t.a.order, "does not disturb those that run");
    lose(&t, 1, true, 0);
    stopped(&t, 0, 2);
    stopped(&t, 2, 2);
    ok(!t.a.order, "is waited for like all others");
    stopped(&t, 3, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[3] == 2,
       "and takes the place of one that is lost");
    lead_destroy(t.lead);
}

/* Two agents a node: of half a node nothing is used. */
static void test_pairs(void)
{
    static const uint32_t node_of[] = {0, 0, 2, 2};
    static const uint32_t replaced[] = {0, 0, 2, LEAD_NO_NODE, 2};
    struct lead_config config = elastic(4);
    struct bench t;

    config.node_of = node_of;
    config.min_nodes = 1;
    config.max_nodes = 2;
    open_running(&t, &config);
    lose(&t, 3, true, 0);
    ok(lead_add_nodes(t.lead, 5, NULL, replaced) == 0, "one in its place");
    bed_tell_all(&t, 3, REPORT_STOPPED, 2);
    ok(bed_ordered(&t, ORDER_RUN, 2) && t.a.order->n_procs[1] == 2 &&
           t.a.order->n_procs[2] == 0, "without its neighbour");
    (void)bed_tell(&t, (struct report){.rank = 4});
    (void)bed_fail(&t, 0, 2, 9, 1, 0);
    bed_tell_all(&t, 3, REPORT_STOPPED, 3);
    stopped(&t, 4, 3);
    (void)bed_tick(&t, 5000);
    ok(lead_order(t.lead)->step == ORDER_RUN &&
           lead_order(t.lead)->n_procs[2] == 2 &&
           lead_order(t.lead)->n_procs[4] == 2, "until it is whole again");
    lead_destroy(t.lead);
}

int main(void)
{
    test_shrink();
    test_silent();
    test_back();
    test_spare();
    test_lost_spare();
    test_twice();
    test_limits();
    test_gather();
    test_newcomer();
    test_pairs();
    return tap_done();
}
