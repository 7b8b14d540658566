/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent holds on its way to a disk that is slow, full, or fails: one after the other,
 * in the order that they came. */
#include <config.h>

#include "launcher/slow_disk_bed.h"
#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/mapguard.h"
#include "base/thread.h"
#include "ckpt/digest.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct slow_disk slow_disk;

/* An agent that ends does not wait for the rest. */
static void test_destroyed(void)
{
    const uint64_t bytes = 3 * DIGEST_BLOCK_BYTES;
    struct hold_bed b;

    slow_disk_open(&b);
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), bytes + HOLD_ROOM), 0, "three blocks");
    is_int(snap_hold_done(b.hold, 0, UUID(1), bytes, 100, &b.said.error), 0,
           "are handed over");
    slow_disk_wait_block();
    snap_hold_destroy(take_ptr(&b.hold));
    atomic_store(&slow_disk.may_write, true);
    hold_bed_close(&b);
    is_int(atomic_load(&slow_disk.n_blocks), 1, "the others are not written any more");
}

/* Who came first is first: nobody waits for ever while others save again and again. */
static void test_order(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    for (uint32_t rank = 0; rank < 4; rank++) {
        is_int(hold_bed_save(&b, 3 - rank, 1, UUID(1)), 0, "rank %u saves", 3 - rank);
    }
    slow_disk_wait_block();
    is_int(snap_hold_n_writing(b.hold), 4, "and waits for the disk");
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 4);
    for (uint32_t i = 0; i < 4; i++) {
        is_int(slow_disk.order[i], 3 - i, "one after the other");
    }
    hold_bed_close(&b);
}

/* --- a disk that fails --- */

static bool is_bad_file(const struct hold_bed *b, const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];
    struct stat st;

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return stat(path, &st) == 0 && st.st_ino == slow_disk.bad_file.st_ino;
}

/* What the kernel could not write it forgets: the file must not stay. */
static bool is_bad_file_gone(const struct hold_bed *b)
{
    return slow_disk.bad_file.st_ino && !is_bad_file(b, "r00000.safetensors") &&
           !is_bad_file(b, "r00000.part");
}

static bool has_bytes(const struct hold_bed *b, const char *file, const void *want, size_t len)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];
    _free_ char *data = NULL;
    size_t n = 0;

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return fs_read(path, 1 << 20, &data, &n, NULL) == 0 && n == len &&
           memcmp(data, want, len) == 0;
}

/* A rank saves, and those syncs fail. */
static void save_badly(struct hold_bed *b, int first, int n)
{
    slow_disk_open(b);
    atomic_store(&slow_disk.may_write, true);
    atomic_store(&slow_disk.first_bad, first);
    atomic_store(&slow_disk.n_bad, n);
    is_int(hold_bed_save(b, 0, 1, UUID(1)), 0, "a rank saves");
    hold_bed_run_works(b);
}

static bool is_written_right(const struct hold_bed *b)
{
    const struct snap *s = snap_hold_get(b->hold, 0, UUID(1));

    return s && has_bytes(b, "r00000.safetensors", snap_image(s), 5000) &&
           has_bytes(b, "r00000.part", snap_part(s), 100);
}

/* Its bytes are in memory still. */
static void test_disk_fails_once(void)
{
    struct hold_bed b;

    save_badly(&b, 1, 1);
    is_int(b.said.n_written, 1, "an image that cannot be synced is written anew");
    is_int(atomic_load(&slow_disk.n_syncs), 2, "and synced once more, its part never");
    ok(is_bad_file_gone(&b), "the file that could not is gone");
    ok(is_written_right(&b), "and all bytes are right");
    hold_bed_close(&b);
}

static void test_disk_fails_twice(void)
{
    struct hold_bed b;

    save_badly(&b, 1, 2);
    is_int(b.said.n_failed, 1, "neither file of an image can be synced");
    is_int(b.said.error.code, EIO, "which is told");
    like(b.said.error.text, "; and again, with a new file: write ", "of both");
    is_int(atomic_load(&slow_disk.n_syncs), 2, "there is no third");
    ok(is_bad_file_gone(&b) && !slow_disk_has(&b, ""), "nothing is left of them");
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "it is in memory still");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_written_right(&b), "from where it can be written later");
    hold_bed_close(&b);
}

/* A filesystem that hangs would hold up whoever starts a worker. */
static void test_apart(void)
{
    struct hold_bed b;

    if (!thread_can_be_apart()) {
        skip("threads share all that is open here");
        return;
    }
    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    atomic_store(&slow_disk.n_shared, 0);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a rank saves");
    hold_bed_run_works(&b);
    ok(atomic_load(&slow_disk.n_blocks) > 0, "it was written");
    is_int(atomic_load(&slow_disk.n_shared), 0, "into files that no child has");
    hold_bed_close(&b);
}

static bool may_get_room(struct hold_bed *b, uint32_t rank, const char *uuid)
{
    return snap_hold_slot_of(b->hold, rank, uuid)->progress.may_get_room;
}

/* What is written while one before it is not settled may find room on a full disk when that
 * is, and older checkpoints go. */
static void test_room_to_come(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    slow_disk_save(&b, 0, 2, UUID(2), "and the next one");
    ok(may_get_room(&b, 0, UUID(2)), "which may get the room of older ones");
    snap_hold_settle(b.hold, UUID(1), true);
    ok(!may_get_room(&b, 0, UUID(2)), "until they have gone");
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    slow_disk_save(&b, 1, 2, UUID(2), "another rank's of the same save");
    ok(!may_get_room(&b, 1, UUID(2)), "has none to come from it");
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 3);
    slow_disk_save(&b, 1, 3, UUID(3), "but its next one");
    ok(may_get_room(&b, 1, UUID(3)), "may get some");
    snap_hold_put_off(b.hold, UUID(2));
    ok(!may_get_room(&b, 1, UUID(3)), "until that has come to nothing");
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_works(&b);
    hold_bed_close(&b);
}

/* What is in another directory leaves nothing there that could go. */
static void test_room_elsewhere(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snprintf(b.root, sizeof(b.root), "%s/other", b.top);
    fs_mkdirs(b.root, NULL);
    slow_disk_save(&b, 1, 2, UUID(2), "and the next one, to another directory");
    ok(!may_get_room(&b, 1, UUID(2)), "gets no room of what is in the first");
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    hold_bed_close(&b);
}

/* What was written of the one before, in the same memory, is nothing of this one. */
static void test_written_anew(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_put_off(b.hold, UUID(1));
    hold_bed_run_works(&b);
    snap_jam_begin(&b.jam, &b.loop);
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "it is to be once more");
    is_int((intmax_t)snap_hold_n_written(b.hold, 0, UUID(1)), 0, "of which nothing is there yet");
    snap_jam_end(&b.jam);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    hold_bed_close(&b);
}

/* A worker cuts its memory when some of it is on the disk: whoever reads the rest lives on. */
static void test_cut_while_written(void)
{
    const uint64_t bytes = 3 * DIGEST_BLOCK_BYTES;
    char path[PATH_MAX];
    struct hold_bed b;

    slow_disk_open(&b);
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), bytes + HOLD_ROOM), 0, "three blocks");
    memset(b.said.snap->map + SNAP_PAGE_BYTES, 1, bytes);
    is_int(snap_hold_done(b.hold, 0, UUID(1), bytes, 100, &b.said.error), 0,
           "are handed over");
    slow_disk_wait_block();
    snprintf(path, sizeof(path), "%s/snap-3-0-0", b.dir);
    ok(truncate(path, 0) == 0, "a worker cuts them as the first is on its way");
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_until(&b, &b.said.n_failed, 1);
    ok(!slow_disk_has(&b, "r00000.safetensors"), "none of it stays");
    hold_bed_close(&b);
}

int main(void)
{
    mapguard_install();
    test_destroyed();
    test_order();
    test_disk_fails_once();
    test_disk_fails_twice();
    test_apart();
    test_room_to_come();
    test_room_elsewhere();
    test_written_anew();
    test_cut_while_written();
    return tap_done();
}
