/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the lead names as having a save, to agents that need it, to workers that wait for a
 * store, and in the status.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void want(struct lead_snap_bed *b, const char *uuid, const char *path, int generation)
{
    json_t *fact = json_pack("{s:s*, s:s*, s:i}", "uuid", uuid, "path", path, "generation",
                             generation);

    lead_snap_bed_hush(b);
    lead_snap_want(b->lead, fact);
    lead_snap_want(NULL, fact);
    json_decref(fact);
}

/* That agent keeps parity of a set of two ranks, of agents 0 and 1. */
static void say_parity(struct lead_snap_bed *b, const char *uuid, uint32_t agent, int rank,
                       int other)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "uuid",
                             uuid, "root", b->agent.run.dir, "step", 10, "generation", 1,
                             "token", 1, "rank", 0, "ranks", 4, "stage", SNAP_STAGE_HELD,
                             "parities", 1, "members",
                             json_pack("[[i,i],[i,i]]", 0, rank, 1, other));

    lead_snap_parity(b->lead, agent, fact);
    json_decref(fact);
}

/* Ranks 0 and 1 are of agent 0, the others of agent 1. */
static void say_four(struct lead_snap_bed *b, const char *uuid)
{
    for (uint32_t rank = 0; rank < 4; rank++) {
        lead_snap_bed_say(b, rank / 2, (struct bed_word){.uuid = uuid, .rank = rank,
                                                         .ranks = 4});
    }
}

static void path_of(const struct lead_snap_bed *b, const char *uuid, char path[PATH_MAX])
{
    char name[STEP_NAME_BYTES];

    step_name(10, uuid, name);
    snprintf(path, PATH_MAX, "%.200s/%s", b->agent.run.dir, name);
}

/* --- for agents --- */

static void test_question(struct lead_snap_bed *b)
{
    char path[PATH_MAX];

    lead_snap_bed_open(b);
    say_four(b, UUID_A);
    say_four(b, UUID_B);
    path_of(b, UUID_A, path);
    want(b, UUID_B, path, 3);
    ok(lead_snap_bed_has_said(b, "\"uuid\":\"" UUID_B "\",\"generation\":3,\"path\":\"/"),
       "its digits count before a path: %s", b->said);
    want(b, NULL, path, 3);
    ok(lead_snap_bed_has_said(b, UUID_A) && lead_snap_bed_has_said(b, path),
       "without them it is the path: %s", b->said);
    want(b, UUID_A, NULL, 4);
    ok(lead_snap_bed_has_said(b, "\"generation\":4"), "others may ask at once: %s", b->said);
    b->now_ms += SNAP_TELL_AGAIN_MS - 1;
    want(b, UUID_A, NULL, 4);
    is_str(b->said, "", "what all have heard a moment ago is not said again");
    b->now_ms++;
    want(b, UUID_A, NULL, 4);
    ok(lead_snap_bed_has_said(b, UUID_A), "but in time, however often one asks");
    lead_snap_bed_close(b);
}

/* Each is made again by itself. */
static void test_builders(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    say_four(b, UUID_A);
    for (uint32_t agent = 0; agent < 2; agent++) {
        say_parity(b, UUID_A, agent, 0, 2);
        say_parity(b, UUID_A, agent, 1, 3);
    }
    b->lost = 0;
    want(b, UUID_A, NULL, 1);
    ok(lead_snap_bed_has_said(b, "\"ranks\":[[0,1,1],[1,1,1],[2,2,1]]"),
       "who can make what a lost node had is named: %s", b->said);
    lead_snap_bed_close(b);
}

/* --- for workers --- */

static void test_stored(struct lead_snap_bed *b)
{
    char path[PATH_MAX];

    lead_snap_bed_open(b);
    say_four(b, UUID_A);
    path_of(b, UUID_A, path);
    lead_snap_stored(b->lead, path, "", 0, "");
    ok(lead_snap_bed_has_said(b, "{\"ask\":\"snap_stored\",\"uuid\":\"" UUID_A
                                 "\",\"error\":0,\"why\":\"\"}"),
       "what is in the store is known by its path: %s", b->said);
    lead_snap_bed_hush(b);
    lead_snap_stored(b->lead, path, UUID_B, ENOSPC, "quota");
    ok(lead_snap_bed_has_said(b, "{\"ask\":\"snap_stored\",\"uuid\":\"" UUID_B
                                 "\",\"error\":28,\"why\":\"quota\"}"),
       "or by its digits, and so is what will not be: %s", b->said);
    lead_snap_bed_hush(b);
    lead_snap_stored(b->lead, "/elsewhere/model.pt", "", 0, "");
    lead_snap_stored(NULL, path, UUID_A, 0, "");
    is_str(b->said, "", "nobody waits for what a program has saved itself");
    lead_snap_bed_close(b);
}

/* --- for people --- */

static void test_status(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_look(b);
    ok(b->held_step == 0 && b->held_ranks == 0 && b->n_held == 0, "nothing is in memory");
    say_four(b, UUID_A);
    say_parity(b, UUID_A, 0, 0, 2);
    say_parity(b, UUID_A, 1, 0, 2);
    lead_snap_bed_look(b);
    ok(b->held_step == 10 && b->held_ranks == 4 && b->n_held == 2, "a save is");
    ok(b->held[0].n == 2 && !b->held[0].has_parity && !b->held[1].has_parity,
       "with parity of one rank of each node");
    say_parity(b, UUID_A, 1, 1, 3);
    lead_snap_bed_look(b);
    ok(b->held[0].has_parity && !b->held[1].has_parity, "or of all of one of them");
    lead_snap_bed_close(b);
}

/* Memory has it still, which is of use until the next one is there. */
static void test_status_of_settled(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .stage = SNAP_STAGE_WRITTEN};

    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_run(b);
    lead_snap_bed_look(b);
    ok(b->n_saved == 1 && b->held_step == 10 && b->n_held == 2, "one that is on the disk");
    b->commit_code = EIO;
    w.uuid = UUID_B;
    w.step = 20;
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_run(b);
    lead_snap_bed_look(b);
    is_int(b->held_step, 10, "but not one that came to nothing");
    lead_snap_bed_close(b);
}

/* Who has what changes with each rank. */
static void test_status_of_many(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .ranks = STATUS_MAX_HELD + 2};

    lead_snap_bed_open(b);
    for (w.rank = 0; w.rank < w.ranks; w.rank++) {
        lead_snap_bed_say(b, w.rank % 2, w);
    }
    lead_snap_bed_look(b);
    is_int(b->n_held, STATUS_MAX_HELD, "so many are shown, and no more");
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_question(b);
    test_builders(b);
    test_stored(b);
    test_status(b);
    test_status_of_settled(b);
    test_status_of_many(b);
    lead_snap_bed_free(b);
    return tap_done();
}
