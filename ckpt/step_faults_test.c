/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save of which something fails, or with which somebody else interferes: what is said, and
 * what is left. A filesystem that does so at a call stands before the kernel's.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/step_bed.h"
#include "ckpt/step_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root_path[] = "/tmp/step_faults_test.XXXXXX";
static int root = -1;

enum fault { NONE, CLOSE_FAILS, MOVED_BEFORE_RENAME, OTHERS_FILE, COMMIT_UNREADABLE };

static struct odd {
    struct io io;
    struct io_ops ops;
    enum fault fault;
    char name[STEP_NAME_BYTES]; /* of the save */
    int dir;                    /* in which a file was made last */
    char file[64];
} odd;

static int close_odd(struct io *io, int fd)
{
    int rc = io_system()->ops->close(io_system(), fd);

    (void)io;
    if (odd.fault == CLOSE_FAILS && odd.file[0]) {
        odd.fault = NONE;
        return -EDQUOT;
    }
    return rc;
}

static int open_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return odd.fault == COMMIT_UNREADABLE && strcmp(name, STEP_COMMIT) == 0
               ? -EMFILE : io_system()->ops->open_file(io_system(), dir, name);
}

static int create_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    odd.dir = dir;
    snprintf(odd.file, sizeof(odd.file), "%s", name);
    return io_system()->ops->create(io_system(), dir, name);
}

/* Somebody takes the file away, and has one of that name. */
static int allocate_odd(struct io *io, int fd, uint64_t len)
{
    int other;

    (void)io;
    if (odd.fault != OTHERS_FILE) {
        return io_system()->ops->allocate(io_system(), fd, len);
    }
    odd.fault = NONE;
    unlinkat(odd.dir, odd.file, 0);
    other = openat(odd.dir, odd.file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    close(other);
    return -ENOSPC;
}

static int rename_odd(struct io *io, int dir, const char *from, const char *to)
{
    int rc = io_system()->ops->rename(io_system(), dir, from, to);

    (void)io;
    if (odd.fault == MOVED_BEFORE_RENAME) {
        renameat(root, odd.name, root, "moved");
    }
    return rc;
}

static struct io *with(enum fault fault, uint64_t step)
{
    odd = (struct odd){.ops = *io_system()->ops, .fault = fault, .dir = -1};
    odd.ops.close = close_odd;
    odd.ops.create = create_odd;
    odd.ops.open_file = open_odd;
    odd.ops.allocate = allocate_odd;
    odd.ops.rename = rename_odd;
    odd.io.ops = &odd.ops;
    bed_name(step, 1, odd.name);
    return &odd.io;
}

static bool has(const char *name, const char *file)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", name, file);
    return faccessat(root, path, F_OK, 0) == 0;
}

static void test_close(void)
{
    struct error e = {0};

    is_int(bed_save(with(CLOSE_FAILS, 1), root, 1, 1, &e), -EDQUOT,
           "what close() says of a file is no save: %s", e.text);
    ok(!has(odd.name, ""), "and nothing is left of it");
}

static void test_moved(void)
{
    struct error e = {0};

    is_int(bed_save(with(MOVED_BEFORE_RENAME, 2), root, 2, 1, &e), -ENOENT,
           "one whose directory is moved away meanwhile is none");
    like(e.text, "was moved or removed while it was saved", "which is said");
}

static void test_others(void)
{
    _cleanup_(step_save) struct step_save *s = NULL;
    struct error e = {0};
    char uuid[] = "00000003000000000000000000000000", file[STEP_NAME_BYTES + 8];

    is_int(step_save_begin(with(OTHERS_FILE, 3), root, 3, uuid, &s, &e), 0, "a save");
    snprintf(file, sizeof(file), "%s", step_save_name(s));
    is_int(step_save_file(s, "data", "abc", 3, &e), -ENOSPC, "has no room");
    step_save_abort(s);
    ok(has(file, "data"), "what somebody else has put in its place by then is not removed");
}

/* Of a rank that gives up; a checkpoint keeps all. */
static void test_files(void)
{
    static const char *const files[] = {"r00000.safetensors"};
    struct error e = {0};
    char name[STEP_NAME_BYTES];

    is_int(bed_save(io_system(), root, 4, 1, &e), 0, "a checkpoint");
    bed_name(4, 1, name);
    is_int(mkdirat(root, "step-000000000005-00000000", 0700), 0, "and what is none yet");
    for (int i = 0; i < 2; i++) {
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", i ? "step-000000000005-00000000" : name, files[0]);
        unlinkat(root, path, 0);
        close(openat(root, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    is_int(step_remove_files(io_system(), root, name, files, 1, &e), 0, "of that nothing");
    ok(has(name, files[0]), "is removed");
    is_int(step_remove_files(io_system(), root, "step-000000000005-00000000", files, 1, &e), 0,
           "of the other one");
    ok(!has("step-000000000005-00000000", ""), "all is");
}

/* Nobody can tell: then it may be one. */
static void test_sealed(void)
{
    int dir;

    mkdirat(root, "step-000000000006-00000000", 0700);
    dir = openat(root, "step-000000000006-00000000", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ok(!step_is_sealed(io_system(), dir), "without COMMIT it is no checkpoint");
    mkfifoat(dir, "COMMIT", 0600);
    ok(step_is_sealed(io_system(), dir), "with one that cannot be read it may be");
    close(dir);
}

/* A removal that was cut is gone on with, but not where it may have been saved again since. */
static void test_swept(void)
{
    struct error e = {0};
    char name[STEP_NAME_BYTES], path[STEP_NAME_BYTES + 16];

    bed_name(7, 1, name);
    is_int(bed_save(io_system(), root, 7, 1, &e), 0, "a checkpoint");
    snprintf(path, sizeof(path), "%s/.COMMIT.old", name);
    close(openat(root, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    is_int(step_sweep(with(COMMIT_UNREADABLE, 7), root, &e), 0, "whose COMMIT cannot be read");
    ok(has(name, "COMMIT") && has(name, "manifest.json"), "is not removed");
    is_int(step_sweep(io_system(), root, &e), 0, "nor if it can");
    ok(has(name, "COMMIT") && has(name, "manifest.json"), "be seen");
    snprintf(path, sizeof(path), "%s/COMMIT", name);
    unlinkat(root, path, 0);
    is_int(step_sweep(io_system(), root, &e), 0, "one without");
    ok(!has(name, ""), "is");
}

int main(void)
{
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    test_close();
    test_moved();
    test_others();
    test_files();
    test_sealed();
    test_swept();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
