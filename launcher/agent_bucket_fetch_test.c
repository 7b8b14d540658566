/* SPDX-License-Identifier: Apache-2.0 */
/* What is fetched from the store before workers start, and to where. */
#include <config.h>

#include "launcher/bucket_bed.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

struct bucket_bed bucket_bed;

static void test_fetch(struct bucket_bed *b)
{
    bucket_bed_open(b);
    ok(lead_bucket_fetch(b->bucket, false), "at the start the store is asked");
    is_str(b->argv, BUCKET_PULL "/ck", "for what is newer");
    ok(b->waits && b->limit_ms == BUCKET_LONG_MS && b->child_ms == BUCKET_LONG_MS,
       "for an hour at most");
    is_str(lead_bucket_under_way(b->bucket), "", "nothing is read here");
    ok(!b->is_busy && !lead_bucket_is_awaited(b->bucket), "nor on its way there");
    bucket_bed_wait(b, "1h", true);
    ok(b->n_fetched == 0 && b->n_finished == 0 && b->n_stopped == 0,
       "when that is over it is the child that has come to its end");
    bucket_bed_wait(b, "2s", false);
    is_str(b->event, "checkpoint_waits: the run starts once /ck has what is newer in " BUCKET_URI
           " (for 2s)", "who looks on is told");
    bucket_bed_end(b, "{\"name\":\"/ck/9\",\"step\":9}");
    is_str(b->event, "checkpoint_fetched: /ck/9 was fetched from " BUCKET_URI " in 3s: nothing "
           "there was as new", "it comes");
    ok(b->n_fetched == 1 && strcmp(b->fetched, "/ck/9") == 0 && b->fetched_step == 9,
       "and is the answer");
    ok(!b->waits, "nobody waits");
    lead_bucket_saved(b->bucket, "/ck/9", false);
    is_int(bucket_bed_due_in(b), -1, "it is not taken back to where it is from");
    ok(!lead_bucket_fetch(b->bucket, false), "that is asked once");
    bucket_bed_push(b, "/ck/10");
    is_str(lead_bucket_under_way(b->bucket), "/ck/10", "what is pushed then is to stay");
    ok(b->is_busy && strcmp(b->storing, "/ck/10") == 0, "and shown");
    bucket_bed_close(b);
}

static void test_fetch_nothing(struct bucket_bed *b)
{
    bucket_bed_open(b);
    lead_bucket_fetch(b->bucket, false);
    bucket_bed_end(b, "{\"name\":\"\"}");
    ok(b->n_fetched == 1 && !b->fetched[0] && b->fetched_step == -1 && b->n_events == 0,
       "nothing is newer");
    ok(lead_bucket_fetch(b->bucket, true), "where that is in doubt it is asked again");
    bucket_bed_fail(b, true);
    is_str(b->event, "checkpoint_trouble: nothing was fetched from " BUCKET_URI ": it is shut; "
           "the run starts from what is in /ck", "it may fail");
    ok(b->n_fetched == 2 && !b->fetched[0], "of which the run starts all the same");
    bucket_bed_close(b);
}

static void test_fetch_damaged(struct bucket_bed *b)
{
    bucket_bed_open(b);
    ok(!lead_bucket_is_damaged(b->bucket, "/ck/7"), "nothing is known to be damaged");
    lead_bucket_fetch(b->bucket, false);
    bucket_bed_end(b, "{\"name\":\"/ck/9\",\"damaged\":[\"7\",8,\"6\"]}");
    ok(lead_bucket_is_damaged(b->bucket, "/ck/7") && lead_bucket_is_damaged(b->bucket, "/ck/6"),
       "what was found damaged is known");
    ok(!lead_bucket_is_damaged(b->bucket, "/ck/8") &&
           !lead_bucket_is_damaged(b->bucket, "/ck/77") &&
           !lead_bucket_is_damaged(b->bucket, "/co/7") &&
           !lead_bucket_is_damaged(b->bucket, "/ck-7"), "and nothing else");
    is_int(b->n_events, 3, "each is told");
    lead_bucket_fetch(b->bucket, true);
    bucket_bed_end(b, "{\"damaged\":[\"6\"]}");
    is_str(b->event, "checkpoint_broken: /ck/6 is damaged: passed over", "by its path");
    ok(!lead_bucket_is_damaged(b->bucket, "/ck/7"), "the last word counts");
    bucket_bed_close(b);
}

static void test_fetch_while_pushing(struct bucket_bed *b)
{
    bucket_bed_open(b);
    bucket_bed_push(b, "/ck/1");
    ok(lead_bucket_fetch(b->bucket, true), "something is on its way, and what is there in doubt");
    is_int(b->n_stopped, 1, "the push stops");
    is_str(lead_bucket_under_way(b->bucket), "", "nobody reads what it had");
    is_str(b->argv, BUCKET_PULL "/ck", "for who asks");
    bucket_bed_end(b, "{\"name\":\"\"}");
    lead_bucket_saved(b->bucket, "/ck/1", false);
    ok(bucket_bed_due_in(b) >= 0, "and goes on later");
    bucket_bed_turn(b);
    is_str(b->argv, BUCKET_PUSH "/ck/1 " BUCKET_URI, "with what is there then");
    bucket_bed_end(b, "{}");
    lead_bucket_saved(b->bucket, "/ck/2", true);
    ok(bucket_bed_due_in(b) > 0 && lead_bucket_fetch(b->bucket, true), "one is due, and asked for");
    is_int(bucket_bed_due_in(b), -1, "that waits, too");
    bucket_bed_close(b);
}

static void test_fetch_refused(struct bucket_bed *b)
{
    bucket_bed_open(b);
    b->is_refused = true;
    ok(!lead_bucket_fetch(b->bucket, false), "nobody can ask");
    is_str(b->event, "checkpoint_trouble: nothing is fetched from " BUCKET_URI ": no process",
           "which is told");
    ok(!b->waits, "and not waited for");
    is_int(b->n_fetched, 0, "there is no answer");
    bucket_bed_close(b);
}

static void test_fetch_forgotten(struct bucket_bed *b)
{
    bucket_bed_open(b);
    lead_bucket_fetch(b->bucket, false);
    ok(!lead_bucket_forget(b->bucket), "what is fetched is no wait for the end");
    ok(b->n_stopped == 1 && !b->waits && b->n_events == 0, "but given up");
    ok(lead_bucket_fetch(b->bucket, false), "and asked for anew");
    bucket_bed_close(b);
}

/* --- where the checkpoints are --- */

/* The directory that is asked for; "" for none. */
static const char *fetch_to(struct bucket_bed *b)
{
    const char *to;

    bucket_bed_again(b);
    b->argv[0] = '\0';
    lead_bucket_fetch(b->bucket, false);
    to = strstr(b->argv, BUCKET_PULL);
    return to ? to + strlen(BUCKET_PULL) : "";
}

static void test_directory(struct bucket_bed *b)
{
    struct job *job;

    bucket_bed_open(b);
    job = b->agent.config.job;
    strlist_add(&b->agent.config.env, "MUSTER_CHECKPOINT_DIR=/env");
    is_str(fetch_to(b), "/ck", "the job's directory comes first");
    free(job->checkpoint.watch);
    job->checkpoint.watch = NULL;
    is_str(fetch_to(b), "/env", "then the environment's");
    strlist_add(&job->env, "MUSTER_CHECKPOINT_DIR=dir:/job");
    is_str(fetch_to(b), "/job", "but the job's own environment counts for more");
    strlist_release(&job->env);
    job->env = (struct strlist){0};
    strlist_add(&job->env, "MUSTER_CHECKPOINT_DIR=/job/$RANK");
    str_copy(b->agent.config.resume_path, sizeof(b->agent.config.resume_path), "/re/sume/1");
    is_str(fetch_to(b), "/re/sume", "what only workers know is not known: then it is where the "
           "run starts from");
    str_copy(b->agent.config.resume_path, sizeof(b->agent.config.resume_path), "/1");
    is_str(fetch_to(b), "", "but never the root");
    is_str(b->argv, "", "nor is anything asked for");
    b->agent.config.resume_path[0] = '\0';
    b->n_events = 0;
    is_str(fetch_to(b), "", "nothing is known");
    like(b->event, "set MUSTER_CHECKPOINT_DIR", "which is told: %s", b->event);
    is_int(b->n_events, 1, "once");
    ok(!lead_bucket_fetch(b->bucket, true) && b->n_events == 1, "and not again");
    bucket_bed_close(b);
}

int main(void)
{
    test_fetch(&bucket_bed);
    test_fetch_nothing(&bucket_bed);
    test_fetch_damaged(&bucket_bed);
    test_fetch_while_pushing(&bucket_bed);
    test_fetch_refused(&bucket_bed);
    test_fetch_forgotten(&bucket_bed);
    test_directory(&bucket_bed);
    return tap_done();
}
