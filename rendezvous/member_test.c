/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/member.h"
#include "rendezvous/restart.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

/* A member of rank 1 under test, and what it last asked for. */
struct bench {
    struct member *m;
    struct member_actions a;
    uint64_t now_ms;
    uint64_t serial;
    uint16_t n_procs[2];
};

static void setup(struct bench *t)
{
    struct member_config config = {
        .rank = 1, .n_procs = 2, .host = "n1", .lease_ms = 10000,
        .join_ms = 60000, .linger_ms = 300, .margin_ms = 2000};
    struct error e;

    *t = (struct bench){.now_ms = 1000, .n_procs = {2, 2}};
    if (member_create(&config, t->now_ms, &t->m, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static int step(struct bench *t, struct member_event event)
{
    event.now_ms = t->now_ms;
    return member_step(t->m, &event, &t->a);
}

static int order(struct bench *t, struct order o)
{
    if (!o.serial) {
        o.serial = ++t->serial;
    }
    if (o.step == ORDER_RUN) {
        o.n_nodes = 2;
        o.n_procs = t->n_procs;
    }
    return step(t, (struct member_event){.type = MEMBER_ORDER, .order = &o});
}

static int event(struct bench *t, enum member_event_type type,
                 uint32_t generation)
{
    return step(t, (struct member_event){.type = type,
                                         .generation = generation});
}

static void tick(struct bench *t, uint64_t ms)
{
    t->now_ms += ms;
    (void)event(t, MEMBER_TICK, 0);
}

/* A worker of `generation` exits with `code`. */
static int exits(struct bench *t, uint32_t generation, uint8_t code)
{
    struct failure f = {.kind = FAILURE_EXIT, .exit_code = code,
                        .generation = generation, .host = "n1"};

    return step(t, (struct member_event){
        .type = MEMBER_EXITED, .generation = generation,
        .failure = code ? &f : NULL});
}

static bool says(const struct bench *t, enum report_state state,
                 uint32_t generation)
{
    return t->a.send && t->a.send->state == state &&
           t->a.send->generation == generation;
}

/* To workers of generation 1 that run. */
static void run(struct bench *t)
{
    setup(t);
    (void)event(t, MEMBER_UPLINK_UP, 0);
    (void)event(t, MEMBER_WORD, 0);
    (void)order(t, (struct order){.step = ORDER_PREPARE, .generation = 1});
    (void)order(t, (struct order){.step = ORDER_RUN, .generation = 1});
    (void)event(t, MEMBER_STARTED, 1);
}

static void test_success(void)
{
    struct bench t;

    setup(&t);
    (void)event(&t, MEMBER_UPLINK_UP, 0);
    ok(says(&t, REPORT_JOINED, 0) && t.a.send->n_procs == 2, "joins");
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 1});
    ok(says(&t, REPORT_STOPPED, 1) && !t.a.open_store, "is ready");
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 1});
    ok(t.a.start && t.a.start->generation == 1, "starts");
    ok(!t.a.send, "says nothing before they run");
    (void)event(&t, MEMBER_STARTED, 1);
    ok(says(&t, REPORT_RUNNING, 1) && t.a.send->n_alive == 2, "runs");
    (void)exits(&t, 1, 0);
    ok(says(&t, REPORT_RUNNING, 1) && t.a.send->n_alive == 1, "one is left");
    (void)exits(&t, 1, 0);
    (void)event(&t, MEMBER_GONE, 1);
    ok(says(&t, REPORT_DONE, 1), "done");
    (void)order(&t, (struct order){.step = ORDER_END, .generation = 1});
    ok(says(&t, REPORT_ENDED, 1) && t.a.has_verdict && !t.a.leave, "ends");
    is_int(member_status(t.m), 0, "with success");
    (void)order(&t, (struct order){.step = ORDER_LEAVE, .generation = 1});
    ok(t.a.leave && !t.a.has_verdict, "leaves");
    tick(&t, 100000);
    ok(t.a.leave && !t.a.stop && !t.a.send, "and that is all");
    is_int(member_status(t.m), 0, "still a success");
    member_destroy(t.m);
}

static void test_store(void)
{
    struct member_event open = {.type = MEMBER_STORE_OPEN, .generation = 1,
                                .addr = "10.0.0.2", .port = 29500};
    struct bench t;

    setup(&t);
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 1,
                                   .store_rank = 1});
    ok(t.a.open_store == 1 && !says(&t, REPORT_STOPPED, 1),
       "is not ready before its store is");
    is_int(event(&t, MEMBER_STORE_OPEN, 9), -EPROTO, "that of another");
    (void)step(&t, open);
    ok(says(&t, REPORT_STOPPED, 1) && t.a.send->store_port == 29500, "ready");
    is_str(t.a.send->store_addr, "10.0.0.2", "address");
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 1});
    (void)event(&t, MEMBER_STARTED, 1);
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 2,
                                   .store_rank = 1});
    ok(t.a.open_store == 2 && !t.a.close_store && t.a.stop,
       "opens the next while workers still stop");
    is_int(event(&t, MEMBER_STORE_OPEN, 1), -EPROTO, "the old one again");
    open.generation = 2;
    (void)step(&t, open);
    ok(!says(&t, REPORT_STOPPED, 2), "not ready with workers alive");
    (void)event(&t, MEMBER_GONE, 1);
    ok(t.a.close_store == 1 && says(&t, REPORT_STOPPED, 2),
       "closes the old one when they are gone");
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 3,
                                   .store_rank = 1});
    (void)step(&t, (struct member_event){.type = MEMBER_STORE_FAILED,
                                         .generation = 3, .text = "EMFILE"});
    ok(says(&t, REPORT_STOPPED, 3) && t.a.send->failed &&
           t.a.send->failure.kind == FAILURE_AGENT && !t.a.send->store_port,
       "a store that cannot be opened is told");
    member_destroy(t.m);
}

static void test_orders(void)
{
    struct bench t;

    setup(&t);
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 1});
    ok(!t.a.start, "never runs what it was not ready for");
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 2});
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 2});
    ok(t.a.start != NULL, "runs");
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 2,
                                   .serial = t.serial});
    ok(!t.a.start && !t.a.send, "the same order again");
    (void)order(&t, (struct order){.step = ORDER_END, .serial = 1});
    ok(!t.a.stop && !t.a.has_verdict, "an older one");
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 2});
    ok(!t.a.start, "a newer one of the same meaning");
    is_int(event(&t, MEMBER_STARTED, 1), -EPROTO, "of another generation");
    is_int(event(&t, 99, 0), -EPROTO, "no such event");
    member_destroy(t.m);
}

static void test_no_processes_here(void)
{
    struct bench t;

    setup(&t);
    t.n_procs[1] = 0;
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 1});
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 1});
    ok(!t.a.start && says(&t, REPORT_DONE, 1), "nothing to do is done");
    member_destroy(t.m);
}

static void test_stop(void)
{
    struct bench t;

    run(&t);
    (void)order(&t, (struct order){.step = ORDER_END, .generation = 1,
                                   .stop = ORDER_STOP_GRACE, .grace_ms = 700,
                                   .status = 130, .reason = "cancelled"});
    ok(t.a.stop == MEMBER_STOP_ASK && t.a.stop_grace_ms == 700, "asks");
    ok(t.a.wake_ms == t.now_ms + 700, "wakes for the kill");
    is_int(member_status(t.m), 130, "knows the verdict");
    tick(&t, 699);
    is_int(t.a.stop, MEMBER_STOP_NONE, "waits");
    tick(&t, 1);
    is_int(t.a.stop, MEMBER_STOP_KILL, "kills");
    tick(&t, 500);
    is_int(t.a.stop, MEMBER_STOP_KILL, "and again, until all are gone");
    (void)exits(&t, 1, 9);
    ok(!t.a.send->failed, "what a stop breaks is no failure");
    (void)exits(&t, 1, 0);
    (void)event(&t, MEMBER_GONE, 1);
    ok(says(&t, REPORT_ENDED, 1), "ended");
    member_destroy(t.m);

    run(&t);
    (void)order(&t, (struct order){.step = ORDER_END, .generation = 1,
                                   .stop = ORDER_STOP_GRACE,
                                   .grace_ms = 9999});
    (void)order(&t, (struct order){.step = ORDER_END, .generation = 1,
                                   .stop = ORDER_STOP_FORCE});
    is_int(t.a.stop, MEMBER_STOP_KILL, "a force that comes later");
    ok(!t.a.has_verdict, "tells no second verdict");
    member_destroy(t.m);
}

/* A stop that gave time, and then a node is lost. */
static void test_less_grace(void)
{
    struct bench t;

    run(&t);
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 2,
                                   .stop = ORDER_STOP_GRACE,
                                   .grace_ms = 9000});
    tick(&t, 1000);
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 2,
                                   .stop = ORDER_STOP_GRACE, .broken = true,
                                   .grace_ms = 500});
    ok(t.a.stop == MEMBER_STOP_NONE && t.a.wake_ms == t.now_ms + 500,
       "a later stop with less grace counts");
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 2,
                                   .stop = ORDER_STOP_GRACE,
                                   .grace_ms = 9000});
    tick(&t, 500);
    is_int(t.a.stop, MEMBER_STOP_KILL, "one with more changes nothing");
    member_destroy(t.m);
}

static void test_leave_with_workers(void)
{
    struct bench t;

    run(&t);
    (void)order(&t, (struct order){.step = ORDER_LEAVE, .generation = 1});
    ok(t.a.stop == MEMBER_STOP_KILL && !t.a.leave, "kills before it leaves");
    tick(&t, 1999);
    ok(!t.a.leave, "waits for them");
    tick(&t, 1);
    ok(t.a.leave, "but not for ever");
    member_destroy(t.m);
}

static void test_failures(void)
{
    struct failure f = {.kind = FAILURE_EXEC, .exit_code = 127, .rank = 2};
    struct bench t;

    run(&t);
    (void)exits(&t, 1, 5);
    ok(says(&t, REPORT_RUNNING, 1) && t.a.send->failed &&
           t.a.send->failure.exit_code == 5 && t.a.send->failure.node == 1,
       "is told at once");
    is_int(t.a.stop, MEMBER_STOP_NONE, "to stop the others is not its choice");
    (void)exits(&t, 1, 6);
    is_int(t.a.send->failure.exit_code, 5, "the first one stays");
    t.now_ms += 250;
    (void)event(&t, MEMBER_UPLINK_UP, 0);
    is_int(t.a.send->failure.age_ms, 250, "with its age, when told again");
    (void)event(&t, MEMBER_GONE, 1);
    ok(says(&t, REPORT_RUNNING, 1) && t.a.send->n_alive == 0, "is never done");
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 2});
    ok(says(&t, REPORT_STOPPED, 2) && t.a.send->failure.exit_code == 5,
       "still known when stopped");
    (void)order(&t, (struct order){.step = ORDER_RUN, .generation = 2});
    (void)step(&t, (struct member_event){.type = MEMBER_START_FAILED,
                                         .generation = 2, .failure = &f});
    ok(t.a.send->failure.kind == FAILURE_EXEC &&
           t.a.send->failure.generation == 2, "a newer one replaces it");
    is_int(t.a.stop, MEMBER_STOP_KILL, "and what did start is killed");
    (void)event(&t, MEMBER_GONE, 2);
    ok(t.a.send && t.a.send->failure.kind == FAILURE_EXEC, "stays the reason");
    member_destroy(t.m);

    run(&t);
    (void)exits(&t, 1, 0);
    (void)event(&t, MEMBER_GONE, 1);
    ok(t.a.send->failed && t.a.send->failure.kind == FAILURE_AGENT,
       "gone without an exit is a failure");
    member_destroy(t.m);
}

/* A failure of one worker, told as `type` says. */
static void tell(struct bench *t, enum member_event_type type, uint8_t code,
                 enum failure_grade grade, uint32_t age_ms)
{
    struct failure f = {.kind = FAILURE_EXIT, .exit_code = code,
                        .grade = grade, .age_ms = age_ms, .host = "n1"};

    (void)step(t, (struct member_event){.type = type, .generation = 1,
                                        .failure = &f});
}

/* Which of several workers of the node failed first. */
static void test_blame(void)
{
    struct bench t;

    run(&t);
    tell(&t, MEMBER_EXITED, 2, FAILURE_ECHO, 500);
    is_int(t.a.send->failure.age_ms, 500, "how long ago it was is kept");
    t.now_ms += 10;
    tell(&t, MEMBER_EXITED, 3, FAILURE_OWN, 0);
    is_int(t.a.send->failure.exit_code, 3, "an echo is no cause");
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 2,
                                   .stop = ORDER_STOP_GRACE,
                                   .grace_ms = 1000});
    is_int(t.a.stop, MEMBER_STOP_ASK, "all are stopped");
    tell(&t, MEMBER_EXITED, 4, FAILURE_OWN, 60);
    is_int(t.a.send->failure.exit_code, 3, "the stop explains an end");
    tell(&t, MEMBER_FAILED, 5, FAILURE_HINT, 60);
    ok(!t.a.send || t.a.send->failure.exit_code == 3,
       "a hint does not outweigh an end");
    tell(&t, MEMBER_FAILED, 6, FAILURE_OWN, 60);
    ok(t.a.send && t.a.send->failure.exit_code == 6,
       "one that had failed before is the first");
    tell(&t, MEMBER_FAILED, 7, FAILURE_OWN, 10);
    ok(!t.a.send || t.a.send->failure.exit_code == 6, "a later one is not");
    (void)event(&t, MEMBER_GONE, 1);
    ok(says(&t, REPORT_STOPPED, 2) && t.a.send->failure.exit_code == 6,
       "and is told with the end");
    is_int(step(&t, (struct member_event){.type = MEMBER_FAILED,
                                          .generation = 1}),
           -EPROTO, "no more of them then");
    member_destroy(t.m);
}

static void test_linger(void)
{
    struct bench t;

    run(&t);
    (void)exits(&t, 1, 0);
    (void)exits(&t, 1, 0);
    ok(t.a.stop == MEMBER_STOP_NONE && t.a.wake_ms == t.now_ms + 300,
       "descendants get a moment");
    tick(&t, 300);
    is_int(t.a.stop, MEMBER_STOP_KILL, "and are killed");
    (void)event(&t, MEMBER_GONE, 1);
    ok(says(&t, REPORT_DONE, 1), "it is still a success");
    member_destroy(t.m);

    run(&t);
    (void)exits(&t, 1, 0);
    (void)exits(&t, 1, 0);
    (void)order(&t, (struct order){.step = ORDER_END, .generation = 1,
                                   .stop = ORDER_STOP_GRACE,
                                   .grace_ms = 9000});
    tick(&t, 300);
    is_int(t.a.stop, MEMBER_STOP_KILL, "a grace makes it no longer");
    member_destroy(t.m);

    run(&t);
    (void)order(&t, (struct order){.step = ORDER_END, .generation = 1,
                                   .stop = ORDER_STOP_GRACE,
                                   .grace_ms = 9000});
    (void)exits(&t, 1, 0);
    (void)exits(&t, 1, 0);
    tick(&t, 8999);
    is_int(t.a.stop, MEMBER_STOP_NONE, "nor is a grace cut by it");
    tick(&t, 1);
    is_int(t.a.stop, MEMBER_STOP_KILL, "until it is over");
    member_destroy(t.m);
}

static void test_lease(void)
{
    struct bench t;

    setup(&t);
    ok(event(&t, MEMBER_TICK, 0) == 0 && t.a.wake_ms == 61000,
       "before the first word there is more time");
    (void)step(&t, (struct member_event){.type = MEMBER_WORD,
                                         .age_ms = 10000});
    ok(t.a.wake_ms == 61000, "a word that is as old as a lease is none");
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 1});
    tick(&t, 60000);
    ok(t.a.leave && member_status(t.m) == 75, "but it ends");
    member_destroy(t.m);

    setup(&t);
    tick(&t, 4000);
    (void)order(&t, (struct order){.step = ORDER_PREPARE, .generation = 1});
    ok(t.a.wake_ms == 11000, "an order ends that time, and is no word itself");
    member_destroy(t.m);

    run(&t);
    t.now_ms += 6000;
    (void)step(&t, (struct member_event){.type = MEMBER_WORD,
                                         .age_ms = 2000});
    ok(t.a.wake_ms == t.now_ms + 8000, "the age of a word counts");
    (void)event(&t, MEMBER_UPLINK_LOST, 0);
    (void)event(&t, MEMBER_UPLINK_UP, 0);
    ok(t.a.wake_ms == t.now_ms + 8000, "a link alone is no word");
    tick(&t, 7999);
    is_int(t.a.stop, MEMBER_STOP_NONE, "in time");
    tick(&t, 1);
    ok(t.a.stop == MEMBER_STOP_KILL && t.a.has_verdict && !t.a.leave,
       "kills at once");
    is_str(member_reason(t.m), "no word from the lead for 10 s", "says why");
    (void)order(&t, (struct order){.step = ORDER_END, .status = 0});
    ok(!t.a.has_verdict && member_status(t.m) == 75, "nothing revokes it");
    (void)event(&t, MEMBER_GONE, 1);
    ok(t.a.leave, "leaves when all are gone");
    member_destroy(t.m);
}

static void test_lease_after_stop(void)
{
    struct bench t;

    run(&t);
    t.now_ms += 10000;
    (void)step(&t, (struct member_event){.type = MEMBER_WORD});
    ok(t.a.stop == MEMBER_STOP_KILL, "a word that lay in the socket is late");
    tick(&t, 2000);
    ok(t.a.leave, "leaves though a worker cannot be killed");
    member_destroy(t.m);
}

static void test_lease_after_end(void)
{
    struct bench t;

    run(&t);
    (void)order(&t, (struct order){.step = ORDER_END, .generation = 1,
                                   .stop = ORDER_STOP_GRACE,
                                   .grace_ms = 60000, .status = 124,
                                   .reason = "late"});
    tick(&t, 10000);
    ok(t.a.stop == MEMBER_STOP_KILL, "the lease ends a grace, too");
    (void)event(&t, MEMBER_GONE, 1);
    ok(t.a.leave && member_status(t.m) == 124, "the verdict is known already");
    member_destroy(t.m);
}

static void test_own_end(void)
{
    struct bench t;

    run(&t);
    (void)step(&t, (struct member_event){.type = MEMBER_LEAVE,
                                         .text = "spool is full"});
    ok(t.a.stop == MEMBER_STOP_KILL && t.a.has_verdict, "has to go");
    is_str(member_reason(t.m), "spool is full", "reason");
    member_destroy(t.m);
}

/* They exit with 0, as they are told to stop: that is no end of the job. */
static void test_told_to_end(void)
{
    for (int before = 0; before < 2; before++) {
        struct bench t;

        run(&t);
        if (before) {
            (void)event(&t, MEMBER_EXITED, 1);
        }
        (void)step(&t, (struct member_event){.type = MEMBER_LEAVE, .text = "SIGTERM"});
        ok(t.a.stop == MEMBER_STOP_KILL, "workers of who has to go are stopped");
        (void)event(&t, MEMBER_EXITED, 1);
        (void)event(&t, MEMBER_EXITED, 1);
        (void)event(&t, MEMBER_GONE, 1);
        ok(!says(&t, REPORT_DONE, 1) && t.a.leave,
           "that %s exited with 0 is not told as their end", before ? "the rest" : "they");
        member_destroy(t.m);
    }
}

static void test_saved(void)
{
    struct member_event saved = {.type = MEMBER_SAVED, .generation = 1,
                                 .text = "a", .step = 5};
    static char absurd[ORDER_PATH_BYTES + 1];
    struct bench t;

    run(&t);
    (void)step(&t, saved);
    ok(t.a.send && t.a.send->saved_step == 5, "is told");
    saved.step = 4;
    (void)step(&t, saved);
    ok(!t.a.send, "an older one is not");
    saved.step = 5;
    (void)step(&t, saved);
    ok(!t.a.send, "nor is one that was told before");
    saved.text = "b";
    (void)step(&t, saved);
    ok(t.a.send && t.a.send->saved_step == 5 && strcmp(t.a.send->saved_path, "b") == 0,
       "the step again, by another path, is");
    saved.step = 4;
    saved.generation = 2;
    (void)step(&t, saved);
    ok(t.a.send && t.a.send->saved_step == 4, "of a newer generation it is");
    memset(absurd, 'x', sizeof(absurd) - 1);
    saved.text = absurd;
    is_int(step(&t, saved), -EPROTO, "a path that is too long");
    member_destroy(t.m);
}

static void test_lead_member(void)
{
    struct member_config config = {.rank = 0, .n_procs = 1};
    struct bench t = {.now_ms = 5};

    if (member_create(&config, 5, &t.m, NULL) < 0) {
        bail_out("member_create");
    }
    tick(&t, UINT64_MAX / 2);
    ok(!t.a.leave && t.a.wake_ms == MEMBER_NEVER, "no lease, no end of it");
    member_destroy(t.m);
    config.rank = ORDER_MAX_NODES;
    is_int(member_create(&config, 0, &t.m, NULL), -EINVAL, "absurd rank");
}

/* One whose heir says when to leave. */
static void test_waiting(void)
{
    struct member_config config = {
        .rank = 1, .n_procs = 2, .host = "n1", .lease_ms = 10000,
        .waits = true, .join_ms = 60000, .linger_ms = 300, .margin_ms = 2000};
    struct bench t = {.now_ms = 1000, .n_procs = {2, 2}};
    struct order next = {.serial = 1ull << ORDER_SERIAL_BITS, .generation = 2,
                         .step = ORDER_PREPARE, .view = {.number = 2}};

    if (member_create(&config, t.now_ms, &t.m, NULL) < 0) {
        bail_out("no member");
    }
    (void)order(&t, (struct order){.generation = 1, .step = ORDER_PREPARE});
    (void)order(&t, (struct order){.generation = 1, .step = ORDER_RUN});
    ok(t.a.start, "workers start");
    (void)event(&t, MEMBER_STARTED, 1);
    (void)step(&t, (struct member_event){.type = MEMBER_WORD});
    tick(&t, 10000);
    ok(t.a.stop == MEMBER_STOP_KILL && !t.a.leave && !t.a.has_verdict,
       "at the end of the lease they are killed, and it stays");
    ok(t.a.send && t.a.send->fenced == 1, "that is told");
    (void)exits(&t, 1, 9);
    (void)event(&t, MEMBER_GONE, 1);
    (void)step(&t, (struct member_event){.type = MEMBER_PROMISE, .floor = 2,
                                         .heard_ms = t.now_ms - 500});
    ok(t.a.send && t.a.send->floor == 2 && t.a.send->heard_ago_ms == 500,
       "so is what it has promised, and when a lead was heard");
    (void)order(&t, next);
    ok(says(&t, REPORT_STOPPED, 2), "it prepares for another view");
    next.step = ORDER_RUN;
    next.serial++;
    (void)order(&t, next);
    ok(!t.a.start, "but starts nothing before a word of its lead");
    (void)step(&t, (struct member_event){.type = MEMBER_WORD,
                                         .age_ms = 10000});
    ok(!t.a.start, "which is new");
    (void)step(&t, (struct member_event){.type = MEMBER_WORD, .age_ms = 100});
    ok(t.a.start, "then it does");
    (void)step(&t, (struct member_event){.type = MEMBER_LEAVE, .text = "go"});
    ok(t.a.stop == MEMBER_STOP_KILL && t.a.has_verdict, "until it has to leave");
    member_destroy(t.m);
}

/* A lead of a newer view that knows less hears of generations that were prepared before:
 * the report that said so at the time need not have come. */
static void test_numbers(void)
{
    struct member_config config = {
        .rank = 1, .n_procs = 2, .host = "n1", .lease_ms = 10000,
        .waits = true, .join_ms = 60000, .linger_ms = 300, .margin_ms = 2000};
    struct bench t = {.now_ms = 1000, .n_procs = {2, 2}};
    struct order o = {.serial = 1, .generation = 5, .step = ORDER_PREPARE,
                      .view = {.number = 1}};

    if (member_create(&config, t.now_ms, &t.m, NULL) < 0) {
        bail_out("no member");
    }
    (void)order(&t, o);
    ok(says(&t, REPORT_STOPPED, 5), "it has stopped for generation 5");
    (void)step(&t, (struct member_event){.type = MEMBER_PROMISE, .floor = 2,
                                         .heard_ms = MEMBER_NEVER});
    ok(says(&t, REPORT_STOPPED, 5) && t.a.send->floor == 2, "follows another lead");
    o.serial = 2ull << ORDER_SERIAL_BITS;
    o.generation = 3;
    o.view.number = 2;
    (void)order(&t, o);
    ok(!t.a.send || says(&t, REPORT_STOPPED, 5), "which prepares 3, and hears of 5");
    o.serial++;
    o.step = ORDER_RUN;
    (void)step(&t, (struct member_event){.type = MEMBER_WORD});
    (void)order(&t, o);
    ok(!t.a.start, "it does not run that");
    o.serial++;
    o.step = ORDER_PREPARE;
    o.generation = 6;
    (void)order(&t, o);
    ok(says(&t, REPORT_STOPPED, 6), "but stops for the next");
    o.serial++;
    o.step = ORDER_RUN;
    (void)order(&t, o);
    ok(t.a.start && t.a.start->generation == 6, "and runs it");
    member_destroy(t.m);
}

/* It had no word of the lead when it was to run, and then follows another. */
static void test_old_order(void)
{
    struct member_config config = {
        .rank = 1, .n_procs = 2, .host = "n1", .lease_ms = 10000,
        .waits = true, .join_ms = 60000, .linger_ms = 300, .margin_ms = 2000};
    struct bench t = {.now_ms = 1000, .n_procs = {2, 2}};
    struct order o = {.serial = 1, .generation = 1, .step = ORDER_PREPARE,
                      .view = {.number = 1}};

    if (member_create(&config, t.now_ms, &t.m, NULL) < 0) {
        bail_out("no member");
    }
    (void)step(&t, (struct member_event){.type = MEMBER_PROMISE, .floor = 1,
                                         .heard_ms = MEMBER_NEVER});
    (void)order(&t, o);
    o.step = ORDER_RUN;
    o.serial++;
    (void)order(&t, o);
    ok(!t.a.start, "no word, no workers");
    (void)step(&t, (struct member_event){.type = MEMBER_PROMISE, .floor = 2,
                                         .heard_ms = MEMBER_NEVER});
    (void)step(&t, (struct member_event){.type = MEMBER_WORD});
    ok(!t.a.start, "a word of a newer view makes no older order good");
    o = (struct order){.serial = 2ull << ORDER_SERIAL_BITS, .step = ORDER_VIEW,
                       .view = {.number = 2}};
    (void)order(&t, o);
    ok(!t.a.start && !t.a.send && member_order(t.m)->serial == 2,
       "nor is it one that the view was won");
    member_destroy(t.m);
}

int main(void)
{
    test_success();
    test_old_order();
    test_numbers();
    test_store();
    test_orders();
    test_no_processes_here();
    test_stop();
    test_less_grace();
    test_leave_with_workers();
    test_failures();
    test_blame();
    test_linger();
    test_lease();
    test_lease_after_stop();
    test_lease_after_end();
    test_own_end();
    test_told_to_end();
    test_saved();
    test_lead_member();
    test_waiting();
    return tap_done();
}
