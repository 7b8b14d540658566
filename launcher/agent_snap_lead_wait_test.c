/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the lead has who starts workers, or ends the run, wait for saves that are on their
 * way, and what people hear meanwhile.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { QUIET_MS = 30000, QUIET_MAX_MS = 600000, OFFER_MS = 1000 };

static const enum snap_stage written = SNAP_STAGE_WRITTEN;

/* Both ranks are about to write it. */
static void ask_for_held(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    ok(lead_snap_ask(b->lead), "a save is waited for");
}

static void look_at(struct lead_snap_bed *b, uint64_t ms)
{
    b->now_ms += ms;
    lead_snap_bed_look(b);
}

/* --- how long --- */

static void test_standstill(struct lead_snap_bed *b)
{
    ask_for_held(b);
    look_at(b, QUIET_MS - 1);
    is_int(b->n_quiet, 0, "it has its time");
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A});
    look_at(b, 1);
    is_int(b->n_quiet, 1, "and no more, where it does not get on");
    look_at(b, 1);
    is_int(b->n_quiet, 1, "of which one hears once");
    lead_snap_bed_close(b);
}

static void test_gets_on(struct lead_snap_bed *b)
{
    ask_for_held(b);
    b->now_ms += QUIET_MS - 1;
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .moves = true});
    look_at(b, QUIET_MS - 1);
    is_int(b->n_quiet, 0, "as long as more is written nobody gives up");
    look_at(b, 1);
    is_int(b->n_quiet, 1, "but then");
    lead_snap_bed_close(b);
}

static void test_in_all(struct lead_snap_bed *b)
{
    ask_for_held(b);
    for (unsigned ms = 0; ms < QUIET_MAX_MS; ms += 20000) {
        lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .moves = true});
        look_at(b, ms == 0 ? 19999 : 20000);
    }
    is_int(b->n_quiet, 0, "it may get on for long");
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .moves = true});
    look_at(b, 1);
    is_int(b->n_quiet, 1, "but not for ever");
    lead_snap_bed_close(b);
}

static void test_anew(struct lead_snap_bed *b)
{
    ask_for_held(b);
    ok(lead_snap_forget(b->lead) && !lead_snap_forget(b->lead), "who asked does not wait");
    b->now_ms += QUIET_MAX_MS;
    ok(lead_snap_ask(b->lead), "and asks once more");
    look_at(b, QUIET_MS - 1);
    is_int(b->n_quiet, 0, "with all the time that there is");
    lead_snap_bed_close(b);
}

/* --- what for --- */

static void test_removed(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    ok(!lead_snap_ask_removed(b->lead), "who asks for what is removed waits for no save");
    ok(lead_snap_ask(b->lead), "but who asks for those");
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = written});
    ok(!lead_snap_ask_removed(b->lead), "nor for a commit");
    lead_snap_end(b->lead);
    ok(lead_snap_ask_removed(b->lead), "but at the end");
    lead_snap_bed_close(b);
}

/* One that has failed is offered again by agents whose workers have ended. */
static void test_offered(struct lead_snap_bed *b)
{
    struct bed_word failed = {.uuid = UUID_A, .stage = SNAP_STAGE_FAILED, .code = ENOSPC};

    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 0, failed);
    ok(!lead_snap_ask(b->lead), "of one that a rank has no room for, and another one has not "
       "handed over, nothing comes");
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    ok(lead_snap_ask(b->lead), "one that is failing may be tried again");
    lead_snap_bed_run(b);
    ok(lead_snap_ask(b->lead), "as one that has failed");
    look_at(b, OFFER_MS - 1);
    is_int(b->n_quiet, 0, "a moment is waited for that");
    look_at(b, 1);
    is_int(b->n_quiet, 1, "no longer");
    lead_snap_bed_close(b);
}

static void test_not_offered(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .again = 1};

    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, w);
    w.stage = SNAP_STAGE_FAILED;
    w.code = ENOSPC;
    lead_snap_bed_say(b, 0, w);
    lead_snap_bed_run(b);
    ok(!lead_snap_ask(b->lead), "the try of these workers was this one");
    w.uuid = UUID_B;
    w.again = 0;
    w.code = ECONNABORTED;
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_run(b);
    ok(!lead_snap_ask(b->lead), "one that a rank will not hand over is of no use");
    lead_snap_bed_close(b);
}

/* One that stays in memory goes to the disk for the next workers, also what a lost node had
 * of it. */
static void test_promoted(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_B, .step = 20, .waits = BED_WAITS};

    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = 3600000;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = written});
    lead_snap_bed_run(b);
    lead_snap_bed_say_all(b, w);
    w.is_copy = true;
    lead_snap_bed_say(b, 2, w);
    b->lost = 0;
    lead_snap_bed_hush(b);
    look_at(b, 1);
    is_str(b->said, "", "it stays");
    ok(lead_snap_ask(b->lead), "and is waited for, if one asks");
    ok(lead_snap_bed_has_said(b, "\"ask\":\"snap_go\",\"uuid\":\"" UUID_B "\",\"levels\":6"),
       "for it goes: %s", b->said);
    ok(lead_snap_bed_has_said(b, "\"ask\":\"snap_write\",\"uuid\":\"" UUID_B
                                 "\",\"ranks\":[[0,2]]"),
       "and who has a copy writes that: %s", b->said);
    lead_snap_bed_close(b);
}

/* Others may have the directories as soon as nothing more is done there, and no sooner. */
static void test_leave(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 5, .stage = written});
    lead_snap_bed_run(b);
    ok(!lead_snap_ask_removed(b->lead) && !b->lead->has_dropped,
       "as long as workers may start the directories stay this run's");
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = written});
    lead_snap_end(b->lead);
    ok(lead_snap_ask_removed(b->lead), "the end waits for a commit");
    lead_snap_leave(b->lead);
    lead_snap_bed_look(b);
    ok(!b->lead->has_dropped, "whose directory is kept meanwhile");
    while (b->lead->n_works > 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    ok(b->lead->has_dropped, "and then let go of");
    lead_snap_bed_close(b);
}

/* Nobody will hand over the rest. */
static void test_end(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_end(NULL);
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .stage = written});
    is_int(b->lead->n_works, 0, "one that a rank has not handed over has its time");
    lead_snap_end(b->lead);
    is_int(b->lead->n_works, 1, "but not as the run ends");
    lead_snap_bed_close(b);
}

/* --- what people hear --- */

static void test_told(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_B, .step = 20};

    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_C, .step = 5, .stage = written});
    lead_snap_bed_run(b);
    b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = 3600000;
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_D, .step = 30, .waits = BED_WAITS});
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    lead_snap_bed_say_all(b, w);
    ok(lead_snap_ask(b->lead) && lead_snap_forget(b->lead), "nobody waits any more");
    look_at(b, 10000);
    is_str(b->noted, "", "so nobody hears");
    lead_save_find(b->lead, UUID_C)->is_working = true; /* older ones are being removed */
    ok(lead_snap_ask_removed(b->lead), "one waits for what is removed");
    look_at(b, 10000);
    is_str(b->noted, "", "of which nobody hears either");
    lead_save_find(b->lead, UUID_C)->is_working = false;
    lead_snap_ask(b->lead);
    look_at(b, 4999);
    is_str(b->noted, "", "for seconds it is no news");
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .stage = written, .moves = true});
    look_at(b, 1);
    is_str(b->noted, "waits for the save of step 10 to be on the disk, for 5s: 1 of 2 ranks "
           "are there\n", "then it is told of the oldest on its way");
    lead_snap_bed_hush(b);
    look_at(b, 29998);
    is_str(b->noted, "", "not all the time");
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .moves = true});
    look_at(b, 2);
    like(b->noted, "for 35s", "but now and then");
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_standstill(b);
    test_gets_on(b);
    test_in_all(b);
    test_anew(b);
    test_removed(b);
    test_offered(b);
    test_not_offered(b);
    test_promoted(b);
    test_leave(b);
    test_end(b);
    test_told(b);
    lead_snap_bed_free(b);
    return tap_done();
}
