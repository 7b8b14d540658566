/* SPDX-License-Identifier: Apache-2.0 */
/* What a run that watches a directory removes from it, and how. */
#include <config.h>

#include "ckpt/watch.h"

#include "ckpt/found_bed.h"
#include "ckpt/held.h"
#include "ckpt/step_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct bench {
    char path[FOUND_BED_PATH_BYTES];
    int dir;
    struct watch w;
    char removed[1024]; /* names, each with a blank behind it */
};

static void setup(struct bench *b)
{
    *b = (struct bench){.w = {.io = io_system()}};
    b->dir = found_bed_open(b->path);
}

static void teardown(struct bench *b)
{
    watch_release(&b->w);
    found_bed_close(b->dir, b->path);
}

/* As the Trainer leaves it, with a loss; `is_cut`: its weights are. */
static void put_trainer(const struct bench *b, unsigned step, const char *loss, bool is_cut)
{
    static const char weights[] = "\2\0\0\0\0\0\0\0{}";
    char dir[32], name[64], state[128];

    snprintf(dir, sizeof(dir), "checkpoint-%u", step);
    mkdirat(b->dir, dir, 0700);
    snprintf(name, sizeof(name), "%s/model.safetensors", dir);
    found_bed_put(b->dir, name, weights, sizeof(weights) - 1 - is_cut);
    snprintf(name, sizeof(name), "%s/trainer_state.json", dir);
    snprintf(state, sizeof(state),
             "{\"global_step\":%u,\"log_history\":[{\"loss\":%s}]}", step, loss);
    found_bed_put(b->dir, name, state, strlen(state));
}

static void look(struct bench *b)
{
    if (watch_look(&b->w, b->dir, NULL) < 0 || watch_look(&b->w, b->dir, NULL) < 0) {
        bail_out("no look at %s", b->path);
    }
}

/* All of them, or the newest until `n` are whole. */
static void check(struct bench *b, size_t n)
{
    for (struct watch_entry *e; (e = watch_next(&b->w, n));) {
        (void)watch_check(&b->w, b->dir, e);
    }
}

static void put_rank(const struct bench *b, unsigned step, unsigned rank, size_t cut)
{
    static const char weights[] = "\2\0\0\0\0\0\0\0{}";
    char name[64];

    snprintf(name, sizeof(name), "step%u_rank%u.safetensors", step, rank);
    found_bed_put(b->dir, name, weights, sizeof(weights) - 1 - cut);
}

static void on_removed(void *arg, const struct watch_entry *entry)
{
    struct bench *b = arg;
    size_t at = strlen(b->removed);

    snprintf(b->removed + at, sizeof(b->removed) - at, "%s ", entry->found.name);
}

static void retain_by(struct bench *b, unsigned keep, const char *best, const char *pinned,
                      const char *want, const char *what)
{
    const struct retain_rule rule = {.keep = keep};

    b->removed[0] = '\0';
    is_int(watch_retain(&b->w, b->dir, &rule, best, pinned, on_removed, b), 0, "%s", what);
    is_str(b->removed, want, "which go");
}

/* The newest stays, and what has the lowest loss. */
static void retain(struct bench *b, const char *pinned, const char *want, const char *what)
{
    retain_by(b, 1, "loss", pinned, want, what);
}

/* --- the best --- */

static void put_four(struct bench *b, bool is_cut)
{
    setup(b);
    put_trainer(b, 10, "2.0", false);
    put_trainer(b, 20, "1.0", is_cut);
    put_trainer(b, 30, "3.0", false);
    put_trainer(b, 40, "4.0", false);
    look(b);
}

static void test_best(void)
{
    struct bench b;

    put_four(&b, false);
    check(&b, 9);
    retain(&b, NULL, "checkpoint-30 checkpoint-10 ", "the best stays");
    teardown(&b);

    put_four(&b, true);
    check(&b, 9);
    retain(&b, NULL, "checkpoint-30 checkpoint-20 ", "one that is broken is not the best");
    teardown(&b);
}

/* Those of a run before were looked at by nobody. */
static void test_best_unread(void)
{
    struct bench b;

    put_four(&b, true);
    check(&b, 1);
    ok(!b.w.entries[2].is_checked, "only the newest was read");
    retain(&b, NULL, "checkpoint-30 checkpoint-20 ", "what may be the best is read first");
    ok(b.w.entries[2].is_checked && b.w.entries[2].rc < 0, "and is found to be broken");
    ok(b.w.entries[3].is_checked && b.w.entries[3].rc == 0, "so is the next one");
    ok(!b.w.entries[1].is_checked, "and no other");
    teardown(&b);
}

/* One that is written to may be the best once it is done, and then is looked at. */
static void test_best_written(void)
{
    struct bench b;

    put_four(&b, false);
    check(&b, 9);
    put_trainer(&b, 20, "0.125", false);
    if (watch_look(&b.w, b.dir, NULL) < 0) {
        bail_out("no look");
    }
    retain(&b, NULL, "checkpoint-30 ", "the best of the others stays meanwhile");
    teardown(&b);
}

/* Of those that are asked for their metric, the newest first, the third cannot be read. */
static int n_states;

static int bad_open_file(struct io *io, int dir, const char *name)
{
    bool is_bad = strcmp(name, "trainer_state.json") == 0 && ++n_states == 3;

    return is_bad ? -EIO : io_system_ops.open_file(io, dir, name);
}

static void test_best_unreadable(void)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    struct bench b;

    put_four(&b, false);
    check(&b, 9);
    ops.open_file = bad_open_file;
    b.w.io = &io;
    retain(&b, NULL, "checkpoint-30 ", "it may be the best, and stays, and so does that of others");
    is_int(n_states, 4, "each was asked");
    teardown(&b);
}

/* A name that is misspelt, or nothing was evaluated yet. */
static void test_best_none(void)
{
    const struct retain_rule rule = {.keep = 1};
    struct bench b;

    put_four(&b, false);
    check(&b, 9);
    is_int(watch_retain(&b.w, b.dir, &rule, "los", NULL, on_removed, &b), -ENODATA,
           "none has the metric by which the best is to stay");
    is_str(b.removed, "checkpoint-30 checkpoint-20 checkpoint-10 ", "they go all the same");
    retain_by(&b, 4, "los", NULL, "", "which nobody hears of where none would go");
    teardown(&b);
}

/* What is read for being the best is one of those that are whole, from then on. */
static void test_best_counts(void)
{
    struct bench b;

    put_four(&b, false);
    check(&b, 1);
    retain_by(&b, 2, "loss", NULL, "checkpoint-10 ", "two are whole: the newest, and the best");
    teardown(&b);
}

/* It is written to while it is read. */
static struct bench *writing;

static int touch_open_file(struct io *io, int dir, const char *name)
{
    const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = 1}};

    utimensat(writing->dir, "checkpoint-20/model.safetensors", times, 0);
    return io_system_ops.open_file(io, dir, name);
}

static void test_best_written_now(void)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    struct bench b;

    put_four(&b, false);
    check(&b, 1);
    writing = &b;
    ops.open_file = touch_open_file;
    b.w.io = &io;
    retain(&b, NULL, "checkpoint-30 ", "what may be the best stays, and so does that of others");
    teardown(&b);
}

/* --- the largest --- */

static void put_file(const struct bench *b, const char *name)
{
    found_bed_put(b->dir, name, "\2\0\0\0\0\0\0\0{}", 10);
}

static void test_largest(void)
{
    struct bench b;

    setup(&b);
    put_trainer(&b, 10, "1.0", false);
    put_trainer(&b, 20, "1.0", false);
    look(&b);
    put_trainer(&b, 30, "1.0", false);
    if (watch_look(&b.w, b.dir, NULL) < 0) {
        bail_out("no look");
    }
    (void)watch_check(&b.w, b.dir, &b.w.entries[2]);
    retain_by(&b, 1, NULL, NULL, "checkpoint-10 ", "what is read now is whole, and older ones go");
    ok(!b.w.entries[0].is_checked && b.w.entries[1].is_checked,
       "it is the newest of those that nobody writes to");
    teardown(&b);

    setup(&b);
    put_trainer(&b, 10, "1.0", false);
    put_trainer(&b, 20, "1.0", false);
    put_file(&b, "step20.safetensors");
    look(&b);
    (void)watch_check(&b.w, b.dir, &b.w.entries[2]);
    retain_by(&b, 2, NULL, NULL, "", "two of one step, and one of them was read");
    ok(b.w.entries[0].is_checked + b.w.entries[1].is_checked == 1, "that alone counts as whole");
    teardown(&b);
}

/* Of each series what is largest is read. */
static void test_two_series(void)
{
    struct bench b;

    setup(&b);
    put_file(&b, "a-1.safetensors");
    put_file(&b, "a-2.safetensors");
    put_file(&b, "b-1.safetensors");
    put_file(&b, "b-2.safetensors");
    look(&b);
    for (size_t i = 0; i < b.w.n; i++) {
        if (b.w.entries[i].found.step == 1) {
            (void)watch_check(&b.w, b.dir, &b.w.entries[i]);
        }
    }
    retain_by(&b, 1, NULL, NULL, "b-1.safetensors a-1.safetensors ",
              "of two series the older ones go once the newest are read");
    teardown(&b);
}

static void test_short(void)
{
    struct bench b;

    setup(&b);
    for (unsigned i = 0; i < 5; i++) {
        put_rank(&b, 10 + i / 2 * 10, i % 2, 0);
    }
    look(&b);
    check(&b, 9);
    retain_by(&b, 2, NULL, NULL, "", "the newest lacks a file, and counts for none");
    put_rank(&b, 30, 1, 0);
    look(&b);
    check(&b, 9);
    retain_by(&b, 2, NULL, NULL, "step10_rank1.safetensors step10_rank0.safetensors ",
              "once that is there it does");
    teardown(&b);
}

/* --- what stays --- */

static void test_not_ours(void)
{
    struct bench b;

    setup(&b);
    found_bed_put(b.dir, "step-1.bin", "tokens", 6);
    put_file(&b, "step-2\xff.safetensors");
    put_file(&b, "step-3.safetensors");
    put_file(&b, "step-4.safetensors");
    look(&b);
    check(&b, 9);
    retain_by(&b, 1, NULL, NULL, "step-3.safetensors ", "nothing goes that was never seen whole");
    is_int(watch_retain(&b.w, -1, &(struct retain_rule){.keep = 1}, NULL, NULL, on_removed, &b),
           -EBADF, "nor anything where nobody knows what programs name as their last");
    is_str(b.removed, "step-3.safetensors ", "none");
    teardown(&b);
}

static void test_pinned(void)
{
    struct bench b;

    put_four(&b, false);
    check(&b, 9);
    retain(&b, "checkpoint-30", "checkpoint-10 ", "what the run starts from stays");
    retain(&b, "checkpoint-3", "checkpoint-30 checkpoint-10 ", "by its whole name");
    teardown(&b);
}

/* Whoever reads one has said so, or holds it. */
static void test_read_by_others(void)
{
    struct bench b;
    int fd;

    put_four(&b, false);
    check(&b, 9);
    b.w.held = "checkpoint-30";
    retain(&b, NULL, "checkpoint-10 ", "what is told to be read stays");
    b.w.held = "";
    fd = held_take(b.dir, "checkpoint-10");
    ok(fd >= 0, "one is held");
    retain(&b, NULL, "checkpoint-30 ", "and stays");
    ok(!held_is(b.dir, "checkpoint-30"), "the other is not held by whoever has asked");
    close(fd);
    retain(&b, NULL, "checkpoint-30 checkpoint-10 ", "as long as it is");
    found_bed_put(b.dir, "latest", "checkpoint-10", 13);
    retain(&b, NULL, "checkpoint-30 ", "what a program starts from by a file of its own stays");
    unlinkat(b.dir, "latest", 0);
    symlinkat("checkpoint-30", b.dir, "last");
    retain(&b, NULL, "checkpoint-10 ", "or by a link");
    teardown(&b);
}

/* The run that saves them looks after them. */
static void test_own(void)
{
    struct bench b;

    setup(&b);
    for (uint64_t step = 1; step <= 3; step++) {
        if (bed_save(io_system(), b.dir, step, step, NULL) < 0) {
            bail_out("no checkpoint");
        }
    }
    look(&b);
    check(&b, 9);
    ok(b.w.n == 3 && b.w.entries[2].rc == 0, "three of muster's own are whole");
    retain(&b, NULL, "", "none of them is removed here");
    teardown(&b);
}

/* --- removing --- */

static bool is_there(const struct bench *b, const char *name)
{
    return faccessat(b->dir, name, F_OK, 0) == 0;
}

/* In place of libc's. */
static bool no_sync;

int fsync(int fd)
{
    errno = EIO;
    return no_sync ? -1 : (int)syscall(SYS_fsync, fd);
}

static void test_remove(void)
{
    char longest[NAME_MAX + 1] = "";
    struct error e = {0};
    struct bench b;

    setup(&b);
    put_trainer(&b, 10, "1.0", false);
    put_trainer(&b, 20, "1.0", false);
    mkdirat(b.dir, ".muster-old-checkpoint-10", 0700);
    found_bed_put(b.dir, ".muster-old-checkpoint-10/left", "x", 1); /* of somebody who was killed */
    is_int(watch_remove(b.dir, b.path, "checkpoint-10", &e), 0, "removed: %s", e.text);
    ok(!is_there(&b, "checkpoint-10") && !is_there(&b, ".muster-old-checkpoint-10"),
       "nothing is left of it");
    ok(is_there(&b, "checkpoint-20/model.safetensors"), "nor missing of others");
    is_int(watch_remove(b.dir, b.path, "checkpoint-10", &e), 0, "one that is gone");
    is_str(e.text, "", "without a word");
    no_sync = true;
    is_int(watch_remove(b.dir, b.path, "checkpoint-20", &e), -EIO, "a name that may come back");
    no_sync = false;
    like(e.text, "/checkpoint-20: Input/output error", "of what");
    ok(is_there(&b, ".muster-old-checkpoint-20/model.safetensors"), "has all of its files");
    put_trainer(&b, 20, "1.0", false);
    found_bed_put(b.dir, "m-1.pt", "x", 1);
    is_int(watch_remove(b.dir, b.path, "m-1.pt", &e), 0, "a file");
    ok(!is_there(&b, "m-1.pt") && !is_there(&b, ".muster-old-m-1.pt"), "likewise");
    memset(longest, 'n', NAME_MAX);
    found_bed_put(b.dir, longest, "x", 1);
    is_int(watch_remove(b.dir, b.path, longest, &e), 0, "one of the longest name: %s", e.text);
    ok(!is_there(&b, longest), "it is gone");
    teardown(&b);
}

static void test_sweep(void)
{
    struct bench b;

    setup(&b);
    mkdirat(b.dir, ".muster-old-a", 0700);
    found_bed_put(b.dir, ".muster-old-a/x", "x", 1);
    found_bed_put(b.dir, ".muster-old-b", "x", 1);
    found_bed_put(b.dir, ".muster-copy-c", "x", 1);
    found_bed_put(b.dir, "muster-old-d", "x", 1);
    found_bed_put(b.dir, "x.muster-old-e", "x", 1);
    is_int(watch_sweep(b.dir, b.path, NULL), 0, "a sweep");
    ok(!is_there(&b, ".muster-old-a") && !is_there(&b, ".muster-old-b"),
       "what was begun to be removed goes");
    is_int(watch_sweep(-1, b.path, NULL), -EBADF, "a directory that cannot be listed");
    ok(is_there(&b, ".muster-copy-c") && is_there(&b, "muster-old-d") &&
       is_there(&b, "x.muster-old-e"), "and nothing else");
    teardown(&b);
}

/* In place of libc's: a name that nobody may remove, and one that is at work. */
static const char *held = "";

int unlinkat(int at, const char *name, int flags)
{
    if (strcmp(name, "busy") == 0 && held[0]) {
        errno = EBUSY;
        return -1;
    }
    if (strcmp(name, held) == 0) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, at, name, flags);
}

/* What cannot be removed is told of each time, and keeps nothing else. */
static void test_held(void)
{
    struct error e = {0};
    struct bench b;

    setup(&b);
    put_trainer(&b, 10, "1.0", false);
    found_bed_put(b.dir, "checkpoint-10/held", "x", 1);
    held = "held";
    is_int(watch_remove(b.dir, b.path, "checkpoint-10", &e), -EPERM, "a file of it stays");
    like(e.text, "/.muster-old-checkpoint-10/held: Operation not permitted", "which is named");
    for (char c = 'a'; c <= 'd'; c++) {
        char name[] = ".muster-old-?";

        name[sizeof(name) - 2] = c;
        found_bed_put(b.dir, name, "x", 1);
    }
    for (int i = 0; i < 2; i++) {
        e = (struct error){0};
        is_int(watch_sweep(b.dir, b.path, &e), -EPERM, "it stays where others go");
        like(e.text, "/.muster-old-checkpoint-10/held: Operation not permitted", "and is told");
    }
    ok(!is_there(&b, ".muster-old-a") && !is_there(&b, ".muster-old-b") &&
           !is_there(&b, ".muster-old-c") && !is_there(&b, ".muster-old-d"),
       "others are gone");
    held = "";
    is_int(watch_sweep(b.dir, b.path, &e), 0, "once it may be removed");
    ok(!is_there(&b, ".muster-old-checkpoint-10"), "it is");
    teardown(&b);
}

/* Whichever comes first is told. */
static void test_held_first(void)
{
    struct error e = {0};
    struct bench b;
    int rc;

    setup(&b);
    for (char c = 'a'; c <= 'b'; c++) {
        char name[] = ".muster-old-?/busy";

        name[12] = c;
        name[13] = '\0';
        mkdirat(b.dir, name, 0700);
        name[13] = '/';
        memcpy(name + 14, c == 'a' ? "held" : "busy", 4);
        found_bed_put(b.dir, name, "x", 1);
    }
    held = "held";
    rc = watch_sweep(b.dir, b.path, &e);
    ok(rc == -EPERM || rc == -EBUSY, "two cannot be removed");
    is_int(-e.code, rc, "the first is told, as it was");
    like(e.text, rc == -EPERM ? "/.muster-old-a/held" : "/.muster-old-b/busy", "by its name");
    held = "";
    is_int(watch_sweep(b.dir, b.path, NULL), 0, "then they can");
    teardown(&b);
}

/* A file of each rank: they stay or go together. */
static void test_ranks(void)
{
    struct bench b;

    setup(&b);
    for (unsigned i = 0; i < 9; i++) {
        put_rank(&b, 10 + i / 3 * 10, i % 3, 0);
    }
    look(&b);
    check(&b, 1);
    is_int((int)b.w.entries[2].is_checked, 1, "all of the newest are read");
    is_int((int)b.w.entries[3].is_checked, 0, "and no older ones");
    retain_by(&b, 1, NULL, NULL,
              "step20_rank2.safetensors step20_rank1.safetensors step20_rank0.safetensors "
              "step10_rank2.safetensors step10_rank1.safetensors step10_rank0.safetensors ",
              "the newest stays, with all ranks");
    put_rank(&b, 30, 0, 1);
    look(&b);
    check(&b, 1);
    retain_by(&b, 1, NULL, NULL,
              "step10_rank2.safetensors step10_rank1.safetensors step10_rank0.safetensors ",
              "where one of it is damaged the one before stays, too");
    teardown(&b);
}

/* Two that lack their last rank may be of fewer, and what is read for once is the newest
 * of those with more. */
static void test_fewer_ranks(void)
{
    struct bench b;

    setup(&b);
    for (unsigned i = 0; i < 6; i++) {
        put_rank(&b, 10 + i / 2 * 10, i % 2, i == 5);
    }
    put_rank(&b, 40, 0, 0);
    put_rank(&b, 50, 0, 0);
    look(&b);
    check(&b, 2);
    ok(!b.w.entries[2].is_checked, "the two newest are read");
    retain_by(&b, 1, NULL, NULL,
              "step30_rank1.safetensors step30_rank0.safetensors step10_rank1.safetensors "
              "step10_rank0.safetensors ", "the newest of most files that is whole stays");
    ok(b.w.entries[2].is_checked && b.w.entries[2].rc < 0 && b.w.entries[5].is_checked &&
       !b.w.entries[6].is_checked, "which was read, and no older one");
    teardown(&b);
}

int main(void)
{
    test_ranks();
    test_fewer_ranks();
    test_best();
    test_best_unread();
    test_best_written();
    test_best_unreadable();
    test_best_none();
    test_best_counts();
    test_best_written_now();
    test_largest();
    test_two_series();
    test_short();
    test_not_ours();
    test_pinned();
    test_read_by_others();
    test_own();
    test_remove();
    test_sweep();
    test_held();
    test_held_first();
    return tap_done();
}
