/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead has heard of parity: who is protected, who makes what again when nodes
 * are lost, who does instead of one that is lost, too, and where nobody can.
 */
#include <config.h>

#include "launcher/snap_sets.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 6 };

/* Of agents 10, 11, 12, 13, of which 13 has no rank of its own in this set. */
static const struct parity_group four = {
    {4, 1}, 0, {10, 11, 12, 13}, {0, 1, 2, PARITY_NO_RANK}};
/* And of the others of the same ones, with more parity. */
static const struct parity_group more = {
    {4, 2}, 1, {10, 11, 12, 13}, {PARITY_NO_RANK, 3, 4, 5}};

struct bed {
    struct snap_sets sets;
    struct snap_tally tally;
    uint32_t lost[4];
    unsigned n_lost;
};

static bool is_lost(void *arg, uint32_t agent)
{
    const struct bed *b = arg;

    for (unsigned i = 0; i < b->n_lost; i++) {
        if (b->lost[i] == agent) {
            return true;
        }
    }
    return false;
}

static struct snap_now now_of(struct bed *b)
{
    return (struct snap_now){.ms = 5000, .is_lost = is_lost, .arg = b};
}

static void lose(struct bed *b, uint32_t agent)
{
    b->lost[b->n_lost++] = agent;
}

static void open_bed(struct bed *b)
{
    static const uint32_t agents[RANKS] = {10, 11, 12, 11, 12, 13};

    memset(b, 0, sizeof(*b));
    if (snap_tally_init(&b->tally, 1, RANKS, 0) < 0) {
        bail_out("no memory");
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        snap_tally_take(&b->tally, i, agents[i], SNAP_STAGE_HELD, 0);
    }
}

static void take_all(struct bed *b)
{
    for (uint32_t agent = 10; agent < 14; agent++) {
        snap_sets_take(&b->sets, RANKS, agent, &four);
        snap_sets_take(&b->sets, RANKS, agent, &more);
    }
}

static void close_bed(struct bed *b)
{
    snap_sets_release(&b->sets);
    snap_tally_release(&b->tally);
}

/* "rank>agent ", with "!" where one is hopeless. */
static const char *rescue(struct bed *b, char to[256])
{
    struct snap_now now = now_of(b);
    const struct snap_set *hopeless;
    bool is_hopeless = false;
    uint32_t at = 0, agent;
    size_t n = 0;
    bool is;

    to[0] = '\0';
    do {
        is = snap_sets_rescue(&b->sets, &b->tally, &now, &at, &agent, &hopeless);
        is_hopeless = is_hopeless || hopeless;
        if (is) {
            n += (size_t)snprintf(to + n, 256 - n, "%u>%u ", at++, agent);
        }
    } while (is);
    snprintf(to + n, 256 - n, "%s", is_hopeless ? "!" : "");
    return to;
}

static void test_heard(void)
{
    struct bed b;
    struct parity_group g;

    open_bed(&b);
    ok(!snap_sets_has(&b.sets, 0), "nothing was heard");
    ok(snap_sets_take(&b.sets, RANKS, 10, &four), "one of four");
    ok(snap_sets_take(&b.sets, RANKS, 11, &four), "another one");
    ok(snap_sets_take(&b.sets, RANKS, 13, &four), "and who has no rank");
    ok(snap_sets_has(&b.sets, 2), "a rank of which all others keep parity");
    ok(!snap_sets_has(&b.sets, 0), "not all of this one");
    ok(snap_sets_take(&b.sets, RANKS, 12, &four) && snap_sets_has(&b.sets, 0), "now");
    ok(!snap_sets_has(&b.sets, 3) && !snap_sets_has(&b.sets, RANKS), "of no other");
    ok(!snap_sets_take(&b.sets, RANKS, 14, &four), "who is none of them");
    g = four;
    g.shape.m = 2;
    ok(!snap_sets_take(&b.sets, RANKS, 10, &g), "who says something else");
    g = four;
    g.ranks[1] = RANKS;
    ok(!snap_sets_take(&b.sets, RANKS, 10, &g), "a rank that is none");
    g.ranks[1] = 2;
    ok(!snap_sets_take(&b.sets, RANKS, 10, &g), "a rank twice");
    g = four;
    g.agents[1] = 10;
    ok(!snap_sets_take(&b.sets, RANKS, 10, &g), "an agent twice");
    g = four;
    g.ranks[0] = g.ranks[1] = g.ranks[2] = PARITY_NO_RANK;
    ok(!snap_sets_take(&b.sets, RANKS, 10, &g), "of nothing");
    g.shape.n = 1;
    ok(!snap_sets_take(&b.sets, RANKS, 10, &g), "a group of one");
    g = more;
    g.ranks[1] = 2;
    ok(!snap_sets_take(&b.sets, RANKS, 11, &g), "a rank of another set");
    close_bed(&b);
}

/* Heard first, so that nothing else says that it is wrong: it comes from another node. */
static void test_nonsense(void)
{
    static const struct {
        struct parity_group group;
        const char *name;
    } cases[] = {
        {{{3, 1}, 1, {10, 11, 12}, {0, RANKS, 2}}, "a rank that is none"},
        {{{3, 1}, 1, {10, 11, 12}, {0, UINT32_MAX - 1, 2}}, "one far beyond"},
        {{{3, 1}, 1, {10, 11, 12}, {0, 2, 2}}, "a rank twice"},
        {{{3, 1}, 1, {10, 11, 11}, {0, 1, 2}}, "an agent twice"},
        {{{3, 1}, 1, {10, 11, 12}, {PARITY_NO_RANK, PARITY_NO_RANK, PARITY_NO_RANK}}, "no rank"},
        {{{1, 1}, 1, {10}, {0}}, "a group of one"},
    };
    struct parity_group g = {{3, 1}, 1, {10, 11, 12}, {0, 1, 2}};
    struct bed b;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        open_bed(&b);
        ok(!snap_sets_take(&b.sets, RANKS, 10, &cases[i].group), "%s, at first", cases[i].name);
        close_bed(&b);
    }
    open_bed(&b);
    ok(snap_sets_take(&b.sets, RANKS, 10, &g), "three that make sense");
    g.ranks[2] = 3;
    ok(!snap_sets_take(&b.sets, RANKS, 11, &g), "another one of them names another rank");
    close_bed(&b);
}

static void test_rescue(void)
{
    struct bed b;
    char text[256];

    open_bed(&b);
    is_str(rescue(&b, text), "", "nobody has parity");
    take_all(&b);
    is_str(rescue(&b, text), "", "nobody is lost");
    lose(&b, 11);
    is_str(rescue(&b, text), "1>12 3>13 ", "one is: others of its group share it");
    is_int((int)b.tally.news_ms, 5000, "that is news");
    is_str(rescue(&b, text), "1>12 3>13 ", "and said again");
    snap_tally_take(&b.tally, 3, 13, SNAP_STAGE_WRITTEN, 6000);
    is_str(rescue(&b, text), "1>12 ", "until it is there");
    snap_tally_copied(&b.tally, 1, 11, 12, 6000);
    is_str(rescue(&b, text), "", "or a copy is, which is written as any other");
    close_bed(&b);

    open_bed(&b);
    take_all(&b);
    snap_tally_copied(&b.tally, 1, 11, 10, 0);
    lose(&b, 11);
    is_str(rescue(&b, text), "3>13 ", "who has a copy needs no parity");
    lose(&b, 10);
    is_str(rescue(&b, text), "3>13 !", "but with that one, and two of four are lost");
    close_bed(&b);
}

/* A copy that went with its holder is none: there is parity for that, too. */
static void test_copy_lost(void)
{
    struct bed b;
    char text[256];

    open_bed(&b);
    for (uint32_t agent = 10; agent < 14; agent++) {
        snap_sets_take(&b.sets, RANKS, agent, &more);
    }
    snap_tally_copied(&b.tally, 3, 11, 10, 0);
    lose(&b, 11);
    is_str(rescue(&b, text), "", "who has a copy has it");
    lose(&b, 10);
    is_str(rescue(&b, text), "3>13 ", "and when that one is lost it is made again");
    close_bed(&b);
}

/* For who loads what is on the disk. */
static void test_builder(void)
{
    struct bed b;
    struct snap_now now = now_of(&b);
    uint32_t agent = 0;

    open_bed(&b);
    ok(!snap_sets_builder(&b.sets, &now, 1, &agent), "nobody has parity");
    take_all(&b);
    ok(!snap_sets_builder(&b.sets, &now, 1, &agent), "nobody is lost");
    lose(&b, 11);
    ok(snap_sets_builder(&b.sets, &now, 1, &agent) && agent == 12, "one is");
    ok(!snap_sets_builder(&b.sets, &now, 2, &agent), "another rank is where it was");
    ok(!snap_sets_builder(&b.sets, &now, RANKS, &agent), "and one is none");
    lose(&b, 10);
    ok(!snap_sets_builder(&b.sets, &now, 1, &agent), "two are too many");
    ok(snap_sets_builder(&b.sets, &now, 3, &agent) && agent == 13, "for one set");
    close_bed(&b);
}

static void test_more_lost(void)
{
    struct bed b;
    char text[256];

    open_bed(&b);
    take_all(&b);
    lose(&b, 11);
    rescue(&b, text);
    lose(&b, 13);
    is_str(rescue(&b, text), "1>12 3>10 5>12 ", "one of two is asked instead of who was "
           "lost, and who began goes on");
    lose(&b, 12);
    is_str(rescue(&b, text), "3>10 !", "three of four are too many, but who has begun "
           "may have it by now");
    close_bed(&b);

    open_bed(&b);
    for (uint32_t agent = 10; agent < 13; agent++) {
        snap_sets_take(&b.sets, RANKS, agent, &four);
    }
    lose(&b, 12);
    lose(&b, 13);
    is_str(rescue(&b, text), "!", "one with no rank counts: its parity is gone");
    close_bed(&b);
}

static bool can_be(struct bed *b)
{
    struct snap_now now = now_of(b);

    return snap_sets_can_be(&b->sets, &b->tally, &now);
}

/* Of one that stays in memory: by copies alone. */
static void test_copies(void)
{
    struct bed b;

    open_bed(&b);
    ok(can_be(&b), "one that all have can be a checkpoint");
    lose(&b, 11);
    ok(!can_be(&b), "unless a node is lost");
    snap_tally_copied(&b.tally, 1, 11, 10, 0);
    ok(!can_be(&b), "with all that it has");
    ok(snap_sets_outlives(&b.sets, &b.tally, 1), "one rank of it has a copy");
    ok(!snap_sets_outlives(&b.sets, &b.tally, 3), "and the other has none");
    snap_tally_copied(&b.tally, 3, 11, 13, 0);
    ok(can_be(&b), "or who has copies of all is there");
    lose(&b, 13);
    ok(!can_be(&b), "which that one may be lost, too");
    close_bed(&b);

    open_bed(&b);
    snap_tally_take(&b.tally, 1, 11, SNAP_STAGE_FAILED, 0);
    ok(!can_be(&b), "not where one has failed");
    close_bed(&b);
    open_bed(&b);
    b.tally.n_held--;
    ok(!can_be(&b), "nor where a rank has not handed it over");
    close_bed(&b);
}

/* And by parity, which makes up for one in one set, and for two in the other. */
static void test_parity(void)
{
    struct bed b;

    open_bed(&b);
    ok(!snap_sets_outlives(&b.sets, &b.tally, 0), "nothing outlives its node");
    take_all(&b);
    ok(snap_sets_outlives(&b.sets, &b.tally, 0) &&
       snap_sets_outlives(&b.sets, &b.tally, 5), "all does that has parity");
    ok(!snap_sets_outlives(&b.sets, &b.tally, RANKS), "but for a rank that is none");
    lose(&b, 11);
    ok(can_be(&b), "a node is lost: what it had can be made again");
    lose(&b, 13);
    ok(!can_be(&b), "two are: not what is of the set that makes up for one");
    snap_tally_copied(&b.tally, 1, 11, 10, 0);
    ok(can_be(&b), "of which there may be a copy");
    close_bed(&b);

    open_bed(&b);
    take_all(&b);
    snap_sets_release(&b.sets);
    for (uint32_t agent = 10; agent < 13; agent++) {
        snap_sets_take(&b.sets, RANKS, agent, &four);
        snap_sets_take(&b.sets, RANKS, agent, &more);
    }
    lose(&b, 13);
    ok(can_be(&b), "who is lost need not have said that it kept parity");
    b.lost[0] = 12;
    ok(!can_be(&b), "but all that are left have to");
    close_bed(&b);
}

int main(void)
{
    test_copies();
    test_parity();
    test_heard();
    test_nonsense();
    test_rescue();
    test_copy_lost();
    test_builder();
    test_more_lost();
    return tap_done();
}
