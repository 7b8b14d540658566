/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead makes of what agents say of saves: what makes no sense, why one has failed,
 * who has copies, and which try of several is meant.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const enum snap_stage written = SNAP_STAGE_WRITTEN, failed = SNAP_STAGE_FAILED;

/* That agent has a copy of rank 0 of A, and agent 2 of rank 1. */
static void say_copies(struct lead_snap_bed *b, uint32_t agent)
{
    lead_snap_bed_say(b, agent, (struct bed_word){.uuid = UUID_A, .is_copy = true});
    lead_snap_bed_say(b, 2, (struct bed_word){.uuid = UUID_A, .rank = 1, .is_copy = true,
                                              .from = 1});
}

/* Both ranks have it, and one has no room on the disk. */
static void fail(struct lead_snap_bed *b, struct bed_word w)
{
    lead_snap_bed_say_all(b, w);
    w.stage = failed;
    w.code = ENOSPC;
    w.why = "full";
    lead_snap_bed_say(b, 0, w);
    lead_snap_bed_run(b);
}

/* --- sense --- */

static json_t *long_root(void)
{
    char root[SNAP_ROOT_BYTES + 1];

    memset(root, '/', sizeof(root) - 1);
    root[sizeof(root) - 1] = '\0';
    return json_string(root);
}

static void test_nonsense(struct lead_snap_bed *b)
{
    struct {
        const char *key;
        json_t *value;
    } cases[] = {
        {"root", json_string("not/absolute")},   {"root", long_root()},
        {"again", json_integer(-1)},             {"again", json_integer(INT64_C(1) << 32)},
        {"from", json_integer(STATUS_MAX_NODES)}, {"from", json_string("1")},
        {"ranks", json_integer((1 << 20) + 1)},  {"step", json_integer(-1)},
    };

    lead_snap_bed_open(b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "uuid", UUID_A,
                                 "root", "/ck", "step", 10, "generation", 1, "token", 1,
                                 "rank", 0, "ranks", 2, "stage", SNAP_STAGE_HELD);

        json_object_set_new(fact, cases[i].key, cases[i].value);
        lead_snap_fact(b->lead, 0, fact);
        lead_snap_parity(b->lead, 0, fact);
        ok(!b->lead->saves, "%s that makes no sense", cases[i].key);
        json_decref(fact);
    }
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .ranks = 1 << 20});
    ok(b->lead->saves, "but so many ranks there may be");
    lead_snap_bed_close(b);
}

/* --- why it has failed --- */

static void test_why(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .stage = failed, .why = "full"};

    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .rank = 1});
    lead_snap_bed_say(b, 3, w);
    is_int(b->lead->n_works, 1, "one that all have, and one has no room for, goes at once");
    lead_snap_bed_run(b);
    is_str(b->why, "rank 0: full", "the rank is to blame, wherever it is");
    ok(lead_snap_bed_has_said(b, "\"error\":5"), "by an error that was not said: %s", b->said);
    w.uuid = UUID_B;
    w.code = -ENOSPC;
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_run(b);
    ok(lead_snap_bed_has_said(b, UUID_B "\",\"error\":5"), "or makes no sense: %s", b->said);
    lead_snap_bed_close(b);
}

static void test_first_reason(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .stage = failed, .code = ENOSPC, .why = "full"};

    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 0, w);
    w.rank = 1;
    w.code = ECONNABORTED;
    w.why = "another one has failed";
    lead_snap_bed_say(b, 1, w);
    lead_snap_bed_run(b);
    is_str(b->why, "rank 0: full", "of several reasons the first is told");
    lead_snap_bed_close(b);
}

/* The thread that commits has what it needs to know. */
static void test_late_reason(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = written});
    is_int(b->lead->n_works, 1, "it is being committed");
    lead_snap_bed_say(b, 3, (struct bed_word){.uuid = UUID_A, .stage = failed, .code = EIO});
    ok(b->lead->saves->why.code == 0, "who says meanwhile that it has failed is not heard");
    lead_snap_bed_run(b);
    is_int(b->n_saved, 1, "it is a checkpoint");
    lead_snap_bed_close(b);
}

/* --- copies --- */

/* Who has a copy writes it in place of who had it. */
static void test_written_instead(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    b->lost = 0;
    say_copies(b, 2);
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .rank = 1, .stage = written});
    lead_snap_bed_say(b, 2, (struct bed_word){.uuid = UUID_A, .stage = written,
                                              .is_copy = true});
    lead_snap_bed_run(b);
    is_int(b->n_saved, 1, "a copy that is on the disk counts as what it is of");
    lead_snap_bed_close(b);
}

static void want(struct lead_snap_bed *b)
{
    json_t *fact = json_pack("{s:s, s:i}", "uuid", UUID_A, "generation", 2);

    b->now_ms += SNAP_TELL_AGAIN_MS;
    lead_snap_bed_hush(b);
    lead_snap_want(b->lead, fact);
    json_decref(fact);
}

/* It became a checkpoint before. */
static void test_late_copy(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = written});
    lead_snap_bed_run(b);
    say_copies(b, 1);
    want(b);
    ok(lead_snap_bed_has_said(b, "[[0,1,0,1],[1,1,1,2]]"), "copies that come late count: %s",
       b->said);
    lead_snap_bed_hush(b);
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A});
    ok(lead_snap_bed_has_said(b, "\"ask\":\"snap\",\"uuid\":\"" UUID_A "\",\"error\":0"),
       "and who has not heard of it does again: %s", b->said);
    lead_snap_bed_close(b);
}

/* --- tries --- */

static void say_parity(struct lead_snap_bed *b)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "uuid",
                             UUID_A, "root", b->agent.run.dir, "step", 10, "generation", 1,
                             "token", 1, "rank", 0, "ranks", 2, "stage", SNAP_STAGE_HELD,
                             "parities", 1, "members", json_pack("[[i,i],[i,i]]", 0, 0, 1, 1));

    lead_snap_parity(b->lead, 0, fact);
    lead_snap_parity(b->lead, 1, fact);
    json_decref(fact);
}

/* What the try before had of it is gone. */
static void test_again(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A};

    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = 3600000;
    lead_snap_bed_say_all(b, w);
    say_copies(b, 1);
    say_parity(b);
    is_int(b->n_took[INTERVAL_PARTNER], 1, "a save is copied");
    fail(b, w);
    b->now_ms += 100000;
    w.again = 1;
    w.waits = BED_WAITS & ~(1 << INTERVAL_PARTNER);
    lead_snap_bed_say(b, 0, w);
    is_int(b->saving_ranks, 0, "which of several is on its way begins anew");
    w.rank = 1;
    lead_snap_bed_say(b, 1, w);
    is_int(b->saving_ranks, 2, "once all say so");
    b->lost = 0;
    want(b);
    ok(lead_snap_bed_has_said(b, "[[1,1,1]]"), "its copies and its parity are gone: %s",
       b->said);
    b->lost = UINT32_MAX;
    say_copies(b, 1);
    is_int(b->n_took[INTERVAL_PARTNER], 2, "it is copied again");
    b->now_ms += 3000;
    w.stage = written;
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_run(b);
    ok(b->n_took[INTERVAL_DISK] == 1 && b->took < 5, "how long that one took is told");
    lead_snap_bed_close(b);
}

/* Another lead may have begun that. */
static void test_on_its_way(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .again = 2};

    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 0, w);
    w.rank = 1;
    w.again = 1;
    lead_snap_bed_hush(b);
    b->now_ms += SNAP_TELL_AGAIN_MS;
    lead_snap_bed_say(b, 1, w);
    ok(b->lead->saves->tally.n_held == 1 && !b->said[0],
       "who speaks of a try before is not heard, nor told of what nobody knows: %s", b->said);
    w.again = 3;
    lead_snap_bed_say(b, 1, w);
    is_int(b->lead->saves->tally.n_held, 2, "who speaks of the next goes on with this one");
    w.stage = failed;
    w.code = ENOSPC;
    lead_snap_bed_say(b, 1, w);
    lead_snap_bed_run(b);
    ok(lead_snap_bed_has_said(b, "\"stays\":true,\"again\":2"), "and all hear which it was: %s",
       b->said);
    lead_snap_bed_close(b);
}

/* --- memory --- */

enum { REMEMBERED = 16 };

static void test_forgotten(struct lead_snap_bed *b)
{
    char uuid[sizeof(UUID_A)];

    lead_snap_bed_open(b);
    for (int i = 0; i <= REMEMBERED; i++) {
        snprintf(uuid, sizeof(uuid), "%032d", i);
        lead_snap_bed_say_all(b, (struct bed_word){.uuid = uuid, .stage = written});
        lead_snap_bed_run(b);
    }
    snprintf(uuid, sizeof(uuid), "%032d", 0);
    ok(lead_save_find(b->lead, uuid), "one more than is remembered has come");
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A});
    ok(!lead_save_find(b->lead, uuid), "with the next one the oldest goes");
    snprintf(uuid, sizeof(uuid), "%032d", 1);
    ok(lead_save_find(b->lead, uuid), "and no other");
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_nonsense(b);
    test_why(b);
    test_first_reason(b);
    test_late_reason(b);
    test_written_instead(b);
    test_late_copy(b);
    test_again(b);
    test_on_its_way(b);
    test_forgotten(b);
    lead_snap_bed_free(b);
    return tap_done();
}
