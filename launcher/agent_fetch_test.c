/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent fetches what its ranks load from two nodes that may have it. Workers always
 * get an answer: what begins to come, or that there is none, in time, whoever is silent,
 * refuses, dies in the middle, or says what makes no sense.
 */
#include <config.h>

#include "launcher/fetch_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define UUID_A "00000000000000000000000000000aaa"
#define UUID_B "00000000000000000000000000000bbb"

enum { SOON_MS = 1200 };

static void test_fetch(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    fetch_bed_save(&b, 0, 5, UUID_A, FETCH_ROOM);
    fetch_bed_save(&b, 0, 6, UUID_A, FETCH_ROOM);
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_begin(&b, 6, UUID_A);
    ok(b.did.n_wants > 0, "the lead is asked who has it");
    like(b.did.want, "\"uuid\":\"" UUID_A "\",\"generation\":3", "for these workers");
    is_int(b.did.n_answers, 0, "nobody has an answer yet");
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[0,4,2],[5,2,1]]");
    is_int(b.nodes[0].n_asked + b.nodes[1].n_asked, 0, "not from inside the call");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 2), "both are answered");
    is_int(b.did.n_found, 2, "with what is fetched");
    is_int(b.nodes[1].n_asked, 0, "from who has it");
    is_int(b.did.n_notes, 0, "the journal hears of it when that was all");
    b.snap.say_ms = 1;
    ok(fetch_bed_run_until(&b, &b.did.n_notes, 1), "now");
    is_str(b.did.note, "node 0 has fetched what 2 of its ranks start from from "
           "memory of node 1", "once");
    ok(!b.snap.fetches && !uv_is_active((uv_handle_t *)b.snap.fetch_timer),
       "and nobody waits");
    fetch_bed_close(&b);
    is_int(b.did.n_notes, 1, "nor is there more to say");
}

static void fetch(struct fetch_bed *b, int i, uint32_t rank, const char *uuid,
                  const char *from)
{
    int n = b->did.n_answers;

    fetch_bed_save(b, i, rank, uuid, FETCH_ROOM);
    fetch_bed_tell(b, uuid, FETCH_GENERATION, from);
    fetch_bed_begin(b, rank, uuid);
    ok(fetch_bed_run_until(b, &b->did.n_answers, n + 1), "it comes");
    fetch_bed_settle(b);
}

/* One note a save, of all its ranks here. */
static void test_notes(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    fetch(&b, 0, 5, UUID_A, "[[5,1,1]]");
    fetch(&b, 1, 6, UUID_B, "[[6,1,2]]");
    is_str(b.did.note, "node 0 has fetched what rank 5 starts from from "
           "memory of node 1", "another save: the one before was all");
    fetch(&b, 0, 7, UUID_B, "[[7,1,1]]");
    fetch(&b, 0, 9, UUID_B, "[[9,1,1]]");
    is_int(b.did.n_notes, 1, "more of it may come");
    agent_fetch_forget(&b.snap);
    is_str(b.did.note, "node 0 has fetched what 3 of its ranks start from from "
           "memory of several nodes", "the workers go: that was all");
    ok(!uv_is_active((uv_handle_t *)b.snap.fetch_timer), "nothing is left to say");
    fetch(&b, 0, 8, UUID_B, "[[8,1,1]]");
    fetch_bed_close(&b);
    is_int(b.did.n_notes, 3, "at the end of the agent, likewise");
}

/* The lead has said so to others, before a worker here asks. */
static void test_told_before(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    fetch_bed_save(&b, 1, 5, UUID_A, FETCH_ROOM);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,2]]");
    fetch_bed_begin(&b, 5, UUID_A);
    is_int(b.did.n_wants, 0, "the lead is not asked again");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1) && b.did.n_found == 1,
       "it is fetched");
    fetch_bed_settle(&b);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION - 1, "[[6,1,2]]");
    fetch_bed_begin(&b, 6, UUID_A);
    is_int(b.did.n_wants, 1, "but of another generation is another matter");
    fetch_bed_close(&b);
}

/* The first one that has it has it no more, or dies in the middle. */
static void test_next(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    fetch_bed_save(&b, 1, 5, UUID_A, FETCH_ROOM);
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1,2]]");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1), "an answer");
    is_int(b.nodes[0].n_asked, 1, "the first one is asked");
    ok(b.did.n_found == 1 && b.nodes[1].n_asked == 1,
       "refuses, and the next one sends it");
    fetch_bed_settle(&b);
    fetch_bed_save(&b, 0, 6, UUID_B, FETCH_LONG_ROOM);
    fetch_bed_save(&b, 1, 6, UUID_B, FETCH_ROOM);
    fetch_bed_begin(&b, 6, UUID_B);
    fetch_bed_tell(&b, UUID_B, FETCH_GENERATION, "[[6,2,1,2]]");
    fetch_bed_wait_under_way(&b);
    copy_outs_forget(b.nodes[0].copy); /* as its death */
    fetch_bed_settle(&b);
    ok(b.did.n_answers == 2 && b.did.n_found == 2 && snap_hold_get(b.snap.copies, 6, UUID_B),
       "one dies in the middle: the next one sends it");
    fetch_bed_begin(&b, 7, UUID_B);
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 3) && b.did.n_found == 2,
       "nobody has it: the disk");
    is_int(b.nodes[0].n_asked + b.nodes[1].n_asked, 6, "all were asked, once");
    fetch_bed_save(&b, 1, 8, UUID_A, FETCH_ROOM);
    fetch_bed_begin(&b, 8, UUID_A);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[8,1,0,2]]");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 4) && b.did.n_found == 3,
       "this one cannot make it again: the next one sends it");
    fetch_bed_close(&b);
}

static uint64_t n_there(const struct fetch_bed *b)
{
    const struct snap *s = snap_hold_fill(b->snap.copies, 5, UUID_A);

    return snap_n_filled(s ? s : snap_hold_get(b->snap.copies, 5, UUID_A));
}

/* Of what rank 5 loads, and one node has, a part is here. */
static void open_coming(struct fetch_bed *b)
{
    fetch_bed_open(b);
    fetch_bed_save(b, 0, 5, UUID_A, FETCH_LONG_ROOM);
    fetch_bed_begin(b, 5, UUID_A);
    fetch_bed_tell(b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    fetch_bed_wait_under_way(b);
}

/* Whoever asks has the memory as soon as something comes, and sees how much. */
static void test_coming(void)
{
    enum { N_BLOCKS = (FETCH_LONG_ROOM + DIGEST_BLOCK_BYTES - 1) / DIGEST_BLOCK_BYTES };
    struct fetch_bed b;

    open_coming(&b);
    is_int(b.did.n_coming, 1, "it has an answer while it comes");
    ok(n_there(&b) < N_BLOCKS, "not all is there: %d", (int)n_there(&b));
    fetch_bed_settle(&b);
    is_int(b.did.n_answers, 1, "and no other one when it is there");
    is_int((int)n_there(&b), N_BLOCKS, "all of it");
    fetch_bed_close(&b);
}

/* Nobody else has it: whoever reads it sees that no more comes. */
static void test_comes_no_more(void)
{
    struct fetch_bed b;

    open_coming(&b);
    copy_outs_forget(b.nodes[0].copy); /* as its death */
    fetch_bed_settle(&b);
    ok(n_there(&b) == SNAP_NO_MORE, "who is at it sees that no more comes");
    is_int(b.did.n_answers, 1, "and is told nothing else");
    fetch_bed_close(&b);
}

static bool is_no_rank(void *arg, uint32_t rank)
{
    (void)arg, (void)rank;
    return false;
}

/* Its memory is needed for something else meanwhile. */
static void test_taken_away(void)
{
    struct fetch_bed b;
    void *page;
    int fd;

    open_coming(&b);
    fd = snap_for_reading(snap_hold_fill(b.snap.copies, 5, UUID_A));
    page = mmap(NULL, SNAP_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        bail_out("no mapping");
    }
    snap_hold_keep(b.snap.copies, UINT64_MAX, is_no_rank, NULL);
    ok(atomic_load(snap_filled(page)) == SNAP_NO_MORE, "whoever reads it sees that");
    fetch_bed_settle(&b);
    is_int(b.did.n_answers, 1, "and is told nothing else");
    munmap(page, SNAP_PAGE_BYTES);
    close(fd);
    fetch_bed_close(&b);
}

/* However many have it, some are asked, and then the disk. */
static void test_many(void)
{
    struct roster_entry entry = {.slots = 1, .port = 1, .n_addrs = 1, .host = "there"};
    struct fetch_bed b;

    fetch_bed_open(&b);
    str_copy(entry.addrs[0], sizeof(entry.addrs[0]), "127.0.0.1");
    for (int i = 3; i <= 5; i++) {
        entry.port = i == 5 ? link_listener_port(b.nodes[0].listener) : 1;
        if (roster_add(&b.agent.roster, &entry) < 0) {
            bail_out("no roster");
        }
    }
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1,2,3,4,5]]");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1) && b.did.n_found == 0,
       "nobody sends it");
    is_int(b.nodes[0].n_asked + b.nodes[1].n_asked, 2, "four are asked, and no fifth");
    fetch_bed_close(&b);
}

/* Where there is no other node, or this one is going, nobody is asked. */
static void test_alone(void)
{
    const struct snap_question q = {.generation = FETCH_GENERATION};
    struct snap_copy *copy;
    struct fetch_bed b;
    uint32_t n;

    fetch_bed_open(&b);
    copy = b.snap.copy;
    n = b.agent.roster.n;
    b.agent.roster.n = 1;
    ok(!agent_fetch_begin(&b.snap, &q, 5, UUID_A), "one node alone reads from the disk");
    b.agent.roster.n = n;
    b.snap.copy = NULL;
    ok(!agent_fetch_begin(&b.snap, &q, 5, UUID_A), "and one that takes no copies");
    b.snap.copy = copy;
    b.agent.leaving = true;
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    ok(!b.snap.where, "who is going does not listen");
    b.agent.leaving = b.agent.has_config = false;
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    ok(!b.snap.where, "nor does who knows of no job yet");
    b.agent.has_config = true;
    fetch_bed_close(&b);
}

/* The lead gives up the first one while that is asked, and speaks of the other alone. */
static void test_told_meanwhile(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    b.nodes[0].is_mute = true;
    fetch_bed_save(&b, 1, 5, UUID_A, FETCH_ROOM);
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1,2]]");
    ok(fetch_bed_run_until(&b, &b.nodes[0].n_asked, 1), "the first one is asked");
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,2]]");
    is_int(b.nodes[1].n_asked, 0, "and has its time");
    agent_fetch_fetched(&b.snap, 6, UUID_A, &(struct error){0});
    agent_fetch_fetched(&b.snap, 5, UUID_B, &(struct error){0});
    is_int(b.did.n_answers, 0, "what comes of another rank or save is no answer");
    link_close(take_ptr(&b.nodes[0].mute));
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1) && b.did.n_found == 1,
       "the other one sends it");
    fetch_bed_close(&b);
}

/* Of a save of which the lead says what makes no sense, or nothing of use. */
static void test_nonsense(void)
{
    static const char *const said[] = {
        "[]", "[[5,1,0]]", "[[5,1]]", "[[5,0,1]]", "[[4,1,1]]", "[[6,9,1]]",
        "[[5,1,3]]", "[[5,1,-1]]", "[[5,1,4294967297]]", "[[5,1,\"1\"]]", "7", "[5,1]",
        "[[-9223372036854775808,9223372036854775807,1]]", "{}", "[[\"\",{},[]]]",
        "[[5,-1,1]]",
    };
    struct fetch_bed b;

    fetch_bed_open(&b);
    for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
        fetch_bed_begin(&b, 5, UUID_A);
        fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, said[i]);
        fetch_bed_run_until(&b, &b.did.n_answers, (int)i + 1);
        is_int(b.did.n_answers, (int)i + 1, "%s: the disk", said[i]);
        fetch_bed_tell(&b, "", FETCH_GENERATION, "[]"); /* the next one asks anew */
    }
    is_int(b.did.n_found, 0, "nobody has it");
    is_int(b.nodes[0].n_asked + b.nodes[1].n_asked, 0, "nor is anybody asked");
    ok(!agent_fetch_begin(&b.snap, &(struct snap_question){0}, 5, ""),
       "the newest, whichever, is looked for by nobody");
    fetch_bed_close(&b);
}

/* It is one as any other. */
static void test_first_rank(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    fetch(&b, 1, 0, UUID_A, "[[0,1,2]]");
    is_int(b.did.n_found, 1, "rank 0 has it from who has it");
    fetch_bed_begin(&b, 1, UUID_A);
    is_int(b.did.n_answers, 2, "the next one is of another run");
    is_int(b.did.n_found, 1, "that nobody has");
    fetch_bed_close(&b);
}

/* The same rank asks twice, by two connections. */
static void test_twice(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    fetch_bed_save(&b, 0, 5, UUID_A, FETCH_ROOM);
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 2) && b.did.n_found == 2,
       "both get it");
    is_int(b.nodes[0].n_asked, 1, "it was sent once");
    fetch_bed_close(&b);
}

/* --- time --- */

static void test_lead_is_silent(void)
{
    struct fetch_bed b;
    uint64_t begin_ms;

    fetch_bed_open(&b);
    b.snap.where_ms = SOON_MS;
    fetch_bed_begin(&b, 5, UUID_A);
    begin_ms = uv_now(&b.agent.loop);
    fetch_bed_tell(&b, UUID_B, FETCH_GENERATION, "[[5,1,1]]");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1),
       "a lead that says nothing is not waited for");
    ok(b.did.answered_ms - begin_ms >= SOON_MS, "too soon");
    ok(b.did.n_wants > 1, "and was asked again");
    is_int(b.did.n_found + b.nodes[0].n_asked, 0,
           "what it says of others is for others");
    fetch_bed_close(&b);
}

/* It takes longer than the lead may take, and the lead goes on speaking. */
static void test_holder_is_silent(void)
{
    struct fetch_bed b;
    uint64_t begin_ms;
    int n;

    fetch_bed_open(&b);
    b.snap.where_ms = 1;
    b.snap.fetch_ms = 3 * SOON_MS;
    b.nodes[0].is_mute = true;
    fetch_bed_save(&b, 1, 6, UUID_A, FETCH_ROOM);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1],[6,1,2]]");
    fetch_bed_begin(&b, 5, UUID_A);
    begin_ms = uv_now(&b.agent.loop);
    ok(fetch_bed_run_until(&b, &b.nodes[0].n_asked, 1),
       "one is asked, and says nothing");
    fetch_bed_tell(&b, UUID_B, FETCH_GENERATION, "[]");
    n = b.did.n_wants;
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1), "it is given up");
    ok(b.did.answered_ms - begin_ms >= 3 * SOON_MS, "but not before its time");
    is_int(b.did.n_wants, n, "nor is the lead asked meanwhile");
    is_int(b.did.n_found, 0, "the disk");
    ok(!b.snap.copy->ins, "and no answer of that one is waited for");
    b.snap.where_ms = FETCH_PATIENT_MS;
    fetch_bed_begin(&b, 6, UUID_A);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1],[6,1,2]]");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 2) && b.did.n_found == 1,
       "the next one goes on");
    fetch_bed_close(&b);
}

/* Workers go, and the agent, while it is on its way. */
static void test_ends(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    fetch_bed_save(&b, 0, 5, UUID_A, FETCH_LONG_ROOM);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,2,1]]");
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_begin(&b, 6, UUID_A);
    fetch_bed_wait_under_way(&b);
    agent_fetch_forget(&b.snap);
    ok(!b.snap.fetches && !b.snap.copy->ins, "nobody waits any more");
    while (b.nodes[0].copy->outs) {
        uv_run(&b.agent.loop, UV_RUN_ONCE);
    }
    is_int(b.did.n_answers, 1, "nor is told, but the one to whom it came");
    ok(n_there(&b) == SNAP_NO_MORE, "which sees that no more comes");
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_wait_under_way(&b);
    fetch_bed_close(&b);
    is_int(b.did.n_answers, 2, "the end of the agent, likewise");
}

/* Who is said to have it is this node: it has parity of it, or nothing. */
static void test_self(void)
{
    struct fetch_bed b;

    fetch_bed_open(&b);
    b.agent.roster.entries[0] = b.agent.roster.entries[1]; /* somebody is there */
    fetch_bed_begin(&b, 5, UUID_A);
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,0]]");
    ok(b.did.n_answers == 1 && b.did.n_found == 0, "this node does not ask itself");
    fetch_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_fetch();
    test_self();
    test_notes();
    test_told_before();
    test_next();
    test_coming();
    test_comes_no_more();
    test_taken_away();
    test_many();
    test_alone();
    test_told_meanwhile();
    test_nonsense();
    test_first_rank();
    test_twice();
    test_lead_is_silent();
    test_holder_is_silent();
    test_ends();
    return tap_done();
}
