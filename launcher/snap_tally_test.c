/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save is committed at once when all have written it; it is looked at when nobody
 * writes and nobody will; and as long as one who is there writes, it is waited for.
 */
#include <config.h>

#include "launcher/snap_tally.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

enum { N = 4, GENERATION = 3, BEGIN = 1000 };

struct bed {
    struct snap_tally tally;
    uint32_t started;
    bool is_passed;
    unsigned lost; /* agents, as bits */
};

static bool is_lost(void *arg, uint32_t agent)
{
    const struct bed *b = arg;

    return b->lost >> agent & 1;
}

static struct snap_now now_of(struct bed *b, uint64_t ms)
{
    return (struct snap_now){.ms = BEGIN + ms, .started = b->started,
                             .is_passed = b->is_passed, .is_lost = is_lost,
                             .arg = b};
}

static enum snap_fate judge(struct bed *b, uint64_t ms)
{
    const struct snap_now now = now_of(b, ms);

    return snap_tally_judge(&b->tally, &now);
}

/* Ranks 0 and 1 are of agent 0, the others of agent 1. */
static void take(struct bed *b, uint32_t rank, enum snap_stage stage, uint64_t ms)
{
    snap_tally_take(&b->tally, rank, rank / 2, stage, BEGIN + ms);
}

/* Stages as letters: none, held, written, failed. */
static void open_with(struct bed *b, const char *stages)
{
    *b = (struct bed){.started = GENERATION};
    if (snap_tally_init(&b->tally, GENERATION, N, BEGIN) < 0) {
        bail_out("out of memory");
    }
    for (uint32_t i = 0; stages[i]; i++) {
        take(b, i, stages[i] == 'h'   ? SNAP_STAGE_HELD
                   : stages[i] == 'w' ? SNAP_STAGE_WRITTEN
                   : stages[i] == 'f' ? SNAP_STAGE_FAILED
                                      : SNAP_STAGE_NONE, 0);
    }
}

/* What is to be done the moment before, and at it. */
static void turns_at(struct bed *b, uint64_t ms, const char *what)
{
    is_int(judge(b, ms - 1), SNAP_FATE_WAIT, "%s: waits", what);
    is_int(judge(b, ms), SNAP_FATE_COMMIT, "%s: then looks", what);
    snap_tally_release(&b->tally);
}

/* Who writes instead of one that was thought to be lost has no word against it. */
static void test_instead(void)
{
    struct bed b;

    open_with(&b, "wwwh");
    snap_tally_take(&b.tally, 0, 1, SNAP_STAGE_FAILED, BEGIN);
    is_int((int)b.tally.n_failed, 0, "what is written is not lost by another one's failure");
    take(&b, 3, SNAP_STAGE_WRITTEN, 1);
    is_int(judge(&b, 1), SNAP_FATE_COMMIT, "and counts");
    snap_tally_take(&b.tally, 0, 0, SNAP_STAGE_FAILED, BEGIN + 2);
    is_int(judge(&b, 2), SNAP_FATE_REMOVE, "but by its own");
    snap_tally_release(&b.tally);
    open_with(&b, "wwwh");
    snap_tally_take(&b.tally, 3, 0, SNAP_STAGE_FAILED, BEGIN);
    is_int((int)b.tally.n_failed, 1, "nor has it where nobody has written it");
    snap_tally_release(&b.tally);
}

/* It stays in memory, as long as a later one does not take its place. */
static void test_parked(void)
{
    struct bed b;
    struct snap_now now;

    open_with(&b, "wwhn");
    now = now_of(&b, 1);
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_WAIT, "what one has not handed over");
    now.is_ending = true;
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_WAIT,
           "is written to its end, though the run ends");
    b.lost = 2;
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_COMMIT, "but nobody comes back");
    b.lost = 0;
    now.is_parked = true;
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_REMOVE, "nor hands it over");
    snap_tally_release(&b.tally);
    open_with(&b, "hhhh");
    now = now_of(&b, 9 * SNAP_TALLY_STALE_MS);
    now.is_parked = true;
    b.tally.heard_ms = now.ms;
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_WAIT, "one that all have");
    b.lost = 2;
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_WAIT,
           "a node that is lost may come back");
    take(&b, 1, SNAP_STAGE_FAILED, now.ms);
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_REMOVE, "which ends it");
    snap_tally_release(&b.tally);
    open_with(&b, "hhhn");
    now = now_of(&b, SNAP_TALLY_SETTLE_MS - 1);
    now.is_parked = true;
    now.started = GENERATION + 1;
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_WAIT,
           "what a rank has not handed over may be on its way");
    now.ms++;
    is_int(snap_tally_judge(&b.tally, &now), SNAP_FATE_REMOVE, "for a while");
    snap_tally_release(&b.tally);
}

static void test_all_written(void)
{
    struct bed b;

    open_with(&b, "wwwh");
    is_int(judge(&b, 0), SNAP_FATE_WAIT, "one is not written");
    take(&b, 3, SNAP_STAGE_WRITTEN, 5);
    is_int(judge(&b, 5), SNAP_FATE_COMMIT, "all are");
    snap_tally_release(&b.tally);
}

static void test_failed(void)
{
    struct bed b;

    open_with(&b, "wfhn");
    is_int(judge(&b, SNAP_TALLY_FAILED_MS - 1), SNAP_FATE_WAIT,
           "one has failed, and one may hand over yet");
    is_int(judge(&b, SNAP_TALLY_FAILED_MS), SNAP_FATE_REMOVE, "but not for long");
    snap_tally_release(&b.tally);
    open_with(&b, "wfhh");
    is_int(judge(&b, 0), SNAP_FATE_REMOVE, "all have handed it over");
    snap_tally_release(&b.tally);
}

/* As long as it says so it is well: a disk may be slow. */
static void test_slow(void)
{
    struct bed b;

    open_with(&b, "wwwh");
    b.started = GENERATION + 1;
    take(&b, 3, SNAP_STAGE_HELD, 3 * SNAP_TALLY_STALE_MS);
    turns_at(&b, 3 * SNAP_TALLY_STALE_MS + SNAP_TALLY_SILENT_MS,
             "one that writes and is not lost");
}

static void test_lost(void)
{
    struct bed b;

    open_with(&b, "wwhh");
    b.lost = 2;
    turns_at(&b, SNAP_TALLY_LOST_MS, "a node was lost that was writing");
    open_with(&b, "wwww");
    b.lost = 2;
    is_int(judge(&b, 0), SNAP_FATE_COMMIT, "one that had written was lost");
    snap_tally_release(&b.tally);
    open_with(&b, "hwhh");
    b.lost = 2;
    is_int(judge(&b, SNAP_TALLY_LOST_MS), SNAP_FATE_WAIT,
           "one was lost, and another one writes");
    snap_tally_release(&b.tally);
}

static void test_cut(void)
{
    struct bed b;

    open_with(&b, "wwwn");
    b.started = GENERATION + 1;
    turns_at(&b, SNAP_TALLY_SETTLE_MS, "one of an earlier generation is missing");
    open_with(&b, "wwwn");
    take(&b, 0, SNAP_STAGE_WRITTEN, SNAP_TALLY_STALE_MS - 1);
    turns_at(&b, SNAP_TALLY_STALE_MS, "one may be copying still");
    open_with(&b, "wwwn");
    b.is_passed = true;
    turns_at(&b, SNAP_TALLY_SETTLE_MS, "all have handed over the next one");
    open_with(&b, "wwwh");
    b.is_passed = true;
    is_int(judge(&b, SNAP_TALLY_SETTLE_MS), SNAP_FATE_WAIT,
           "but who writes it still is waited for");
    snap_tally_release(&b.tally);
}

/* Who starts workers waits for what they can load then, and for nothing else. */
static void test_sure(void)
{
    static const struct {
        const char *stages;
        unsigned lost;
        bool is_sure;
    } cases[] = {
        {"hhhh", 0, true},  {"wwwh", 0, true},  {"wwww", 0, true},
        {"wwwn", 0, false}, {"hhhf", 0, false}, {"nnnn", 0, false},
        {"wwhw", 2, false}, {"hhww", 2, true},  {"wwww", 3, true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bed b;
        struct snap_now now;

        open_with(&b, cases[i].stages);
        b.lost = cases[i].lost;
        now = now_of(&b, 0);
        is_int(snap_tally_is_sure(&b.tally, &now), cases[i].is_sure,
               "%s, %u lost: %s", cases[i].stages, cases[i].lost,
               cases[i].is_sure ? "sure" : "not sure");
        snap_tally_release(&b.tally);
    }
}

static void test_nonsense(void)
{
    struct bed b;

    open_with(&b, "wwww");
    take(&b, 2, SNAP_STAGE_HELD, 1);
    take(&b, N, SNAP_STAGE_FAILED, 1);
    take(&b, UINT32_MAX, SNAP_STAGE_FAILED, 1);
    is_int(judge(&b, 1), SNAP_FATE_COMMIT, "no rank goes back, or is too many");
    is_int(b.tally.n_held, N, "each counts once");
    snap_tally_release(&b.tally);
}

/* The agent of a rank is lost: who has a copy of what it held writes, if there is one,
 * and counts as who writes from then on. */
static void test_rescue(void)
{
    struct bed b;
    struct snap_now now;
    uint32_t at = 0, agent = 9;

    open_with(&b, "wwhh");
    snap_tally_copied(&b.tally, 2, 1, 5, BEGIN);
    snap_tally_copied(&b.tally, 3, 1, 5, BEGIN);
    now = now_of(&b, 10);
    ok(!snap_tally_rescue(&b.tally, &now, &at, &agent), "who writes is there");
    b.lost = 1 << 1;
    at = 0;
    ok(!snap_tally_is_sure(&b.tally, &now), "lost: it is not sure");
    ok(snap_tally_rescue(&b.tally, &now, &at, &agent) && at == 2 && agent == 5,
       "a copy of the first one");
    at++;
    ok(snap_tally_rescue(&b.tally, &now, &at, &agent) && at == 3 && agent == 5,
       "and of the other");
    at++;
    ok(!snap_tally_rescue(&b.tally, &now, &at, &agent) && at == N, "no more");
    ok(snap_tally_is_sure(&b.tally, &now), "it is sure again");
    is_int(judge(&b, 2 * SNAP_TALLY_LOST_MS), SNAP_FATE_WAIT, "and waited for");
    at = 0;
    ok(snap_tally_rescue(&b.tally, &now, &at, &agent) && at == 2,
       "who has not begun is told again");
    snap_tally_take(&b.tally, 2, 5, SNAP_STAGE_WRITTEN, BEGIN + 20);
    at = 0;
    ok(snap_tally_rescue(&b.tally, &now, &at, &agent) && at == 3,
       "not of what is written");
    snap_tally_take(&b.tally, 3, 5, SNAP_STAGE_WRITTEN, BEGIN + 30);
    is_int(judge(&b, 40), SNAP_FATE_COMMIT, "all is there");
    snap_tally_release(&b.tally);
    open_with(&b, "wwwh");
    snap_tally_copied(&b.tally, 3, 1, 5, BEGIN);
    b.lost = 1 << 1 | 1 << 5;
    at = 0;
    ok(!snap_tally_rescue(&b.tally, &now, &at, &agent), "both are lost: nobody has it");
    is_int(judge(&b, 2 * SNAP_TALLY_LOST_MS), SNAP_FATE_COMMIT, "the disk tells");
    snap_tally_release(&b.tally);
    open_with(&b, "wwwh");
    snap_tally_copied(&b.tally, 3, 1, 5, BEGIN);
    b.lost = 1 << 1;
    now = now_of(&b, SNAP_TALLY_LOST_MS);
    at = 0;
    ok(snap_tally_rescue(&b.tally, &now, &at, &agent) && agent == 5, "a copy, late");
    b.lost |= 1 << 5;
    is_int(judge(&b, SNAP_TALLY_LOST_MS + 10), SNAP_FATE_WAIT,
           "who has just been told of it may come back as well");
    is_int(judge(&b, 2 * SNAP_TALLY_LOST_MS), SNAP_FATE_COMMIT, "not for ever");
    snap_tally_release(&b.tally);
    open_with(&b, "www");
    snap_tally_copied(&b.tally, 3, 1, 5, BEGIN);
    is_int((int)b.tally.n_held, N, "where there is a copy, it was handed over");
    snap_tally_copied(&b.tally, N, 1, 5, BEGIN);
    is_int((int)b.tally.n_held, N, "a rank that is none");
    snap_tally_release(&b.tally);
}

/* Who saved it, then who has a copy: those that are there. */
static void test_holders(void)
{
    static const struct {
        uint32_t rank;
        unsigned lost, n;
        uint32_t agents[SNAP_TALLY_HOLDERS];
        const char *what;
    } cases[] = {
        {0, 0, 1, {0}, "nobody has a copy"},
        {0, 1, 0, {0}, "nobody had one"},
        {1, 0, 0, {0}, "nobody has handed it over"},
        {2, 0, 2, {1, 5}, "who saved it, and a copy"},
        {2, 1 << 1, 1, {5}, "the copy alone"},
        {2, 1 << 5, 1, {1}, "the copy was lost"},
        {2, 1 << 1 | 1 << 5, 0, {0}, "both were lost"},
        {3, 0, 2, {1, 0}, "it was copied before its agent said so"},
        {N, 0, 0, {0}, "a rank that is none"},
        {UINT32_MAX, 0, 0, {0}, "nor that"},
    };
    struct bed b;
    struct snap_now now;
    uint32_t agents[SNAP_TALLY_HOLDERS], at = 0, agent;
    struct snap_run run = {0};

    open_with(&b, "wnh");
    snap_tally_copied(&b.tally, 2, 1, 5, BEGIN);
    snap_tally_copied(&b.tally, 3, 1, 0, BEGIN);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned n;

        b.lost = cases[i].lost;
        now = now_of(&b, 0);
        n = snap_tally_holders(&b.tally, &now, cases[i].rank, agents);
        ok(n == cases[i].n && (n < 1 || agents[0] == cases[i].agents[0]) &&
               (n < 2 || agents[1] == cases[i].agents[1]), "%s", cases[i].what);
    }
    b.lost = 1;
    now = now_of(&b, 0);
    ok(snap_tally_next_run(&b.tally, &now, &run) && run.first == 0 && run.end == 2 &&
           run.n == 0, "two that nobody has");
    ok(snap_tally_next_run(&b.tally, &now, &run) && run.first == 2 && run.end == 3 &&
           run.n == 2, "one that two have");
    ok(snap_tally_next_run(&b.tally, &now, &run) && run.first == 3 && run.end == N &&
           run.n == 1 && !snap_tally_next_run(&b.tally, &now, &run),
       "and the last one");
    b.lost = 1 << 1;
    ok(snap_tally_rescue(&b.tally, &now, &at, &agent) && at == 2, "a copy is written");
    b.lost = 0;
    is_int((int)snap_tally_holders(&b.tally, &now, 2, agents), 1,
           "by one that counts once from then on");
    is_int((int)agents[0], 5, "and who came back, without its memory, not at all");
    snap_tally_release(&b.tally);
}

int main(void)
{
    test_instead();
    test_parked();
    test_all_written();
    test_failed();
    test_slow();
    test_lost();
    test_cut();
    test_sure();
    test_rescue();
    test_holders();
    test_nonsense();
    return tap_done();
}
