/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which saves the lead sends on from memory, and which of those that stay there it lets go:
 * by what is known of others, and whoever has not heard hears it again.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { HOUR_MS = 3600000, DISK = 1 << INTERVAL_DISK, PARTNER = 1 << INTERVAL_PARTNER };

static const enum snap_stage written = SNAP_STAGE_WRITTEN;

/* A lead that sends one an hour to the disk, and has done so just now. */
static void open_hour(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = HOUR_MS;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_E, .step = 1, .stage = written});
    lead_snap_bed_run(b);
    is_int(b->n_saved, 1, "one is on the disk");
    lead_snap_bed_hush(b);
}

/* Of both ranks, by agent 2. */
static void copy(struct lead_snap_bed *b, struct bed_word w)
{
    w.is_copy = true;
    for (w.rank = w.from = 0; w.rank < 2; w.from = ++w.rank) {
        lead_snap_bed_say(b, 2, w);
    }
}

static bool is_sent(const struct lead_snap_bed *b, const char *uuid, int levels)
{
    char want[128];

    snprintf(want, sizeof(want), "\"ask\":\"snap_go\",\"uuid\":\"%s\",\"levels\":%d}", uuid,
             levels);
    return lead_snap_bed_has_said(b, want);
}

static bool is_dropped(const struct lead_snap_bed *b, const char *uuid)
{
    char want[128];

    snprintf(want, sizeof(want), "\"uuid\":\"%s\",\"error\":116", uuid);
    return lead_snap_bed_has_said(b, want);
}

/* --- where it goes --- */

/* Each level has a time of its own. */
static void test_plan(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    open_hour(b);
    b->every_ms[INTERVAL_PARTNER] = 60000;
    b->now_ms += 60000;
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_A, PARTNER), "after a minute one is copied: %s", b->said);
    ok(b->saving_ranks == 0 && b->is_busy[INTERVAL_PARTNER] && !b->is_busy[INTERVAL_DISK],
       "and stays where it is else");
    w.uuid = UUID_B;
    w.step = 20;
    b->now_ms += 59999;
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_B, 0), "the next one is not: %s", b->said);
    lead_snap_bed_hush(b);
    w.waits = DISK;
    w.step = 30;
    w.uuid = UUID_C;
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_C, PARTNER), "what agents copy at once is copied: %s", b->said);
    lead_snap_bed_close(b);
}

/* Whoever waits for it may say so before all ranks have handed it over. */
static void test_wanted(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .waits = BED_WAITS, .is_wanted = true};

    open_hour(b);
    lead_snap_bed_say(b, 0, w);
    w.rank = 1;
    w.is_wanted = false;
    lead_snap_bed_say(b, 1, w);
    ok(is_sent(b, UUID_A, DISK | PARTNER), "one that is wanted goes everywhere: %s", b->said);
    lead_snap_bed_hush(b);
    w.waits = 0;
    w.is_wanted = true;
    lead_snap_bed_say(b, 1, w);
    is_str(b->said, "", "once");
    lead_snap_bed_close(b);
}

static void test_one_goes(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say(b, 0, w);
    w.rank = 1;
    w.waits = PARTNER;
    lead_snap_bed_say(b, 1, w);
    ok(is_sent(b, UUID_A, DISK | PARTNER), "what one agent writes all do, and copy: %s", b->said);
    lead_snap_bed_close(b);
}

/* That nobody waits with goes as well, and the next one has to wait for that. */
static void test_counts(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10};

    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = HOUR_MS;
    lead_snap_bed_say_all(b, w);
    w = (struct bed_word){.uuid = UUID_B, .step = 20, .waits = BED_WAITS};
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_B, 0), "one that nobody waited with counts: %s", b->said);
    w.is_wanted = true;
    b->now_ms += HOUR_MS / 2;
    lead_snap_bed_say(b, 0, w);
    ok(is_sent(b, UUID_B, DISK | PARTNER), "as one that was sent later: %s", b->said);
    b->now_ms += HOUR_MS / 2;
    w = (struct bed_word){.uuid = UUID_C, .step = 30, .waits = BED_WAITS};
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_C, DISK | PARTNER), "for an hour from when it was saved: %s", b->said);
    lead_snap_bed_close(b);
}

/* Levels that make no sense are none: it goes on, as that of agents that know of none. */
static void test_nonsense(struct lead_snap_bed *b)
{
    static const int waits[] = {-1, 1 << INTERVAL_N_LEVELS, 1 << INTERVAL_N_LEVELS | DISK};

    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        open_hour(b);
        lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .waits = waits[i]});
        ok(b->saving_ranks == 2 && !b->said[0], "one that waits with %d waits with none",
           waits[i]);
        lead_snap_bed_close(b);
    }
}

static void test_said_again(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_hush(b);
    b->now_ms += SNAP_TELL_AGAIN_MS - 1;
    lead_snap_bed_say(b, 0, w);
    is_str(b->said, "", "all have heard a moment ago that it stays");
    b->now_ms++;
    lead_snap_bed_say(b, 0, w);
    ok(is_sent(b, UUID_A, 0), "who waits for a word hears it again, in time: %s", b->said);
    b->now_ms += SNAP_TELL_AGAIN_MS;
    lead_snap_bed_hush(b);
    w.waits = PARTNER | DISK;
    lead_snap_bed_say(b, 0, w);
    is_str(b->said, "", "who keeps it knows");
    w.is_wanted = true;
    lead_snap_bed_say(b, 0, w);
    lead_snap_bed_hush(b);
    b->now_ms += SNAP_TELL_AGAIN_MS;
    w.waits = DISK;
    w.is_wanted = false;
    lead_snap_bed_say(b, 0, w);
    ok(is_sent(b, UUID_A, DISK | PARTNER), "who keeps what goes does not: %s", b->said);
    lead_snap_bed_close(b);
}

/* --- what has failed --- */

static void fail(struct lead_snap_bed *b, const char *uuid, int step, int code)
{
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = uuid, .step = step, .code = code,
                                              .stage = SNAP_STAGE_FAILED});
    lead_snap_bed_run(b);
}

static void test_failed(struct lead_snap_bed *b)
{
    static const struct {
        int code, levels;
        const char *what;
    } cases[] = {
        {ENOSPC, DISK | PARTNER, "one has failed: the next one goes in its place"},
        {ESTALE, 0, "one has given way to a later one: which has gone"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

        lead_snap_bed_open(b);
        b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = HOUR_MS;
        lead_snap_bed_say_all(b, w);
        fail(b, UUID_A, 10, cases[i].code);
        w.uuid = UUID_B;
        w.step = 20;
        lead_snap_bed_say_all(b, w);
        ok(is_sent(b, UUID_B, cases[i].levels), "%s: %s", cases[i].what, b->said);
        lead_snap_bed_close(b);
    }
}

/* It was to be copied only. */
static void test_copy_failed(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    open_hour(b);
    b->every_ms[INTERVAL_PARTNER] = 60000;
    b->now_ms += 60000;
    lead_snap_bed_say_all(b, w);
    w.stage = SNAP_STAGE_FAILED;
    w.code = ENOSPC;
    lead_snap_bed_say(b, 0, w);
    lead_snap_bed_run(b);
    w = (struct bed_word){.uuid = UUID_B, .step = 20, .waits = BED_WAITS};
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_B, PARTNER), "in its place the next one is: %s", b->said);
    lead_snap_bed_close(b);
}

/* It went nowhere: what has gone counts still. */
static void test_failed_early(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_B, .step = 20, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .step = 10, .rank = 1});
    fail(b, UUID_A, 10, ENOSPC);
    ok(strstr(b->said, UUID_A), "one that not all have has failed: %s", b->said);
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_B, 0), "the next one stays all the same: %s", b->said);
    lead_snap_bed_close(b);
}

/* --- busy --- */

static void test_busy(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10};

    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 0, w);
    ok(!b->is_busy[INTERVAL_DISK] && !b->is_busy[INTERVAL_PARTNER],
       "before all have handed it over nothing counts as under way");
    lead_snap_bed_say_all(b, w);
    ok(b->is_busy[INTERVAL_DISK] && b->is_busy[INTERVAL_PARTNER], "then it is to both");
    copy(b, w);
    ok(b->is_busy[INTERVAL_DISK] && !b->is_busy[INTERVAL_PARTNER], "it is copied");
    w.uuid = UUID_B;
    w.step = 20;
    lead_snap_bed_say_all(b, w);
    ok(b->is_busy[INTERVAL_PARTNER], "the next one is not");
    b->now_ms += 60000;
    lead_snap_bed_say_all(b, w);
    ok(b->is_busy[INTERVAL_DISK] && !b->is_busy[INTERVAL_PARTNER],
       "copies that do not come for a minute are none");
    lead_snap_bed_close(b);
}

/* --- what is of no use any more --- */

static void test_replaced(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};
    struct bed_word next = {.uuid = UUID_B, .step = 20, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    next.root = "/elsewhere";
    lead_snap_bed_say_all(b, next);
    ok(!is_dropped(b, UUID_A), "of another directory nothing is: %s", b->said);
    next.root = NULL;
    next.uuid = UUID_C;
    lead_snap_bed_say(b, 0, next);
    ok(!is_dropped(b, UUID_A), "nor for one that not all have: %s", b->said);
    w.uuid = UUID_D;
    w.step = 15;
    lead_snap_bed_say(b, 0, w);
    next.rank = 1;
    lead_snap_bed_say(b, 1, next);
    ok(is_dropped(b, UUID_A) && !b->n_failed, "but then: %s", b->said);
    ok(!is_dropped(b, UUID_D), "one that others may hand over still has its time");
    lead_snap_bed_close(b);
}

/* Nobody has spoken of it for a minute. */
static void test_being_removed(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    b->now_ms += 60000;
    lead_snap_bed_look(b);
    is_int(b->lead->n_works, 1, "one is being removed");
    w.uuid = UUID_B;
    w.step = 20;
    lead_snap_bed_say_all(b, w);
    ok(!is_dropped(b, UUID_A), "meanwhile it gives its place to none: %s", b->said);
    lead_snap_bed_close(b);
}

/* Not for one that is none. */
static void test_not_replaced(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    copy(b, w);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 20});
    fail(b, UUID_B, 20, ENOSPC);
    ok(b->n_failed == 1 && !is_dropped(b, UUID_A), "a later one has failed: %s", b->said);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_C, .step = 30, .stage = written});
    lead_snap_bed_run(b);
    ok(b->n_saved == 2 && is_dropped(b, UUID_A), "the next one has not: %s", b->said);
    lead_snap_bed_close(b);
}

/* One with copies waits for one with copies, and all that it takes the place of go. */
static void test_all_replaced(struct lead_snap_bed *b)
{
    struct bed_word a = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};
    struct bed_word w = {.uuid = UUID_B, .step = 20, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, a);
    copy(b, a);
    lead_snap_bed_say_all(b, w);
    ok(!is_dropped(b, UUID_A), "the later one is not copied: %s", b->said);
    copy(b, w);
    ok(is_dropped(b, UUID_A), "it is: %s", b->said);
    a = (struct bed_word){.uuid = UUID_C, .step = 30, .waits = BED_WAITS};
    lead_snap_bed_say_all(b, a);
    w = (struct bed_word){.uuid = UUID_D, .step = 40, .waits = BED_WAITS};
    copy(b, w);
    ok(!is_dropped(b, UUID_B) && !is_dropped(b, UUID_C), "of one who has it has not spoken");
    lead_snap_bed_say_all(b, w);
    ok(is_dropped(b, UUID_B) && is_dropped(b, UUID_C), "then two go for it: %s", b->said);
    lead_snap_bed_close(b);
}

/* What a copy is of stays in memory only: who has that does not say where it goes. */
static void test_copied(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    w.waits = 0;
    copy(b, w);
    is_int(b->saving_ranks, 0, "it is not on its way to the disk");
    ok(b->n_took[INTERVAL_PARTNER] == 1, "but copied");
    lead_snap_bed_close(b);
}

/* --- a life before --- */

static void test_past(struct lead_snap_bed *b)
{
    static const struct {
        int step, resume_step, first;
        const char *in;
        bool is_past;
        const char *what;
    } cases[] = {
        {100, 100, 2, "", true, "that the run has gone on from, or an earlier one"},
        {101, 100, 2, "", false, "later than that"},
        {100, 100, 1, "", false, "of this life"},
        {100, 100, 2, "/elsewhere", false, "of another directory"},
        {100, -1, 2, "", false, "where nobody knows how far it has come"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        lead_snap_bed_open(b);
        b->every_ms[INTERVAL_DISK] = HOUR_MS;
        b->agent.config.first_generation = (uint32_t)cases[i].first;
        b->resume_step = cases[i].resume_step;
        snprintf(b->resume, sizeof(b->resume), "%s%s/step-100", b->agent.run.dir,
                 cases[i].in);
        lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .step = cases[i].step,
                                                   .waits = BED_WAITS});
        ok(is_dropped(b, UUID_A) == cases[i].is_past, "one %s", cases[i].what);
        lead_snap_bed_close(b);
    }
}

/* All have told that they have written it. */
static void test_past_on_disk(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->agent.config.first_generation = 2;
    b->resume_step = 100;
    snprintf(b->resume, sizeof(b->resume), "%s/step-100", b->agent.run.dir);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = written});
    lead_snap_bed_run(b);
    ok(b->n_saved == 1 && !is_dropped(b, UUID_A), "one that is on the disk is a checkpoint");
    b->now_ms += SNAP_TELL_AGAIN_MS;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .waits = PARTNER});
    ok(is_sent(b, UUID_B, DISK | PARTNER), "and one that goes there goes on: %s", b->said);
    lead_snap_bed_close(b);
}

/* --- the end of workers --- */

/* Of each directory the newest that can be goes to the disk. */
static void test_promoted(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    copy(b, w);
    w.uuid = UUID_B;
    w.step = 20;
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_C, .step = 30, .root = "/ck",
                                               .waits = BED_WAITS});
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_D, .step = 40, .waits = BED_WAITS});
    lead_snap_bed_hush(b);
    ok(lead_snap_ask(b->lead), "workers are about to start");
    ok(is_sent(b, UUID_B, DISK | PARTNER) && is_sent(b, UUID_C, DISK | PARTNER),
       "the newest one is sent, in both directories: %s", b->said);
    ok(!strstr(b->said, UUID_A) && !strstr(b->said, UUID_D), "and no other");
    lead_snap_show(b->lead);
    ok(b->is_busy[INTERVAL_DISK], "which counts as under way");
    fail(b, UUID_B, 20, ENOSPC);
    ok(is_sent(b, UUID_A, DISK | PARTNER), "where it fails the one before is: %s", b->said);
    lead_snap_bed_close(b);
}

/* A later one has come to nothing before. */
static void test_promoted_after(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    copy(b, w);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 20, .again = 1});
    fail(b, UUID_B, 20, ENOSPC);
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_B, .step = 20, .again = 1,
                                              .stage = SNAP_STAGE_FAILED});
    lead_snap_bed_run(b);
    is_int(b->n_failed, 1, "a save has failed");
    ok(lead_snap_ask(b->lead) && is_sent(b, UUID_A, DISK | PARTNER),
       "the one before it is sent: %s", b->said);
    lead_snap_bed_close(b);
}

/* Nobody has all of what is newer. */
static void test_not_promoted(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    copy(b, w);
    b->lost = 0;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 20, .waits = BED_WAITS});
    lead_snap_bed_hush(b);
    ok(lead_snap_ask(b->lead) && is_sent(b, UUID_A, DISK | PARTNER) && !strstr(b->said, UUID_B),
       "of which a lost node had a part is not the newest that can be: %s", b->said);
    lead_snap_bed_close(b);
}

/* --- another try --- */

/* It stays as any other, whoever waited for the one before, and may have to go. */
static void test_again(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS, .is_wanted = true};

    open_hour(b);
    lead_snap_bed_say_all(b, w);
    fail(b, UUID_A, 10, ENOSPC);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_C, .step = 9, .stage = written});
    lead_snap_bed_run(b);
    is_int(b->n_saved, 2, "another one is on the disk since then");
    w.again = 1;
    w.is_wanted = false;
    lead_snap_bed_hush(b);
    lead_snap_bed_say_all(b, w);
    ok(is_sent(b, UUID_A, 0), "the next try stays in memory: %s", b->said);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 20, .waits = BED_WAITS});
    ok(is_dropped(b, UUID_A) && !strstr(b->said, "stays"),
       "and gives its place to the next one, for good: %s", b->said);
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_plan(b);
    test_wanted(b);
    test_one_goes(b);
    test_counts(b);
    test_nonsense(b);
    test_said_again(b);
    test_failed(b);
    test_copy_failed(b);
    test_failed_early(b);
    test_busy(b);
    test_replaced(b);
    test_being_removed(b);
    test_not_replaced(b);
    test_all_replaced(b);
    test_copied(b);
    test_past(b);
    test_past_on_disk(b);
    test_promoted(b);
    test_promoted_after(b);
    test_not_promoted(b);
    test_again(b);
    lead_snap_bed_free(b);
    return tap_done();
}
