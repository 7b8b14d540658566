/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers start from a checkpoint that other nodes have in memory: it comes while they
 * do. Who asks meanwhile has what is there so far, and who asks for something else does
 * not wait for it.
 */
#include <config.h>

#include "launcher/fetch_bed.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "tests/lib/tap.h"

#include <signal.h>
#include <string.h>

#define UUID_A "aaaaaaaa00000000000000000000000a"
#define UUID_B "bbbbbbbb00000000000000000000000b"

enum { FIRST = 5, SOON_MS = 1200 };

static struct job job = {.checkpoint = {.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_PARTNER}};

static void open_bed(struct fetch_bed *b)
{
    fetch_bed_open(b);
    b->agent.config.job = &job;
}

/* Two workers, FIRST and the next one, are starting. */
static void start(struct fetch_bed *b, const char *path)
{
    struct crew c = {.agent = &b->agent, .generation = FETCH_GENERATION,
                     .layout = {.first_rank = FIRST, .n_local = 2}};

    agent_fetch_ahead(&c, path);
}

static const char *path_of(const struct fetch_bed *b, const char *uuid)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/step-%012d-%.8s", b->top, FETCH_STEP, uuid);
    return path;
}

static void tell(struct fetch_bed *b, const char *uuid, int generation,
                 const char *ranks)
{
    _free_ char *text = NULL;

    if (asprintf(&text, "{\"uuid\":\"%s\",\"generation\":%d,\"path\":\"%s\","
                 "\"ranks\":%s}", uuid, generation, path_of(b, uuid), ranks) < 0) {
        bail_out("no memory");
    }
    fetch_bed_tell_all(b, text);
}

static bool is_here(const struct fetch_bed *b, uint32_t rank, const char *uuid)
{
    return snap_hold_get(b->snap.copies, rank, uuid) != NULL;
}

static void wait_for(struct fetch_bed *b, uint32_t rank)
{
    uint64_t end = clock_mono_ms() + 60000;

    while (!is_here(b, rank, UUID_A)) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        if (clock_mono_ms() >= end) {
            bail_out("nothing comes of rank %u", rank);
        }
    }
}

static int n_asked(const struct fetch_bed *b)
{
    return b->nodes[0].n_asked + b->nodes[1].n_asked;
}

static void test_ahead(void)
{
    struct fetch_bed b;

    open_bed(&b);
    fetch_bed_save(&b, 0, FIRST, UUID_A, FETCH_ROOM);
    fetch_bed_save(&b, 1, FIRST + 1, UUID_A, FETCH_ROOM);
    start(&b, path_of(&b, UUID_A));
    is_int(b.did.n_wants, 1, "the lead is asked once");
    like(b.did.want, path_of(&b, UUID_A), "for where they start from");
    like(b.did.want, "\"generation\":3", "and which workers these are");
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,2,1],[6,1,2]]");
    wait_for(&b, FIRST);
    wait_for(&b, FIRST + 1);
    is_int(b.did.n_answers, 0, "nobody has asked");
    ok(!b.snap.fetches, "nothing more is to come");
    fetch_bed_begin(&b, FIRST + 1, UUID_A);
    is_int(b.did.n_found, 1, "who asks has it at once");
    is_int(n_asked(&b), 2, "it was sent once");
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,2,1],[6,1,2]]");
    ok(!b.snap.fetches, "what others ask later is theirs");
    fetch_bed_close(&b);
}

/* What both load is on the first node, `bytes` of it the first one's. */
static void open_starting(struct fetch_bed *b, uint64_t bytes)
{
    open_bed(b);
    fetch_bed_save(b, 0, FIRST, UUID_A, bytes);
    fetch_bed_save(b, 0, FIRST + 1, UUID_A, FETCH_ROOM);
    start(b, path_of(b, UUID_A));
}

static void test_asked_meanwhile(void)
{
    struct fetch_bed b;

    open_starting(&b, FETCH_LONG_ROOM);
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    fetch_bed_wait_under_way(&b);
    fetch_bed_begin(&b, FIRST, UUID_A);
    fetch_bed_begin(&b, FIRST, UUID_A);
    ok(b.did.n_answers == 1 && b.did.n_coming == 1, "a rank that asks now has what comes");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 2), "its other question when it is there");
    is_int(b.did.n_found, 2, "each of its questions has it");
    wait_for(&b, FIRST + 1);
    is_int(b.did.n_answers, 2, "the next one has not asked");
    is_int(n_asked(&b), 2, "each was sent once");
    fetch_bed_close(&b);
}

/* They asked first, and the lead speaks of it because others have. */
static void test_asked_before(void)
{
    struct fetch_bed b;

    open_starting(&b, FETCH_ROOM);
    fetch_bed_begin(&b, FIRST, UUID_A);
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    wait_for(&b, FIRST + 1);
    is_int(b.did.n_found, 1, "who has asked is answered");
    is_int(n_asked(&b), 2, "and nothing was sent twice");
    fetch_bed_close(&b);
}

/* The program starts from another one than it was told. */
static void test_another(void)
{
    struct fetch_bed b;

    open_bed(&b);
    fetch_bed_save(&b, 0, FIRST, UUID_A, FETCH_LONG_ROOM);
    fetch_bed_save(&b, 1, FIRST, UUID_B, FETCH_ROOM);
    start(&b, path_of(&b, UUID_A));
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    fetch_bed_wait_under_way(&b);
    fetch_bed_begin(&b, FIRST, UUID_B);
    ok(b.snap.fetches && !b.snap.fetches->next, "what nobody wants is given up");
    fetch_bed_tell(&b, UUID_B, FETCH_GENERATION, "[[5,1,2]]");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1) && b.did.n_found == 1,
       "for what a rank wants");
    ok(!is_here(&b, FIRST, UUID_A), "it never came");
    fetch_bed_close(&b);
}

static bool is_nothing_begun(struct fetch_bed *b)
{
    return !b->snap.fetches && n_asked(b) == 0;
}

static void test_not_wanted(void)
{
    struct fetch_bed b;
    uint32_t n;

    open_bed(&b);
    fetch_bed_save(&b, 0, FIRST, UUID_A, FETCH_ROOM);
    start(&b, "");
    is_int(b.did.n_wants, 0, "who starts from nothing wants nothing");
    job.checkpoint.levels = JOB_LEVEL_MEMORY;
    start(&b, path_of(&b, UUID_A));
    is_int(b.did.n_wants, 0, "nor is anybody asked who has no copies");
    job.checkpoint.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_PARTNER;
    n = b.agent.roster.n;
    b.agent.roster.n = 1;
    start(&b, path_of(&b, UUID_A));
    is_int(b.did.n_wants, 0, "nor where there is nobody else");
    b.agent.roster.n = n;
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    ok(is_nothing_begun(&b), "what is said unasked is for others");
    start(&b, path_of(&b, UUID_A));
    tell(&b, UUID_B, FETCH_GENERATION, "[[4,4,1]]");
    tell(&b, UUID_A, FETCH_GENERATION - 1, "[[4,4,1]]");
    fetch_bed_tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    ok(is_nothing_begun(&b), "nor is what it says of another save, or of others");
    tell(&b, UUID_A, FETCH_GENERATION, "[]");
    ok(is_nothing_begun(&b), "nobody has it");
    is_int(b.did.n_answers + b.did.n_notes, 0, "and nobody hears of that");
    start(&b, path_of(&b, UUID_A));
    agent_fetch_forget(&b.snap);
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    ok(is_nothing_begun(&b), "the workers are gone: it is not wanted any more");
    fetch_bed_close(&b);
}

/* What a rank has saved here, or a partner has put here, is not fetched. */
static void test_is_here(void)
{
    struct fetch_bed b;

    open_bed(&b);
    fetch_bed_save(&b, 0, FIRST, UUID_A, FETCH_ROOM);
    fetch_bed_save(&b, 0, FIRST + 1, UUID_A, FETCH_ROOM);
    fetch_bed_save(&b, -1, FIRST, UUID_A, FETCH_ROOM);
    snap_hold_settle(b.snap.hold, UUID_A, true);
    start(&b, path_of(&b, UUID_A));
    is_int(b.did.n_wants, 1, "one of two is not here");
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    wait_for(&b, FIRST + 1);
    ok(!is_here(&b, FIRST, UUID_A) && n_asked(&b) == 1, "that one is fetched");
    start(&b, path_of(&b, UUID_A));
    tell(&b, UUID_A, FETCH_GENERATION, "[[4,4,1]]");
    ok(!b.snap.fetches && n_asked(&b) == 1, "and not once more");
    fetch_bed_save(&b, -1, FIRST + 1, UUID_A, FETCH_ROOM);
    snap_hold_settle(b.snap.hold, UUID_A, true);
    b.did.n_wants = 0;
    start(&b, path_of(&b, UUID_A));
    is_int(b.did.n_wants, 0, "who has all asks nobody");
    start(&b, path_of(&b, UUID_B));
    is_int(b.did.n_wants, 1, "unless it is another save");
    fetch_bed_close(&b);
}

static void run_for(struct fetch_bed *b, unsigned ms)
{
    uint64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
}

/* Who has it is slow: while nobody waits for it that is all right. */
static void test_slow(void)
{
    struct fetch_bed b;

    open_bed(&b);
    b.nodes[0].is_mute = true;
    b.snap.fetch_ms = SOON_MS;
    start(&b, path_of(&b, UUID_A));
    tell(&b, UUID_A, FETCH_GENERATION, "[[5,1,1]]");
    run_for(&b, 2 * SOON_MS);
    ok(b.snap.fetches && b.snap.fetches->is_started, "it is not given up");
    fetch_bed_begin(&b, FIRST, UUID_A);
    is_int(b.did.n_answers, 0, "who asks then has its own time");
    ok(fetch_bed_run_until(&b, &b.did.n_answers, 1) && b.did.n_found == 0,
       "and is told to read from the disk when that is over");
    fetch_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as agents have it */
    test_ahead();
    test_asked_meanwhile();
    test_asked_before();
    test_another();
    test_not_wanted();
    test_is_here();
    test_slow();
    return tap_done();
}
