/* SPDX-License-Identifier: Apache-2.0 */
/* What comes to nothing on its way to a slow disk, or is put off, leaves nothing there,
 * whenever that is heard; but what is a checkpoint all the same, or another one's, stays. */
#include <config.h>

#include "launcher/slow_disk_bed.h"
#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/mapguard.h"
#include "base/str.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct slow_disk slow_disk;

/* What another agent has put there, which goes by that one's hand. */
static void put_other(const struct hold_bed *b)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s/r00009.part", b->root, name);
    fs_write_replace(path, "", 0, NULL);
}

/* As if a node that was lost had written so much of a rank before. */
static void put_file(const struct hold_bed *b, const char *file, const char *text)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s", b->root, name);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    fs_write_replace(path, text, strlen(text), NULL);
}

static bool has_text(const struct hold_bed *b, const char *file, const char *text)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];
    _free_ char *data = NULL;
    size_t len = 0;

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return fs_read(path, 1 << 20, &data, &len, NULL) == 0 && len == strlen(text) &&
           memcmp(data, text, len) == 0;
}

static void test_nothing_written(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "two ranks save");
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "both");
    hold_bed_run_until(&b, &b.said.n_written, 2);
    ok(slow_disk_has(&b, "r00000.part") && slow_disk_has(&b, "r00001.safetensors"),
       "they are on the disk");
    put_other(&b);
    snap_hold_settle(b.hold, UUID(1), false);
    is_int(hold_bed_save(&b, 0, 2, UUID(2)), 0, "it comes to nothing, and the next is saved");
    hold_bed_run_until(&b, &b.said.n_written, 3);
    ok(!slow_disk_has(&b, "r00000.part") && !slow_disk_has(&b, "r00001.safetensors"),
       "nothing of it is left by then");
    ok(slow_disk_has(&b, "r00009.part"), "but what is another agent's");
    snap_hold_settle(b.hold, UUID(2), true);
    hold_bed_close(&b);
}

/* One that was made a checkpoint all the same loses nothing. */
static void test_nothing_committed(void)
{
    static const char *const marks[] = {"COMMIT", "manifest.json"};

    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        char path[PATH_MAX], name[STEP_NAME_BYTES];
        struct hold_bed b;

        slow_disk_open(&b);
        atomic_store(&slow_disk.may_write, true);
        is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a rank saves");
        hold_bed_run_until(&b, &b.said.n_written, 1);
        step_name(1, UUID(1), name);
        snprintf(path, sizeof(path), "%s/%s/%s", b.root, name, marks[i]);
        fs_write_replace(path, "", 0, NULL);
        snap_hold_settle(b.hold, UUID(1), false);
        hold_bed_run_works(&b);
        ok(slow_disk_has(&b, "r00000.safetensors"), "where there is a %s it stays", marks[i]);
        hold_bed_close(&b);
    }
}

/* Another node was told to write it, for this one was thought to be lost, and a
 * checkpoint was made of that: who goes on then, and ends, takes nothing of it away. */
static void test_overtaken(void)
{
    static const char *const files[] = {"r00000.safetensors", "COMMIT"};

    for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
        struct hold_bed b;

        slow_disk_open(&b);
        is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a rank is written");
        slow_disk_wait_block();
        for (int i = 0; i <= is_sealed; i++) {
            put_file(&b, files[i], "another one's");
        }
        snap_hold_destroy(take_ptr(&b.hold));
        atomic_store(&slow_disk.may_write, true);
        hold_bed_run_works(&b);
        for (int i = 0; i <= is_sealed; i++) {
            ok(has_text(&b, files[i], "another one's"), "%s stays", files[i]);
        }
        hold_bed_close(&b);
    }
}

/* Of a checkpoint that whoever led had no time to tell of nothing is written anew. */
static void test_instead(void)
{
    static const char *const marks[] = {"COMMIT", "manifest.json"};
    struct hold_bed b;

    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        slow_disk_open(&b);
        atomic_store(&slow_disk.may_write, true);
        is_int(hold_bed_stay(&b, 0, 1, UUID(1)), 0, "a rank has it in memory");
        put_file(&b, "r00000.safetensors", "is there");
        put_file(&b, marks[i], "");
        is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "and is to write it");
        hold_bed_run_until(&b, &b.said.n_failed, 1);
        ok(has_text(&b, "r00000.safetensors", "is there") && slow_disk_has(&b, marks[i]),
           "where there is a %s all stays", marks[i]);
        hold_bed_close(&b);
    }
    slow_disk_open(&b);
    is_int(hold_bed_stay(&b, 0, 1, UUID(1)), 0, "a rank has it in memory");
    put_file(&b, "r00000.safetensors", "half of");
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "and is to write it");
    slow_disk_wait_block();
    put_file(&b, "r00000.part", "of who was not lost");
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(!has_text(&b, "r00000.safetensors", "half of") &&
           !has_text(&b, "r00000.part", "of who was not lost"),
       "both files are its own, whoever was there before");
    hold_bed_close(&b);
}

/* What has come to nothing has its memory for the next one, which is written. */
static void save_next(struct hold_bed *b)
{
    int n = b->said.n_written;

    is_int(hold_bed_save(b, 0, 2, UUID(2)), 0, "the next save");
    hold_bed_run_works(b);
    is_int(b->said.n_written, n + 1, "is written");
    ok(snap_hold_get(b->hold, 0, UUID(2)) != NULL, "and counts");
}

static void test_nothing_writing(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "and one waits");
    slow_disk_wait_block();
    snap_hold_settle(b.hold, UUID(1), false);
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_works(&b);
    ok(!slow_disk_has(&b, "") && atomic_load(&slow_disk.n_made) == 1, "neither is any more");
    save_next(&b);
    hold_bed_close(&b);
}

/* The thread has come to its end, and nobody knows. */
static void test_nothing_just_written(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    slow_disk_wait(&slow_disk.n_closed, 3, "two files, and then the directory, are closed");
    snap_hold_settle(b.hold, UUID(1), false);
    hold_bed_run_works(&b);
    is_int(b.said.n_written + b.said.n_failed, 1, "it is told of");
    ok(!snap_hold_get(b.hold, 0, UUID(1)), "but counts no more");
    ok(!slow_disk_has(&b, ""), "what has just got there goes");
    save_next(&b);
    hold_bed_close(&b);
}

/* Other ranks have no room: what is on its way stops, and stays for another try. */
static void test_put_off(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is being written");
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "and another rank waits");
    slow_disk_wait(&slow_disk.n_blocks, 1, "a block is on its way");
    snap_hold_put_off(b.hold, UUID(1));
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_works(&b);
    ok(!slow_disk_has(&b, ""), "nothing of them gets to the disk");
    is_int(b.said.n_written, 0, "nor is anything said to");
    ok(snap_hold_get(b.hold, 0, UUID(1)) && snap_hold_get(b.hold, 1, UUID(1)),
       "both are in memory");
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "another try");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(slow_disk_has(&b, ""), "gets there");
    hold_bed_close(&b);
}

/* The same when it has got there, and the agent knows, or does not yet. */
static void test_put_off_written(void)
{
    for (int is_known = 0; is_known < 2; is_known++) {
        struct hold_bed b;

        slow_disk_open(&b);
        atomic_store(&slow_disk.may_write, true);
        is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
        slow_disk_wait(&slow_disk.n_closed, 3, "two files, and then the directory, are closed");
        if (is_known) {
            hold_bed_run_until(&b, &b.said.n_written, 1);
        }
        snap_hold_put_off(b.hold, UUID(1));
        hold_bed_run_works(&b);
        ok(!slow_disk_has(&b, ""), "what is there goes");
        is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "another try");
        hold_bed_run_until(&b, &b.said.n_written, 2);
        ok(slow_disk_has(&b, "r00000.safetensors"), "gets there");
        hold_bed_close(&b);
    }
}

/* What has not begun does not begin. */
static void test_nothing_begun(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), HOLD_ROOM), 0, "a save");
    snap_jam_begin(&b.jam, &b.loop);
    is_int(snap_hold_done(b.hold, 0, UUID(1), 5000, 100, &b.said.error), 0,
           "for which there is no thread yet");
    snap_hold_settle(b.hold, UUID(1), false);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    ok(!slow_disk_has(&b, "") && atomic_load(&slow_disk.n_made) == 0,
       "makes no directory any more");
    hold_bed_close(&b);
}

/* Also an agent that goes takes it away first. */
static void test_nothing_at_the_end(void)
{
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    slow_disk_save(&b, 1, 2, UUID(2), "and another one");
    snap_hold_settle(b.hold, UUID(1), false);
    snap_hold_destroy(take_ptr(&b.hold));
    atomic_store(&slow_disk.may_write, true);
    hold_bed_run_works(&b);
    ok(!slow_disk_has(&b, ""), "nothing is left of the first");
    hold_bed_close(&b);
}

/* A disk that hangs holds up what is to go from it, of which only so much is kept in mind: the
 * lead's tidying finds the rest. */
static void test_nothing_of_many(void)
{
    enum { MOST = 1024 };
    struct hold_bed b;

    slow_disk_open(&b);
    atomic_store(&slow_disk.may_write, true);
    for (uint32_t rank = 0; rank < 8; rank++) {
        is_int(hold_bed_save(&b, rank, 1, UUID(1)), 0, "rank %u saves", rank);
    }
    hold_bed_run_until(&b, &b.said.n_written, 8);
    snap_hold_settle(b.hold, UUID(1), false);
    hold_bed_run_works(&b);
    ok(!slow_disk_has(&b, ""), "it comes to nothing: all of it goes");
    snap_jam_begin(&b.jam, &b.loop);
    for (uint32_t rank = 0; rank < MOST + 10; rank++) {
        struct snap_head head = {.rank = rank, .step = 1, .uuid = UUID(1)};

        str_copy(head.root, sizeof(head.root), b.root);
        snap_hold_clear(b.hold, &head);
    }
    is_int(b.hold->n_pending, MOST, "so many wait to go, and no more");
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_int(b.hold->n_pending, 0, "they do");
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "and what is saved then");
    hold_bed_run_until(&b, &b.said.n_written, 9);
    snap_hold_settle(b.hold, UUID(1), false);
    hold_bed_run_works(&b);
    ok(!slow_disk_has(&b, ""), "goes, too");
    hold_bed_close(&b);
}

int main(void)
{
    mapguard_install();
    test_nothing_written();
    test_nothing_committed();
    test_overtaken();
    test_instead();
    test_nothing_writing();
    test_nothing_just_written();
    test_put_off();
    test_put_off_written();
    test_nothing_begun();
    test_nothing_at_the_end();
    test_nothing_of_many();
    return tap_done();
}
