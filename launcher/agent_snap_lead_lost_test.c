/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead has done for saves of nodes that are lost: who has a copy writes it, and who
 * has parity makes it again, once a save is to go to the disk, and until it is there.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

/* As that agent says that it keeps whole parity; takes `members`. */
static void say_parity(struct lead_snap_bed *b, uint32_t agent, uint32_t ranks, int parities,
                       json_t *members)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "uuid",
                             UUID_A, "root", b->agent.run.dir, "step", 10, "generation", 1,
                             "token", 1, "rank", 0, "ranks", (int)ranks, "stage",
                             SNAP_STAGE_HELD, "parities", parities, "members", members);

    lead_snap_parity(b->lead, agent, fact);
    json_decref(fact);
}

/* Of three ranks, each of an agent of its own. */
static void say_three(struct lead_snap_bed *b)
{
    for (uint32_t agent = 0; agent < 3; agent++) {
        say_parity(b, agent, 3, 1, json_pack("[[i,i],[i,i],[i,i]]", 0, 0, 1, 1, 2, 2));
    }
}

/* --- parity --- */

static json_t *members_of(int n)
{
    json_t *a = json_array();

    for (int i = 0; i < n; i++) {
        json_array_append_new(a, json_pack("[i,i]", i, i));
    }
    return a;
}

static void test_nonsense(struct lead_snap_bed *b)
{
    struct {
        int parities;
        json_t *members;
        const char *what;
    } cases[] = {
        {1, members_of(1), "a node alone"},
        {0, members_of(2), "no parity"},
        {PARITY_MAX + 1, members_of(PARITY_MAX_MEMBERS), "more parities than there are"},
        {1, members_of(PARITY_MAX_MEMBERS + 1), "more nodes than a group has"},
        {1, json_pack("[[i,i],[i,i]]", STATUS_MAX_NODES, 0, 1, 1), "no node"},
        {1, json_pack("[[i,i,i],[i,i]]", 0, 0, 9, 1, 1), "more than a node and a rank"},
    };

    lead_snap_bed_open(b);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        say_parity(b, i == 4 ? 1 : 0, PARITY_MAX_MEMBERS + 1, cases[i].parities,
                   cases[i].members);
        ok(b->lead->saves && !b->lead->saves->sets.list, "%s makes no sense", cases[i].what);
    }
    lead_snap_bed_close(b);
}

/* A node may have fewer ranks than others. */
static void test_no_rank(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    for (uint32_t agent = 0; agent < 3; agent++) {
        say_parity(b, agent, 2, 1, json_pack("[[i,i],[i,i],[i,i]]", 0, 0, 1, 1, 2, -1));
    }
    is_int(b->n_took[INTERVAL_PARTNER], 1, "with parity by a node without a rank all is safe");
    lead_snap_bed_close(b);
}

static void test_whole(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .ranks = 3});
    ok(b->is_busy[INTERVAL_PARTNER], "parity of a save is under way");
    b->now_ms += SNAP_TELL_AGAIN_MS;
    lead_snap_bed_hush(b);
    say_three(b);
    ok(!b->is_busy[INTERVAL_PARTNER] && b->n_took[INTERVAL_PARTNER] == 1, "it is whole");
    is_str(b->said, "", "of which nobody has to hear");
    lead_snap_bed_close(b);
}

/* Two ranks of the node that is lost, each in a set of its own. */
static void test_rebuilt(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    for (uint32_t rank = 0; rank < 4; rank++) {
        lead_snap_bed_say(b, rank / 2, (struct bed_word){.uuid = UUID_A, .rank = rank,
                                                         .ranks = 4});
    }
    for (uint32_t agent = 0; agent < 2; agent++) {
        say_parity(b, agent, 4, 1, json_pack("[[i,i],[i,i]]", 0, 0, 1, 2));
        say_parity(b, agent, 4, 1, json_pack("[[i,i],[i,i]]", 0, 1, 1, 3));
    }
    lead_snap_bed_look(b);
    is_str(b->said, "", "nobody is lost");
    b->lost = 0;
    lead_snap_bed_look(b);
    ok(lead_snap_bed_has_said(b, "{\"ask\":\"snap_rebuild\",\"uuid\":\"" UUID_A
                                 "\",\"ranks\":[[0,1],[1,1]],\"lost\":[0]}"),
       "who can makes it again, and knows whom not to ask: %s", b->said);
    ok(!strstr(b->said, "snap_write"), "nobody has a copy");
    lead_snap_bed_hush(b);
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .ranks = 4, .is_copy = true});
    ok(lead_snap_bed_has_said(b, "{\"ask\":\"snap_write\",\"uuid\":\"" UUID_A
                                 "\",\"ranks\":[[0,1]]}"),
       "what was made again is written at once: %s", b->said);
    lead_snap_bed_close(b);
}

static void test_hopeless(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .ranks = 3});
    say_three(b);
    b->lost = 1;
    lead_snap_bed_look(b);
    is_str(b->noted, "", "parity makes up for one node");
    b->also_lost = 2;
    lead_snap_bed_look(b);
    is_str(b->noted, "2 of the 3 nodes of a group are lost, and parity makes up for 1: what "
           "they had saved at step 10 is gone, but for what is on the disk\n",
           "that of a second one is gone");
    lead_snap_bed_hush(b);
    lead_snap_bed_look(b);
    is_str(b->noted, "", "which is told once");
    b->lost = b->also_lost = UINT32_MAX; /* they are back */
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .ranks = 3, .code = ENOSPC,
                                              .stage = SNAP_STAGE_FAILED});
    lead_snap_bed_run(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .ranks = 3, .again = 1});
    say_three(b);
    b->lost = 1;
    b->also_lost = 2;
    lead_snap_bed_hush(b);
    lead_snap_bed_look(b);
    like(b->noted, "2 of the 3 nodes", "and again of another try");
    lead_snap_bed_close(b);
}

/* A list of nodes that are lost is no longer than 256: who is asked for nothing by that, and
 * does not answer, is found out. */
static void test_many_lost(struct lead_snap_bed *b)
{
    enum { N = 257 }; /* each of a group of two, of which the other one has no rank */
    const char *list;
    int n = 1;

    lead_snap_bed_open(b);
    for (uint32_t rank = 0; rank < N; rank++) {
        lead_snap_bed_say(b, N + rank, (struct bed_word){.uuid = UUID_A, .rank = rank,
                                                         .ranks = N});
        for (uint32_t i = 0; i < 2; i++) {
            say_parity(b, i ? N + rank : rank, N, 1,
                       json_pack("[[i,i],[i,i]]", (int)rank, -1, (int)(N + rank), (int)rank));
        }
    }
    lead_snap_bed_hush(b);
    b->lost_from = N;
    lead_snap_bed_look(b);
    list = strstr(b->said, "\"lost\":[257,");
    ok(list && lead_snap_bed_has_said(b, "[256,256]"), "what %d nodes had is made again", N);
    for (const char *at = list; at && *at != ']'; at++) {
        n += *at == ',';
    }
    ok(n == 256 && strstr(list, ",512]}"), "the list of those that are lost has %d", n);
    lead_snap_bed_close(b);
}

/* --- copies --- */

static void test_written(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .is_copy = true, .from = 1, .rank = 1};

    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    b->lost = 1;
    lead_snap_bed_say(b, 2, w);
    is_str(b->said, "", "a copy of what a lost node had");
    lead_snap_bed_look(b);
    ok(lead_snap_bed_has_said(b, "{\"ask\":\"snap_write\",\"uuid\":\"" UUID_A
                                 "\",\"ranks\":[[1,2]]}"),
       "is written: %s", b->said);
    ok(!strstr(b->said, "snap_rebuild"), "and not made again");
    lead_snap_bed_hush(b);
    lead_snap_bed_look(b);
    ok(lead_snap_bed_has_said(b, "snap_write"), "as is said until it is there");
    lead_snap_bed_close(b);
}

/* What stays in memory, has failed, or is being committed is for nobody to write. */
static void test_not_written(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .waits = BED_WAITS};

    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = 3600000;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 1});
    lead_snap_bed_say_all(b, w);
    say_parity(b, 0, 2, 1, json_pack("[[i,i],[i,i]]", 0, 0, 1, 1));
    lead_snap_bed_hush(b);
    b->lost = 1;
    w.is_copy = true;
    w.from = w.rank = 1;
    lead_snap_bed_say(b, 2, w);
    lead_snap_bed_look(b);
    is_str(b->said, "", "one that stays in memory has time");
    w = (struct bed_word){.uuid = UUID_A, .code = ENOSPC, .stage = SNAP_STAGE_FAILED};
    lead_snap_bed_say(b, 0, w); /* who has written some of it */
    ok(b->lead->n_works == 1, "it has failed, and is being removed");
    lead_snap_bed_look(b);
    ok(!strstr(b->said, "snap_write"), "nobody writes it: %s", b->said);
    lead_snap_bed_run(b);
    lead_snap_bed_look(b);
    ok(!strstr(b->said, "snap_write"), "nor later");
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_nonsense(b);
    test_no_rank(b);
    test_whole(b);
    test_rebuilt(b);
    test_hopeless(b);
    test_many_lost(b);
    test_written(b);
    test_not_written(b);
    lead_snap_bed_free(b);
    return tap_done();
}
