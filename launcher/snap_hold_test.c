/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent holds: memory comes, goes to the disk one after the other, is found,
 * and found again by the next agent; too much is refused with numbers.
 */
#include <config.h>

#include "launcher/hold_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/step.h"
#include "launcher/snap_hold_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_in(const struct hold_bed *b, uint64_t step, const char *uuid,
                  const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    step_name(step, uuid, name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return access(path, F_OK) == 0;
}

static void test_save(void)
{
    struct hold_bed b;
    const struct snap *found;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_save(&b, 3, 10, UUID(1)), 0, "a save");
    hold_bed_run_until(&b, &b.said.n_written, 1);
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
    is_int(hold_bed_save(&b, 3, 20, UUID(2)), 0, "another one");
    hold_bed_run_until(&b, &b.said.n_written, 2);
    ok(snap_hold_find(b.hold, 3, "")->head.step == 10, "leaves the first alone");
    snap_hold_settle(b.hold, UUID(2), false);
    ok(!snap_hold_find(b.hold, 3, UUID(2)), "what came to nothing is gone");
    hold_bed_close(&b);
}

/* A worker waits: no thread is asked for what is there, and none hands out too little. */
static void test_at_once(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_begin_later(&b, 0, 10, UUID(1), HOLD_ROOM);
    is_int(b.said.n_begun, 0, "memory that is not there comes later");
    hold_bed_run_until(&b, &b.said.n_begun, 1);
    snap_hold_settle(b.hold, UUID(1), false);
    hold_bed_begin_later(&b, 0, 20, UUID(2), HOLD_ROOM);
    ok(b.said.n_begun == 2 && b.said.snap && b.said.snap->head.step == 20 &&
           strcmp(b.said.snap->head.uuid, UUID(2)) == 0,
       "what is there comes at once");
    snap_hold_settle(b.hold, UUID(2), false);
    hold_bed_begin_later(&b, 0, 30, UUID(3), 2 * HOLD_ROOM);
    is_int(b.said.n_begun, 2, "but not where there is too little");
    hold_bed_run_until(&b, &b.said.n_begun, 3);
    ok(b.said.snap && b.said.snap->room >= 2 * HOLD_ROOM, "which is made");
    hold_bed_close(&b);
}

/* The agent dies, and another one comes. */
static void test_next_agent(void)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct hold_bed b;
    const struct snap *found;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 10, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_settle(b.hold, UUID(1), true);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, NULL);
    found = snap_hold_find(b.hold, 0, "");
    ok(found && found->head.step == 10 && snap_verify(found, NULL) == 0,
       "the next agent finds it");
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, NULL);
    snap_hold_serve(b.hold, 0, 2);
    found = snap_hold_find(b.hold, 0, "");
    ok(found && found->head.step == 10, "also one whose workers save before they load");
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, NULL);
    snprintf(from, sizeof(from), "%s/snap-3-0-0", b.dir);
    snprintf(to, sizeof(to), "%s/snap-3-1-0", b.dir);
    ok(rename(from, to) == 0 && !snap_hold_find(b.hold, 1, UUID(1)),
       "under another rank's name it is nobody's");
    rename(to, from);
    ok(snap_hold_find(b.hold, 0, UUID(1)) != NULL, "and under its own it is there");
    snap_hold_remove(b.hold);
    ok(access(b.dir, F_OK) < 0, "and removes it");
    hold_bed_close(&b);
}

struct recalled {
    unsigned n;
    bool has_full, has_written, has_other;
};

static void on_recalled(void *arg, const struct snap_head *head)
{
    struct recalled *r = arg;

    r->n++;
    r->has_full |= head->rank == 0 && head->step == 10 && head->state == SNAP_FULL;
    r->has_written |= head->rank == 1 && head->step == 20 && head->state == SNAP_WRITTEN;
    r->has_other |= head->rank > 1;
}

/* What had not become a checkpoint when the agent died is told of; all else is not. */
static void test_recall(void)
{
    struct recalled r = {0};
    struct hold_bed b;
    char path[PATH_MAX];
    FILE *junk;

    hold_bed_open(&b, 1 << 20);
    snap_hold_recall(b.hold, on_recalled, &r);
    is_int(r.n, 0, "nothing was left");
    hold_bed_begin(&b, 0, 10, UUID(1), HOLD_ROOM);
    is_int(snap_hold_stay(b.hold, 0, UUID(1), 5000, 100, NULL), 0, "one in memory");
    hold_bed_save(&b, 1, 20, UUID(2));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    hold_bed_save(&b, 2, 30, UUID(3));
    hold_bed_run_until(&b, &b.said.n_written, 2);
    snap_hold_settle(b.hold, UUID(3), true);
    hold_bed_begin(&b, 3, 40, UUID(4), HOLD_ROOM);
    snprintf(path, sizeof(path), "%s/snap-3-5-0", b.dir);
    junk = fopen(path, "w");
    ok(junk && fputs("no snapshot", junk) >= 0 && fclose(junk) == 0,
       "one on the disk, a checkpoint, one that is being filled, and a file that is none");
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, NULL);
    snap_hold_recall(b.hold, on_recalled, &r);
    ok(r.n == 2 && r.has_full && r.has_written && !r.has_other,
       "the next agent is told of the first two: %u", r.n);
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "it may write the first");
    hold_bed_run_until(&b, &b.said.n_written, 3);
    ok(is_in(&b, 10, UUID(1), "r00000.safetensors"), "which gets to the disk");
    hold_bed_close(&b);
}

/* Others could have made its directory before: what workers save is for no one else. */
static void test_directory(void)
{
    static const mode_t open_to[] = {0710, 0701, 0750, 0705, 0720, 0702};
    struct hold_bed b;
    char away[PATH_MAX];

    hold_bed_open(&b, 1 << 20);
    mkdir(b.dir, 0700);
    for (size_t i = 0; i < ARRAY_SIZE(open_to); i++) {
        chmod(b.dir, open_to[i]);
        is_int(hold_bed_save(&b, 0, 10, UUID(1)), -EPERM, "a directory of mode %o",
               (unsigned)open_to[i]);
    }
    like(b.said.error.text, "shm belongs to somebody else", "and why");
    chmod(b.dir, 0700);
    snprintf(away, sizeof(away), "%.200s.away", b.dir);
    ok(rename(b.dir, away) == 0 && symlink(away, b.dir) == 0, "it is a link");
    ok(hold_bed_save(&b, 0, 10, UUID(1)) < 0, "which is not followed");
    ok(unlink(b.dir) == 0, "the link goes");
    if (geteuid() == 0) {
        mkdir(b.dir, 0700);
        ok(chown(b.dir, 1, 1) == 0 && hold_bed_save(&b, 0, 10, UUID(1)) == -EPERM,
           "one of another user, whom root need not trust");
        rmdir(b.dir);
    } else {
        skip("not root");
    }
    is_int(hold_bed_save(&b, 0, 10, UUID(1)), 0, "one of its own");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    hold_bed_close(&b);
}

/* Cuts what rank 3 has in the first of its two places. */
static void cut(const struct hold_bed *b)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/snap-3-3-0", b->dir);
    ok(truncate(path, 0) == 0, "a worker cuts its memory");
}

/* Workers can open that memory, and cut it: their save fails, and nobody else. */
static void test_cut(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_begin(&b, 3, 10, UUID(1), HOLD_ROOM);
    memset(b.said.snap->map + SNAP_PAGE_BYTES, 1, 5000);
    cut(&b);
    is_int(snap_hold_done(b.hold, 3, UUID(1), 5000, 100, &b.said.error), -EIO,
           "before it is handed over it is refused");
    like(b.said.error.text, "has cut the shared memory that step 10 of rank 3",
         "and why");
    is_int(hold_bed_begin(&b, 3, 20, UUID(2), HOLD_ROOM), 0, "the next save has memory again");
    memset(b.said.snap->map + SNAP_PAGE_BYTES, 1, 5000);
    snap_jam_begin(&b.jam, &b.loop); /* no thread writes it before it is cut */
    is_int(snap_hold_done(b.hold, 3, UUID(2), 5000, 100, &b.said.error), 0, "it is handed over");
    cut(&b);
    snap_jam_end(&b.jam);
    hold_bed_run_until(&b, &b.said.n_failed, 1);
    is_int(b.said.error.code, EIO, "one that is cut before it is on the disk fails");
    like(b.said.error.text, "has cut the shared memory that step 20", "and why");
    ok(!is_in(&b, 20, UUID(2), "r00003.safetensors"), "nothing is left of it");
    b.said.error = (struct error){0};
    hold_bed_save(&b, 3, 30, UUID(3));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    is_int(b.said.error.code, 0, "the next one is written");
    cut(&b);
    snap_hold_settle(b.hold, UUID(3), true);
    ok(snap_hold_find(b.hold, 3, ""), "one that is cut later is on the disk");
    hold_bed_close(&b);
}

/* Ranks move: what they have left is of no use here. */
static void test_moved(void)
{
    _close_ int others = -1;
    char path[PATH_MAX];
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 4, 10, UUID(1));
    hold_bed_save(&b, 5, 10, UUID(1));
    snap_hold_serve(b.hold, 5, 2);
    snap_hold_settle(b.hold, UUID(2), true);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    ok(is_in(&b, 10, UUID(1), "r00004.part"), "what is on its way gets there");
    snap_hold_settle(b.hold, UUID(1), true);
    ok(!hold_bed_has(&b, "snap-3-4-0") && !snap_hold_find(b.hold, 4, UUID(1)),
       "then the memory of one that has moved goes");
    ok(hold_bed_has(&b, "snap-3-5-0") && snap_hold_find(b.hold, 5, UUID(1)),
       "that of one who is here stays");
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, NULL);
    snprintf(path, sizeof(path), "%s/snap-2-5-0", b.dir);
    others = open(path, O_CREAT | O_WRONLY, 0600);
    snap_hold_serve(b.hold, 4, 1);
    ok(!hold_bed_has(&b, "snap-3-5-0"), "what an agent before this one has left goes");
    ok(hold_bed_has(&b, "snap-2-5-0"), "another agent's stays");
    snprintf(path, sizeof(path), "%s/snap-3-9-0", b.dir);
    ok(mkfifo(path, 0600) == 0, "a worker has put a pipe there, which nobody writes to");
    alarm(60); /* in place of an end */
    snap_hold_serve(b.hold, 4, 1);
    alarm(0);
    ok(!hold_bed_has(&b, "snap-3-9-0"), "it goes, and holds up nobody");
    hold_bed_close(&b);
}

/* One that is read stays when ranks move, and its file. */
static void test_pinned(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 4, 10, UUID(1));
    hold_bed_save(&b, 5, 10, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 2);
    ok(snap_hold_pin(b.hold, 4, UUID(1)) && snap_hold_pin(b.hold, 5, UUID(1)),
       "both ranks of a save are read");
    snap_hold_unpin(b.hold, 4, UUID(1));
    snap_hold_serve(b.hold, 7, 1);
    ok(!snap_hold_get(b.hold, 4, UUID(1)) && !hold_bed_has(&b, "snap-3-4-0"),
       "one no more: it goes");
    ok(snap_hold_get(b.hold, 5, UUID(1)) && hold_bed_has(&b, "snap-3-5-0"),
       "the other one stays, and its file");
    snap_hold_unpin(b.hold, 5, UUID(1));
    hold_bed_close(&b);
}

static void test_refused(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 3 * HOLD_ROOM);
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), 4 * HOLD_ROOM), -ENOMEM,
           "more than there is");
    like(b.said.error.text, "does not fit into 0 MiB, all that this test has",
         "with the numbers");
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), HOLD_ROOM), 0, "a first one");
    is_int(hold_bed_begin(&b, 1, 1, UUID(1), 2 * HOLD_ROOM), 0, "and a second one");
    is_int(hold_bed_begin(&b, 2, 1, UUID(1), HOLD_ROOM), -ENOMEM, "but no third one");
    is_int(snap_hold_done(b.hold, 0, UUID(2), 1, 1, NULL), -ENOENT,
           "one that was not begun");
    is_int(snap_hold_done(b.hold, 0, UUID(1), HOLD_ROOM, SNAP_PAGE_BYTES, NULL),
           -EINVAL, "more than was asked for");
    is_int(hold_bed_begin(&b, 0, 2, UUID(2), HOLD_ROOM), 0, "another one");
    is_int(snap_hold_done(b.hold, 0, UUID(2), UINT64_MAX - 100, SNAP_PAGE_BYTES, NULL),
           -EINVAL, "so much more that sums of it are small");
    is_int(hold_bed_begin(&b, 0, 2, UUID(2), HOLD_ROOM), 0, "the same with a part");
    is_int(snap_hold_done(b.hold, 0, UUID(2), 1, UINT64_MAX - 100, NULL), -EINVAL,
           "of that length");
    is_int(snap_hold_done(b.hold, 0, UUID(2), 1, 1, NULL), -ENOENT,
           "is none any more");
    hold_bed_close(&b);
}

/* Nobody takes what is on its way. */
static void test_busy(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_stay(&b, 0, 1, UUID(1)), 0, "one is filled");
    is_int(hold_bed_stay(&b, 0, 2, UUID(2)), 0, "two are");
    snap_jam_begin(&b.jam, &b.loop); /* neither gets to the disk */
    snap_hold_drain(b.hold, 0, UUID(1));
    snap_hold_drain(b.hold, 0, UUID(2));
    is_int(snap_hold_n_writing(b.hold), 2, "and on their way");
    is_int(hold_bed_begin(&b, 0, 3, UUID(3), HOLD_ROOM), -EBUSY, "a third one waits");
    snap_jam_end(&b.jam);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    is_int(snap_hold_n_writing(b.hold), 0, "all are written");
    is_int(hold_bed_begin(&b, 0, 3, UUID(3), HOLD_ROOM), 0, "and there is room");
    hold_bed_close(&b);
}

static unsigned n_recalled(struct hold_bed *b)
{
    struct recalled r = {0};

    snap_hold_recall(b->hold, on_recalled, &r);
    return r.n;
}

static void test_no_disk(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    fs_remove_tree(b.root, NULL);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a save");
    hold_bed_run_until(&b, &b.said.n_failed, 1);
    is_int(b.said.error.code, ENOENT, "for which there is no directory");
    is_int(snap_hold_n_writing(b.hold), 0, "is not on its way any more");
    snap_hold_put_off(b.hold, UUID(1));
    is_int(n_recalled(&b), 1, "but in memory still");
    is_int(mkdir(b.root, 0700), 0, "a directory comes");
    is_int(snap_hold_write(b.hold, 0, UUID(1), NULL), 0, "and another try");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    is_int(b.said.n_failed, 1, "gets there");
    snap_hold_settle(b.hold, UUID(1), true);
    is_int(n_recalled(&b), 0, "what is part of a checkpoint is tried no more");
    hold_bed_close(&b);
}

/* Tried again it would come after what all have by now. */
static void test_put_off_for_good(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a save is written");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_put_off(b.hold, UUID(1));
    is_int(n_recalled(&b), 1, "but other ranks had no room: it is there for another try");
    is_int(hold_bed_save(&b, 0, 2, UUID(2)), 0, "the next one");
    hold_bed_run_until(&b, &b.said.n_written, 2);
    snap_hold_settle(b.hold, UUID(2), true);
    is_int(n_recalled(&b), 0, "is a checkpoint: nobody needs the one before");
    is_int(hold_bed_save(&b, 0, 3, UUID(3)), 0, "whose memory is the next one's");
    hold_bed_run_until(&b, &b.said.n_written, 3);
    ok(!snap_hold_get(b.hold, 0, UUID(1)), "and gone");
    hold_bed_close(&b);
}

/* Workers that start from an older checkpoint save lower steps: the one that was saved
 * first goes first all the same. */
static void test_down(void)
{
    const struct snap_rank who = {.n_ranks = 4, .generation = 3, .token = 10};
    const struct snap *found;
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 100, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_settle(b.hold, UUID(1), true);
    is_int(snap_hold_begin(b.hold, &who, 50, UUID(2), b.root, HOLD_ROOM, 0, NULL), 0,
           "the next generation saves an earlier step");
    hold_bed_run_until(&b, &b.said.n_begun, 2);
    snap_hold_done(b.hold, 0, UUID(2), 5000, 100, NULL);
    hold_bed_run_until(&b, &b.said.n_written, 2);
    snap_hold_settle(b.hold, UUID(2), true);
    found = snap_hold_find(b.hold, 0, "");
    ok(found && found->head.step == 50, "which is the newest now");
    is_int(snap_hold_begin(b.hold, &who, 60, UUID(3), b.root, HOLD_ROOM, 0, NULL), 0,
           "another one");
    hold_bed_run_until(&b, &b.said.n_begun, 3);
    ok(snap_hold_find(b.hold, 0, UUID(2)) && !snap_hold_find(b.hold, 0, UUID(1)),
       "takes the place of the first");
    hold_bed_close(&b);
}

/* Of one step, that is saved again and again, the one that was saved last stays. */
static void test_again(void)
{
#define SAVE(digit) #digit "0000000000000000000000000000000"
    static const char *const uuids[] = {SAVE(3), SAVE(1), SAVE(4), SAVE(2)};
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    for (unsigned i = 0; i < 4; i++) {
        const struct snap_rank who = {.n_ranks = 4, .generation = 3,
                                      .token = UINT64_C(3) << 32 | i};
        const struct snap *found;

        is_int(snap_hold_begin(b.hold, &who, 50, uuids[i], b.root, HOLD_ROOM, 0, NULL), 0,
               "save %u of a step", i + 1);
        hold_bed_run_until(&b, &b.said.n_begun, i + 1);
        ok(i == 0 || snap_hold_get(b.hold, 0, uuids[i - 1]), "the one before it stays");
        ok(i < 2 || !snap_hold_get(b.hold, 0, uuids[i - 2]), "and gives its place to none");
        snap_hold_done(b.hold, 0, uuids[i], 5000, 100, NULL);
        hold_bed_run_until(&b, &b.said.n_written, i + 1);
        snap_hold_settle(b.hold, uuids[i], true);
        found = snap_hold_find(b.hold, 0, "");
        ok(found && strcmp(found->head.uuid, uuids[i]) == 0, "it is the newest");
    }
    hold_bed_close(&b);
}

/* Whoever is told to go goes, with all that is on its way. */
static void test_destroyed(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    hold_bed_save(&b, 0, 1, UUID(1));
    hold_bed_save(&b, 1, 1, UUID(1));
    hold_bed_close(&b);
    is_int(b.said.n_failed, 0, "nobody is told afterwards");
}

static bool is_of_nobody(void *arg, uint32_t rank)
{
    (void)arg;
    (void)rank;
    return false;
}

/* Copies of another node's: written only when that is lost, over what it has begun;
 * in memory that this node's own leave, and give back. */
static void test_copies(void)
{
    struct snap_hold *own, *copies;
    struct hold_bed b;
    char dir[160], name[STEP_NAME_BYTES], path[192];

    hold_bed_open(&b, 6 * (HOLD_ROOM + SNAP_PAGE_BYTES));
    own = b.hold;
    hold_bed_make(&b, 6 * (HOLD_ROOM + SNAP_PAGE_BYTES), "copy");
    snap_hold_lend(own, b.hold);
    is_int(hold_bed_save(&b, 2, 10, UUID(1)), 0, "a copy");
    is_int(snap_hold_n_writing(b.hold), 0, "is not written");
    step_name(10, UUID(1), name);
    snprintf(dir, sizeof(dir), "%s/%s", b.root, name);
    fs_mkdirs(dir, NULL);
    snprintf(path, sizeof(path), "%s/r00002.safetensors", dir);
    fs_write_replace(path, "half", 4, NULL);
    is_int(snap_hold_write(b.hold, 2, UUID(2), &b.said.error), -ENOENT,
           "nothing of another save");
    is_int(snap_hold_write(b.hold, 2, UUID(1), &b.said.error), 0,
           "until it is asked for");
    is_int(snap_hold_write(b.hold, 2, UUID(1), &b.said.error), 0,
           "or again");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    is_int(b.said.n_failed, 0, "in place of half a file");
    ok(is_in(&b, 10, UUID(1), "r00002.part"), "with its part");
    is_int(snap_hold_write(b.hold, 2, UUID(1), &b.said.error), 0, "and again,");
    is_int(snap_hold_n_writing(b.hold), 0, "where it is there");

    ok(snap_hold_pin(b.hold, 2, UUID(1)) != NULL, "one that is read");
    snap_hold_keep(b.hold, 100, is_of_nobody, NULL);
    ok(snap_hold_get(b.hold, 2, UUID(1)) != NULL, "stays, though nobody wants it");
    is_int(hold_bed_save(&b, 2, 20, UUID(2)), 0, "another one");
    is_int(hold_bed_save(&b, 2, 30, UUID(3)), 0, "the next one takes its place");
    ok(snap_hold_get(b.hold, 2, UUID(1)) && !snap_hold_get(b.hold, 2, UUID(2)),
       "and not of the one that is read");
    snap_hold_unpin(b.hold, 2, UUID(1));
    is_int(hold_bed_save(&b, 2, 40, UUID(4)), 0, "as soon as it is not");
    ok(!snap_hold_get(b.hold, 2, UUID(1)), "it goes");
    is_int(b.said.n_written, 1, "nothing else was written");

    copies = b.hold;
    b.hold = own;
    is_int(hold_bed_begin(&b, 0, 10, UUID(5), 2 * HOLD_ROOM), 0, "this node's own");
    b.hold = copies;
    is_int(hold_bed_begin(&b, 3, 10, UUID(5), HOLD_ROOM), -ENOMEM,
           "no copy in what it will want: %s", b.said.error.text);
    b.hold = own;
    is_int(hold_bed_begin(&b, 1, 10, UUID(5), 3 * HOLD_ROOM), 0,
           "for its own copies give way");
    ok(!snap_hold_get(copies, 2, UUID(4)), "they are gone");
    snap_hold_lend(own, NULL);
    b.hold = copies;
    is_int(hold_bed_begin(&b, 3, 10, UUID(6), HOLD_ROOM), 0,
           "who lends nothing is not counted: %s", b.said.error.text);
    b.hold = own;
    snap_hold_destroy(copies);
    hold_bed_close(&b);
}

/* Copies as old as what is on the disk stay: who has lost it there reads them. */
static void test_kept(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, "copy");
    hold_bed_save(&b, 2, 10, UUID(1));
    snap_hold_keep(b.hold, 10, is_of_nobody, NULL);
    ok(snap_hold_get(b.hold, 2, UUID(1)) != NULL, "of that very step");
    snap_hold_keep(b.hold, 11, is_of_nobody, NULL);
    ok(!snap_hold_get(b.hold, 2, UUID(1)), "but not of one before it");
    hold_bed_close(&b);
}

/* A copy is offered anew while memory for it is made: that is waited for, and the one
 * before it stays. */
static void test_same_again(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, "copy");
    hold_bed_save(&b, 2, 10, UUID(1));
    snap_jam_begin(&b.jam, &b.loop);
    hold_bed_begin_later(&b, 2, 20, UUID(2), HOLD_ROOM);
    hold_bed_begin_later(&b, 2, 20, UUID(2), HOLD_ROOM);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_int(b.said.n_begun, 2, "who asked last is answered");
    ok(b.said.snap && b.said.snap->head.step == 20, "with memory");
    ok(snap_hold_get(b.hold, 2, UUID(1)) != NULL, "and the one before is there still");
    hold_bed_close(&b);
}

/* Another save of as many bytes is another matter. */
static void test_other_meanwhile(void)
{
    struct hold_bed b;

    hold_bed_open(&b, 1 << 20);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, "copy");
    snap_jam_begin(&b.jam, &b.loop);
    hold_bed_begin_later(&b, 2, 10, UUID(1), HOLD_ROOM);
    hold_bed_begin_later(&b, 2, 20, UUID(2), HOLD_ROOM);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_int(b.said.n_begun, 2, "two saves of a rank, while memory is made: both are answered");
    ok(snap_hold_fill(b.hold, 2, UUID(1)) && snap_hold_fill(b.hold, 2, UUID(2)),
       "with memory of their own");
    hold_bed_close(&b);
}

/* So is one of more bytes, of the same save. */
static void test_more_meanwhile(void)
{
    struct hold_bed b;
    int n_enough = 0;

    hold_bed_open(&b, 1 << 20);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, 1 << 20, "copy");
    snap_jam_begin(&b.jam, &b.loop);
    hold_bed_begin_later(&b, 2, 10, UUID(1), HOLD_ROOM);
    hold_bed_begin_later(&b, 2, 10, UUID(1), 2 * HOLD_ROOM);
    snap_jam_end(&b.jam);
    hold_bed_run_works(&b);
    is_int(b.said.n_begun, 2, "a save grows while memory is made: both are answered");
    for (const struct slot *s = b.hold->slots; s; s = s->next) {
        n_enough += s->snap && s->snap->room >= 2 * HOLD_ROOM;
    }
    is_int(n_enough, 1, "one of them with as much as it takes by then");
    hold_bed_close(&b);
}

int main(void)
{
    mapguard_install();
    test_save();
    test_at_once();
    test_next_agent();
    test_recall();
    test_directory();
    test_cut();
    test_moved();
    test_pinned();
    test_refused();
    test_busy();
    test_no_disk();
    test_put_off_for_good();
    test_down();
    test_again();
    test_destroyed();
    test_copies();
    test_kept();
    test_same_again();
    test_other_meanwhile();
    test_more_meanwhile();
    return tap_done();
}
