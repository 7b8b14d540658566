/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the lead finishes a save that is on its way, which of several first, and what it shows
 * of them.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "launcher/snap_tally.h"
#include "tests/lib/tap.h"

#include <errno.h>

static const enum snap_stage written = SNAP_STAGE_WRITTEN;

static void look_at(struct lead_snap_bed *b, uint64_t ms)
{
    b->now_ms += ms;
    lead_snap_bed_look(b);
}

/* --- when --- */

/* Workers save in order: who has handed over a later one will not hand over this one. */
static void test_passed(struct lead_snap_bed *b)
{
    static const struct {
        struct bed_word later;
        bool is_passed;
        const char *what;
    } cases[] = {
        {{.uuid = UUID_B, .step = 20}, true, "by a later one of the same workers"},
        {{.uuid = UUID_B, .step = 10}, false, "by none of the same step"},
        {{.uuid = UUID_B, .step = 20, .root = "/elsewhere"}, false, "by none elsewhere"},
        {{.uuid = UUID_B, .step = 20, .generation = 2}, false, "nor by other workers"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        lead_snap_bed_open(b);
        lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .stage = written});
        lead_snap_bed_say(b, 0, cases[i].later);
        look_at(b, SNAP_TALLY_SETTLE_MS);
        is_int(b->lead->n_works, 0, "one that one rank has handed over has its time");
        lead_snap_bed_say_all(b, cases[i].later);
        look_at(b, 0);
        is_int(b->lead->n_works, cases[i].is_passed, "it is passed %s", cases[i].what);
        lead_snap_bed_close(b);
    }
}

/* Each by itself, the oldest first. */
static void test_order(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_good(b->lead, 1); /* this agent may lead no more */
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .step = 10, .stage = written});
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 20, .stage = written});
    look_at(b, 0);
    is_int(b->lead->n_works, 0, "who may lead no more finishes none");
    lead_snap_good(b->lead, UINT64_MAX);
    look_at(b, 0);
    is_int(b->lead->n_works, 1, "if he leads on he finishes one at a time");
    look_at(b, 0);
    is_int(b->lead->n_works, 1, "however often he looks");
    while (b->n_saved == 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    is_int(b->saved_step, 10, "the oldest first");
    lead_snap_bed_run(b);
    ok(b->n_saved == 2 && b->saved_step == 20, "then the next");
    lead_snap_bed_close(b);
}

/* --- in memory only --- */

static void test_partial(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};

    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 0, w);
    w.uuid = UUID_B;
    w.step = 20;
    lead_snap_bed_say(b, 0, w);
    b->started = 2;
    look_at(b, SNAP_TALLY_SETTLE_MS - 1);
    is_str(b->said, "", "workers have ended, and others may be heard");
    look_at(b, 1);
    ok(lead_snap_bed_has_said(b, UUID_A "\",\"error\":103,\"why\":\"not all ranks") &&
           lead_snap_bed_has_said(b, UUID_B "\",\"error\":103"),
       "what nobody will hand over goes, however many: %s", b->said);
    ok(b->n_failed == 2 && b->commit.n == 0, "who waits for it hears so, and no disk is asked");
    lead_snap_bed_close(b);
}

/* Some of it may be on the disk. */
static void test_partial_failed(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .waits = BED_WAITS, .stage = SNAP_STAGE_FAILED,
                         .code = ENOSPC};

    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 0, w);
    look_at(b, 0);
    lead_snap_bed_run(b);
    is_int(b->commit.n, 1, "one of which a rank has failed is looked for there");
    lead_snap_bed_close(b);
    lead_snap_bed_open(b);
    w.stage = written;
    lead_snap_bed_say(b, 0, w);
    b->started = 2;
    look_at(b, SNAP_TALLY_SETTLE_MS);
    lead_snap_bed_run(b);
    is_int(b->commit.n, 1, "and one of which a rank has written its own");
    lead_snap_bed_close(b);
    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = 3600000;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .root = "/elsewhere",
                                               .stage = written});
    lead_snap_bed_run(b);
    w.stage = SNAP_STAGE_HELD;
    lead_snap_bed_say_all(b, w);
    look_at(b, SNAP_TALLY_SILENT_MS);
    lead_snap_bed_run(b);
    is_int(b->commit.n, 2, "and so is one that all had, of which nobody speaks");
    lead_snap_bed_close(b);
}

/* Only who starts workers wants it. */
static void test_not_asked(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_B, .step = 20, .waits = BED_WAITS};

    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = 3600000;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_hush(b);
    look_at(b, 1);
    is_str(b->said, "", "what stays in memory stays there");
    ok(lead_snap_ask(b->lead), "until workers are about to start");
    w.uuid = UUID_C;
    w.step = 30;
    lead_snap_bed_say_all(b, w);
    ok(!lead_snap_bed_has_said(b, "\"uuid\":\"" UUID_C "\",\"levels\":6"), "one comes late");
    look_at(b, 1);
    ok(lead_snap_bed_has_said(b, "\"uuid\":\"" UUID_C "\",\"levels\":6"),
       "they start from that: %s", b->said);
    lead_snap_bed_close(b);
}

/* --- what is shown --- */

static void test_shown(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = b->every_ms[INTERVAL_PARTNER] = 3600000;
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_C, .step = 5, .waits = BED_WAITS});
    ok(b->saving_ranks == 0, "one that stays in memory is not on its way");
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .step = 10, .token = 7});
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 20, .ranks = 3});
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .step = 10, .token = 7,
                                              .stage = written});
    ok(b->saving_step == 10 && b->saving_written == 1 && b->saving_ranks == 2,
       "the oldest on its way is shown, with how much of it is there");
    lead_snap_bed_close(b);
}

/* Workers that started again save earlier steps. */
static void test_newest(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .step = 5, .generation = 2});
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 10});
    look_at(b, 0);
    is_int(b->held_step, 5, "the newest is of the workers that started last");
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_passed(b);
    test_order(b);
    test_partial(b);
    test_partial_failed(b);
    test_not_asked(b);
    test_shown(b);
    test_newest(b);
    lead_snap_bed_free(b);
    return tap_done();
}
