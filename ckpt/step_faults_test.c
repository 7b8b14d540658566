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
#include "tests/lib/fds.h"
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

enum fault {
    NONE, CLOSE_FAILS, MOVED_BEFORE_RENAME, OTHERS_FILE, COMMIT_UNREADABLE, NO_DIR, NO_IDENTITY,
    COMMIT_STAYS, COMMIT_STALE,
};

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
    if (strcmp(name, STEP_COMMIT) == 0 && odd.fault == COMMIT_UNREADABLE) {
        return -EMFILE;
    }
    return odd.fault == COMMIT_STALE ? -ESTALE
                                     : io_system()->ops->open_file(io_system(), dir, name);
}

static int open_dir_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return odd.fault == NO_DIR ? -EMFILE : io_system()->ops->open_dir(io_system(), dir, name);
}

static int identity_odd(struct io *io, int fd, const char *name, uint64_t *ret)
{
    (void)io;
    return odd.fault == NO_IDENTITY && !name
               ? -EIO : io_system()->ops->identity(io_system(), fd, name, ret);
}

static int unlink_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return odd.fault == COMMIT_STAYS && strcmp(name, STEP_COMMIT) == 0
               ? -EIO : io_system()->ops->unlink(io_system(), dir, name);
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
    odd.ops.open_dir = open_dir_odd;
    odd.ops.identity = identity_odd;
    odd.ops.unlink = unlink_odd;
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

static const char UUID[] = "0000000a000000000000000000000000";
static const char BARE[] = "step-000000000010-0000000a"; /* of that, and step 10 */

static void test_begin(void)
{
    _cleanup_(step_save) struct step_save *s = NULL;
    struct error e = {0};

    is_int(step_save_begin(with(NO_DIR, 10), root, 10, UUID, &s, &e), -EMFILE,
           "a directory that cannot be opened is no save: %s", e.text);
    ok(!has(BARE, ""), "and is not left");
    is_int(step_save_join(io_system(), root, BARE, &s, &e), -ENOENT, "none is none to join");
    like(e.text, "open step-000000000010-0000000a: No such file", "which is said");
    is_int(step_save_join(io_system(), root, ".", &s, &e), -EINVAL, "nor is what is no "
           "checkpoint's directory");
    ok(!s, "nothing was begun");
}

static struct step_save *begin(struct io *io)
{
    struct step_save *s = NULL;
    struct error e = {0};

    if (step_save_begin(io, root, 10, UUID, &s, &e) < 0) {
        bail_out("%s", e.text);
    }
    return s;
}

static void test_odd_names(void)
{
    static const char *const names[] = {"COMMIT", "manifest.json", "../data", ".data", ""};
    _cleanup_(step_save) struct step_save *s = begin(io_system());
    struct error e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        is_int(step_save_note(s, names[i], "abc", 3, &e), -EINVAL, "no file is called '%s'",
               names[i]);
    }
    step_save_abort(s);
    ok(!has(BARE, "") && !has("data", ""), "none was made");
}

/* By its name alone, then. */
static void test_no_identity(void)
{
    _cleanup_(step_save) struct step_save *s = begin(with(NO_IDENTITY, 10));

    is_int(step_save_file(s, "data", "abc", 3, NULL), 0, "a file that cannot be told from others");
    step_save_abort(s);
    ok(!has(BARE, ""), "is removed all the same");
}

static void test_drop(void)
{
    struct io_blocks b = {.data = "abc", .len = 3, .block_bytes = 3};
    _cleanup_(step_save) struct step_save *s = begin(io_system());
    int n = fds_n_open();

    is_int(step_save_later(s, "data", &b, NULL), 0, "what is synced later");
    is_int(step_save_drop(s, "data", NULL), 0, "is dropped before");
    is_int(fds_n_open(), n, "and is open no more");
    is_int(step_save_drop(s, "data", NULL), 0, "what is not there, too");
    step_save_abort(s);
    ok(!has(BARE, ""), "nothing is left");
}

/* A commit that failed may have come through: whoever cannot take it back leaves all. */
static void test_stays(void)
{
    _cleanup_(step_save) struct step_save *s = begin(with(COMMIT_STAYS, 10));
    char path[STEP_NAME_BYTES + 16];

    is_int(step_save_file(s, "data", "abc", 3, NULL), 0, "a save");
    snprintf(path, sizeof(path), "%s/COMMIT", BARE);
    close(openat(root, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    step_save_abort(s);
    ok(has(BARE, "data"), "whose COMMIT cannot be removed keeps its files");
    odd.fault = NONE;
    step_save_leave(s);
    ok(has(BARE, "data"), "who leaves one that has a COMMIT removes none of them");
    step_save_abort(s);
    ok(!has(BARE, ""), "who gives it up does");
}

static void fill_block(void *arg, uint64_t at, size_t len, void *to)
{
    *(uint64_t *)arg += len;
    memset(to, (char)('a' + at / DIGEST_BLOCK_BYTES), len);
}

static void test_made(void)
{
    enum { LEN = DIGEST_BLOCK_BYTES + DIGEST_BLOCK_BYTES / 4 * 3 };
    _cleanup_(step_save) struct step_save *s = begin(io_system());
    _free_ char *data = NULL;
    uint64_t n_made = 0;
    size_t len = 0;

    is_int(step_save_made(s, "data", LEN, fill_block, &n_made, NULL), 0, "a file made by blocks");
    is_int((intmax_t)n_made, LEN, "which are made once");
    is_int(io_read_file(io_system(), step_save_dir(s), "data", 2 * LEN, &data, &len), 0, "read");
    ok(len == LEN && data[DIGEST_BLOCK_BYTES - 1] == 'a' && data[DIGEST_BLOCK_BYTES] == 'b' &&
       data[LEN - 1] == 'b', "is as long as it should be, and the blocks are in their places");
    step_save_abort(s);
}

/* Nobody sees a file any more in a directory that somebody else removes on a server. */
static void test_stale(void)
{
    struct step s = {.io = with(COMMIT_STALE, 10), .dir = root};
    struct error e = {0};

    is_int(step_or_gone(&s, -EIO, &e), -ENOENT, "what has gone on a server has gone");
    like(e.text, "it is being removed", "which is said");
    odd.fault = NO_DIR;
    odd.ops.open_file = open_dir_odd;
    is_int(step_or_gone(&s, -EIO, &e), -EIO, "of what cannot be looked at nobody knows that");
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
    unlinkat(dir, "COMMIT", 0);
    ok(!step_is_sealed(io_system(), dir), "nor without one any more");
    mkfifoat(dir, "manifest.json", 0600);
    ok(step_is_sealed(io_system(), dir), "with a manifest that cannot be read it may be");
    close(dir);
}

static const char *cut_file;
static int cut_fd = -1;

static int open_cut(struct io *io, int dir, const char *name)
{
    int fd = io_system()->ops->open_file(io_system(), dir, name);

    (void)io;
    cut_fd = strcmp(name, cut_file) == 0 ? fd : cut_fd;
    return fd;
}

static ssize_t read_cut(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    (void)io;
    return fd == cut_fd ? 0 : io_system()->ops->read(io_system(), fd, to, len, at);
}

/* After its length was looked at. */
static void test_cut(void)
{
    static const struct {
        const char *file, *why;
    } cases[] = {
        {"COMMIT", "is no COMMIT: its length is wrong"},
        {"manifest.json", "manifest.json is damaged"},
    };
    char name[STEP_NAME_BYTES];

    if (bed_save(io_system(), root, 11, 1, NULL) < 0) {
        bail_out("no checkpoint");
    }
    bed_name(11, 1, name);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct io *io = with(NONE, 11);
        struct error e = {0};
        struct step s = {0};

        cut_file = cases[i].file;
        cut_fd = -1;
        odd.ops.open_file = open_cut;
        odd.ops.read = read_cut;
        is_int(step_open(io, root, name, &s, &e), -ERR_FORMAT, "%s that is cut meanwhile",
               cases[i].file);
        like(e.text, cases[i].why, "is damaged");
    }
}

static int list_cut(struct io *io, int dir, int (*each)(void *arg, const char *name), void *arg)
{
    (void)io, (void)dir;
    each(arg, BARE);
    return -EIO;
}

static void test_list(void)
{
    struct io *io = with(NONE, 0);
    struct step_entry *entries = NULL;
    struct error e = {0};
    size_t n = 0;

    odd.ops.list = list_cut;
    is_int(step_list(io, root, &entries, &n, &e), -EIO, "a list that is cut is none: %s", e.text);
    ok(!entries && n == 0, "and nothing of it is given");
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
    test_begin();
    test_odd_names();
    test_no_identity();
    test_drop();
    test_stays();
    test_made();
    test_stale();
    test_files();
    test_sealed();
    test_cut();
    test_list();
    test_swept();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
