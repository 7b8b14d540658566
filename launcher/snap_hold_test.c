/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent holds: memory comes, goes to the disk one after the other, is found,
 * and found again by the next agent; too much is refused with numbers. What is made
 * ahead gives way to all else.
 */
#include <config.h>

#include "launcher/snap_hold.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UUID(digit) "0000000000000000000000000000000" #digit
enum { ROOM = 8 * SNAP_PAGE_BYTES };

struct bed {
    uv_loop_t loop;
    char top[64], dir[96], root[96];
    struct snap_hold *hold;
    int n_begun, n_written, n_failed;
    struct error error;
    struct snap *snap; /* borrowed: of the last one that was begun */
    uint64_t left;     /* memory that could be had */
    uv_sem_t gate;     /* for the loop's threads, see close_gate() */
    uv_work_t waiting[4];
};

static int finish(const void *part, size_t len, const uint64_t *blocks,
                  size_t n_blocks, struct buf *ret, struct error *e)
{
    (void)blocks, (void)n_blocks, (void)e;
    buf_append(ret, part, len);
    return 0;
}

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct bed *b = arg;

    (void)question;
    b->n_begun++;
    b->snap = (struct snap *)s;
    b->error = *e;
}

static void on_written(void *arg, const struct snap_head *head,
                       const struct error *e)
{
    struct bed *b = arg;

    (void)head;
    b->n_written += e->code == 0;
    b->n_failed += e->code != 0;
    b->error = *e;
}

static uint64_t left(void *arg)
{
    const struct bed *b = arg;

    return b->left;
}

static void make_hold_of(struct bed *b, uint64_t budget, const char *name)
{
    const struct snap_hold_config config = {
        .loop = &b->loop, .dir = b->dir, .agent = 3, .budget = budget,
        .budget_why = "all that this test has", .left = left, .io = io_system(),
        .finish = finish, .on_begun = on_begun, .on_written = on_written,
        .name = name, .is_elsewhere = name != NULL, .arg = b,
    };

    if (snap_hold_create(&config, &b->hold, &b->error) < 0) {
        bail_out("%s", b->error.text);
    }
}

static void make_hold(struct bed *b, uint64_t budget)
{
    make_hold_of(b, budget, NULL);
}

static void bed_open(struct bed *b, uint64_t budget)
{
    memset(b, 0, sizeof(*b));
    str_copy(b->top, sizeof(b->top), "/tmp/snap_hold_test.XXXXXX");
    if (!mkdtemp(b->top) || uv_loop_init(&b->loop) < 0) {
        bail_out("no directory %s", b->top);
    }
    b->left = UINT64_MAX;
    snprintf(b->dir, sizeof(b->dir), "%s/shm", b->top);
    snprintf(b->root, sizeof(b->root), "%s/ck", b->top);
    fs_mkdirs(b->root, NULL);
    make_hold(b, budget);
}

static void bed_close(struct bed *b)
{
    snap_hold_destroy(b->hold);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&b->loop), 0, "nothing is left in the loop");
    fs_remove_tree(b->top, NULL);
}

static void run_until(struct bed *b, const int *count, int n)
{
    uint64_t end = clock_mono_ms() + 60000;

    while (*count < n && clock_mono_ms() < end) {
        uv_run(&b->loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    is_int(*count, n, "so many have come");
}

static int begin(struct bed *b, uint32_t rank, uint64_t step, const char *uuid,
                 uint64_t room)
{
    const struct snap_rank who = {.rank = rank, .n_ranks = 4, .generation = 2,
                                  .token = 9};
    int rc = snap_hold_begin(b->hold, &who, step, uuid, b->root, room, step,
                             &b->error);

    if (rc == 0) {
        run_until(b, &b->n_begun, b->n_begun + 1);
    }
    return rc;
}

static int save(struct bed *b, uint32_t rank, uint64_t step, const char *uuid)
{
    int rc = begin(b, rank, step, uuid, ROOM);

    if (rc < 0) {
        return rc;
    }
    memset(b->snap->map + SNAP_PAGE_BYTES, (int)step, 5000);
    return snap_hold_done(b->hold, rank, uuid, 5000, 100, &b->error);
}

static bool is_in(const struct bed *b, uint64_t step, const char *uuid,
                  const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    step_name(step, uuid, name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return access(path, F_OK) == 0;
}

static void test_save(void)
{
    struct bed b;
    const struct snap *found;

    bed_open(&b, 1 << 20);
    is_int(save(&b, 3, 10, UUID(1)), 0, "a save");
    run_until(&b, &b.n_written, 1);
    ok(is_in(&b, 10, UUID(1), "r00003.safetensors") &&
           is_in(&b, 10, UUID(1), "r00003.part"), "its files are there");
    ok(!snap_hold_find(b.hold, 3, ""), "it is no checkpoint yet");
    ok(snap_hold_find(b.hold, 3, UUID(1)), "it is found by its name");
    ok(!snap_hold_find(b.hold, 2, UUID(1)), "not that of another rank");
    snap_hold_settle(b.hold, UUID(1), true);
    found = snap_hold_find(b.hold, 3, "");
    ok(found && found->head.step == 10 && found->head.state == SNAP_KEPT &&
           found->head.generation == 2 && found->head.token == 9,
       "it is one now");
    is_int(snap_verify(found, NULL), 0, "with its digest");
    is_int(save(&b, 3, 20, UUID(2)), 0, "another one");
    run_until(&b, &b.n_written, 2);
    ok(snap_hold_find(b.hold, 3, "")->head.step == 10, "leaves the first alone");
    snap_hold_settle(b.hold, UUID(2), false);
    ok(!snap_hold_find(b.hold, 3, UUID(2)), "what came to nothing is gone");
    bed_close(&b);
}

/* The agent dies, and another one comes. */
static void test_next_agent(void)
{
    struct bed b;
    const struct snap *found;

    bed_open(&b, 1 << 20);
    save(&b, 0, 10, UUID(1));
    run_until(&b, &b.n_written, 1);
    snap_hold_settle(b.hold, UUID(1), true);
    snap_hold_destroy(b.hold);
    make_hold(&b, 1 << 20);
    found = snap_hold_find(b.hold, 0, "");
    ok(found && found->head.step == 10 && snap_verify(found, NULL) == 0,
       "the next agent finds it");
    snap_hold_remove(b.hold);
    ok(access(b.dir, F_OK) < 0, "and removes it");
    bed_close(&b);
}

static bool is_held(const struct bed *b, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return access(path, F_OK) == 0;
}

/* Ranks move: what they have left is of no use here. */
static void test_moved(void)
{
    _close_ int others = -1;
    char path[PATH_MAX];
    struct bed b;

    bed_open(&b, 1 << 20);
    save(&b, 4, 10, UUID(1));
    save(&b, 5, 10, UUID(1));
    snap_hold_serve(b.hold, 5, 2);
    snap_hold_settle(b.hold, UUID(2), true);
    run_until(&b, &b.n_written, 2);
    ok(is_in(&b, 10, UUID(1), "r00004.part"), "what is on its way gets there");
    snap_hold_settle(b.hold, UUID(1), true);
    ok(!is_held(&b, "snap-3-4-0") && !snap_hold_find(b.hold, 4, UUID(1)),
       "then the memory of one that has moved goes");
    ok(is_held(&b, "snap-3-5-0") && snap_hold_find(b.hold, 5, UUID(1)),
       "that of one who is here stays");
    snap_hold_destroy(b.hold);
    make_hold(&b, 1 << 20);
    snprintf(path, sizeof(path), "%s/snap-2-5-0", b.dir);
    others = open(path, O_CREAT | O_WRONLY, 0600);
    snap_hold_serve(b.hold, 4, 1);
    ok(!is_held(&b, "snap-3-5-0"), "what an agent before this one has left goes");
    ok(is_held(&b, "snap-2-5-0"), "another agent's stays");
    bed_close(&b);
}

static void test_refused(void)
{
    struct bed b;

    bed_open(&b, 3 * ROOM);
    is_int(begin(&b, 0, 1, UUID(1), 4 * ROOM), -ENOMEM, "more than there is");
    like(b.error.text, "does not fit into 0 MiB, all that this test has",
         "with the numbers");
    is_int(begin(&b, 0, 1, UUID(1), ROOM), 0, "a first one");
    is_int(begin(&b, 1, 1, UUID(1), 2 * ROOM), 0, "and a second one");
    is_int(begin(&b, 2, 1, UUID(1), ROOM), -ENOMEM, "but no third one");
    is_int(snap_hold_done(b.hold, 0, UUID(2), 1, 1, NULL), -ENOENT,
           "one that was not begun");
    is_int(snap_hold_done(b.hold, 0, UUID(1), ROOM, SNAP_PAGE_BYTES, NULL),
           -EINVAL, "more than was asked for");
    is_int(snap_hold_done(b.hold, 0, UUID(1), 1, 1, NULL), -ENOENT,
           "is none any more");
    bed_close(&b);
}

/* Nobody takes what is on its way. */
static void test_busy(void)
{
    struct bed b;

    bed_open(&b, 1 << 20);
    is_int(begin(&b, 0, 1, UUID(1), ROOM), 0, "one");
    is_int(snap_hold_done(b.hold, 0, UUID(1), 10, 10, NULL), 0, "is filled");
    is_int(begin(&b, 0, 2, UUID(2), ROOM), 0, "two");
    is_int(snap_hold_done(b.hold, 0, UUID(2), 10, 10, NULL), 0, "are filled");
    if (snap_hold_n_writing(b.hold) == 2) {
        is_int(begin(&b, 0, 3, UUID(3), ROOM), -EBUSY, "a third one waits");
    }
    run_until(&b, &b.n_written, 2);
    is_int(snap_hold_n_writing(b.hold), 0, "all are written");
    is_int(begin(&b, 0, 3, UUID(3), ROOM), 0, "and there is room");
    bed_close(&b);
}

static void test_no_disk(void)
{
    struct bed b;

    bed_open(&b, 1 << 20);
    fs_remove_tree(b.root, NULL);
    is_int(save(&b, 0, 1, UUID(1)), 0, "a save");
    run_until(&b, &b.n_failed, 1);
    is_int(b.error.code, ENOENT, "for which there is no directory");
    ok(!snap_hold_find(b.hold, 0, UUID(1)), "is none");
    bed_close(&b);
}

/* Whoever is told to go goes, with all that is on its way. */
static void test_destroyed(void)
{
    struct bed b;

    bed_open(&b, 1 << 20);
    save(&b, 0, 1, UUID(1));
    save(&b, 1, 1, UUID(1));
    bed_close(&b);
    is_int(b.n_failed, 0, "nobody is told afterwards");
}

/* Copies of another node's: written only when that is lost, over what it has begun;
 * in memory that this node's own leave, and give back. */
static void test_copies(void)
{
    struct snap_hold *own, *copies;
    struct bed b;
    char dir[160], name[STEP_NAME_BYTES], path[192];

    bed_open(&b, 6 * (ROOM + SNAP_PAGE_BYTES));
    own = b.hold;
    make_hold_of(&b, 6 * (ROOM + SNAP_PAGE_BYTES), "copy");
    snap_hold_lend(own, b.hold);
    is_int(save(&b, 2, 10, UUID(1)), 0, "a copy");
    is_int(snap_hold_n_writing(b.hold), 0, "is not written");
    step_name(10, UUID(1), name);
    snprintf(dir, sizeof(dir), "%s/%s", b.root, name);
    fs_mkdirs(dir, NULL);
    snprintf(path, sizeof(path), "%s/r00002.safetensors", dir);
    fs_write_replace(path, "half", 4, NULL);
    is_int(snap_hold_write(b.hold, 2, UUID(2), &b.error), -ENOENT,
           "nothing of another save");
    is_int(snap_hold_write(b.hold, 2, UUID(1), &b.error), 0, "until it is asked for");
    is_int(snap_hold_write(b.hold, 2, UUID(1), &b.error), 0, "or again");
    run_until(&b, &b.n_written, 1);
    is_int(b.n_failed, 0, "in place of half a file");
    ok(is_in(&b, 10, UUID(1), "r00002.part"), "with its part");

    ok(snap_hold_pin(b.hold, 2, UUID(1)) != NULL, "one that is read");
    is_int(save(&b, 2, 20, UUID(2)), 0, "another one");
    is_int(save(&b, 2, 30, UUID(3)), 0, "the next one takes its place");
    ok(snap_hold_get(b.hold, 2, UUID(1)) && !snap_hold_get(b.hold, 2, UUID(2)),
       "and not of the one that is read");
    snap_hold_unpin(b.hold, 2, UUID(1));
    is_int(save(&b, 2, 40, UUID(4)), 0, "as soon as it is not");
    ok(!snap_hold_get(b.hold, 2, UUID(1)), "it goes");
    is_int(b.n_written, 1, "nothing else was written");

    copies = b.hold;
    b.hold = own;
    is_int(begin(&b, 0, 10, UUID(5), 2 * ROOM), 0, "this node's own");
    b.hold = copies;
    is_int(begin(&b, 3, 10, UUID(5), ROOM), -ENOMEM,
           "no copy in what it will want: %s", b.error.text);
    b.hold = own;
    is_int(begin(&b, 1, 10, UUID(5), 3 * ROOM), 0, "for its own copies give way");
    ok(!snap_hold_get(copies, 2, UUID(4)), "they are gone");
    snap_hold_lend(own, NULL);
    snap_hold_destroy(copies);
    bed_close(&b);
}

/* --- ahead --- */

static void wait_at_gate(uv_work_t *work)
{
    struct bed *b = work->data;

    uv_sem_wait(&b->gate);
}

/* What is given to the loop's threads from now on waits. */
static void close_gate(struct bed *b)
{
    uv_sem_init(&b->gate, 0);
    for (size_t i = 0; i < ARRAY_SIZE(b->waiting); i++) {
        b->waiting[i].data = b;
        uv_queue_work(&b->loop, &b->waiting[i], wait_at_gate, NULL);
    }
}

static void open_gate(struct bed *b)
{
    for (size_t i = 0; i < ARRAY_SIZE(b->waiting); i++) {
        uv_sem_post(&b->gate);
    }
}

static ino_t file_of(const struct bed *b, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static ino_t begun_file(const struct bed *b)
{
    struct stat st;

    return b->snap && fstat(b->snap->fd, &st) == 0 ? st.st_ino : 0;
}

static void run_works(struct bed *b)
{
    uv_run(&b->loop, UV_RUN_DEFAULT);
}

static void begin_later(struct bed *b, uint32_t rank, uint64_t step,
                        const char *uuid, uint64_t room)
{
    const struct snap_rank who = {.rank = rank, .n_ranks = 4, .generation = 2};

    is_int(snap_hold_begin(b->hold, &who, step, uuid, b->root, room, step,
                           &b->error), 0, "a save is begun");
}

static void test_ahead(void)
{
    struct bed b;
    ino_t file;

    bed_open(&b, 4 * ROOM);
    snap_hold_make_ahead(b.hold, 0);
    save(&b, 0, 10, UUID(1));
    save(&b, 1, 10, UUID(1));
    run_works(&b);
    ok(!is_held(&b, "snap-3-0-1"), "not before it is asked for");
    snap_hold_make_ahead(b.hold, 0);
    snap_hold_make_ahead(b.hold, 1);
    snap_hold_make_ahead(b.hold, 2);
    run_works(&b);
    file = file_of(&b, "snap-3-0-1");
    ok(file != 0 && is_held(&b, "snap-3-1-1"), "the second ones of two ranks are made");
    ok(!is_held(&b, "snap-3-2-0"), "none of one that has not saved");
    is_int(save(&b, 0, 20, UUID(2)), 0, "the next save");
    ok(begun_file(&b) == file, "gets it");
    snap_hold_make_ahead(b.hold, 0);
    run_works(&b);
    snap_hold_settle(b.hold, UUID(1), true);
    snap_hold_settle(b.hold, UUID(2), true);
    ok(snap_hold_find(b.hold, 0, UUID(1)) && snap_hold_find(b.hold, 0, UUID(2)),
       "what is held stays");
    snap_hold_serve(b.hold, 0, 1);
    ok(!is_held(&b, "snap-3-1-1"), "what was made for a rank that has moved goes");
    snap_hold_remove(b.hold);
    bed_close(&b);
}

/* It comes while the thread is at it, and perhaps for more. */
static void test_ahead_awaited(uint64_t room)
{
    struct bed b;

    bed_open(&b, 1 << 20);
    save(&b, 0, 10, UUID(1));
    run_works(&b);
    close_gate(&b);
    snap_hold_make_ahead(b.hold, 0);
    begin_later(&b, 0, 20, UUID(2), room);
    is_int(b.n_begun, 1, "which waits for what is made ahead");
    open_gate(&b);
    run_until(&b, &b.n_begun, 2);
    ok(b.snap && b.snap->room >= room && b.snap->head.step == 20,
       "and gets its memory: %s", b.error.text);
    ok(begun_file(&b) == file_of(&b, "snap-3-0-1"), "the second one");
    is_int(snap_hold_done(b.hold, 0, UUID(2), room, 0, &b.error), 0, "it is filled");
    run_until(&b, &b.n_written, 2);
    bed_close(&b);
}

static void test_ahead_no_room(void)
{
    struct bed b;

    bed_open(&b, 3 * ROOM);
    save(&b, 0, 10, UUID(1));
    save(&b, 1, 10, UUID(1));
    run_works(&b);
    b.left = ROOM - 1;
    snap_hold_make_ahead(b.hold, 0);
    run_works(&b);
    ok(!is_held(&b, "snap-3-0-1"), "nothing where too little memory is left");
    b.left = ROOM;
    snap_hold_make_ahead(b.hold, 0);
    snap_hold_make_ahead(b.hold, 1);
    run_works(&b);
    ok(is_held(&b, "snap-3-0-1"), "one where it is");
    ok(!is_held(&b, "snap-3-1-1"), "no more than the budget has");
    is_int(begin(&b, 2, 10, UUID(1), ROOM), 0, "another rank's first one");
    ok(!is_held(&b, "snap-3-0-1"), "takes its place");
    is_int(begin(&b, 0, 20, UUID(2), ROOM), -ENOMEM, "which is not free now");
    bed_close(&b);
}

static void test_ahead_gives_way(void)
{
    struct bed b;

    bed_open(&b, 2 * ROOM);
    save(&b, 0, 10, UUID(1));
    run_works(&b);
    close_gate(&b);
    snap_hold_make_ahead(b.hold, 0);
    begin_later(&b, 1, 10, UUID(1), ROOM);
    open_gate(&b);
    run_works(&b);
    is_int(b.n_begun, 2, "another rank's first one is made");
    ok(b.snap && !is_held(&b, "snap-3-0-1"), "what was being made ahead is not");
    bed_close(&b);
}

static void test_ahead_moved(void)
{
    struct bed b;

    bed_open(&b, 1 << 20);
    save(&b, 0, 10, UUID(1));
    run_works(&b);
    close_gate(&b);
    snap_hold_make_ahead(b.hold, 0);
    snap_hold_serve(b.hold, 1, 1);
    open_gate(&b);
    run_works(&b);
    ok(!is_held(&b, "snap-3-0-1"), "the rank moves while it is made: it is not");
    bed_close(&b);
}

/* The run ends: nothing stays, and nobody is told. */
static void test_ahead_destroyed(void)
{
    char path[PATH_MAX];
    struct bed b;

    bed_open(&b, 1 << 20);
    save(&b, 0, 10, UUID(1));
    run_works(&b);
    close_gate(&b);
    snap_hold_make_ahead(b.hold, 0);
    snprintf(path, sizeof(path), "%s/other", b.dir);
    mkdir(path, 0700); /* as if the thread had come first */
    snap_hold_remove(b.hold);
    rmdir(path);
    snap_hold_destroy(b.hold);
    b.hold = NULL;
    open_gate(&b);
    run_works(&b);
    ok(access(b.dir, F_OK) < 0, "no file is left, nor the directory");
    is_int(b.n_begun, 1, "nobody is told");
    bed_close(&b);
}

/* What an agent before this one has left is of use, and stays. */
static void test_ahead_next_agent(void)
{
    struct bed b;
    const struct snap *found;

    bed_open(&b, 1 << 20);
    save(&b, 0, 10, UUID(1));
    save(&b, 0, 20, UUID(2));
    run_until(&b, &b.n_written, 2);
    snap_hold_settle(b.hold, UUID(1), true);
    snap_hold_settle(b.hold, UUID(2), true);
    snap_hold_destroy(b.hold);
    make_hold(&b, 1 << 20);
    is_int(save(&b, 0, 30, UUID(3)), 0, "the next agent takes the first one");
    snap_hold_make_ahead(b.hold, 0);
    run_until(&b, &b.n_written, 3);
    found = snap_hold_find(b.hold, 0, "");
    ok(found && found->head.step == 20, "and leaves the second one");
    bed_close(&b);
}

static void test_ahead_of_copies(void)
{
    struct bed b;

    bed_open(&b, 1 << 20);
    snap_hold_destroy(b.hold);
    make_hold_of(&b, 1 << 20, "copy");
    save(&b, 0, 10, UUID(1));
    snap_hold_make_ahead(b.hold, 0);
    run_works(&b);
    ok(!is_held(&b, "copy-3-0-1"), "nothing is made ahead for copies");
    bed_close(&b);
}

int main(void)
{
    test_save();
    test_next_agent();
    test_moved();
    test_refused();
    test_busy();
    test_no_disk();
    test_destroyed();
    test_copies();
    test_ahead();
    test_ahead_awaited(ROOM);
    test_ahead_awaited(2 * ROOM);
    test_ahead_no_room();
    test_ahead_gives_way();
    test_ahead_moved();
    test_ahead_destroyed();
    test_ahead_next_agent();
    test_ahead_of_copies();
    return tap_done();
}
