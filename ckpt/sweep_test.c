/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that save, commit, prune, copy, convert and pull checkpoints on the real filesystem
 * are killed at every system call, and every call fails with everything that it may.
 * Whatever comes: the newest checkpoint is the last that they were told of, or a newer
 * one, and has all of its bytes. And they put things on the disk in the right order.
 *
 *   sweep_test [STRIDE [CASE]]      of all points every STRIDEth; 1: all. CASE: of these
 *                                   programs alone the one that is called so
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/sweep_cases_bed.h"
#include "ckpt/sweep_pull_bed.h"
#include "ckpt/tree.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USUAL_STRIDE = 31 };

static const struct io_ops *const real = &io_system_ops;
static int owed[4]; /* files that were to be synced */
static size_t n_owed;

static bool is_dir(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static int sync_no_file(struct io *io, int fd)
{
    return is_dir(fd) ? real->sync(io, fd) : 0;
}

static int sync_no_dir(struct io *io, int fd)
{
    return is_dir(fd) ? 0 : real->sync(io, fd);
}

static int sync_later(struct io *io, int fd)
{
    if (is_dir(fd)) {
        return real->sync(io, fd);
    }
    if (n_owed < 4) {
        owed[n_owed++] = dup(fd);
    }
    return 0;
}

static int rename_first(struct io *io, int dir, const char *from, const char *to)
{
    int rc = real->rename(io, dir, from, to);

    while (n_owed > 0) {
        real->sync(io, owed[--n_owed]);
        close(owed[n_owed]);
    }
    return rc;
}

static int sync_nothing(struct io *io, int fd)
{
    (void)io;
    (void)fd;
    return 0;
}

/* The plant that is tried, of the child's. */
static struct io_ops planted;

static void play_planted(const char *path, unsigned run, struct sweep_told *told)
{
    struct io io = {.ops = &planted};

    sweep_play_steps(&io, path, run, told);
}

static void test_plants(void)
{
    static const struct {
        int (*sync)(struct io *io, int fd);
        int (*rename)(struct io *io, int dir, const char *from, const char *to);
        const char *name, *want;
    } cases[] = {
        {sync_no_file, NULL, "files that are not synced", "what is in"},
        {sync_no_dir, NULL, "directories that are not synced", "the name"},
        {sync_later, rename_first, "a rename before the sync", "what is in"},
        {sync_nothing, NULL, "no sync at all", "gets the name"},
    };
    struct sweep_case c = {.name = "planted", .play = play_planted,
                           .newest = 30};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *first = NULL;

        planted = io_system_ops;
        planted.sync = cases[i].sync;
        planted.rename = cases[i].rename ? cases[i].rename : real->rename;
        ok(sweep_order(&c, &first) > 0, "%s: seen", cases[i].name);
        like(first, cases[i].want, "%s: and said", cases[i].name);
    }
}

/* --- a pull, which has no such calls in between --- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

enum { MAX_LEFT = 64 };

static enum plant { NO_PLANT, NO_FILES, NO_DIRS, NOT_LEFT } plant;
static ino_t left[MAX_LEFT]; /* files that were there when it began */
static size_t n_left;

static bool is_left(int fd)
{
    struct stat st;

    for (size_t i = 0; i < n_left && fstat(fd, &st) == 0; i++) {
        if (left[i] == st.st_ino) {
            return true;
        }
    }
    return false;
}

int __wrap_fsync(int fd)
{
    bool is_done = plant == NO_FILES   ? is_dir(fd)
                   : plant == NO_DIRS  ? !is_dir(fd)
                   : plant == NOT_LEFT ? !is_left(fd) : true;

    return is_done ? __real_fsync(fd) : 0;
}

static int note_left(void *arg, const char *path, uint64_t bytes, struct error *e)
{
    struct stat st;

    (void)bytes, (void)e;
    if (n_left < MAX_LEFT && fstatat(*(int *)arg, path, &st, 0) == 0) {
        left[n_left++] = st.st_ino;
    }
    return 0;
}

static void play_planted_pull(const char *path, unsigned run, struct sweep_told *told)
{
    char to[PATH_MAX];
    _close_ int fd = -1;

    snprintf(to, sizeof(to), "%.4000s/" SWEEP_PULL_TO, path);
    fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tree_walk(fd, note_left, &fd, NULL);
    sweep_pull_play(path, run, told);
}

static void test_pull_plants(void)
{
    static const struct {
        enum plant plant;
        void (*prepare)(const char *path, struct sweep_told *told);
        const char *left, *name, *want;
    } cases[] = {
        {NO_FILES, sweep_pull_prepare, NULL, "files that are not synced", "what is in"},
        {NO_DIRS, sweep_pull_prepare, NULL, "directories that are not synced", "the name"},
        {NOT_LEFT, sweep_pull_prepare_left, SWEEP_PULL_TO,
         "files of a pull before it that are not synced", "what is in"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct sweep_case c = {
            .name = "planted", .prepare = cases[i].prepare, .play = play_planted_pull,
            .newest = SWEEP_PULL_NEWEST, .left = cases[i].left};
        _free_ char *first = NULL;

        plant = cases[i].plant;
        ok(sweep_order(&c, &first) > 0, "a pull, %s: seen", cases[i].name);
        like(first, cases[i].want, "a pull, %s: and said", cases[i].name);
        plant = NO_PLANT;
    }
}

int main(int argc, char **argv)
{
    size_t n_cases, n_run = 0;
    const struct sweep_case *cases = sweep_cases(&n_cases);
    unsigned stride = sweep_stride(argc, argv, USUAL_STRIDE);
    uint64_t kills = 0, n_errors = 0;
    const char *why = sweep_why_not(true), *only = argc > 2 ? argv[2] : NULL;

    if (why) {
        skip("%s", why);
        return tap_done();
    }
    test_plants();
    test_pull_plants();
    for (size_t i = 0; i < n_cases; i++) {
        if (!only || strcmp(cases[i].name, only) == 0) {
            sweep_run(&cases[i], stride, &kills, &n_errors);
            n_run++;
        }
    }
    if (n_run == 0) {
        bail_out("no case is called '%s'", only);
    }
    diag("under ptrace: %llu kills, %llu failing calls",
         (unsigned long long)kills, (unsigned long long)n_errors);
    return tap_done();
}
