/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs as their agents see them, by a clock of the test: two nodes with two ranks
 * each, and a timeout of 10 s, which makes looks of one second.
 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/hang.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { TIMEOUT = 10000, LOOK = 1000, RANKS = 4, NODES = 2 };

struct bed {
    struct hang *h;
    uint64_t now;
    struct hang_seen seen[RANKS];
    bool held[NODES];
    bool mute[NODES]; /* its agent tells nothing */
    int n_dumps;
};

static void setup(struct bed *b)
{
    static const uint16_t procs[NODES] = {2, 2};

    memset(b, 0, sizeof(*b));
    b->now = 5000;
    b->h = hang_create(TIMEOUT);
    if (!b->h || !hang_start(b->h, 7, procs, NODES, b->now)) {
        bail_out("hang_start");
    }
    for (int i = 0; i < RANKS; i++) {
        b->seen[i] = (struct hang_seen){.is_alive = true, .step = -1};
    }
}

static void teardown(struct bed *b)
{
    hang_destroy(b->h);
}

static enum hang_action look(struct bed *b)
{
    enum hang_action did;

    b->now += LOOK;
    for (uint32_t n = 0; n < NODES; n++) {
        if (!b->mute[n]) {
            hang_see(b->h, n, 2 * n, b->seen + 2 * n, 2, b->held[n], b->now);
        }
    }
    did = hang_tick(b->h, b->now);
    b->n_dumps += did == HANG_DUMP;
    return did;
}

/* So many looks, in each of which the ranks of a mask show something. */
static int run(struct bed *b, int n, unsigned report, unsigned print,
               unsigned work)
{
    for (int i = 0; i < n; i++) {
        for (unsigned r = 0; r < RANKS; r++) {
            b->seen[r].reports += report >> r & 1;
            b->seen[r].step += report >> r & 1;
            b->seen[r].outputs += print >> r & 1;
            b->seen[r].cpu += work >> r & 1;
        }
        look(b);
    }
    return b->n_dumps;
}

static void blamed(struct bed *b, uint32_t rank, const char *why,
                   const char *name)
{
    char text[HANG_WHY_BYTES];

    for (int i = 0; i < HANG_DUMP_MS / LOOK + 2; i++) {
        if (look(b) == HANG_BLAME) {
            break;
        }
    }
    is_int(look(b), HANG_BLAME, "%s: somebody is blamed, and again", name);
    is_int(hang_culprit(b->h, text), rank, "%s: who", name);
    like(text, why, "%s: why", name);
}

static void test_progress(void)
{
    static const struct {
        const char *name;
        unsigned before[3]; /* shown once: reports, output, CPU time */
        unsigned then[3];   /* in each look after that */
        int n_dumps;
    } cases[] = {
        {"all report", {0, 0, 15}, {15, 0, 0}, 0},
        {"one does not any more", {15, 0, 15}, {7, 15, 15}, 1},
        {"only one ever did, and goes on", {1, 0, 15}, {1, 0, 15}, 0},
        {"only one ever did, and spins", {1, 0, 15}, {0, 0, 15}, 1},
        {"nobody says anything, all work", {0, 0, 0}, {0, 0, 15}, 0},
        {"one does not work", {0, 0, 15}, {0, 0, 7}, 1},
        {"one speaks, others have warned while they started", {0, 15, 15},
         {0, 1, 15}, 0},
        {"one of these sleeps", {0, 15, 15}, {0, 1, 7}, 1},
        {"one speaks without working", {0, 1, 15}, {0, 1, 14}, 0},
        {"nobody speaks any more, all spin", {0, 1, 15}, {0, 0, 15}, 1},
        {"a report of one keeps up those that printed", {1, 14, 15},
         {1, 0, 15}, 0},
        {"nothing at all, from the start", {0, 0, 0}, {0, 0, 0}, 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const unsigned *a = cases[i].before, *z = cases[i].then;
        struct bed b;

        setup(&b);
        run(&b, 1, a[0], a[1], a[2]);
        is_int(run(&b, 9, z[0], z[1], z[2]), 0, "%s: not before the timeout",
               cases[i].name);
        is_int(run(&b, 4, z[0], z[1], z[2]), cases[i].n_dumps, "%s",
               cases[i].name);
        teardown(&b);
    }
}

static void test_false_alarms(void)
{
    struct bed b;

    setup(&b);
    run(&b, 2, 15, 0, 15);
    b.mute[1] = true;
    is_int(run(&b, 100, 0, 0, 0), 0, "an agent that tells nothing: nobody can "
           "know");
    b.mute[1] = false;
    is_int(run(&b, 6, 0, 0, 0), 0, "it is back: that time does not count");
    is_int(run(&b, 8, 0, 0, 0), 1, "only what comes after it");
    teardown(&b);

    setup(&b);
    run(&b, 2, 15, 0, 15);
    b.held[0] = true;
    is_int(run(&b, 100, 0, 0, 0), 0, "a worker is stopped: others may wait for "
           "it");
    b.held[0] = false;
    is_int(run(&b, 8, 0, 0, 0), 0, "and when it goes on, all have their time");
    is_int(run(&b, 4, 0, 0, 0), 1, "but not for ever");
    teardown(&b);

    setup(&b);
    run(&b, 2, 15, 0, 15);
    b.now += 1000000;
    is_int(run(&b, 7, 0, 0, 0), 0, "the lead was stopped, or the host was");
    is_int(run(&b, 5, 0, 0, 0), 1, "but it looks again");
    teardown(&b);

    setup(&b);
    b.mute[1] = true;
    is_int(run(&b, 100, 0, 0, 0), 0, "an agent that never told anything");
    teardown(&b);
}

static void test_ends(void)
{
    struct bed b;

    setup(&b);
    run(&b, 1, 15, 0, 15);
    b.seen[2].is_alive = false;
    hang_end(b.h, 3);
    b.mute[1] = false;
    run(&b, 1, 3, 0, 15);
    b.mute[1] = true;
    is_int(run(&b, 30, 3, 0, 3), 0, "who has ended need not go on, nor need "
           "its agent tell of it");
    hang_end(b.h, 3);
    hang_end(b.h, 77);
    is_int(run(&b, 12, 1, 0, 3), 1, "the others do");
    hang_stop(b.h);
    is_int(look(&b), HANG_NONE, "a generation that is over");
    teardown(&b);
}

static void test_dumps(void)
{
    struct bed b;

    setup(&b);
    is_int(run(&b, 12, 0, 0, 0), 1, "stacks are asked for");
    hang_dumped(b.h, 0, HANG_WAIT_NO);
    hang_dumped(b.h, 1, HANG_WAIT_NO);
    hang_dumped(b.h, 2, HANG_WAIT_NO);
    is_int(look(&b), HANG_NONE, "nobody is blamed while one is missing");
    hang_dumped(b.h, 77, HANG_WAIT_NO);
    hang_dumped(b.h, 3, HANG_WAIT_NO);
    is_int(look(&b), HANG_BLAME, "but then");
    is_int(b.n_dumps, 1, "they are asked for once");
    teardown(&b);

    setup(&b);
    run(&b, 12, 0, 0, 0);
    b.now += HANG_DUMP_MS;
    is_int(look(&b), HANG_BLAME, "or when they do not come");
    is_int(hang_generation(b.h), 7, "of the generation");
    teardown(&b);
}

/* Each rank's stack says whether it waits in a collective: +, -, or ? where it does not
 * tell. */
static void dump(struct bed *b, const char *waits)
{
    for (uint32_t r = 0; waits[r]; r++) {
        hang_dumped(b->h, r, waits[r] == '+' ? HANG_WAIT_YES
                             : waits[r] == '-' ? HANG_WAIT_NO : HANG_WAIT_UNKNOWN);
    }
}

/* Who is blamed for what ranks show, and for their stacks. */
static void test_signs(void)
{
    static const struct {
        const char *name;
        struct {
            int n;
            unsigned report, print, work;
        } runs[3];
        unsigned n_rounds;
        const char *waits;
        uint32_t rank;
        const char *why;
    } cases[] = {
        {"one who reports alone", {{3, 1, 0, 15}, {1, 0, 0, 11}, {11, 0, 0, 15}}, 1, "",
         0, "no report for 10s"},
        {"by stacks", {{3, 0, 0, 15}, {11, 0, 0, 0}}, 1, "+?-+",
         2, "no CPU time of rank 0 for 10s; others wait in a collective, it does not"},
        /* Nobody waits for rank 0, which hangs before its first report. */
        {"never reported, and others go on", {{1, 14, 0, 14}, {1, 6, 0, 14}}, 6, "+---",
         0, "no CPU time for 10s"},
        /* All wait for rank 2, which has printed and hangs before its first report. */
        {"never reported, and others wait", {{1, 0, 15, 15}, {1, 11, 0, 15}, {12, 0, 0, 11}},
         1, "", 2, "no report of rank 0 for 10s"},
        {"quiet first", {{3, 0, 15, 15}, {1, 0, 0, 13}, {11, 0, 0, 0}}, 1, "",
         1, "no output of rank 0 for 10s"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bed b;

        setup(&b);
        for (size_t k = 0; k < cases[i].n_rounds * ARRAY_SIZE(cases[i].runs); k++) {
            size_t j = k % ARRAY_SIZE(cases[i].runs);

            run(&b, cases[i].runs[j].n, cases[i].runs[j].report, cases[i].runs[j].print,
                cases[i].runs[j].work);
        }
        dump(&b, cases[i].waits);
        blamed(&b, cases[i].rank, cases[i].why, cases[i].name);
        teardown(&b);
    }
}

static void test_culprits(void)
{
    char text[HANG_WHY_BYTES];
    struct bed b;

    setup(&b);
    run(&b, 3, 15, 0, 15);
    run(&b, 2, 11, 0, 15);
    run(&b, 8, 0, 0, 15);
    hang_word(b.h, text);
    is_str(text, "rank 2: no report for 10s", "who made it a hang");
    blamed(&b, 2, "no report for 10s; its last step is 2, others are at 4",
           "behind by a step");
    teardown(&b);

    /* All count from 0 in each epoch, and three have begun the next one. */
    setup(&b);
    run(&b, 5, 15, 0, 15);
    for (int i = 0; i < RANKS; i++) {
        b.seen[i].step = i == 3 ? 5 : -1;
        b.seen[i].turns = i == 3 ? 0 : 1;
    }
    run(&b, 1, 15, 0, 15);
    is_int(run(&b, 9, 0, 0, 15), 0, "a step that goes down is progress");
    run(&b, 2, 0, 0, 15);
    blamed(&b, 3, "it is at step 6, and its steps have begun anew 0 times, those of "
                  "others 1", "behind by an epoch");
    teardown(&b);

    setup(&b);
    run(&b, 3, 15, 0, 15);
    for (int i = 0; i < RANKS; i++) {
        b.seen[i].entered = i == 1 ? 6 : 7;
    }
    run(&b, 1, 14, 0, 15);
    run(&b, 10, 0, 0, 15);
    blamed(&b, 1, "it has made 6 calls of collectives, others 7",
           "did not come to a collective");
    teardown(&b);

    setup(&b);
    run(&b, 3, 15, 0, 15);
    for (int i = 0; i < RANKS; i++) {
        b.seen[i].entered = i ? 6 : UINT64_MAX;
    }
    run(&b, 1, 8, 0, 15);
    run(&b, 10, 0, 0, 15);
    blamed(&b, 1, "it has made 6 calls of collectives, and others are through "
                  "with theirs", "waits for one that will not come");
    teardown(&b);

    setup(&b);
    run(&b, 3, 0, 1, 15);
    run(&b, 11, 0, 0, 15);
    hang_missed(b.h, 3, "pg/0//3");
    hang_missed(b.h, 3, "pg/0//3");
    hang_missed(b.h, 2, "pg/0//2");
    hang_missed(b.h, 77, "pg/0//77");
    blamed(&b, 3, "no output of rank 0 for 10s; others wait in the store for "
                  "'pg/0//3', which it has to set", "a key of the store");
    teardown(&b);

    setup(&b);
    run(&b, 12, 0, 0, 0);
    hang_end(b.h, 0);
    blamed(&b, 1, "no CPU time", "the lowest of those that live");
    teardown(&b);
}

static void test_senseless(void)
{
    struct bed b;
    struct hang_seen wrong[3] = {{.reports = 9, .is_alive = true},
                                 {.reports = 9, .is_alive = true}, {0}};

    setup(&b);
    run(&b, 1, 1, 0, 15);
    for (int i = 0; i < 12; i++) {
        wrong[0].reports++;
        hang_see(b.h, 1, 0, wrong, 3, false, b.now);
        hang_see(b.h, 9, 0, wrong, 3, true, b.now);
        run(&b, 1, 0, 0, 15);
    }
    is_int(b.n_dumps, 1, "a node does not speak for ranks of others, nor one "
           "that is none");
    teardown(&b);
    is_int((intmax_t)hang_interval_ms(100), 100, "looks are not too dense");
    is_int((intmax_t)hang_interval_ms(600000), 10000, "nor too rare");
    hang_destroy(NULL);
}

int main(void)
{
    test_progress();
    test_false_alarms();
    test_ends();
    test_dumps();
    test_signs();
    test_culprits();
    test_senseless();
    return tap_done();
}
