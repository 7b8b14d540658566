/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the lead ends a save: what the threads that commit and tidy up are told, and what all,
 * the journal, and whoever leads the run hear of it.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum snap_stage written = SNAP_STAGE_WRITTEN;

static void commit(struct lead_snap_bed *b, struct bed_word w)
{
    w.stage = written;
    lead_snap_bed_say_all(b, w);
    lead_snap_bed_run(b);
}

/* A rank has no room for it, and all have it in memory. */
static void fail(struct lead_snap_bed *b, struct bed_word w, int code, const char *why)
{
    w.stage = SNAP_STAGE_HELD;
    lead_snap_bed_say_all(b, w);
    w.rank = 0;
    w.stage = SNAP_STAGE_FAILED;
    w.code = code;
    w.why = why;
    lead_snap_bed_say(b, 0, w);
    lead_snap_bed_run(b);
}

/* --- what threads are told --- */

static void test_facts(struct lead_snap_bed *b)
{
    struct job_checkpoint *k = &b->agent.config.job->checkpoint;
    const struct snap_commit *c = &b->commit.facts;

    lead_snap_bed_open(b);
    k->keep = 3;
    k->keep_every = 100;
    k->keep_goal = JOB_MAXIMIZE;
    k->keep_best = strdup("loss");
    snprintf(b->pinned, sizeof(b->pinned), "%s/step-1", b->agent.run.dir);
    snprintf(b->copied, sizeof(b->copied), "%s/step-2", b->agent.run.dir);
    str_copy(b->avoided, sizeof(b->avoided), "step-3\n");
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .step = 40, .token = 7});
    b->now_ms += 5000;
    b->started = 2; /* meanwhile the workers that saved it have ended */
    commit(b, (struct bed_word){.uuid = UUID_A, .step = 40, .token = 7});
    is_int(b->commit.n, 1, "one is committed");
    ok(c->gather.step == 40 && c->gather.token == 7 && c->gather.generation == 1 &&
           c->gather.n_ranks == 2 && c->n_written == 2, "by its step, token, workers and ranks");
    is_str(b->commit.uuid, UUID_A, "and by its digits");
    ok(c->rule.keep == 3 && c->rule.every == 100 && c->rule.is_highest,
       "beside as many as the job wants");
    is_str(c->best, "loss", "and the best one");
    is_str(b->commit.pinned, "step-1", "that is read stays");
    is_str(b->commit.copied, "step-2", "and that is copied");
    is_str(b->commit.avoided, "step-3\n", "and those that nobody starts from");
    ok(c->office == &b->lead->office && c->lease && c->strays == &b->lead->strays,
       "as long as this agent leads, and the directory is its own");
    ok(c->gather.cache == &b->lead->index, "with the index of the save before");
    ok(c->known_ms == b->now_ms, "by what was heard until now");
    is_int(b->n_took[INTERVAL_DISK], 1, "it was on its way to the disk");
    ok(b->took > 4.9 && b->took < 5.1, "for as many seconds");
    k->keep_goal = JOB_MINIMIZE;
    ok(!lead_snap_rule(b->lead).is_highest, "the best may be the lowest");
    free(k->keep_best);
    k->keep_best = NULL;
    k->keep = k->keep_every = 0;
    lead_snap_bed_close(b);
}

/* The run ends, and some have not written it. */
static void test_some_written(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->commit_code = ECONNABORTED;
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .stage = written});
    b->lost = 1;
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .rank = 1});
    lead_snap_end(b->lead);
    lead_snap_bed_run(b);
    ok(b->commit.n == 1 && b->commit.facts.n_written == 1,
       "what was handed over to a lost node is not written");
    lead_snap_bed_close(b);
}

static void test_elsewhere(struct lead_snap_bed *b)
{
    static const struct {
        const char *path, *want;
    } cases[] = {
        {"/ck/step-1", "step-1"},   {"/ck2/step-1", ""}, {"/ck/deeper/step-1", ""},
        {"/other/ck/step-1", ""},   {"/ck", ""},         {"", ""},
        {"/ck/step-000000000001-of-a-name-that-is-too-long-for-any-checkpoint-of-ours", ""},
    };

    lead_snap_bed_open(b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char name[STEP_NAME_BYTES] = "?";

        str_copy(b->pinned, sizeof(b->pinned), cases[i].path);
        lead_snap_pinned(b->lead, "/ck", name);
        is_str(name, cases[i].want, "in /ck: '%s'", cases[i].path);
    }
    lead_snap_bed_close(b);
}

/* Who hears that it is saved has it copied from then on. */
static void test_known_then(struct lead_snap_bed *b)
{
    char name[STEP_NAME_BYTES];

    lead_snap_bed_open(b);
    step_name(10, UUID_A, name);
    b->copies = true;
    commit(b, (struct bed_word){.uuid = UUID_A});
    is_str(b->commit.copied, "", "nothing is copied as it is committed");
    is_str(b->tidy.copied, name, "what is then stays as others go");
    lead_snap_bed_close(b);
}

/* What workers start from is theirs until all of them have saved. */
static void test_source(struct lead_snap_bed *b)
{
    char name[STEP_NAME_BYTES];

    lead_snap_bed_open(b);
    snprintf(b->source, sizeof(b->source), "%s/step-5", b->agent.run.dir);
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A});
    lead_snap_source(b->lead, b->agent.run.dir, name);
    is_str(name, "step-5", "one rank has saved: others may be reading");
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .rank = 1});
    lead_snap_source(b->lead, b->agent.run.dir, name);
    is_str(name, "", "all have: nobody is");
    lead_snap_bed_close(b);
}

/* The steps from which on others are on their way. */
static void test_busy(struct lead_snap_bed *b)
{
    char elsewhere[SNAP_ROOT_BYTES];

    lead_snap_bed_open(b);
    commit(b, (struct bed_word){.uuid = UUID_A, .step = 10});
    ok(b->commit.facts.busy_from == UINT64_MAX, "nothing else is on its way");
    snprintf(elsewhere, sizeof(elsewhere), "%.200s/more", b->agent.run.dir);
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_B, .step = 30});
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_C, .step = 25});
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_E, .step = 35});
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_F, .step = 5, .root = elsewhere});
    commit(b, (struct bed_word){.uuid = UUID_D, .step = 20});
    ok(b->commit.facts.busy_from == 25, "the lowest of those of this directory");
    lead_snap_bed_close(b);
}

/* As lead_snap_bed_run(), whoever reads meanwhile. */
static void run_works(struct lead_snap_bed *b)
{
    while (b->lead->n_works > 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
}

/* What was read again, or is being read, stays. */
static void test_checked(struct lead_snap_bed *b)
{
    struct lead_check *check;

    lead_snap_bed_open(b);
    check = &b->lead->check;
    str_copy(check->right.root, sizeof(check->right.root), b->agent.run.dir);
    str_copy(check->right.name, sizeof(check->right.name), "step-1");
    check->reading = check->right;
    str_copy(check->reading.name, sizeof(check->reading.name), "step-2");
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .stage = written});
    check->is_running = true;
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .rank = 1, .stage = written});
    run_works(b);
    check->is_running = false;
    is_str(b->commit.verified, "step-1", "that was right is known");
    is_str(b->commit.checking, "step-2", "and that is being read");
    is_str(b->tidy.checking, "step-2", "as what may go goes, too");
    lead_snap_bed_close(b);
}

/* --- room --- */

static void test_room(struct lead_snap_bed *b)
{
    static const struct {
        unsigned room_for;
        bool is_due;
        int n_told, n_reread, n_left;
        const char *what;
    } cases[] = {
        {2, false, 1, 0, 0, "with room for two more it is told before older ones go"},
        {1, false, 0, 0, 0, "with less they go first"},
        {0, false, 0, 0, 0, "all of them, where one that is kept was read again"},
        {0, true, 0, 1, 1, "else once it was read, and who reads another one leaves that"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        lead_snap_bed_open(b);
        b->room_for = cases[i].room_for;
        b->is_due = cases[i].is_due;
        commit(b, (struct bed_word){.uuid = UUID_A});
        ok(b->n_saved == 1 && b->n_saved_when_tidied == cases[i].n_told &&
               b->n_reread == cases[i].n_reread && b->n_left == cases[i].n_left,
           "%s", cases[i].what);
        lead_snap_bed_close(b);
    }
}

/* It was read at once: by that the rest goes. */
static void test_read_at_once(struct lead_snap_bed *b)
{
    char name[STEP_NAME_BYTES];

    lead_snap_bed_open(b);
    step_name(10, UUID_A, name);
    b->room_for = 0;
    b->is_due = true;
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .stage = written});
    str_copy(b->lead->check.reading.root, SNAP_ROOT_BYTES, b->agent.run.dir);
    str_copy(b->lead->check.reading.name, STEP_NAME_BYTES, "step-2");
    b->lead->check.is_running = true;
    lead_snap_bed_say(b, 1, (struct bed_word){.uuid = UUID_A, .rank = 1, .stage = written});
    run_works(b);
    b->lead->check.is_running = false;
    ok(b->tidy.n == 2 && strcmp(b->tidy.verified, name) == 0, "it is the one that is right");
    is_str(b->tidy.checking, "", "and what is being read may go");
    lead_snap_bed_close(b);
}

/* --- the directory --- */

/* No thread can be had that keeps it for this run. */
static void test_no_lease(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->has_no_lease = true;
    commit(b, (struct bed_word){.uuid = UUID_A});
    ok(b->n_failed == 1 && strstr(b->why, "no lease") && b->n_saved == 0,
       "without a lease nothing becomes a checkpoint: %s", b->why);
    lead_snap_bed_close(b);
}

/* The lead before has made it one. */
static void test_no_lease_of_one_that_is(struct lead_snap_bed *b)
{
    for (unsigned room_for = 0; room_for <= 9; room_for += 9) {
        lead_snap_bed_open(b);
        b->has_no_lease = b->was_there = true;
        b->room_for = room_for;
        commit(b, (struct bed_word){.uuid = UUID_A});
        ok(b->n_saved == 1 && !b->is_new && b->tidy.n == 0,
           "without a lease one that is there is told, and nothing goes");
        lead_snap_end(b->lead);
        lead_snap_bed_run(b);
        lead_snap_bed_hush(b);
        b->now_ms += SNAP_TELL_AGAIN_MS;
        lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A});
        ok(b->tidy.n == 0 && lead_snap_bed_has_said(b, "\"error\":0"),
           "nor is that taken for its failure: %s", b->said);
        lead_snap_bed_close(b);
    }
}

/* --- what is told --- */

static void test_saved(struct lead_snap_bed *b)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    lead_snap_bed_open(b);
    step_name(40, UUID_A, name);
    snprintf(path, sizeof(path), "%.200s/%s", b->agent.run.dir, name);
    commit(b, (struct bed_word){.uuid = UUID_A, .step = 40});
    ok(b->n_saved == 1 && b->saved_step == 40 && b->is_new, "it is saved");
    is_str(b->path, path, "there");
    ok(lead_snap_bed_has_said(b, "\"ask\":\"snap\",\"uuid\":\"" UUID_A "\",\"error\":0"),
       "and all hear it: %s", b->said);
    is_str(b->noted, "", "which is no news for the journal");
    lead_snap_bed_close(b);
    lead_snap_bed_open(b);
    b->was_there = true;
    commit(b, (struct bed_word){.uuid = UUID_A});
    is_int(b->n_took[INTERVAL_DISK], 0, "how long one took that was there is not known");
    lead_snap_bed_close(b);
}

static void test_failed(struct lead_snap_bed *b)
{
    char name[STEP_NAME_BYTES];

    lead_snap_bed_open(b);
    step_name(10, UUID_A, name);
    fail(b, (struct bed_word){.uuid = UUID_A}, ENOSPC, "full");
    ok(b->n_failed == 1 && strcmp(b->failed, name) == 0, "one that has failed is told by name");
    is_str(b->why, "rank 0: full", "with what is to blame");
    like(b->noted, "step 10 is none: rank 0: full (in /", "the journal has where");
    like(b->noted, "stays in memory, and is tried again when workers end", "and what is next");
    lead_snap_bed_hush(b);
    fail(b, (struct bed_word){.uuid = UUID_A, .again = 1}, ENOSPC, "full");
    like(b->noted, "it is lost with the run's memory", "a try as they ended was the last");
    ok(lead_snap_bed_has_said(b, "\"stays\":true,\"again\":1"), "all hear which try: %s",
       b->said);
    b->started = 2;
    lead_snap_bed_hush(b);
    fail(b, (struct bed_word){.uuid = UUID_B, .again = 1}, ENOSPC, b->agent.run.dir);
    like(b->noted, "tried again when workers end", "but not once others have started");
    ok(!strstr(b->noted, "(in "), "a path is not said twice: %s", b->noted);
    lead_snap_bed_close(b);
}

/* The commit fails, by which nobody has lost what is in memory. */
static void test_commit_failed(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->commit_code = EIO;
    commit(b, (struct bed_word){.uuid = UUID_A});
    is_str(b->why, "by order", "what failed is told");
    ok(b->tidy.n == 0 && b->n_took[INTERVAL_DISK] == 0, "and nothing goes for it");
    lead_snap_bed_close(b);
}

/* A rank had no memory for it any more, as a later one has its place. */
static void test_no_news(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    fail(b, (struct bed_word){.uuid = UUID_A, .waits = BED_WAITS}, ESTALE, "later");
    ok(b->n_failed == 0 && !b->noted[0], "one whose place a later one has is no news: %s",
       b->noted);
    ok(lead_snap_bed_has_said(b, "\"error\":116"), "but to who has it");
    b->was_there = true;
    lead_snap_bed_hush(b);
    fail(b, (struct bed_word){.uuid = UUID_B}, ESTALE, "later");
    ok(b->n_saved == 1 && lead_snap_bed_has_said(b, "\"error\":0"),
       "that is there all the same is one: %s", b->said);
    lead_snap_bed_close(b);
}

/* This agent's workers have ended: it tries once more as soon as it hears. */
static void answer_again(struct lead_snap_bed *b)
{
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A, .again = 1});
}

static void test_answered(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->answer = answer_again;
    fail(b, (struct bed_word){.uuid = UUID_A}, ENOSPC, "full");
    ok(!b->lead->saves->is_settled && b->tidy.n == 0,
       "another try begins as one ends: nothing goes for that");
    lead_snap_bed_close(b);
}

/* Who has not heard hears it again, a second later. */
static void test_again(struct lead_snap_bed *b)
{
    struct bed_word held = {.uuid = UUID_A};

    lead_snap_bed_open(b);
    fail(b, held, ENOSPC, "full");
    lead_snap_bed_hush(b);
    b->now_ms += SNAP_TELL_AGAIN_MS - 1;
    lead_snap_bed_say(b, 0, held);
    is_str(b->said, "", "all have heard it a moment ago");
    b->now_ms++;
    lead_snap_bed_say(b, 0, held);
    ok(lead_snap_bed_has_said(b, "\"error\":28"), "and hear it again, in time");
    held.again = 2;
    lead_snap_bed_say(b, 0, held);
    b->now_ms += SNAP_TELL_AGAIN_MS;
    lead_snap_bed_hush(b);
    held.again = 1;
    lead_snap_bed_say(b, 1, held);
    ok(lead_snap_bed_has_said(b, "\"error\":28") &&
           lead_snap_bed_has_said(b, "\"stays\":true,\"again\":1,\"on\":2"),
       "who knows of a try before hears how that ended, and of the next: %s", b->said);
    lead_snap_bed_close(b);
}

/* What is in memory, with copies, is of no use once a later one is on the disk. */
static void test_replaces(struct lead_snap_bed *b)
{
    struct bed_word stays = {.uuid = UUID_A, .step = 10, .waits = BED_WAITS};
    struct bed_word next = {.uuid = UUID_B, .step = 20};

    lead_snap_bed_open(b);
    b->every_ms[INTERVAL_DISK] = 3600000;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_C, .step = 5});
    lead_snap_bed_say_all(b, stays);
    stays.is_copy = true;
    stays.from = 0;
    lead_snap_bed_say(b, 2, stays);
    stays.from = stays.rank = 1;
    lead_snap_bed_say(b, 2, stays);
    lead_snap_bed_hush(b);
    commit(b, next);
    ok(lead_snap_bed_has_said(b, UUID_A "\",\"error\":116"), "it goes: %s", b->said);
    lead_snap_bed_close(b);
}

static void test_best(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->agent.config.job->checkpoint.keep_best = strdup("loss");
    commit(b, (struct bed_word){.uuid = UUID_A, .step = 10});
    is_str(b->noted, "", "older ones go by their metric");
    b->lacks_best = true;
    commit(b, (struct bed_word){.uuid = UUID_B, .step = 20});
    like(b->noted, "has a metric 'loss'", "that none has it is told");
    lead_snap_bed_hush(b);
    commit(b, (struct bed_word){.uuid = UUID_C, .step = 30});
    is_str(b->noted, "", "once");
    free(b->agent.config.job->checkpoint.keep_best);
    b->agent.config.job->checkpoint.keep_best = NULL;
    lead_snap_bed_close(b);
}

/* --- the end --- */

/* In each directory the newest that is there is looked at. */
static void test_sweep(struct lead_snap_bed *b)
{
    char elsewhere[SNAP_ROOT_BYTES];

    lead_snap_bed_open(b);
    snprintf(elsewhere, sizeof(elsewhere), "%.200s/more", b->agent.run.dir);
    commit(b, (struct bed_word){.uuid = UUID_A, .step = 10});
    commit(b, (struct bed_word){.uuid = UUID_B, .step = 20, .root = elsewhere});
    b->commit_code = EIO;
    commit(b, (struct bed_word){.uuid = UUID_C, .step = 30});
    is_int(b->tidy.n, 2, "two saves are there, and one is none");
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_D, .step = 40});
    b->is_due = true;
    lead_snap_end(b->lead);
    ok(lead_snap_ask_removed(b->lead), "the end waits for what was never finished to go");
    lead_snap_bed_look(b);
    is_int(b->lead->n_works, 1, "one at a time");
    lead_snap_bed_run(b);
    is_int(b->tidy.n, 4, "which is looked for in both directories");
    ok(!b->tidy.facts.strays && strcmp(b->tidy.uuid, UUID_A) == 0, "whosever it is");
    is_int(b->n_reread, 0, "and nothing is read again any more");
    lead_snap_bed_close(b);
}

/* More saves come to nothing meanwhile than anybody remembers. */
static void test_sweep_is_remembered(struct lead_snap_bed *b)
{
    char uuid[sizeof(UUID_A)];

    lead_snap_bed_open(b);
    commit(b, (struct bed_word){.uuid = UUID_A});
    lead_snap_end(b->lead);
    for (int i = 0; i < 20; i++) {
        snprintf(uuid, sizeof(uuid), "%032d", i);
        lead_snap_bed_say(b, 0, (struct bed_word){.uuid = uuid, .waits = BED_WAITS});
        lead_snap_bed_look(b);
    }
    ok(!lead_save_find(b->lead, "00000000000000000000000000000001") &&
           lead_save_find(b->lead, UUID_A), "one that others are removed for is remembered");
    lead_snap_bed_run(b);
    is_int(b->tidy.n, 2, "until that is done");
    lead_snap_bed_close(b);
}

/* Who leads goes while one is committed. */
static void test_dies(struct lead_snap_bed *b)
{
    struct bed_word w = {.uuid = UUID_A, .stage = written};

    for (int code = 0; code <= ENOSPC; code += ENOSPC) {
        lead_snap_bed_open(b);
        b->room_for = 0;
        b->commit_code = code;
        lead_snap_bed_say_all(b, w);
        ok(b->lead->n_works == 1, "one is being committed");
        lead_snap_destroy(b->lead);
        lead_snap_bed_hush(b);
        while (b->agent.loop.active_reqs.count > 0) {
            uv_run(&b->agent.loop, UV_RUN_ONCE);
        }
        ok(b->commit.n == 1 && b->tidy.n == (code == 0), "older ones go, if it is there, once");
        ok(b->n_saved + b->n_failed == 0 && !b->said[0], "and nobody is told any more");
    }
}

/* Or while one is read again. */
static void test_dies_reading(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->is_due = true;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = written});
    run_works(b);
    ok(b->lead->check.is_running, "one is read again");
    lead_snap_destroy(b->lead);
    while (b->agent.loop.active_reqs.count > 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    ok(b->n_reread == 1 && b->tidy.n == 1, "which is right, and nothing goes for it");
}

/* Another agent may lead by now. */
static void test_office_is_over(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->commit_code = ESTALE;
    commit(b, (struct bed_word){.uuid = UUID_A});
    ok(b->n_failed == 0 && b->saving_ranks == 2 && !b->said[0], "nobody hears of it");
    b->commit_code = 0;
    lead_snap_bed_look(b);
    lead_snap_bed_run(b);
    ok(b->n_saved == 1 && b->commit.n == 2, "if this one leads on it is tried again");
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_facts(b);
    test_some_written(b);
    test_elsewhere(b);
    test_known_then(b);
    test_source(b);
    test_busy(b);
    test_checked(b);
    test_room(b);
    test_read_at_once(b);
    test_no_lease(b);
    test_no_lease_of_one_that_is(b);
    test_saved(b);
    test_failed(b);
    test_commit_failed(b);
    test_no_news(b);
    test_answered(b);
    test_again(b);
    test_replaces(b);
    test_best(b);
    test_sweep(b);
    test_sweep_is_remembered(b);
    test_dies(b);
    test_dies_reading(b);
    test_office_is_over(b);
    lead_snap_bed_free(b);
    return tap_done();
}
