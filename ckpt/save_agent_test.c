/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save into memory of an agent's: what it is asked for, and when again; and what it is told.
 */
#include <config.h>

#include "ckpt/save_agent_bed.h"

#include "base/cleanup.h"
#include "ckpt/snap.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_STATE = 20000 };

struct save_agent_bed save_agent_bed;

static void test_answers(struct save_agent_bed *b)
{
    save_agent_bed_open(b);
    b->refusal = -ENOSPC;
    is_int(save_agent_bed_reserve(b), -ENOMEM,
           "an agent without room for it has none of memory, not of disk");
    is_str(b->error.text, "3 of 2 bytes", "and says so in its words");
    b->refusal = 0;
    b->is_far_behind = true;
    is_int(save_agent_bed_reserve(b), -EPROTO, "memory of another save is not taken");
    like(b->error.text, "answers what was asked before", "which is said");
    b->is_far_behind = false;
    is_int(save_agent_bed_save(b, SAVE_AGENT_NO_FAULT), 0, "the next one is: %s", b->error.text);
    save_agent_bed_close(b);
}

/* It is asked for before the part is made, which may have become longer. */
static void test_longer_part(struct save_agent_bed *b)
{
    _free_ char *state = malloc(N_STATE);

    save_agent_bed_open(b);
    save_agent_bed_save(b, SAVE_AGENT_NO_FAULT);
    b->n_asked = 0;
    is_int(save_agent_bed_save(b, SAVE_AGENT_NO_FAULT), 0, "a save by the plan of the one before");
    is_int(b->n_asked, 1, "asks for memory once");
    snprintf(state, N_STATE, "{\"a\":\"%0*d\"}", N_STATE - 9, 7);
    b->part.state = state;
    is_int(save_agent_bed_save(b, SAVE_AGENT_NO_FAULT), 0, "one with more to tell");
    ok(b->n_asked == 3 && b->asked.bytes >= snap_room(SAVE_AGENT_BYTES, N_STATE),
       "asks again where that was too little");
    is_int(save_agent_bed_hand(b), 0, "and is handed over");
    ok(save_agent_bed_is_right(b), "with what was saved");
    save_agent_bed_close(b);
}

/* Pieces of other names, in as many bytes: nothing of the part before is in theirs. */
static void test_other_plan(struct save_agent_bed *b)
{
    uint64_t one = 1, zero = 0;
    struct part_piece piece = {.name = "a", .n_dims = 1, .shape = &one, .at = &zero,
                               .len = &one};

    save_agent_bed_open(b);
    b->part.pieces = &piece;
    b->part.n_pieces = 1;
    b->n_asked = 0;
    is_int(save_agent_bed_save_alone(b), 0, "the first save");
    is_int(b->n_asked, 1, "knows its part, and asks for memory once");
    ok(save_agent_bed_is_part_right(b), "which has it");
    piece.name = "b";
    b->job.plan = 2;
    is_int(save_agent_bed_save_alone(b), 0, "a save by another plan");
    ok(save_agent_bed_is_part_right(b), "has its own");
    b->part.step = 7;
    is_int(save_agent_bed_save_alone(b), 0, "and one more by that");
    is_int(b->n_asked, 3, "each asks once");
    ok(save_agent_bed_is_part_right(b), "a part that says which save it is of");
    save_agent_bed_close(b);
}

/* One that cannot be made is known of before anything is asked, or while that is done. */
static void test_no_part(struct save_agent_bed *b)
{
    _free_ char *state = malloc(N_STATE);
    uint64_t one = 1, zero = 0;
    struct part_piece piece = {.name = "\xff", .n_dims = 1, .shape = &one, .at = &zero,
                               .len = &one};

    save_agent_bed_open(b);
    b->part.pieces = &piece;
    b->part.n_pieces = 1;
    b->n_asked = 0;
    is_int(save_agent_bed_reserve(b), -EINVAL, "a part that cannot be made");
    is_int(save_agent_bed_reserve(b), -EINVAL, "nor when it is tried again");
    is_int(b->n_asked, 0, "asks for no memory");
    piece.name = "a";
    is_int(save_agent_bed_save_alone(b), 0, "one that can: %s", b->error.text);
    ok(save_agent_bed_is_part_right(b), "is there");
    piece.name = "\xff";
    snprintf(state, N_STATE, "{\"a\":\"%0*d\"}", N_STATE - 9, 7);
    b->part.state = state;
    b->refusal = -EBUSY;
    b->job.flags = MUSTER_CKPT_SKIP;
    is_int(save_agent_bed_reserve(b), -EINVAL,
           "one that cannot, when it is made beside the question");
    like(b->error.text, "not UTF-8", "which is told, whatever the agent says: %s", b->error.text);
    b->refusal = 0;
    save_agent_bed_close(b);
}

/* Memory that has its pages is mapped, and as long as it says. */
static void test_mapped(struct save_agent_bed *b)
{
    _free_ char *state = malloc(N_STATE);

    save_agent_bed_open(b);
    b->is_mapped = true;
    b->too_short = 1;
    is_int(save_agent_bed_reserve(b), -EPROTO, "an agent that has less than it says");
    like(b->error.text, "has less than", "%s", b->error.text);
    b->too_short = 0;
    is_int(save_agent_bed_save_alone(b), 0, "one that has it: %s", b->error.text);
    ok(save_agent_bed_is_right(b) && save_agent_bed_is_part_right(b), "gets all of it");
    snprintf(state, N_STATE, "{\"a\":\"%0*d\"}", N_STATE - 9, 7);
    b->part.state = state;
    is_int(save_agent_bed_save_alone(b), 0, "and more in the same memory, when that is longer");
    ok(save_agent_bed_is_right(b) && save_agent_bed_is_part_right(b), "all of that, too");
    b->is_mapped = false;
    save_agent_bed_close(b);
}

/* What the agent is told when it is there. */
static void test_told(struct save_agent_bed *b)
{
    save_agent_bed_open(b);
    save_agent_bed_save_alone(b);
    is_int(save_agent_bed_hand(b), 0, "a save is handed over");
    ok(b->done.image_bytes == SAVE_AGENT_BYTES && b->done.part_bytes > 0 &&
           snap_room(b->done.image_bytes, b->done.part_bytes) == b->asked.bytes,
       "with what is in it");
    is_str(b->done.uuid, b->job.gather.uuid, "and its name");
    is_int(b->wanted.level, WORKER_SNAP_NONE, "it goes to the disk");
    b->job.may_stay = b->job.is_chosen = true;
    save_agent_bed_save_alone(b);
    save_agent_bed_hand(b);
    is_int(b->wanted.level, WORKER_SNAP_HELD, "one that may stay in memory may");
    is_str(b->wanted.uuid, b->job.gather.uuid, "that one");
    ok(b->wanted.is_chosen, "where muster has chosen when");
    b->job.is_chosen = false;
    save_agent_bed_save_alone(b);
    save_agent_bed_hand(b);
    ok(!b->wanted.is_chosen, "or has not");
    save_agent_bed_close(b);
}

/* A directory that agents cannot name to each other. */
static void test_root(struct save_agent_bed *b)
{
    char path[WORKER_ROOT_SIZE + 1];

    save_agent_bed_open(b);
    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[WORKER_ROOT_SIZE] = '\0';
    b->job.root_path = path;
    b->n_asked = 0;
    is_int(save_agent_bed_reserve(b), -ENAMETOOLONG, "a path that is too long");
    b->job.root_path = "/scratch/\xff";
    is_int(save_agent_bed_reserve(b), -EILSEQ, "one that is no text");
    is_int(b->n_asked, 0, "nothing is asked for them");
    path[WORKER_ROOT_SIZE - 1] = '\0';
    b->job.root_path = path;
    is_int(save_agent_bed_reserve(b), 0, "the longest that may be");
    is_str(b->asked.root, path, "as it is");
    save_agent_bed_close(b);
}

int main(void)
{
    test_answers(&save_agent_bed);
    test_longer_part(&save_agent_bed);
    test_other_plan(&save_agent_bed);
    test_no_part(&save_agent_bed);
    test_mapped(&save_agent_bed);
    test_told(&save_agent_bed);
    test_root(&save_agent_bed);
    return tap_done();
}
