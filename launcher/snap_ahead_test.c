/* SPDX-License-Identifier: Apache-2.0 */
/* What a hold makes ahead gives way to all else. The loop has one thread here, which does one
 * thing after the other. */
#include <config.h>

#include "launcher/hold_bed.h"

#include "base/cleanup.h"
#include "ckpt/crowd.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CROWD_THREADS = 3 };

static unsigned n_threads; /* that made what was made last */
static int n_failing;      /* so many of the next ones cannot be */
static char made[256];     /* in that order; the thread's, while it has something to do */

int __real_snap_create(int dir, const char *name, const struct snap_want *want,
                       struct snap **ret, struct error *e);
int __wrap_snap_create(int dir, const char *name, const struct snap_want *want,
                       struct snap **ret, struct error *e);
unsigned __wrap_crowd_n_threads(void);

int __wrap_snap_create(int dir, const char *name, const struct snap_want *want,
                       struct snap **ret, struct error *e)
{
    size_t len = strlen(made);

    snprintf(made + len, sizeof(made) - len, "%s ", name);
    n_threads = want->n_threads;
    if (n_failing > 0) {
        n_failing--;
        return error_text(e, ENOMEM, "by order");
    }
    return __real_snap_create(dir, name, want, ret, e);
}

unsigned __wrap_crowd_n_threads(void)
{
    return CROWD_THREADS;
}

static void post(uv_work_t *work)
{
    uv_sem_post(work->data);
}

static void after_post(uv_work_t *work, int status)
{
    (void)work, (void)status;
}

/* The thread has done all that it was told, of which the loop has not heard. */
static void wait_for_thread(struct hold_bed *b)
{
    static uv_work_t work;
    static uv_sem_t done;

    uv_sem_init(&done, 0);
    work.data = &done;
    uv_queue_work(&b->loop, &work, post, after_post);
    uv_sem_wait(&done);
}

static ino_t file_of(const struct hold_bed *b, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static uint64_t bytes_of(const struct hold_bed *b, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return stat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
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
    ok(bytes_of(&b, "snap-3-0-1") >= HOLD_ROOM, "with their memory");
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
    snap_hold_make_ahead(b.hold, 0);
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

/* Who fills what was made ahead, or was being made when he asked, has it for himself. */
static void test_ahead_handed_out(bool is_early)
{
    struct hold_bed b;

    hold_bed_open(&b, 2 * HOLD_ROOM);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    snap_hold_make_ahead(b.hold, 0);
    if (is_early) {
        hold_bed_begin_later(&b, 0, 20, UUID(2), HOLD_ROOM);
    }
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    if (!is_early) {
        hold_bed_begin_later(&b, 0, 20, UUID(2), HOLD_ROOM);
    }
    ok(b.said.n_begun == 2 && b.said.snap && b.said.snap->head.step == 20, "a rank has it");
    is_int(hold_bed_begin(&b, 1, 10, UUID(1), HOLD_ROOM), -ENOMEM, "another one does not");
    ok(hold_bed_has(&b, "snap-3-0-1"), "while it is filled");
    is_int(snap_hold_done(b.hold, 0, UUID(2), HOLD_ROOM, 0, &b.said.error), 0, "it is full: %s",
           b.said.error.text);
    hold_bed_run_until(&b, &b.said.n_written, 2);
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
    snap_hold_serve(b.hold, 0, 1);
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(hold_bed_has(&b, "snap-3-0-1"), "but when that has gone");
    hold_bed_close(&b);
}

/* What fails behind the back of who waits for it by then is nothing to him. */
static void test_ahead_fails(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    n_failing = 1;
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_begin_later(&b, 0, 20, UUID(2), HOLD_ROOM);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_int(n_failing, 0, "what was made ahead, and is waited for, cannot be");
    ok(b.said.n_begun == 2 && b.said.snap && b.said.snap->head.step == 20,
       "it is made once more: %s", b.said.error.text);
    n_failing = 1;
    hold_bed_begin_later(&b, 1, 20, UUID(2), HOLD_ROOM);
    hold_bed_run_works(&b);
    ok(b.said.n_begun == 3 && !b.said.snap, "one that was waited for at first fails");
    like(b.said.error.text, "by order", "and why");
    hold_bed_close(&b);
}

/* The same when it has just been made. */
static void test_ahead_made_in_vain(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 2 * HOLD_ROOM);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_hold_make_ahead(b.hold, 0);
    wait_for_thread(&b);
    ok(hold_bed_has(&b, "snap-3-0-1"), "one is made, of which nobody has heard");
    hold_bed_begin_later(&b, 1, 10, UUID(1), HOLD_ROOM);
    hold_bed_run_works(&b);
    is_int(b.said.n_begun, 2, "another rank's first one is made");
    ok(!hold_bed_has(&b, "snap-3-0-1"), "in its place");
    snap_hold_serve(b.hold, 0, 1);
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(hold_bed_has(&b, "snap-3-0-1"), "when that has gone it is made, and stays");
    hold_bed_close(&b);
}

/* It is for speed alone: nobody comes back to it. */
static void test_ahead_once(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_save(&b, 1, 10, UUID(1));
    hold_bed_run_works(&b);
    b.said.left = 0;
    snap_hold_make_ahead(b.hold, 0);
    b.said.left = UINT64_MAX;
    snap_hold_make_ahead(b.hold, 1);
    hold_bed_run_works(&b);
    ok(hold_bed_has(&b, "snap-3-1-1"), "there is memory for what is made ahead");
    ok(!hold_bed_has(&b, "snap-3-0-1"), "but not for what there was none for before");
    hold_bed_close(&b);
}

/* Who waits for memory comes before more of what nobody waits for. */
static void test_ahead_one_at_a_time(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_save(&b, 1, 10, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    made[0] = '\0';
    snap_hold_make_ahead(b.hold, 0);
    snap_hold_make_ahead(b.hold, 1);
    hold_bed_begin_later(&b, 2, 10, UUID(1), HOLD_ROOM);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_str(made, "snap-3-0-1 snap-3-2-0 snap-3-1-1 ", "of two that are made ahead one is the last");
    hold_bed_close(&b);
}

/* Who waits for memory is to have it soon; who does not is to compute meanwhile. */
static void test_ahead_slowly(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_works(&b);
    is_int(n_threads, CROWD_THREADS, "what is waited for is made by as many as there are");
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    is_int(n_threads, 1, "what is made ahead by one");
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
    setenv("UV_THREADPOOL_SIZE", "1", 1);
    test_ahead();
    test_ahead_awaited(HOLD_ROOM);
    test_ahead_awaited(2 * HOLD_ROOM);
    test_ahead_no_room();
    test_ahead_handed_out(false);
    test_ahead_handed_out(true);
    test_ahead_gives_way();
    test_ahead_fails();
    test_ahead_made_in_vain();
    test_ahead_once();
    test_ahead_one_at_a_time();
    test_ahead_slowly();
    test_ahead_moved();
    test_ahead_made_and_moved();
    test_ahead_destroyed();
    test_ahead_next_agent();
    test_ahead_of_copies();
    return tap_done();
}
