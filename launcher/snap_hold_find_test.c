/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent holds is found by who may have it, and by nobody else: which of a rank's two,
 * of which directory, in which state. */
#include <config.h>

#include "launcher/hold_bed.h"

#include "ckpt/step.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- what may be tried again --- */

struct recalled {
    unsigned n;
    uint64_t lowest; /* step */
};

static void on_recalled(void *arg, const struct snap_head *head)
{
    struct recalled *r = arg;

    r->lowest = r->n++ == 0 || head->step < r->lowest ? head->step : r->lowest;
}

static struct recalled recall(const struct hold_bed *b)
{
    struct recalled r = {0};

    snap_hold_recall(b->hold, on_recalled, &r);
    return r;
}

/* A save that becomes a checkpoint. */
static void keep(struct hold_bed *b, uint32_t rank, uint64_t step, const char *uuid)
{
    int n = b->said.n_written;

    is_int(hold_bed_save(b, rank, step, uuid), 0, "rank %u saves step %llu", rank,
           (unsigned long long)step);
    hold_bed_run_until(b, &b->said.n_written, n + 1);
    snap_hold_settle(b->hold, uuid, true);
}

static void test_older_checkpoint(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    keep(&b, 0, 10, UUID(1));
    is_int(hold_bed_stay(&b, 0, 20, UUID(2)), 0, "a later one stays in memory");
    ok(recall(&b).n == 1 && recall(&b).lowest == 20,
       "a checkpoint of before is none in its place");
    hold_bed_close(&b);
}

/* Neither is part of a checkpoint: the newer one may never be. */
static void test_two_left(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_stay(&b, 0, 10, UUID(1)), 0, "one stays in memory");
    is_int(hold_bed_stay(&b, 0, 20, UUID(2)), 0, "and a later one");
    ok(recall(&b).n == 2 && recall(&b).lowest == 10, "both are told of");
    hold_bed_close(&b);
}

/* A program that has two directories: a checkpoint in one is none in the other. */
static void test_two_directories(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    keep(&b, 0, 20, UUID(1));
    snprintf(b.root, sizeof(b.root), "%s/other", b.top);
    is_int(mkdir(b.root, 0700), 0, "another directory");
    is_int(hold_bed_stay(&b, 0, 10, UUID(2)), 0, "for which one stays in memory");
    ok(recall(&b).n == 1 && recall(&b).lowest == 10, "it is told of");
    hold_bed_close(&b);
}

static void test_on_its_way(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_begin(&b, 0, 10, UUID(1), HOLD_ROOM), 0, "a save");
    snap_jam_begin(&b.jam, &b.loop);
    is_int(snap_hold_done(b.hold, 0, UUID(1), 5000, 100, NULL), 0, "waits for the disk");
    is_int(recall(&b).n, 0, "it is not told of");
    snap_jam_end(&b.jam);
    hold_bed_run_until(&b, &b.said.n_written, 1);
    is_int(recall(&b).n, 1, "when it is there it is");
    hold_bed_close(&b);
}

/* --- the newest of two --- */

static void test_newest(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    keep(&b, 0, 10, UUID(1));
    keep(&b, 0, 20, UUID(2));
    is_int((intmax_t)snap_hold_find(b.hold, 0, "")->head.step, 20, "the second is newer");
    keep(&b, 0, 30, UUID(3));
    is_int((intmax_t)snap_hold_find(b.hold, 0, "")->head.step, 30,
           "then that which took the place of the first");
    is_int((intmax_t)snap_hold_find(b.hold, 0, UUID(2))->head.step, 20,
           "the other one is found by its name");
    hold_bed_close(&b);
}

/* Who commits it tells of it when all ranks are there: this one is not yet. */
static void test_kept_too_soon(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_begin(&b, 0, 10, UUID(1), HOLD_ROOM), 0, "a save");
    snap_jam_begin(&b.jam, &b.loop);
    is_int(snap_hold_done(b.hold, 0, UUID(1), 5000, 100, NULL), 0, "waits for the disk");
    snap_hold_settle(b.hold, UUID(1), true);
    ok(!snap_hold_find(b.hold, 0, ""), "and is part of no checkpoint before it is there");
    snap_jam_end(&b.jam);
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_settle(b.hold, UUID(1), true);
    ok(snap_hold_find(b.hold, 0, "") != NULL, "afterwards it is");
    hold_bed_close(&b);
}

/* --- memory that changes hands --- */

/* Each of a rank's two for itself. */
static void test_read(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    keep(&b, 0, 10, UUID(1));
    keep(&b, 0, 20, UUID(2));
    ok(snap_hold_pin(b.hold, 0, UUID(1)) && snap_hold_pin(b.hold, 0, UUID(2)),
       "both are read");
    is_int(hold_bed_begin(&b, 0, 30, UUID(3), HOLD_ROOM), -EBUSY, "there is no place for more");
    snap_hold_unpin(b.hold, 0, UUID(2));
    is_int(hold_bed_begin(&b, 0, 30, UUID(3), HOLD_ROOM), 0, "one no more: it makes way");
    ok(snap_hold_get(b.hold, 0, UUID(1)) && !snap_hold_get(b.hold, 0, UUID(2)),
       "and not the other one, though that is older");
    snap_hold_unpin(b.hold, 0, UUID(1));
    hold_bed_close(&b);
}

/* Who fills one in this process writes into none that is whole. */
static void test_filled(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_begin(&b, 0, 10, UUID(1), HOLD_ROOM), 0, "one is begun");
    ok(snap_hold_fill(b.hold, 0, UUID(1)) == b.said.snap, "it may be filled");
    ok(!snap_hold_get(b.hold, 0, UUID(1)), "and not read");
    is_int(snap_hold_stay(b.hold, 0, UUID(1), 5000, 100, NULL), 0, "it is whole");
    ok(!snap_hold_fill(b.hold, 0, UUID(1)), "it may not be filled any more");
    ok(snap_hold_get(b.hold, 0, UUID(1)) == b.said.snap, "but read");
    hold_bed_close(&b);
}

/* The first place has what came to nothing, by the same name, when the second has it. */
static void test_twice(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_stay(&b, 0, 10, UUID(1)), 0, "one stays in memory");
    is_int(hold_bed_begin(&b, 0, 20, UUID(2), HOLD_ROOM), 0, "the next one is begun");
    is_int(snap_hold_stay(b.hold, 0, UUID(2), HOLD_ROOM, SNAP_PAGE_BYTES, NULL), -EINVAL,
           "and is too large");
    snap_hold_settle(b.hold, UUID(1), false);
    is_int(hold_bed_stay(&b, 0, 20, UUID(2)), 0, "once more, where the first one was");
    ok(snap_hold_get(b.hold, 0, UUID(2)) != NULL, "it is found, and not what it was before");
    hold_bed_close(&b);
}

/* A thread makes more of it: who looks for what it was opens no second one. */
static void test_looked_for_meanwhile(void)
{
    struct hold_bed b;
    int n;

    hold_bed_open(&b, 1 << 20);
    keep(&b, 0, 10, UUID(1));
    keep(&b, 0, 20, UUID(2));
    n = fds_n_open();
    snap_jam_begin(&b.jam, &b.loop);
    hold_bed_begin_later(&b, 0, 30, UUID(3), 2 * HOLD_ROOM);
    ok(!snap_hold_find(b.hold, 0, UUID(1)), "what makes way is found no more");
    is_int((intmax_t)snap_hold_find(b.hold, 0, "")->head.step, 20, "the other one is");
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    ok(b.said.snap && b.said.snap->room >= 2 * HOLD_ROOM, "it is made");
    is_int(fds_n_open(), n, "and as many files are open as were");
    hold_bed_close(&b);
}

/* --- the end --- */

/* Threads end one after the other. */
static void test_told_nothing(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_begin(&b, 0, 10, UUID(1), HOLD_ROOM), 0, "a save");
    snap_jam_begin(&b.jam, &b.loop);
    is_int(snap_hold_done(b.hold, 0, UUID(1), 5000, 100, NULL), 0, "waits for the disk");
    hold_bed_begin_later(&b, 1, 10, UUID(1), HOLD_ROOM);
    snap_hold_destroy(b.hold);
    b.hold = NULL;
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_int(b.said.n_begun, 1, "nobody is told of memory");
    is_int(b.said.n_written + b.said.n_failed, 0, "nor of the disk");
    hold_bed_close(&b);
}

int main(void)
{
    test_older_checkpoint();
    test_two_left();
    test_two_directories();
    test_on_its_way();
    test_newest();
    test_kept_too_soon();
    test_read();
    test_filled();
    test_twice();
    test_looked_for_meanwhile();
    test_told_nothing();
    return tap_done();
}
