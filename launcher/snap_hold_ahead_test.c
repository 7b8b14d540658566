/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot goes to the disk while a worker fills it: it is there all the sooner, and
 * nothing else is different. Whatever ends that before it is full leaves nothing on the
 * disk, is told nobody, and is begun anew once it is full.
 */
#include <config.h>

#include "launcher/hold_bed.h"
#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/mapguard.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { IMAGE_BYTES = 5000, PART_BYTES = 100 };

static atomic_int n_writes; /* that have come to the disk */
static atomic_int n_bad;    /* so many of the next ones find it full */
static atomic_bool is_held; /* they wait */
static bool is_crowded;     /* those that fill it have all processors */

static ssize_t write_some(struct io *io, int fd, const void *data, size_t len, uint64_t at)
{
    while (atomic_load(&is_held)) {
        poll(NULL, 0, 1);
    }
    if (atomic_load(&n_bad) > 0) {
        atomic_fetch_sub(&n_bad, 1);
        return -ENOSPC;
    }
    atomic_fetch_add(&n_writes, 1);
    return io_system_ops.write(io, fd, data, len, at);
}

static struct io_ops ops;
static struct io counted = {.ops = &ops};

static void open_bed(struct hold_bed *b)
{
    struct snap_hold_config config;

    hold_bed_open(b, 1 << 20);
    snap_hold_destroy(b->hold);
    ops = io_system_ops;
    ops.write = write_some;
    config = snap_bed_config(&b->loop, b->dir, &b->said);
    config.agent = 3;
    config.io = &counted;
    b->hold = snap_bed_hold(&config);
    atomic_store(&n_writes, 0);
    atomic_store(&n_bad, 0);
    atomic_store(&is_held, false);
}

/* A rank fills one, of which nothing counts yet. */
static struct snap *begin(struct hold_bed *b, uint32_t rank, uint64_t step, const char *uuid)
{
    if (hold_bed_begin(b, rank, step, uuid, HOLD_ROOM) < 0) {
        bail_out("no memory: %s", b->said.error.text);
    }
    memset(b->said.snap->map + SNAP_PAGE_BYTES, (int)step, IMAGE_BYTES);
    return b->said.snap;
}

static struct snap *begin_ahead(struct hold_bed *b, uint32_t rank, uint64_t step,
                                const char *uuid)
{
    struct snap *s = begin(b, rank, step, uuid);

    snap_hold_drain_ahead(b->hold, rank, uuid, IMAGE_BYTES, is_crowded);
    return s;
}

static int done(struct hold_bed *b, uint32_t rank, const char *uuid)
{
    return snap_hold_done(b->hold, rank, uuid, IMAGE_BYTES, PART_BYTES, &b->said.error);
}

static void path_of(const struct hold_bed *b, uint64_t step, const char *uuid,
                    const char *file, char path[PATH_MAX])
{
    char name[STEP_NAME_BYTES];

    step_name(step, uuid, name);
    snprintf(path, PATH_MAX, "%s/%s/%s", b->root, name, file);
}

/* Of step 1; "": its directory. */
static bool is_there(const struct hold_bed *b, const char *file)
{
    char path[PATH_MAX];

    path_of(b, 1, UUID(1), file, path);
    return access(path, F_OK) == 0;
}

static bool has_bytes(const struct hold_bed *b, const char *file, const void *want, size_t len)
{
    char path[PATH_MAX];
    _free_ char *data = NULL;
    size_t n = 0;

    path_of(b, 1, UUID(1), file, path);
    return fs_read(path, 1 << 20, &data, &n, NULL) == 0 && n == len &&
           memcmp(data, want, len) == 0;
}

static bool is_written_right(const struct hold_bed *b)
{
    const struct snap *s = snap_hold_get(b->hold, 0, UUID(1));

    return s && s->head.state == SNAP_WRITTEN &&
           has_bytes(b, "r00000.safetensors", snap_image(s), IMAGE_BYTES) &&
           has_bytes(b, "r00000.part", snap_part(s), PART_BYTES);
}

static bool is_silent(const struct hold_bed *b)
{
    return b->said.n_written == 0 && b->said.n_failed == 0;
}

/* At once, and not because nothing has come for a while. */
static bool is_told_to_end(const struct hold_bed *b)
{
    const struct slot *s = snap_hold_slot_of(b->hold, 0, UUID(1));

    return s && (s->doing != AHEAD || s->progress.cancel);
}

static void wait_for_write(void)
{
    for (int i = 0; i < 60000 && atomic_load(&n_writes) == 0; i++) {
        poll(NULL, 0, 1);
    }
    ok(atomic_load(&n_writes) > 0, "the disk has a block");
}

/* --- it goes well --- */

static void test_ahead(void)
{
    struct hold_bed b;
    struct snap *s;

    open_bed(&b);
    s = begin_ahead(&b, 0, 1, UUID(1));
    is_int(snap_hold_n_writing(b.hold), 1, "one is on its way that is not full");
    atomic_store(snap_filled(s->map), 1);
    wait_for_write();
    ok(is_silent(&b) && !is_there(&b, "r00000.part"), "nobody is told that it is there");
    memset(s->map + SNAP_PAGE_BYTES + snap_room(IMAGE_BYTES, 0), 'p', PART_BYTES);
    is_int(done(&b, 0, UUID(1)), 0, "it is full");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_written_right(&b), "its files are right");
    hold_bed_run_works(&b);
    is_int(b.said.n_written + b.said.n_failed, 1, "that is said once");
    is_int(atomic_load(&n_writes), 2, "and each was written once");
    hold_bed_close(&b);
}

/* Who counts may be behind by then, or count nothing. */
static void test_uncounted(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    is_int(done(&b, 0, UUID(1)), 0, "one is full of which nothing was counted");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_written_right(&b), "and is written");
    hold_bed_close(&b);
}

/* What was counted of the save before is not of this one. */
static void test_counted_before(void)
{
    struct hold_bed b;
    struct snap *s;

    open_bed(&b);
    s = begin(&b, 0, 1, UUID(1));
    atomic_store(snap_filled(s->map), 7);
    ok(begin(&b, 0, 2, UUID(2)) == s, "the same memory is filled again");
    is_int((intmax_t)snap_n_filled(s), 0, "and nothing of it counts");
    hold_bed_close(&b);
}

/* That the one before was full is nothing of this one, in the same memory. */
static void test_full_before(void)
{
    struct hold_bed b;
    struct snap *s;

    open_bed(&b);
    s = begin_ahead(&b, 0, 1, UUID(1));
    is_int(done(&b, 0, UUID(1)), 0, "one is full");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_settle(b.hold, UUID(1), false);
    hold_bed_run_works(&b);
    ok(begin_ahead(&b, 0, 2, UUID(2)) == s, "the next one is filled in its place");
    ok(!snap_hold_slot_of(b.hold, 0, UUID(2))->progress.is_full, "and is not full yet");
    snap_hold_end_ahead(b.hold, 0, UUID(2));
    hold_bed_close(&b);
}

/* Nor is what became of the one before. */
static void test_nothing_before(void)
{
    for (int is_put_off = 0; is_put_off < 2; is_put_off++) {
        struct hold_bed b;
        const struct snap *s;

        open_bed(&b);
        atomic_store(&is_held, true);
        is_int(hold_bed_save(&b, 0, 2, UUID(2)), 0, "one is on its way");
        if (is_put_off) {
            snap_hold_put_off(b.hold, UUID(2));
        } else {
            snap_hold_settle(b.hold, UUID(2), false);
        }
        atomic_store(&is_held, false);
        hold_bed_run_works(&b);
        snap_hold_settle(b.hold, UUID(2), false);
        s = begin_ahead(&b, 0, 1, UUID(1));
        ok(!hold_bed_has(&b, "snap-3-0-1"), "that comes to nothing: the next one has its place");
        b.said.n_written = 0;
        is_int(done(&b, 0, UUID(1)), 0, "it is full");
        hold_bed_run_until(&b, &b.said.n_written, 1);
        ok(s && is_written_right(&b), "and written");
        hold_bed_close(&b);
    }
}

/* --- it ends before it is full --- */

static void test_ended(void)
{
    struct hold_bed b;
    struct snap *s;

    open_bed(&b);
    s = begin_ahead(&b, 0, 1, UUID(1));
    atomic_store(snap_filled(s->map), 1);
    wait_for_write();
    snap_hold_end_ahead(b.hold, 0, UUID(1));
    ok(is_told_to_end(&b), "it is told to end");
    hold_bed_run_works(&b);
    ok(is_silent(&b), "who gives it up hears no more of it");
    ok(!is_there(&b, ""), "and nothing is left on the disk");
    is_int(snap_hold_n_writing(b.hold), 0, "nor on its way there");
    is_int(done(&b, 0, UUID(1)), 0, "it is full all the same");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_written_right(&b), "and is written then");
    hold_bed_close(&b);
}

/* What was written while nobody had time for its digest. */
static void test_crowded(void)
{
    is_crowded = true;
    test_ahead();
    test_ended();
    is_crowded = false;
}

static void test_full_while_it_ends(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    snap_hold_end_ahead(b.hold, 0, UUID(1));
    is_int(done(&b, 0, UUID(1)), 0, "one is full before its end was seen");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_written_right(&b) && b.said.n_failed == 0, "it is written, and nobody hears of it");
    hold_bed_close(&b);
}

static void test_disk_full(void)
{
    for (int n = 1; n <= 2; n++) {
        struct hold_bed b;
        struct snap *s;

        open_bed(&b);
        atomic_store(&n_bad, n);
        s = begin_ahead(&b, 0, 1, UUID(1));
        atomic_store(snap_filled(s->map), 1);
        if (n == 1) {
            hold_bed_run_works(&b);
            ok(is_silent(&b) && !is_there(&b, ""), "a disk that was full is no news yet");
        }
        is_int(done(&b, 0, UUID(1)), 0, "it is full");
        hold_bed_run_works(&b);
        is_int(b.said.n_written, n == 1, "and written where there is room by then");
        is_int(b.said.n_failed, n == 2, "or fails");
        is_int(b.said.error.code, n == 2 ? ENOSPC : 0, "of what it failed of");
        is_int(is_there(&b, ""), n == 1, "with nothing left");
        hold_bed_close(&b);
    }
}

static void test_other_length(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    is_int(snap_hold_done(b.hold, 0, UUID(1), IMAGE_BYTES - 1, PART_BYTES, &b.said.error),
           -EINVAL, "one that is not as long as was said is none");
    hold_bed_run_works(&b);
    ok(is_silent(&b) && !is_there(&b, ""), "and nothing of it is left");
    is_int(done(&b, 0, UUID(1)), -ENOENT, "also later");
    hold_bed_close(&b);
}

static void test_cut(void)
{
    struct hold_bed b;
    struct snap *s;

    open_bed(&b);
    s = begin_ahead(&b, 0, 1, UUID(1));
    snap_cut(s);
    is_int(done(&b, 0, UUID(1)), -EIO, "memory that was cut holds nothing");
    hold_bed_run_works(&b);
    ok(is_silent(&b) && !is_there(&b, ""), "and nothing of it is left");
    hold_bed_close(&b);
}

/* Who writes reads it on, and is the first to see. */
static void test_cut_meanwhile(void)
{
    struct hold_bed b;
    struct snap *s;

    open_bed(&b);
    s = begin_ahead(&b, 0, 1, UUID(1));
    snap_cut(s);
    for (int i = 0; i < 60000 && !mapguard_is_torn(s->guard); i++) {
        poll(NULL, 0, 1);
    }
    ok(mapguard_is_torn(s->guard), "memory that was cut is read as zeros");
    is_int(done(&b, 0, UUID(1)), -EIO, "and holds nothing");
    hold_bed_run_works(&b);
    ok(is_silent(&b) && !is_there(&b, ""), "nothing of it is left");
    hold_bed_close(&b);
}

/* --- others --- */

static void test_one_at_a_time(void)
{
    struct hold_bed b;

    open_bed(&b);
    atomic_store(&is_held, true);
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "another rank's is on its way");
    begin_ahead(&b, 0, 1, UUID(1));
    is_int(snap_hold_n_writing(b.hold), 1, "one that is not full is in nobody's way");
    is_int(done(&b, 0, UUID(1)), 0, "it is full");
    is_int(snap_hold_n_writing(b.hold), 2, "and waits");
    atomic_store(&is_held, false);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    ok(is_written_right(&b), "until it is written");
    hold_bed_close(&b);
}

static void test_waited_for(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "one that is full waits for one that is not");
    snap_bed_run_for(&b.loop, 20);
    ok(is_silent(&b), "as long as that may get on");
    snap_hold_end_ahead(b.hold, 0, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_there(&b, "r00001.part") && !is_there(&b, "r00000.safetensors"),
       "and is written when it has ended");
    hold_bed_close(&b);
}

static void test_begun_again(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    begin(&b, 0, 2, UUID(2));
    ok(is_told_to_end(&b), "the first of two is told to end");
    hold_bed_run_works(&b);
    ok(!is_there(&b, ""), "who saves the next one has given up what it filled");
    ok(is_silent(&b), "of which nobody is told");
    begin(&b, 0, 3, UUID(3));
    begin(&b, 0, 4, UUID(4));
    ok(snap_hold_fill(b.hold, 0, UUID(4)), "its memory is free again");
    hold_bed_close(&b);
}

static void test_next_generation(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    snap_hold_serve(b.hold, 1, 1);
    ok(is_told_to_end(&b), "one is told to end");
    hold_bed_run_works(&b);
    ok(!is_there(&b, ""), "the next workers fill nothing of those before");
    ok(!hold_bed_has(&b, "snap-3-0-0"), "and memory of a rank that is not here is gone");
    hold_bed_close(&b);
}

static void count(void *arg, const struct snap_head *head)
{
    *(int *)arg += head->rank == 0 && strcmp(head->uuid, UUID(1)) == 0;
}

static void test_unfilled(void)
{
    struct hold_bed b;
    int n = 0;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    snap_hold_unfilled(b.hold, 2, count, &n);
    is_int(n, 1, "it is known that it was never filled");
    snap_hold_unfilled(b.hold, 3, count, &n);
    is_int(n, 1, "by workers of that generation");
    b.hold->first_rank = 1;
    snap_hold_unfilled(b.hold, 2, count, &n);
    b.hold->first_rank = 0;
    is_int(n, 1, "that are served here");
    snap_hold_settle(b.hold, UUID(1), false);
    ok(is_told_to_end(&b), "it is told to end");
    hold_bed_run_works(&b);
    ok(is_silent(&b) && !is_there(&b, ""), "what comes to nothing so leaves nothing");
    hold_bed_close(&b);
}

static bool may_get_room(const struct hold_bed *b)
{
    return snap_hold_slot_of(b->hold, 0, UUID(2))->progress.may_get_room;
}

/* Of a disk that is full. */
static void test_room_to_come(void)
{
    struct hold_bed b;

    open_bed(&b);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    begin_ahead(&b, 0, 2, UUID(2));
    ok(may_get_room(&b), "the next one may get the room of older ones");
    snap_hold_settle(b.hold, UUID(1), true);
    ok(!may_get_room(&b), "until they have gone");
    is_int(done(&b, 0, UUID(2)), 0, "it is full");
    hold_bed_run_until(&b, &b.said.n_written, 2);
    hold_bed_close(&b);
}

/* --- full, and not for the disk yet --- */

static void stay_ahead(struct hold_bed *b)
{
    open_bed(b);
    begin_ahead(b, 0, 1, UUID(1));
    is_int(snap_hold_stay(b->hold, 0, UUID(1), IMAGE_BYTES, PART_BYTES, &b->said.error), 0,
           "one is full and may stay");
}

static void test_stays(void)
{
    struct hold_bed b;

    stay_ahead(&b);
    snap_hold_end_ahead(b.hold, 0, UUID(1));
    hold_bed_run_works(&b);
    ok(is_silent(&b) && !is_there(&b, ""), "it is in memory alone");
    ok(snap_hold_get(b.hold, 0, UUID(1)), "where it is whole");
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "until somebody wants it written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_written_right(&b), "which it is");
    hold_bed_close(&b);
}

static void test_wanted_at_once(void)
{
    struct hold_bed b;

    stay_ahead(&b);
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "it is wanted on the disk");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_written_right(&b), "where it is on its way to");
    hold_bed_close(&b);
}

static void test_settled(void)
{
    struct hold_bed b;

    stay_ahead(&b);
    snap_hold_settle(b.hold, UUID(1), false);
    hold_bed_run_works(&b);
    ok(!snap_hold_get(b.hold, 0, UUID(1)), "what comes to nothing is not in memory");
    ok(!is_there(&b, ""), "nor on the disk");
    hold_bed_close(&b);
}

static void test_put_off(void)
{
    struct hold_bed b;
    const struct snap *s;

    stay_ahead(&b);
    snap_hold_put_off(b.hold, UUID(1));
    hold_bed_run_works(&b);
    s = snap_hold_get(b.hold, 0, UUID(1));
    ok(s && s->head.state == SNAP_FULL, "what is put off is in memory");
    ok(!is_there(&b, ""), "and not on the disk");
    hold_bed_close(&b);
}

/* --- what is not begun --- */

static void test_not_begun(void)
{
    struct hold_bed b;

    open_bed(&b);
    snap_hold_drain_ahead(b.hold, 0, UUID(1), IMAGE_BYTES, false);
    snap_hold_end_ahead(b.hold, 0, UUID(1));
    is_int(snap_hold_n_writing(b.hold), 0, "nothing is begun of what is not there");
    begin(&b, 0, 1, UUID(1));
    snap_hold_drain_ahead(b.hold, 0, UUID(1), HOLD_ROOM + 1, false);
    is_int(snap_hold_n_writing(b.hold), 0, "nor of what has no room");
    is_int(snap_hold_stay(b.hold, 0, UUID(1), IMAGE_BYTES, PART_BYTES, &b.said.error), 0,
           "one is full");
    snap_hold_drain_ahead(b.hold, 0, UUID(1), IMAGE_BYTES, false);
    is_int(snap_hold_n_writing(b.hold), 0, "and is not filled any more");
    hold_bed_close(&b);
}

static void test_destroyed(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin_ahead(&b, 0, 1, UUID(1));
    snap_hold_destroy(take_ptr(&b.hold));
    hold_bed_run_works(&b);
    ok(!is_there(&b, ""), "an agent that ends waits for nobody, and leaves nothing");
    hold_bed_close(&b);
}

static void put_file(const struct hold_bed *b, const char *file)
{
    char path[PATH_MAX];

    path_of(b, 1, UUID(1), "", path);
    fs_mkdirs(path, NULL);
    path_of(b, 1, UUID(1), file, path);
    fs_write_replace(path, "x", 1, NULL);
}

/* An agent that is killed leaves on the disk what it has written so far. */
static void test_left_behind(void)
{
    struct hold_bed b;

    open_bed(&b);
    begin(&b, 0, 1, UUID(1));
    put_file(&b, "r00000.safetensors");
    put_file(&b, "r00001.safetensors");
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, NULL);
    snap_hold_recall(b.hold, count, &(int){0});
    hold_bed_run_works(&b);
    ok(!is_there(&b, "r00000.safetensors"), "the next one takes away what was never full");
    ok(is_there(&b, "r00001.safetensors"), "but what is another rank's");
    ok(!snap_hold_get(b.hold, 0, UUID(1)), "and holds nothing of it");
    is_int(hold_bed_save(&b, 0, 2, UUID(2)), 0, "its memory is for the next save");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    hold_bed_close(&b);
}

/* A copy that was never full is of a node that may be writing its own. */
static void test_left_copy(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, "copy");
    begin(&b, 0, 1, UUID(1));
    put_file(&b, "r00000.safetensors");
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, "copy");
    snap_hold_recall(b.hold, count, &(int){0});
    hold_bed_run_works(&b);
    ok(is_there(&b, "r00000.safetensors"), "what another node writes is not for who had a copy");
    hold_bed_close(&b);
}

int main(void)
{
    mapguard_install();
    test_ahead();
    test_uncounted();
    test_counted_before();
    test_full_before();
    test_nothing_before();
    test_ended();
    test_crowded();
    test_full_while_it_ends();
    test_disk_full();
    test_other_length();
    if (TAP_FINDS_RACES) {
        skip("memory that is replaced while it is read is a race");
    } else {
        test_cut();
    test_cut_meanwhile();
    }
    test_one_at_a_time();
    test_waited_for();
    test_begun_again();
    test_next_generation();
    test_unfilled();
    test_room_to_come();
    test_stays();
    test_wanted_at_once();
    test_settled();
    test_put_off();
    test_not_begun();
    test_destroyed();
    test_left_behind();
    test_left_copy();
    return tap_done();
}
