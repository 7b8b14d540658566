/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints a program's own saves leave in a directory (ckpt/keep.h). */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/held.h"
#include "ckpt/keep.h"
#include "ckpt/step_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root_path[PATH_MAX];
static int root = -1;

static void make_root(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root_path, sizeof(root_path), "%s/keep_test.XXXXXX", tmp ? tmp : "/tmp");
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    for (uint64_t step = 1; step <= 4; step++) {
        if (bed_save(io_system(), root, step, 1, NULL) < 0) {
            bail_out("no checkpoint of step %llu", (unsigned long long)step);
        }
    }
}

static void remove_root(void)
{
    close(root);
    fs_remove_tree(root_path, NULL);
}

/* The steps whose directories are there, such as "134". */
static const char *steps(void)
{
    static char there[8];
    size_t n = 0;

    for (uint64_t step = 1; step <= 4; step++) {
        char name[STEP_NAME_BYTES];

        bed_name(step, 1, name);
        if (faccessat(root, name, F_OK, 0) == 0) {
            there[n++] = (char)('0' + step);
        }
    }
    there[n] = '\0';
    return there;
}

static int keep(struct io *io, unsigned n, const char *saved)
{
    const struct ckpt_keep want = {.rule.keep = n};

    return keep_apply(io, root, &want, saved, NULL, NULL, NULL);
}

static void test_newest(void)
{
    char oldest[STEP_NAME_BYTES];

    make_root();
    bed_name(1, 1, oldest);
    is_int(keep(io_system(), 2, oldest), 0, "two are to stay");
    is_str(steps(), "134", "and the one that was just saved does as well");
    remove_root();
}

/* By another process, as muster ckpt push. */
static void test_held(void)
{
    char oldest[STEP_NAME_BYTES];
    int held;

    make_root();
    bed_name(1, 1, oldest);
    held = held_take(root, oldest);
    is_int(keep(io_system(), 2, NULL), 0, "two are to stay");
    is_str(steps(), "134", "and the one that somebody copies does as well");
    close(held);
    is_int(keep(io_system(), 2, NULL), 0, "nobody does");
    is_str(steps(), "34", "it goes");
    remove_root();
}

/* As where the process is killed there. */
static int no_unlink(struct io *io, int dir, const char *name)
{
    (void)io, (void)dir, (void)name;
    return -EIO;
}

/* Nobody else would come back for it: it is no checkpoint, and counts as somebody's save. */
static void test_cut(void)
{
    struct io_ops ops = io_system_ops;
    struct io bad = {.ops = &ops};
    char begun[STEP_NAME_BYTES], commit[2 * STEP_NAME_BYTES];

    make_root();
    bed_name(1, 1, begun);
    snprintf(commit, sizeof(commit), "%s/COMMIT", begun);
    if (unlinkat(root, commit, 0) < 0) {
        bail_out("no %s", commit);
    }
    ops.unlink = no_unlink;
    is_int(keep(&bad, 2, NULL), -EIO, "a removal is cut short");
    is_str(steps(), "1234", "something of it is left");
    is_int(keep(io_system(), 2, NULL), 0, "the next save looks again");
    is_str(steps(), "134", "it goes; what is being saved stays");
    remove_root();
}

static void test_first_error(void)
{
    const struct ckpt_keep want = {.rule.keep = 1};
    struct io_ops ops = io_system_ops;
    struct io bad = {.ops = &ops};
    char oldest[STEP_NAME_BYTES];
    struct error e = {0};

    make_root();
    ops.unlink = no_unlink;
    is_int(keep_apply(&bad, root, &want, NULL, NULL, NULL, &e), -EIO, "three cannot be removed");
    bed_name(1, 1, oldest);
    like(e.text, oldest, "the first that was tried is told: %s", e.text);
    remove_root();
}

/* Those that are avoided stand apart: they stay, and count for nothing. */
static void test_avoided(void)
{
    struct ckpt_keep want = {.rule.keep = 2};
    char newest[STEP_NAME_BYTES], oldest[STEP_NAME_BYTES], avoided[3 * STEP_NAME_BYTES];

    make_root();
    bed_name(4, 1, newest);
    bed_name(1, 1, oldest);
    snprintf(avoided, sizeof(avoided), "/c/%s\n", newest);
    is_int(keep_apply(io_system(), root, &want, NULL, avoided, NULL, NULL), 0,
           "the newest is avoided");
    is_str(steps(), "234", "two others stay");
    snprintf(avoided, sizeof(avoided), "/c/%s\n/c/%s\n", newest, oldest);
    remove_root();
    make_root();
    want.rule.keep = 1;
    is_int(keep_apply(io_system(), root, &want, NULL, avoided, NULL, NULL), 0, "and the oldest");
    is_str(steps(), "134", "which stays, too");
    remove_root();
}

/* Nothing is read of one that is avoided: it may be what a program fails of. */
static int n_opened;

static int count_open(struct io *io, int dir, const char *name)
{
    n_opened += strcmp(name, "COMMIT") == 0;
    return io_system_ops.open_file(io, dir, name);
}

static void test_avoided_unread(void)
{
    const struct ckpt_keep want = {.rule.keep = 9};
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    char newest[STEP_NAME_BYTES], avoided[2 * STEP_NAME_BYTES];
    int n_all;

    make_root();
    ops.open_file = count_open;
    bed_name(4, 1, newest);
    snprintf(avoided, sizeof(avoided), "/c/%s\n", newest);
    keep_apply(&io, root, &want, NULL, NULL, NULL, NULL);
    n_all = n_opened;
    n_opened = 0;
    keep_apply(&io, root, &want, NULL, avoided, NULL, NULL);
    ok(n_all > 0 && 4 * n_opened == 3 * n_all, "of four that are read, three with one avoided");
    remove_root();
}

/* Only who wants a best lacks it. */
static void test_lacks_best(void)
{
    struct ckpt_keep want = {.rule.keep = 2};
    bool lacks = true;

    make_root();
    is_int(keep_apply(io_system(), root, &want, NULL, NULL, &lacks, NULL), 0, "without a best");
    ok(!lacks, "none is missing");
    want.rule.keep = 1;
    is_int(keep_take_best(&want, "nope"), 0, "one");
    is_int(keep_apply(io_system(), root, &want, NULL, NULL, &lacks, NULL), 0, "by what none has");
    ok(lacks, "is missing");
    is_int(keep_apply(io_system(), root, &want, NULL, NULL, &lacks, NULL), 0, "where none goes");
    ok(!lacks, "that does no harm");
    remove_root();
}

/* A metric, and which way is better. */
static void test_take_best(void)
{
    struct ckpt_keep keep = {0};
    char text[sizeof(keep.metric) + 8];

    is_int(keep_take_best(&keep, "loss"), 0, "a metric");
    ok(strcmp(keep.metric, "loss") == 0 && !keep.rule.is_highest, "the lowest");
    is_int(keep_take_best(&keep, "acc:max"), 0, "another");
    ok(strcmp(keep.metric, "acc") == 0 && keep.rule.is_highest, "the highest");
    is_int(keep_take_best(&keep, "loss:min"), 0, "the lowest");
    ok(strcmp(keep.metric, "loss") == 0 && !keep.rule.is_highest, "said so");
    is_int(keep_take_best(&keep, ":max"), -EINVAL, "none");
    is_int(keep_take_best(&keep, ""), -EINVAL, "none");
    memset(text, 'a', sizeof(text));
    text[sizeof(keep.metric) - 1] = '\0';
    is_int(keep_take_best(&keep, text), 0, "the longest name");
    text[sizeof(keep.metric) - 1] = 'a';
    text[sizeof(keep.metric)] = '\0';
    is_int(keep_take_best(&keep, text), -EINVAL, "a longer one");
}

int main(void)
{
    test_newest();
    test_held();
    test_cut();
    test_first_error();
    test_avoided();
    test_avoided_unread();
    test_lacks_best();
    test_take_best();
    return tap_done();
}
