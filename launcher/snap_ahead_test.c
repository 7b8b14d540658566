/* SPDX-License-Identifier: Apache-2.0 */
/* What a hold makes ahead gives way to all else. */
#include <config.h>

#include "launcher/hold_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static ino_t file_of(const struct hold_bed *b, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static ino_t begun_file(const struct hold_bed *b)
{
    struct stat st;

    return b->said.snap && fstat(b->said.snap->fd, &st) == 0 ? st.st_ino : 0;
}

static void test_ahead(void)
{
    struct hold_bed b;
    ino_t file;

    hold_bed_open(&b, 4 * HOLD_ROOM);
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_save(&b, 1, 10, UUID(1));
    hold_bed_run_works(&b);
    ok(!hold_bed_has(&b, "snap-3-0-1"), "not before it is asked for");
    snap_hold_make_ahead(b.hold, 0);
    snap_hold_make_ahead(b.hold, 1);
    snap_hold_make_ahead(b.hold, 2);
    hold_bed_run_works(&b);
    file = file_of(&b, "snap-3-0-1");
    ok(file != 0 && hold_bed_has(&b, "snap-3-1-1"),
       "the second ones of two ranks are made");
    ok(!hold_bed_has(&b, "snap-3-2-0"), "none of one that has not saved");
    is_int(hold_bed_save(&b, 0, 20, UUID(2)), 0, "the next save");
    ok(begun_file(&b) == file, "gets it");
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    snap_hold_settle(b.hold, UUID(1), true);
    snap_hold_settle(b.hold, UUID(2), true);
    ok(snap_hold_find(b.hold, 0, UUID(1)) && snap_hold_find(b.hold, 0, UUID(2)),
       "what is held stays");
    snap_hold_serve(b.hold, 0, 1);
    ok(!hold_bed_has(&b, "snap-3-1-1"), "what was made for a rank that has moved goes");
    snap_hold_remove(b.hold);
    hold_bed_close(&b);
}

/* It comes while the thread is at it, and perhaps for more. */
static void test_ahead_awaited(uint64_t room)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_begin_later(&b, 0, 20, UUID(2), room);
    is_int(b.said.n_begun, 1, "which waits for what is made ahead");
    snap_jam_end(&b.jam);
    hold_bed_run_until(&b, &b.said.n_begun, 2);
    ok(b.said.snap && b.said.snap->room >= room && b.said.snap->head.step == 20,
       "and gets its memory: %s", b.said.error.text);
    ok(begun_file(&b) == file_of(&b, "snap-3-0-1"), "the second one");
    is_int(snap_hold_done(b.hold, 0, UUID(2), room, 0, &b.said.error), 0, "it is filled");
    hold_bed_run_until(&b, &b.said.n_written, 2);
    hold_bed_close(&b);
}

static void test_ahead_no_room(void)
{
    char path[PATH_MAX];
    struct stat st;
    _close_ int mapped = -1; /* as a worker has it */
    struct hold_bed b;

    hold_bed_open(&b, 3 * HOLD_ROOM);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_save(&b, 1, 10, UUID(1));
    hold_bed_run_works(&b);
    b.said.left = HOLD_ROOM - 1;
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(!hold_bed_has(&b, "snap-3-0-1"), "nothing where too little memory is left");
    b.said.left = HOLD_ROOM;
    snap_hold_make_ahead(b.hold, 0);
    snap_hold_make_ahead(b.hold, 1);
    hold_bed_run_works(&b);
    ok(hold_bed_has(&b, "snap-3-0-1"), "one where it is");
    ok(!hold_bed_has(&b, "snap-3-1-1"), "no more than the budget has");
    snprintf(path, sizeof(path), "%s/snap-3-0-1", b.dir);
    mapped = open(path, O_RDWR | O_CLOEXEC);
    is_int(hold_bed_begin(&b, 2, 10, UUID(1), HOLD_ROOM), 0, "another rank's first one");
    ok(!hold_bed_has(&b, "snap-3-0-1"), "takes its place");
    ok(fstat(mapped, &st) == 0 && st.st_size == 0,
       "and its memory, whoever has mapped that");
    is_int(hold_bed_begin(&b, 0, 20, UUID(2), HOLD_ROOM), -ENOMEM,
           "which is not free now");
    hold_bed_close(&b);
}

static void test_ahead_gives_way(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 2 * HOLD_ROOM);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_begin_later(&b, 1, 10, UUID(1), HOLD_ROOM);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_int(b.said.n_begun, 2, "another rank's first one is made");
    ok(b.said.snap && !hold_bed_has(&b, "snap-3-0-1"),
       "what was being made ahead is not");
    hold_bed_close(&b);
}

static void test_ahead_moved(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    snap_hold_make_ahead(b.hold, 0);
    snap_hold_serve(b.hold, 1, 1);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    ok(!hold_bed_has(&b, "snap-3-0-1"), "the rank moves while it is made: it is not");
    hold_bed_close(&b);
}

/* Ranks move when it is there: a worker that has mapped it may be the last to know. */
static void test_ahead_made_and_moved(void)
{
    char path[PATH_MAX];
    struct stat st;
    _close_ int mapped = -1;
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    snap_hold_serve(b.hold, 0, 2);
    ok(hold_bed_has(&b, "snap-3-0-1"), "where the rank stays it does");
    snprintf(path, sizeof(path), "%s/snap-3-0-1", b.dir);
    mapped = open(path, O_RDWR | O_CLOEXEC);
    snap_hold_serve(b.hold, 1, 1);
    ok(!hold_bed_has(&b, "snap-3-0-1"), "the rank moves: it goes");
    ok(fstat(mapped, &st) == 0 && st.st_size == 0, "with its memory");
    hold_bed_close(&b);
}

/* The run ends: nothing stays, and nobody is told. */
static void test_ahead_destroyed(void)
{
    char path[PATH_MAX];
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    snap_hold_make_ahead(b.hold, 0);
    snprintf(path, sizeof(path), "%s/other", b.dir);
    mkdir(path, 0700); /* as if the thread had come first */
    snap_hold_remove(b.hold);
    rmdir(path);
    snap_hold_destroy(b.hold);
    b.hold = NULL;
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    ok(access(b.dir, F_OK) < 0, "no file is left, nor the directory");
    is_int(b.said.n_begun, 1, "nobody is told");
    hold_bed_close(&b);
}

/* What an agent before this one has left is of use, and stays. */
static void test_ahead_next_agent(void)
{
    struct hold_bed b;
    const struct snap *found;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_save(&b, 0, 20, UUID(2));
    hold_bed_run_until(&b, &b.said.n_written, 2);
    snap_hold_settle(b.hold, UUID(1), true);
    snap_hold_settle(b.hold, UUID(2), true);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, NULL);
    is_int(hold_bed_save(&b, 0, 30, UUID(3)), 0, "the next agent takes the first one");
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_until(&b, &b.said.n_written, 3);
    found = snap_hold_find(b.hold, 0, "");
    ok(found && found->head.step == 20, "and leaves the second one");
    hold_bed_close(&b);
}

static void test_ahead_of_copies(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, "copy");
    hold_bed_save(&b, 0, 10, UUID(1));
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(!hold_bed_has(&b, "copy-3-0-1"), "nothing is made ahead for copies");
    hold_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_ahead();
    test_ahead_awaited(HOLD_ROOM);
    test_ahead_awaited(2 * HOLD_ROOM);
    test_ahead_no_room();
    test_ahead_gives_way();
    test_ahead_moved();
    test_ahead_made_and_moved();
    test_ahead_destroyed();
    test_ahead_next_agent();
    test_ahead_of_copies();
    return tap_done();
}
