/* SPDX-License-Identifier: Apache-2.0 */
/* When the newest checkpoint goes to the store, what becomes of one that does not get there,
 * and when a run ends that waits for that. */
#include <config.h>

#include "launcher/bucket_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct bucket_bed bucket_bed;

/* --- as the run goes on --- */

static void test_none(struct bucket_bed *b)
{
    struct lead_bucket *none = NULL;

    bucket_bed_open(b);
    free(b->agent.config.job->checkpoint.store);
    b->agent.config.job->checkpoint.store = NULL;
    ok(lead_bucket_create(&b->agent, NULL, NULL, NULL, &none, NULL) == 0 && !none,
       "a job without a store has none");
    lead_bucket_saved(NULL, "/ck/1", true);
    lead_bucket_doubt(NULL, true);
    ok(!lead_bucket_fetch(NULL, false) && !lead_bucket_is_damaged(NULL, "/ck/1"),
       "nothing is fetched from it");
    ok(!lead_bucket_finish(NULL, BUCKET_LONG_MS) && !lead_bucket_forget(NULL) &&
           !lead_bucket_is_awaited(NULL), "nor waited for");
    is_str(lead_bucket_under_way(NULL), "", "nor on its way");
    lead_bucket_destroy(NULL);
    b->agent.config.job->checkpoint.store = strdup(BUCKET_URI);
    bucket_bed_close(b);
}

static void test_push(struct bucket_bed *b)
{
    bucket_bed_open(b);
    lead_bucket_saved(b->bucket, "", true);
    is_int(bucket_bed_due_in(b), -1, "nothing was saved");
    lead_bucket_saved(b->bucket, "/ck/1", true);
    is_int(bucket_bed_due_in(b), 0, "the first one goes at once");
    is_int(b->n_started, 0, "but not from inside");
    lead_bucket_saved(b->bucket, "", true);
    bucket_bed_turn(b);
    is_str(b->argv, BUCKET_PUSH "/ck/1 " BUCKET_URI, "by a child");
    is_int((int)b->child_ms, BUCKET_LONG_MS, "that may take an hour");
    is_str(lead_bucket_under_way(b->bucket), "/ck/1", "it is to stay so long");
    ok(b->is_busy && strcmp(b->storing, "/ck/1") == 0, "which is shown");
    b->status.stored_step = 5;
    bucket_bed_end(b, "{\"name\":\"1\",\"uuid\":\"u1\",\"step\":7}");
    is_str(b->event, "checkpoint_stored: /ck/1 was taken to " BUCKET_URI " in 3s", "it is there");
    ok(b->n_stored == 1 && b->error == 0, "as is told");
    is_str(b->stored, "/ck/1 u1 ", "with the save that it is of");
    ok(strcmp(b->status.stored_path, "1") == 0 && b->status.stored_step == 7 &&
           b->n_touched == 1, "and is in the status");
    is_int((int)(b->status.took_s[INTERVAL_STORE] * 10), 30, "also how long it took");
    ok(!b->is_busy && !b->storing[0], "nothing is on its way any more");
    is_str(lead_bucket_under_way(b->bucket), "", "it may go");
    is_int(bucket_bed_due_in(b), -1, "and nothing is left to do");
    is_int(b->n_finished, 0, "nobody waits");
    bucket_bed_close(b);
}

/* Of a child that says less nothing is made up. */
static void test_says_little(struct bucket_bed *b)
{
    bucket_bed_open(b);
    str_copy(b->status.stored_path, sizeof(b->status.stored_path), "0");
    bucket_bed_push(b, "/ck/1");
    bucket_bed_end(b, "");
    is_str(b->stored, "/ck/1  ", "one of which nothing else is said is there");
    ok(strcmp(b->status.stored_path, "0") == 0 && b->n_touched == 0, "the status is as it was");
    lead_bucket_saved(b->bucket, "/ck/2", true);
    bucket_bed_turn(b);
    bucket_bed_end(b, "{\"name\":\"2\"}");
    is_int((int)b->status.stored_step, -1, "one without a step has none");
    bucket_bed_close(b);
}

static void test_every_so_often(struct bucket_bed *b)
{
    bucket_bed_open(b);
    b->agent.config.job->checkpoint.store_keep = 3;
    bucket_bed_push(b, "/ck/1");
    is_str(b->argv, "muster ckpt push --keep=3 --output=json -- /ck/1 " BUCKET_URI,
           "so many are kept");
    lead_bucket_saved(b->bucket, "/ck/2", true);
    lead_bucket_saved(b->bucket, "/ck/3", true);
    is_int(bucket_bed_due_in(b), -1, "one at a time");
    bucket_bed_end(b, "{}");
    is_int(bucket_bed_due_in(b), BUCKET_EVERY_MS - 3000,
           "the next one goes a minute after the one before began");
    bucket_bed_turn(b);
    is_str(lead_bucket_under_way(b->bucket), "/ck/3", "only the newest");
    bucket_bed_end(b, "{}");
    b->now_ms += 2 * BUCKET_EVERY_MS;
    lead_bucket_saved(b->bucket, "/ck/4", true);
    is_int(bucket_bed_due_in(b), 0, "after a long time it goes at once");
    bucket_bed_turn(b);
    bucket_bed_end(b, "{}");
    lead_bucket_saved(b->bucket, "/ck/4", false);
    is_int(bucket_bed_due_in(b), -1, "what is there is not pushed twice");
    lead_bucket_saved(b->bucket, "/ck/4", true);
    ok(bucket_bed_due_in(b) > 0, "unless it was written again");
    bucket_bed_turn(b);
    bucket_bed_end(b, "{}");
    lead_bucket_saved(b->bucket, "/ck/4", true);
    bucket_bed_turn(b);
    lead_bucket_saved(b->bucket, "/ck/4", true);
    is_int(bucket_bed_due_in(b), -1, "while it is on its way, too");
    bucket_bed_end(b, "{}");
    ok(bucket_bed_due_in(b) > 0, "it goes again");
    bucket_bed_turn(b);
    bucket_bed_end(b, "{}");
    is_int(bucket_bed_due_in(b), -1, "once");
    lead_bucket_saved(b->bucket, "/ck/5", true);
    ok(bucket_bed_due_in(b) > 0, "one is due");
    lead_bucket_saved(b->bucket, "/ck/4", false);
    is_int(bucket_bed_due_in(b), -1, "until the newest is again what is there");
    bucket_bed_close(b);
}

/* --- failures --- */

static void test_may_pass(struct bucket_bed *b)
{
    static const int spans[] = {10, 20, 40, 80, 160, 320, 600, 600};

    bucket_bed_open(b);
    b->agent.config.job->checkpoint.store_every_ms = 1;
    bucket_bed_push(b, "/ck/1");
    for (size_t i = 0; i < ARRAY_SIZE(spans); i++) {
        bucket_bed_fail(b, true);
        is_int(bucket_bed_due_in(b), spans[i] * 1000, "after failure %zu it waits longer", i + 1);
        is_str(lead_bucket_under_way(b->bucket), "", "and is in nobody's way");
        bucket_bed_turn(b);
        is_str(lead_bucket_under_way(b->bucket), "/ck/1", "until it is tried again");
    }
    is_int(b->n_stored, 0, "which is nobody's last word");
    bucket_bed_fail(b, true);
    is_str(b->event, "checkpoint_trouble: /ck/1 was not taken to " BUCKET_URI ": it is shut; "
           "again in 10m00s", "that is told, with when");
    bucket_bed_turn(b);
    bucket_bed_end(b, "{}");
    is_str(b->stored, "/ck/1  ", "it gets there in the end");
    lead_bucket_saved(b->bucket, "/ck/2", true);
    b->now_ms += BUCKET_EVERY_MS;
    bucket_bed_turn(b);
    bucket_bed_fail(b, true);
    is_int(bucket_bed_due_in(b), 10000, "the next failure is a first one");
    bucket_bed_close(b);
}

/* How often pushes begin counts also then. */
static void test_may_pass_slowly(struct bucket_bed *b)
{
    bucket_bed_open(b);
    bucket_bed_push(b, "/ck/1");
    bucket_bed_fail(b, true);
    is_int(bucket_bed_due_in(b), BUCKET_EVERY_MS - 3000,
           "one that failed is not tried more often than others");
    bucket_bed_close(b);
}

static void test_hopeless(struct bucket_bed *b)
{
    bucket_bed_open(b);
    bucket_bed_push(b, "/ck/1");
    bucket_bed_fail(b, false);
    is_str(b->event, "checkpoint_trouble: /ck/1 was not taken to " BUCKET_URI ": it is shut; "
           "the next one will be tried", "one that cannot get there");
    ok(b->n_stored == 1 && b->error == EIO, "is given up");
    is_str(b->stored, "/ck/1  it is shut", "which is told, with why");
    is_int(bucket_bed_due_in(b), -1, "and not tried again");
    lead_bucket_saved(b->bucket, "/ck/1", false);
    is_int(bucket_bed_due_in(b), -1, "nor when it is named again");
    ok(!lead_bucket_finish(b->bucket, BUCKET_LONG_MS), "nor waited for at the end");
    lead_bucket_saved(b->bucket, "/ck/2", true);
    is_int(bucket_bed_due_in(b), BUCKET_EVERY_MS - 3000, "the next one is, in its time");
    bucket_bed_turn(b);
    bucket_bed_end(b, "{}");
    is_str(b->stored, "/ck/2  ", "and may get there");
    lead_bucket_saved(b->bucket, "/ck/2", true);
    ok(bucket_bed_due_in(b) > 0, "again, where it was written again");
    bucket_bed_close(b);
}

static void test_no_child(struct bucket_bed *b)
{
    bucket_bed_open(b);
    b->is_refused = true;
    bucket_bed_push(b, "/ck/1");
    like(b->event, "no process; again in 10s", "one that cannot be begun: %s", b->event);
    ok(!b->is_busy && !b->storing[0], "is not on its way");
    is_int(bucket_bed_due_in(b), BUCKET_EVERY_MS, "and is tried again");
    b->is_refused = false;
    bucket_bed_turn(b);
    is_int(b->n_started, 1, "with a child by then");
    bucket_bed_close(b);
    is_int(b->n_stopped, 1, "which ends with the agent");
}

/* --- at the end of the run --- */

static void test_finish(struct bucket_bed *b)
{
    bucket_bed_open(b);
    ok(!lead_bucket_finish(b->bucket, BUCKET_LONG_MS), "nothing was saved: nobody waits");
    bucket_bed_push(b, "/ck/1");
    bucket_bed_end(b, "{}");
    ok(!lead_bucket_finish(b->bucket, BUCKET_LONG_MS), "nor where all is there");
    lead_bucket_saved(b->bucket, "/ck/2", true);
    ok(!lead_bucket_finish(b->bucket, 0) && !lead_bucket_is_awaited(b->bucket),
       "nor where there is no time");
    ok(lead_bucket_finish(b->bucket, 5000) && lead_bucket_is_awaited(b->bucket),
       "what is not is waited for");
    ok(b->waits && b->limit_ms == 5000, "so long");
    is_str(b->storing, "/ck/2", "which is shown");
    is_int(bucket_bed_due_in(b), 0, "it goes at once, and not a minute after the one before");
    bucket_bed_turn(b);
    lead_bucket_saved(b->bucket, "/ck/3", true);
    bucket_bed_end(b, "{}");
    ok(b->n_finished == 0 && bucket_bed_due_in(b) == 0, "so does what was saved meanwhile");
    bucket_bed_turn(b);
    bucket_bed_end(b, "{}");
    is_int(b->n_finished, 1, "then all is there");
    ok(!lead_bucket_is_awaited(b->bucket) && !b->waits && !b->storing[0], "and nobody waits");
    bucket_bed_close(b);
}

static void test_finish_fails(struct bucket_bed *b)
{
    bucket_bed_open(b);
    b->agent.config.job->checkpoint.store_every_ms = 1;
    bucket_bed_push(b, "/ck/1");
    bucket_bed_fail(b, true);
    bucket_bed_turn(b);
    bucket_bed_fail(b, true);
    is_int(bucket_bed_due_in(b), 20000, "one waits to be tried again");
    ok(lead_bucket_finish(b->bucket, BUCKET_LONG_MS) && bucket_bed_due_in(b) == 0,
       "the run ends: it is at once");
    for (int i = 0; i < 3; i++) {
        bucket_bed_turn(b);
        bucket_bed_fail(b, true);
        is_int(bucket_bed_due_in(b), 10000, "and often");
    }
    is_str(b->event, "checkpoint_trouble: /ck/1 was not taken to " BUCKET_URI ": it is shut",
           "of which less is said");
    bucket_bed_turn(b);
    bucket_bed_fail(b, false);
    ok(b->n_finished == 1 && bucket_bed_due_in(b) == -1, "until it cannot get there");
    bucket_bed_close(b);
}

static void test_too_long(struct bucket_bed *b)
{
    bucket_bed_open(b);
    bucket_bed_push(b, "/ck/1");
    lead_bucket_finish(b->bucket, BUCKET_LONG_MS);
    bucket_bed_wait(b, "2s", false);
    is_str(b->event, "checkpoint_waits: the run ends once /ck/1 is in " BUCKET_URI " (for 2s; "
           "Ctrl-C ends it without)", "who looks on is told");
    ok(b->n_finished == 0 && b->n_stopped == 0, "and waits on");
    bucket_bed_wait(b, "1h", true);
    is_str(b->event, "checkpoint_trouble: /ck/1 is not in " BUCKET_URI " after 1h: the run ends "
           "without; muster ckpt push takes it there", "for so long");
    ok(b->n_finished == 1 && b->n_stopped == 1, "then it is given up");
    ok(!lead_bucket_is_awaited(b->bucket) && !b->storing[0] && !b->is_busy,
       "and nothing is on its way");
    bucket_bed_close(b);
}

static void test_forget(struct bucket_bed *b)
{
    bucket_bed_open(b);
    lead_bucket_saved(b->bucket, "/ck/1", true);
    ok(!lead_bucket_forget(b->bucket) && b->n_events == 0, "nobody waits yet");
    is_int(bucket_bed_due_in(b), 0, "and what is due is still");
    lead_bucket_finish(b->bucket, BUCKET_LONG_MS);
    ok(lead_bucket_forget(b->bucket), "one waits, and will not any more");
    is_str(b->event, "checkpoint_trouble: /ck/1 is not in " BUCKET_URI ": the run ends without it",
           "which is told");
    ok(bucket_bed_due_in(b) == -1 && !lead_bucket_is_awaited(b->bucket) && !b->waits,
       "what was due is no more");
    is_int(b->n_finished, 0, "and nobody hears that it is there");
    lead_bucket_finish(b->bucket, BUCKET_LONG_MS);
    bucket_bed_turn(b);
    lead_bucket_forget(b->bucket);
    is_int(b->n_stopped, 1, "what is on its way is stopped");
    ok(!b->is_busy && !b->storing[0], "and shown no more");
    bucket_bed_close(b);
}

/* --- what a lead before this one may have saved --- */

static void test_doubt(struct bucket_bed *b)
{
    bucket_bed_open(b);
    lead_bucket_doubt(b->bucket, true);
    ok(!lead_bucket_finish(b->bucket, BUCKET_LONG_MS),
       "nothing is known that something is newer than");
    bucket_bed_push(b, "/ck/1");
    is_str(b->argv, BUCKET_PUSH "/ck/1 " BUCKET_URI, "what is known goes there as ever");
    bucket_bed_end(b, "{}");
    is_int(bucket_bed_due_in(b), -1, "and nobody looks for more as the run goes on");
    ok(lead_bucket_finish(b->bucket, BUCKET_LONG_MS), "its end waits");
    bucket_bed_turn(b);
    is_str(b->argv, BUCKET_LOOK "/ck/1 " BUCKET_URI, "for what may be newer");
    is_int((int)b->shortened_ms, 30000, "not for long");
    bucket_bed_wait(b, "2s", false);
    like(b->event, "once what may be newer than /ck/1 is in", "which is told: %s", b->event);
    b->n_events = b->n_stored = 0;
    bucket_bed_end(b, "{\"from\":\"1\"}");
    ok(b->n_finished == 1 && b->n_events == 0 && b->n_stored == 0,
       "there was none: nothing is said");
    ok(!lead_bucket_finish(b->bucket, BUCKET_LONG_MS), "and nobody looks again");
    bucket_bed_push(b, "/ck/2");
    is_str(b->argv, BUCKET_PUSH "/ck/2 " BUCKET_URI,
           "what is saved all the same is pushed as ever");
    bucket_bed_close(b);
}

static void test_doubt_found(struct bucket_bed *b)
{
    bucket_bed_open(b);
    bucket_bed_push(b, "/ck/1");
    bucket_bed_end(b, "{}");
    lead_bucket_doubt(b->bucket, true);
    lead_bucket_finish(b->bucket, BUCKET_LONG_MS);
    bucket_bed_turn(b);
    bucket_bed_end(b, "{\"from\":\"2\",\"name\":\"2\",\"uuid\":\"u2\"}");
    is_str(b->stored, "/ck/2 u2 ", "one that nobody told of is there");
    is_str(b->event, "checkpoint_stored: /ck/2 was taken to " BUCKET_URI " in 3s", "by its name");
    is_int(b->n_finished, 1, "then the run ends");
    bucket_bed_close(b);
}

/* Also where what is known goes first, or cannot. */
static void test_doubt_later(struct bucket_bed *b)
{
    for (int is_ok = 0; is_ok < 2; is_ok++) {
        bucket_bed_open(b);
        lead_bucket_doubt(b->bucket, true);
        lead_bucket_saved(b->bucket, "/ck/1", true);
        lead_bucket_finish(b->bucket, BUCKET_LONG_MS);
        bucket_bed_turn(b);
        is_str(b->argv, BUCKET_PUSH "/ck/1 " BUCKET_URI, "what is known goes first");
        if (is_ok) {
            bucket_bed_end(b, "{}");
        } else {
            bucket_bed_fail(b, false);
        }
        is_int(b->n_finished, 0, "that is not all");
        bucket_bed_turn(b);
        is_str(b->argv, BUCKET_LOOK "/ck/1 " BUCKET_URI, "then one looks for more");
        bucket_bed_fail(b, true);
        is_str(b->event, "checkpoint_trouble: what the lead before may have saved after /ck/1 was "
               "not taken to " BUCKET_URI ": it is shut", "once");
        ok(b->n_finished == 1 && bucket_bed_due_in(b) == -1, "whatever comes of it");
        bucket_bed_close(b);
    }
    bucket_bed_open(b);
    bucket_bed_push(b, "/ck/1");
    bucket_bed_end(b, "{}");
    lead_bucket_doubt(b->bucket, true);
    lead_bucket_doubt(b->bucket, false);
    ok(!lead_bucket_finish(b->bucket, BUCKET_LONG_MS),
       "what is in doubt no more is not looked for");
    bucket_bed_close(b);
}

/* Who gives up the look has given it up. */
static void test_doubt_forgotten(struct bucket_bed *b)
{
    bucket_bed_open(b);
    bucket_bed_push(b, "/ck/1");
    bucket_bed_end(b, "{}");
    lead_bucket_doubt(b->bucket, true);
    lead_bucket_finish(b->bucket, BUCKET_LONG_MS);
    bucket_bed_turn(b);
    ok(lead_bucket_forget(b->bucket) && b->n_stopped == 1, "a look is given up");
    like(b->event, "what may be newer than /ck/1 is not in", "which is told: %s", b->event);
    lead_bucket_saved(b->bucket, "/ck/2", true);
    bucket_bed_turn(b);
    is_str(b->argv, BUCKET_PUSH "/ck/2 " BUCKET_URI, "what comes then is pushed as ever");
    bucket_bed_close(b);
}

int main(void)
{
    test_none(&bucket_bed);
    test_push(&bucket_bed);
    test_says_little(&bucket_bed);
    test_every_so_often(&bucket_bed);
    test_may_pass(&bucket_bed);
    test_may_pass_slowly(&bucket_bed);
    test_hopeless(&bucket_bed);
    test_no_child(&bucket_bed);
    test_finish(&bucket_bed);
    test_finish_fails(&bucket_bed);
    test_too_long(&bucket_bed);
    test_forget(&bucket_bed);
    test_doubt(&bucket_bed);
    test_doubt_found(&bucket_bed);
    test_doubt_later(&bucket_bed);
    test_doubt_forgotten(&bucket_bed);
    return tap_done();
}
