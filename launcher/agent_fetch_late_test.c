/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long who loads waits for the lead, and for a node that has it. --wrap=uv_now makes
 * up the time, so that nothing depends on how fast this machine is.
 */
#include <config.h>

#include "launcher/fetch_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <signal.h>

#define UUID_A "00000000000000000000000000000aaa"
#define UUID_B "00000000000000000000000000000bbb"
#define UUID_C "00000000000000000000000000000ccc"

static uint64_t now_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return now_ms;
}

/* The loop looks at its timers before it waits: it would wait for ever then. */
static void on_over(uv_timer_t *t)
{
    *(bool *)t->data = true;
    uv_stop(t->loop);
}

/* The timer of what is fetched looks at it then. */
static void look_at(struct fetch_bed *b, uint64_t ms)
{
    bool is_over = false;
    uv_timer_t t;

    now_ms = ms;
    uv_timer_set_repeat(b->snap.fetch_timer, 1);
    uv_timer_again(b->snap.fetch_timer);
    uv_timer_init(&b->agent.loop, &t);
    t.data = &is_over;
    uv_timer_start(&t, on_over, 2, 0);
    while (!is_over) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&t, NULL);
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
}

static void open_bed(struct fetch_bed *b)
{
    now_ms = 10000;
    fetch_bed_open(b);
    b->snap.where_ms = 1000;
    b->snap.fetch_ms = 5000;
    b->snap.say_ms = 1000;
}

/* Node 1 is asked for what rank 5 loads, and is silent. */
static void ask_silent(struct fetch_bed *b)
{
    b->nodes[0].is_mute = true;
    fetch_bed_tell(b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    fetch_bed_begin(b, 5, UUID_A);
    ok(fetch_bed_run_until(b, &b->nodes[0].n_asked, 1), "a node is asked");
}

static void test_lead(void)
{
    struct fetch_bed b;

    open_bed(&b);
    fetch_bed_begin(&b, 5, UUID_A);
    now_ms = 10600;
    fetch_bed_begin(&b, 6, UUID_A);
    look_at(&b, 10999);
    is_int(b.did.n_answers, 0, "the lead has its time");
    look_at(&b, 11000);
    is_int(b.did.n_answers, 1, "no more than that");
    look_at(&b, 11599);
    is_int(b.did.n_answers, 1, "for each who asks");
    look_at(&b, 11600);
    is_int(b.did.n_answers, 2, "from when that has asked");
    is_int(b.did.n_found, 0, "they read from the disk");
    fetch_bed_begin(&b, 7, UUID_A);
    ok(uv_is_active((uv_handle_t *)b.snap.fetch_timer), "one more asks");
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[]");
    is_int(b.did.n_answers, 3, "that nobody has it is an answer at once");
    ok(!uv_is_active((uv_handle_t *)b.snap.fetch_timer), "then nothing is waited for");
    fetch_bed_close(&b);
}

static void test_node(void)
{
    struct fetch_bed b;

    open_bed(&b);
    ask_silent(&b);
    look_at(&b, 14999);
    is_int(b.did.n_answers, 0, "a node has its time");
    ok(b.snap.copy->ins, "it is waited for");
    look_at(&b, 15000);
    is_int(b.did.n_answers, 1, "no more than that");
    ok(!b.snap.copy->ins, "then it is not");
    fetch_bed_close(&b);
}

/* While something is on its way others do not wait for the lead: their time begins when
 * it has come, or not. */
static void test_behind_one_that_fails(void)
{
    struct fetch_bed b;

    open_bed(&b);
    b.snap.fetch_ms = 100000;
    ask_silent(&b);
    fetch_bed_begin(&b, 6, UUID_B);
    look_at(&b, 20000);
    is_int(b.did.n_answers, 0, "nobody is late behind one that is on its way");
    link_close(take_ptr(&b.nodes[0].mute));
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1), "which does not come");
    look_at(&b, 20999);
    is_int(b.did.n_answers, 1, "the lead has its time from then on");
    look_at(&b, 21000);
    is_int(b.did.n_answers, 2, "and no more");
    fetch_bed_close(&b);
}

static void test_behind_one_that_is_late(void)
{
    struct fetch_bed b;

    open_bed(&b);
    ask_silent(&b);
    now_ms = 14000;
    fetch_bed_begin(&b, 6, UUID_B);
    look_at(&b, 15000);
    is_int(b.did.n_answers, 1, "who waits for one that is late has an answer");
    look_at(&b, 15999);
    is_int(b.did.n_answers, 1, "who waits for the lead has its time from then on");
    look_at(&b, 16000);
    is_int(b.did.n_answers, 2, "and no more");
    fetch_bed_close(&b);
}

/* Who waits behind one that is given up is next. */
static void test_next_after_one_that_is_late(void)
{
    struct fetch_bed b;

    open_bed(&b);
    fetch_bed_save(&b, 1, 6, UUID_A, FETCH_ROOM);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1],[6,1,2]]");
    b.nodes[0].is_mute = true;
    fetch_bed_begin(&b, 5, UUID_A);
    ok(fetch_bed_run_until(&b, &b.nodes[0].n_asked, 1), "a node is asked");
    now_ms = 12000;
    fetch_bed_begin(&b, 6, UUID_A);
    look_at(&b, 15000);
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 2) && b.did.n_found == 1,
       "one is given up, and the next one comes from another node");
    fetch_bed_close(&b);
}

/* Nobody waits for a timer then. */
static void test_next_after_one_that_fails(void)
{
    struct fetch_bed b;
    int n;

    open_bed(&b);
    ask_silent(&b);
    fetch_bed_begin(&b, 6, UUID_B);
    n = b.did.n_wants;
    uv_timer_stop(b.snap.fetch_timer);
    link_close(take_ptr(&b.nodes[0].mute));
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1), "one does not come: the disk");
    is_int(b.did.n_wants, n + 1, "and the lead is asked for the next one");
    fetch_bed_close(&b);
}

/* Who sees it come has no time that is over: whoever sends it may take as long as it does. */
static void test_coming(void)
{
    struct fetch_bed b;

    open_bed(&b);
    fetch_bed_save(&b, 0, 5, UUID_A, FETCH_LONG_ROOM);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_wait_under_way(&b);
    is_int(b.did.n_coming, 1, "it begins to come");
    now_ms = 100000;
    uv_timer_set_repeat(b.snap.fetch_timer, 1);
    uv_timer_again(b.snap.fetch_timer);
    fetch_bed_settle(&b);
    ok(snap_hold_get(b.snap.copies, 5, UUID_A), "and is there, however late");
    fetch_bed_close(&b);
}

/* It was on its way before its rank has asked, whose time begins then. */
static void test_ahead(void)
{
    struct fetch_bed b;
    struct fetch *f;

    open_bed(&b);
    b.nodes[0].is_mute = true;
    f = agent_fetch_add(&b.snap, 5, UUID_A);
    f->is_ahead = true;
    f->question.generation = FETCH_GENERATION;
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    ok(fetch_bed_run_until(&b, &b.nodes[0].n_asked, 1), "a node is asked ahead");
    look_at(&b, 16000);
    ok(b.snap.fetches == f, "which may take its time");
    fetch_bed_begin(&b, 5, UUID_A);
    look_at(&b, 20999);
    is_int(b.did.n_answers, 0, "and has as much from when a rank asks");
    look_at(&b, 21000);
    is_int(b.did.n_answers, 1, "but no more");
    fetch_bed_close(&b);
}

/* A rank asks for another save: what is fetched ahead gives way. */
static void test_gives_way(void)
{
    struct fetch_bed b;
    struct fetch *f;

    open_bed(&b);
    b.nodes[0].is_mute = true;
    f = agent_fetch_add(&b.snap, 5, UUID_A);
    f->is_ahead = true;
    f->question.generation = FETCH_GENERATION;
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    ok(fetch_bed_run_until(&b, &b.nodes[0].n_asked, 1), "a node is asked ahead");
    fetch_bed_begin(&b, 6, UUID_B);
    ok(!b.snap.copy->ins, "and no more, as a rank asks for another save");
    ok(b.snap.fetches && !b.snap.fetches->next && b.snap.fetches->rank == 6, "which is next");
    fetch_bed_close(&b);
}

/* Who waits behind that has its time from then on, as behind any other one. */
static void test_behind_one_that_gives_way(void)
{
    struct fetch_bed b;
    struct fetch *f;

    open_bed(&b);
    b.snap.fetch_ms = 100000;
    b.nodes[0].is_mute = true;
    fetch_bed_begin(&b, 7, UUID_C);
    f = agent_fetch_add(&b.snap, 5, UUID_A);
    f->is_ahead = true;
    f->question.generation = FETCH_GENERATION;
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    ok(fetch_bed_run_until(&b, &b.nodes[0].n_asked, 1), "a node is asked ahead");
    now_ms = 20000;
    fetch_bed_begin(&b, 6, UUID_B);
    ok(!b.snap.copy->ins, "and no more");
    look_at(&b, 20999);
    is_int(b.did.n_answers, 0, "the lead has its time from then on");
    look_at(&b, 21000);
    is_int(b.did.n_answers, 2, "and no more");
    fetch_bed_close(&b);
}

/* All of a save are told at once, when for a while nothing more has come. */
static void test_said(void)
{
    struct fetch_bed b;

    open_bed(&b);
    fetch_bed_save(&b, 0, 5, UUID_A, FETCH_ROOM);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    fetch_bed_begin(&b, 5, UUID_A);
    now_ms = 12000;
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1) && b.did.n_found == 1, "it comes");
    fetch_bed_settle(&b);
    look_at(&b, 12500);
    fetch_bed_begin(&b, 6, UUID_B);
    look_at(&b, 13000);
    is_int(b.did.n_notes, 0, "nothing is told while one waits");
    look_at(&b, 13500);
    is_int(b.did.n_answers, 2, "that one reads from the disk");
    is_int(b.did.n_notes, 1, "then it is");

    fetch_bed_save(&b, 0, 7, UUID_B, FETCH_ROOM);
    fetch_bed_tell(&b, UUID_B, FETCH_GENERATION, "[[7,1,1]]");
    fetch_bed_begin(&b, 7, UUID_B);
    now_ms = 14000;
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 3), "another one comes");
    fetch_bed_settle(&b);
    look_at(&b, 14999);
    is_int(b.did.n_notes, 1, "more may");
    look_at(&b, 15000);
    is_int(b.did.n_notes, 2, "nothing has");
    ok(!uv_is_active((uv_handle_t *)b.snap.fetch_timer), "and nothing is waited for");
    fetch_bed_close(&b);
}

/* Workers wait for a minute: an agent has an answer before that. */
static void test_times(void)
{
    struct agent_snap p = {0};
    struct fetch_bed b;
    struct error e;

    open_bed(&b);
    p.agent = &b.agent;
    is_int(agent_fetch_create(&p, &e), 0, "one of its own");
    is_int(p.where_ms, 3000, "for the lead");
    is_int(p.fetch_ms, 30000, "in all");
    is_int(p.say_ms, 1000, "until it is told");
    agent_fetch_destroy(&p);
    fetch_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_lead();
    test_node();
    test_behind_one_that_fails();
    test_behind_one_that_is_late();
    test_next_after_one_that_is_late();
    test_next_after_one_that_fails();
    test_coming();
    test_ahead();
    test_gives_way();
    test_behind_one_that_gives_way();
    test_said();
    test_times();
    return tap_done();
}
