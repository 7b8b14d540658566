/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent holds on its way to a disk that is slow: one after the other, in the
 * order that they came, and no more of it than somebody wants: what comes to nothing
 * leaves nothing there, whenever that is heard. */
#include <config.h>

#include "launcher/hold_bed.h"
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
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The disk takes one block, and no other before it is let. */
static atomic_int n_blocks;
static atomic_bool may_write;
static atomic_int n_made, n_closed; /* directories, and what was open */

/* Ranks, as they got there. */
static uint32_t order[4];
static int n_order;

static atomic_int n_shared; /* writes to files that children would have as well */

/* Whether the main thread's table has it: see base/thread.h. */
static bool is_shared(int fd)
{
    struct stat own, shared;
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return fstat(fd, &own) == 0 && stat(path, &shared) == 0 && own.st_dev == shared.st_dev &&
           own.st_ino == shared.st_ino;
}

static ssize_t write_late(struct io *io, int fd, const void *data, size_t len,
                          uint64_t at)
{
    atomic_fetch_add(&n_blocks, 1);
    atomic_fetch_add(&n_shared, is_shared(fd));
    while (!atomic_load(&may_write)) {
        poll(NULL, 0, 1);
    }
    return io_system_ops.write(io, fd, data, len, at);
}

static int make_dir(struct io *io, int dir, const char *name)
{
    atomic_fetch_add(&n_made, 1);
    return io_system_ops.make_dir(io, dir, name);
}

static int close_it(struct io *io, int fd)
{
    int rc = io_system_ops.close(io, fd);

    atomic_fetch_add(&n_closed, 1);
    return rc;
}

static void on_written(void *arg, const struct snap_head *head, const struct error *e)
{
    struct snap_said *said = arg;

    said->n_written += e->code == 0;
    said->n_failed += e->code != 0;
    said->error = *e;
    if (n_order < 4) {
        order[n_order++] = head->rank;
    }
}

/* Some syncs of files fail, as of a disk that could not write. */
static atomic_int n_syncs;
static atomic_int first_bad, n_bad; /* from that one on, the first is 1 */
static struct stat bad_file;        /* the last one of which it did */

static int sync_badly(struct io *io, int fd)
{
    struct stat st;
    int n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return io_system_ops.sync(io, fd);
    }
    n = atomic_fetch_add(&n_syncs, 1) + 1 - atomic_load(&first_bad);
    if (n < 0 || n >= atomic_load(&n_bad)) {
        return io_system_ops.sync(io, fd);
    }
    bad_file = st;
    dup(fd); /* its number is no other file's as long as that thread runs */
    return -EIO;
}

static struct io_ops slow_ops;
static struct io slow = {.ops = &slow_ops};

static void open_slow(struct hold_bed *b)
{
    struct snap_hold_config config;

    hold_bed_open(b, 1 << 20);
    snap_hold_destroy(b->hold);
    slow_ops = io_system_ops;
    slow_ops.write = write_late;
    slow_ops.make_dir = make_dir;
    slow_ops.close = close_it;
    slow_ops.sync = sync_badly;
    config = snap_bed_config(&b->loop, b->dir, &b->said);
    config.agent = 3;
    config.io = &slow;
    config.on_written = on_written;
    b->hold = snap_bed_hold(&config);
    atomic_store(&n_blocks, 0);
    atomic_store(&may_write, false);
    atomic_store(&n_made, 0);
    atomic_store(&n_closed, 0);
    atomic_store(&n_syncs, 0);
    atomic_store(&n_bad, 0);
}

static void wait_for(atomic_int *count, int n, const char *what)
{
    for (int i = 0; i < 60000 && atomic_load(count) < n; i++) {
        poll(NULL, 0, 1);
    }
    is_int(atomic_load(count), n, "%s", what);
}

static void wait_for_block(void)
{
    wait_for(&n_blocks, 1, "the first block is on its way");
}

/* An agent that ends does not wait for the rest. */
static void test_destroyed(void)
{
    const uint64_t bytes = 3 * DIGEST_BLOCK_BYTES;
    struct hold_bed b;

    open_slow(&b);
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), bytes + HOLD_ROOM), 0, "three blocks");
    is_int(snap_hold_done(b.hold, 0, UUID(1), bytes, 100, &b.said.error), 0,
           "are handed over");
    wait_for_block();
    snap_hold_destroy(take_ptr(&b.hold));
    atomic_store(&may_write, true);
    hold_bed_close(&b);
    is_int(atomic_load(&n_blocks), 1, "the others are not written any more");
}

/* Who came first is first: nobody waits for ever while others save again and again. */
static void test_order(void)
{
    struct hold_bed b;

    open_slow(&b);
    for (uint32_t rank = 0; rank < 4; rank++) {
        is_int(hold_bed_save(&b, 3 - rank, 1, UUID(1)), 0, "rank %u saves", 3 - rank);
    }
    wait_for_block();
    is_int(snap_hold_n_writing(b.hold), 4, "and waits for the disk");
    atomic_store(&may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 4);
    ok(order[0] == 3 && order[1] == 2 && order[2] == 1 && order[3] == 0,
       "one after the other: %u %u %u %u", order[0], order[1], order[2], order[3]);
    hold_bed_close(&b);
}

/* --- what comes to nothing --- */

static bool is_there(const struct hold_bed *b, const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return access(path, F_OK) == 0;
}

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

    open_slow(&b);
    atomic_store(&may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "two ranks save");
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "both");
    hold_bed_run_until(&b, &b.said.n_written, 2);
    ok(is_there(&b, "r00000.part") && is_there(&b, "r00001.safetensors"),
       "they are on the disk");
    put_other(&b);
    snap_hold_settle(b.hold, UUID(1), false);
    is_int(hold_bed_save(&b, 0, 2, UUID(2)), 0, "it comes to nothing, and the next is saved");
    hold_bed_run_until(&b, &b.said.n_written, 3);
    ok(!is_there(&b, "r00000.part") && !is_there(&b, "r00001.safetensors"),
       "nothing of it is left by then");
    ok(is_there(&b, "r00009.part"), "but what is another agent's");
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

        open_slow(&b);
        atomic_store(&may_write, true);
        is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a rank saves");
        hold_bed_run_until(&b, &b.said.n_written, 1);
        step_name(1, UUID(1), name);
        snprintf(path, sizeof(path), "%s/%s/%s", b.root, name, marks[i]);
        fs_write_replace(path, "", 0, NULL);
        snap_hold_settle(b.hold, UUID(1), false);
        hold_bed_run_works(&b);
        ok(is_there(&b, "r00000.safetensors"), "where there is a %s it stays", marks[i]);
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

        open_slow(&b);
        is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a rank is written");
        wait_for_block();
        for (int i = 0; i <= is_sealed; i++) {
            put_file(&b, files[i], "another one's");
        }
        snap_hold_destroy(take_ptr(&b.hold));
        atomic_store(&may_write, true);
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
        open_slow(&b);
        atomic_store(&may_write, true);
        is_int(hold_bed_stay(&b, 0, 1, UUID(1)), 0, "a rank has it in memory");
        put_file(&b, "r00000.safetensors", "is there");
        put_file(&b, marks[i], "");
        is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "and is to write it");
        hold_bed_run_until(&b, &b.said.n_failed, 1);
        ok(has_text(&b, "r00000.safetensors", "is there") && is_there(&b, marks[i]),
           "where there is a %s all stays", marks[i]);
        hold_bed_close(&b);
    }
    open_slow(&b);
    is_int(hold_bed_stay(&b, 0, 1, UUID(1)), 0, "a rank has it in memory");
    put_file(&b, "r00000.safetensors", "half of");
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "and is to write it");
    wait_for_block();
    put_file(&b, "r00000.part", "of who was not lost");
    atomic_store(&may_write, true);
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

    open_slow(&b);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "and one waits");
    wait_for_block();
    snap_hold_settle(b.hold, UUID(1), false);
    atomic_store(&may_write, true);
    hold_bed_run_works(&b);
    ok(!is_there(&b, "") && atomic_load(&n_made) == 1, "neither is any more");
    save_next(&b);
    hold_bed_close(&b);
}

/* The thread has come to its end, and nobody knows. */
static void test_nothing_just_written(void)
{
    struct hold_bed b;

    open_slow(&b);
    atomic_store(&may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    wait_for(&n_closed, 3, "two files, and then the directory, are closed");
    snap_hold_settle(b.hold, UUID(1), false);
    hold_bed_run_works(&b);
    is_int(b.said.n_written + b.said.n_failed, 1, "it is told of");
    ok(!snap_hold_get(b.hold, 0, UUID(1)), "but counts no more");
    ok(!is_there(&b, ""), "what has just got there goes");
    save_next(&b);
    hold_bed_close(&b);
}

/* Other ranks have no room: what is on its way stops, and stays for another try. */
static void test_put_off(void)
{
    struct hold_bed b;

    open_slow(&b);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is being written");
    is_int(hold_bed_save(&b, 1, 1, UUID(1)), 0, "and another rank waits");
    wait_for(&n_blocks, 1, "a block is on its way");
    snap_hold_put_off(b.hold, UUID(1));
    atomic_store(&may_write, true);
    hold_bed_run_works(&b);
    ok(!is_there(&b, ""), "nothing of them gets to the disk");
    is_int(b.said.n_written, 0, "nor is anything said to");
    ok(snap_hold_get(b.hold, 0, UUID(1)) && snap_hold_get(b.hold, 1, UUID(1)),
       "both are in memory");
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "another try");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    ok(is_there(&b, ""), "gets there");
    hold_bed_close(&b);
}

/* The same when it has got there, and the agent knows, or does not yet. */
static void test_put_off_written(void)
{
    for (int is_known = 0; is_known < 2; is_known++) {
        struct hold_bed b;

        open_slow(&b);
        atomic_store(&may_write, true);
        is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
        wait_for(&n_closed, 3, "two files, and then the directory, are closed");
        if (is_known) {
            hold_bed_run_until(&b, &b.said.n_written, 1);
        }
        snap_hold_put_off(b.hold, UUID(1));
        hold_bed_run_works(&b);
        ok(!is_there(&b, ""), "what is there goes");
        is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "another try");
        hold_bed_run_until(&b, &b.said.n_written, 2);
        ok(is_there(&b, "r00000.safetensors"), "gets there");
        hold_bed_close(&b);
    }
}

/* What has not begun does not begin. */
static void test_nothing_begun(void)
{
    struct hold_bed b;

    open_slow(&b);
    atomic_store(&may_write, true);
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), HOLD_ROOM), 0, "a save");
    snap_jam_begin(&b.jam, &b.loop);
    is_int(snap_hold_done(b.hold, 0, UUID(1), 5000, 100, &b.said.error), 0,
           "for which there is no thread yet");
    snap_hold_settle(b.hold, UUID(1), false);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    ok(!is_there(&b, "") && atomic_load(&n_made) == 0, "makes no directory any more");
    hold_bed_close(&b);
}

/* A save whose writing has begun, and goes no further than its first block. */
static void save_and_stand(struct hold_bed *b, uint32_t rank, uint64_t step, const char *uuid,
                           const char *what)
{
    atomic_store(&may_write, false);
    atomic_store(&n_blocks, 0);
    is_int(hold_bed_save(b, rank, step, uuid), 0, "%s", what);
    wait_for_block();
}

/* Also an agent that goes takes it away first. */
static void test_nothing_at_the_end(void)
{
    struct hold_bed b;

    open_slow(&b);
    atomic_store(&may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    save_and_stand(&b, 1, 2, UUID(2), "and another one");
    snap_hold_settle(b.hold, UUID(1), false);
    snap_hold_destroy(take_ptr(&b.hold));
    atomic_store(&may_write, true);
    hold_bed_run_works(&b);
    ok(!is_there(&b, ""), "nothing is left of the first");
    hold_bed_close(&b);
}

/* --- a disk that fails --- */

static bool is_bad_file(const struct hold_bed *b, const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];
    struct stat st;

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return stat(path, &st) == 0 && st.st_ino == bad_file.st_ino;
}

/* What the kernel could not write it forgets: the file must not stay. */
static bool is_bad_file_gone(const struct hold_bed *b)
{
    return bad_file.st_ino && !is_bad_file(b, "r00000.safetensors") &&
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
    open_slow(b);
    atomic_store(&may_write, true);
    atomic_store(&first_bad, first);
    atomic_store(&n_bad, n);
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
    static const char *const files[] = {"the image", "the part"};

    for (int i = 0; i < 2; i++) {
        struct hold_bed b;

        save_badly(&b, i + 1, 1);
        is_int(b.said.n_written, 1, "%s cannot be synced, and is written anew", files[i]);
        is_int(atomic_load(&n_syncs), 3, "each file is synced once");
        ok(is_bad_file_gone(&b), "the file that could not is gone");
        ok(is_written_right(&b), "and all bytes are right");
        hold_bed_close(&b);
    }
}

static void test_disk_fails_twice(void)
{
    struct hold_bed b;

    save_badly(&b, 1, 2);
    is_int(b.said.n_failed, 1, "neither file of an image can be synced");
    is_int(b.said.error.code, EIO, "which is told");
    like(b.said.error.text, "; and again, with a new file: write ", "of both");
    is_int(atomic_load(&n_syncs), 2, "there is no third");
    ok(is_bad_file_gone(&b) && !is_there(&b, ""), "nothing is left of them");
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
    open_slow(&b);
    atomic_store(&may_write, true);
    atomic_store(&n_shared, 0);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a rank saves");
    hold_bed_run_works(&b);
    ok(atomic_load(&n_blocks) > 0, "it was written");
    is_int(atomic_load(&n_shared), 0, "into files that no child has");
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

    open_slow(&b);
    atomic_store(&may_write, true);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "one is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    save_and_stand(&b, 0, 2, UUID(2), "and the next one");
    ok(may_get_room(&b, 0, UUID(2)), "which may get the room of older ones");
    snap_hold_settle(b.hold, UUID(1), true);
    ok(!may_get_room(&b, 0, UUID(2)), "until they have gone");
    atomic_store(&may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    save_and_stand(&b, 1, 2, UUID(2), "another rank's of the same save");
    ok(!may_get_room(&b, 1, UUID(2)), "has none to come from it");
    atomic_store(&may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 3);
    save_and_stand(&b, 1, 3, UUID(3), "but its next one");
    ok(may_get_room(&b, 1, UUID(3)), "may get some");
    snap_hold_put_off(b.hold, UUID(2));
    ok(!may_get_room(&b, 1, UUID(3)), "until that has come to nothing");
    atomic_store(&may_write, true);
    hold_bed_run_works(&b);
    hold_bed_close(&b);
}

int main(void)
{
    mapguard_install();
    test_destroyed();
    test_order();
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
    test_disk_fails_once();
    test_disk_fails_twice();
    test_apart();
    test_room_to_come();
    return tap_done();
}
