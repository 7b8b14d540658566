/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked for comes, or why it does not is said: before copies that wait, and in
 * place of one of which nothing was sent yet. Who sends it may change its mind, or die.
 */
#include <config.h>

#include "launcher/copy_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>

static void test_fetch(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(1), 10, COPY_ROOM, 2);
    is_int(copy_bed_fetch(&b, 2, UUID(1)), 0, "one is asked for");
    is_int(copy_bed_fetch(&b, 3, UUID(1)), 0, "and another one");
    is_int(b.copied.n_fetched, 0, "not from inside the call");
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 2), "they come");
    is_int(b.copied.error.code, 0, "without a word");
    ok(copy_bed_is_same(&b, 2, UUID(1)) && copy_bed_is_same(&b, 3, UUID(1)),
       "byte by byte");
    is_int(b.copied.n_got + b.copied.n_sent, 0, "nobody else is told");
    copy_bed_fetch(&b, 2, UUID(7));
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 3), "of one that is not there");
    is_int(b.copied.error.code, ENOENT, "that is said: %s", b.copied.error.text);
    snap_copy_hold(b.to, NULL);
    is_int(copy_bed_fetch(&b, 2, UUID(1)), -ENOTSUP,
           "who has no place for it cannot ask");
    copy_bed_close(&b);
}

/* A copy is sent to one, and asked for by another, at the same time. */
static void test_fetch_beside(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_send_half(&b);
    copy_bed_fetch(&b, 0, UUID(1));
    while (!b.from->outs->next) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_out_end(b.from->outs, NULL); /* done with one: the other one reads it still */
    copy_bed_save(&b, 0, UUID(2), 20, COPY_ROOM, 1);
    copy_bed_save(&b, 0, UUID(3), 30, COPY_ROOM, 1);
    ok(snap_hold_get(b.own, 0, UUID(1)) != NULL, "its memory is not given up");
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1), "until it is there");
    ok(copy_bed_is_same(&b, 0, UUID(1)), "whole");
    copy_bed_close(&b);
}

/* Workers wait for what is asked for: it goes before copies that wait. */
static void test_fetch_first(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(1), 10, COPY_ROOM, 2);
    copy_bed_send_half(&b);
    copy_bed_send(&b, 2, UUID(1));
    copy_bed_fetch(&b, 3, UUID(1));
    copy_bed_fetch(&b, 2, UUID(1));
    while (b.from->outs->next->next == NULL || !b.from->outs->next->next->next) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(b.from->outs->rank == 0 && b.from->outs->is_begun, "what is on its way stays so");
    ok(b.from->outs->next->is_asked && b.from->outs->next->next->is_asked,
       "then what is asked for");
    ok(!b.from->outs->next->next->next->is_asked, "then copies");
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 2) &&
           copy_bed_run_until(&b, &b.copied.n_sent, 2),
       "all of them come");
    copy_bed_close(&b);
}

/* Workers go while it is on its way; and who sends it changes its mind, or dies. */
static void test_fetch_ends(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 0, UUID(1), 10, COPY_LONG_ROOM, 1);
    copy_bed_fetch(&b, 0, UUID(1));
    while (b.to->ins->at == 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    snap_copy_fetch_forget(b.to);
    ok(!b.to->ins, "nobody waits any more");
    while (b.from->outs) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    is_int(b.copied.n_fetched, 0, "and nobody is told");
    copy_bed_fetch(&b, 0, UUID(1));
    while (b.to->ins->at == 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_outs_forget(b.from); /* as its death */
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1), "who sends it has gone");
    is_int(b.copied.error.code, ECONNRESET, "and why is said: %s", b.copied.error.text);
    copy_bed_fetch(&b, 0, UUID(1));
    while (b.to->ins->at == 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    snap_hold_settle(b.own, UUID(1), false);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 2), "it came to nothing");
    is_int(b.copied.error.code, ECANCELED, "and why is said: %s", b.copied.error.text);
    ok(!snap_hold_get(b.copies, 0, UUID(1)), "half of one is none");
    copy_bed_close(&b);
}

/* Memory for a copy is made for long: what is asked for does not wait for that. */
static void test_passes(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(1), 10, COPY_ROOM, 2);
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_send(&b, 2, UUID(1));
    while (!b.to->ins) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_bed_fetch(&b, 3, UUID(1));
    snap_bed_run_for(&b.loop, 300);
    ok(b.from->outs->is_asked && b.from->outs->is_begun, "it is offered at once");
    ok(!b.from->outs->next->is_begun, "the copy is put off");
    ok(b.to->ins && b.to->ins->question > 0 && !b.to->ins->next,
       "and who gets both makes memory for what it has asked for");
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1) &&
           b.copied.error.code == 0, "it comes");
    is_int(b.copied.n_sent, 0, "first");
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1) &&
           b.copied.error.code == 0, "then the copy");
    ok(copy_bed_is_same(&b, 2, UUID(1)) && copy_bed_is_same(&b, 3, UUID(1)),
       "byte by byte");
    copy_bed_close(&b);
}

/* Who is to get a copy asks for just that one. */
static void test_passes_same(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_send(&b, 2, UUID(1));
    while (!b.to->ins) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_bed_fetch(&b, 2, UUID(1));
    snap_bed_run_for(&b.loop, 300);
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1) &&
           b.copied.error.code == 0, "it comes");
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1) &&
           b.copied.error.code == 0, "so does the copy");
    ok(copy_bed_is_same(&b, 2, UUID(1)), "byte by byte");
    copy_bed_close(&b);
}

/* Of one of which some was sent the rest is sent. */
static void test_passes_none(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 3, UUID(1), 10, COPY_ROOM, 2);
    copy_bed_send_half(&b);
    copy_bed_fetch(&b, 3, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1) &&
           b.copied.n_fetched == 0, "it comes first");
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1), "then what is asked for");
    ok(copy_bed_is_same(&b, 0, UUID(1)) && copy_bed_is_same(&b, 3, UUID(1)),
       "both whole");
    copy_bed_close(&b);
}

static bool make(void *arg, uint32_t rank, const char *uuid)
{
    (void)arg, (void)uuid;
    return rank != 5;
}

/* Who has it makes it first: whoever asks waits for that, or goes. */
static void test_made(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    b.from->config.make = make;
    copy_bed_fetch(&b, 5, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1) && b.copied.error.code == ENOENT,
       "one that cannot be made is not there");
    copy_bed_fetch(&b, 2, UUID(1));
    copy_bed_fetch(&b, 3, UUID(1));
    copy_bed_fetch(&b, 4, UUID(1));
    snap_bed_run_for(&b.loop, 200);
    is_int(b.copied.n_fetched, 1, "others are waited for");
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(2), 10, COPY_ROOM, 2);
    snap_copy_made(b.from, 2, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 2) &&
           b.copied.error.code == 0, "until they are made");
    ok(copy_bed_is_same(&b, 2, UUID(1)), "byte by byte");
    snap_copy_made(b.from, 3, UUID(2));
    snap_bed_run_for(&b.loop, 50);
    is_int(b.copied.n_fetched, 2, "that is another one");
    snap_copy_made(b.from, 3, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 3) && b.copied.error.code == ENOENT,
       "or could not be");
    snap_copy_fetch_forget(b.to);
    snap_bed_run_for(&b.loop, 200);
    ok(!b.from->waits, "who does not wait any more is forgotten");
    copy_bed_fetch(&b, 4, UUID(1));
    while (!b.from->waits) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_fetch();
    test_fetch_first();
    test_fetch_beside();
    test_fetch_ends();
    test_passes();
    test_passes_same();
    test_passes_none();
    test_made();
    return tap_done();
}
