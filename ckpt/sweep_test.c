/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that save, commit, prune, copy and convert checkpoints on the real filesystem are
 * killed at every system call, and every call fails with everything that it may.
 * Whatever comes: the newest checkpoint is the last that they were told of, or a newer
 * one, and has all of its bytes. And they put things on the disk in the right order.
 *
 *   sweep_test [STRIDE [CASE]]      of all points every STRIDEth; 1: all. CASE: of these
 *                                   programs alone the one that is called so
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/sweep_cases_bed.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USUAL_STRIDE = 25 };

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
