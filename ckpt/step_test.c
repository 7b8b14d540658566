/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints on a real filesystem: what is found, refused and removed. */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/disk_model.h"
#include "ckpt/step_bed.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root_path[PATH_MAX];
static int root = -1;

static void make_root(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root_path, sizeof(root_path), "%s/step_test.XXXXXX",
             tmp ? tmp : "/tmp");
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY |
                                                    O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
}

static void remove_root(void)
{
    close(root);
    fs_remove_tree(root_path, NULL);
}

static void test_names(void)
{
    static const struct {
        const char *name;
        bool is_name;
        uint64_t step;
    } cases[] = {
        {"step-000000001200-0f3a9c2e", true, 1200},
        {"step-000000000000-00000000", true, 0},
        {"step-1000000000000-0f3a9c2e", true, 1000000000000},
        {"step-0000000001200-0f3a9c2e", false, 0},
        {"step-00000001200-0f3a9c2e", false, 0},
        {"step-000000001200-0f3a9c2", false, 0},
        {"step-000000001200-0f3a9c2e0", false, 0},
        {"step-000000001200-0F3A9C2E", false, 0},
        {"step-000000001200", false, 0},
        {"step-1000000000000000000-0f3a9c2e", true, 1000000000000000000},
        {"step-9223372036854775807-0f3a9c2e", true, INT64_MAX},
        {"step-9223372036854775808-0f3a9c2e", false, 0},
        {"step-9999999999999999999-0f3a9c2e", false, 0},
        {"step-10000000000000000000-0f3a9c2e", false, 0},
        {"step--00000001200-0f3a9c2e", false, 0},
        {"checkpoint-500", false, 0},
        {"", false, 0},
    };
    char name[STEP_NAME_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t step = 0;

        is_int(step_parse_name(cases[i].name, &step), cases[i].is_name, "'%s'",
               cases[i].name);
        is_int((int64_t)step, (int64_t)cases[i].step, "its step");
        if (cases[i].is_name) {
            step_name(step, "0f3a9c2e00", name);
            ok(cases[i].step == 0 || strcmp(name, cases[i].name) == 0,
               "and back");
        }
    }
}

static void test_place(void)
{
    static const struct {
        const char *path;
        bool is_it;
    } cases[] = {
        {"/a/b/step-000000001200-0f3a9c2e", true},
        {"/a/b/step-000000001201-0f3a9c2e", false},
        {"/a/b/step-000000001200-0f3a9c2f", false},
        {"/a/b/step-000000001200-0f3a9c2e/", false},
        {"/a/b/c/step-000000001200-0f3a9c2e", false},
        {"/a/bstep-000000001200-0f3a9c2e", false},
        {"/a/b/", false},
        {"/a/b", false},
        {"", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(step_is_at("/a/b", 1200, "0f3a9c2e00", cases[i].path), cases[i].is_it,
               "'%s'", cases[i].path);
    }
}

/* A filesystem on which a checkpoint is removed right before that file of it is opened. */
struct vanishing {
    struct io io;
    struct io_ops ops;
    const char *step, *file; /* step NULL: it has gone */
};

static int open_late(struct io *io, int dir, const char *name)
{
    struct vanishing *v = (struct vanishing *)io;

    if (v->step && strcmp(name, v->file) == 0) {
        is_int(step_remove(io_system(), root, v->step, NULL), 0, "%s: removed before it is "
               "opened", name);
        v->step = NULL;
    }
    return io_system()->ops->open_file(io_system(), dir, name);
}

/* Whoever looks at one while it is removed finds this or that of it. */
static void test_vanishing(void)
{
    static const struct {
        const char *file;
        bool is_opened; /* before that */
    } cases[] = {
        {"COMMIT", false},
        {"manifest.json", false},
        {"r00000.safetensors", false},
        {"r00001.safetensors", false},
        {"tensors.index", false},
        {"r00000.safetensors", true},
        {"r00001.safetensors", true},
        {"tensors.index", true},
    };
    char name[STEP_NAME_BYTES];

    bed_name(3, 1, name);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct vanishing v = {.ops = *io_system()->ops, .file = cases[i].file};
        struct step s = {0};
        struct error e = {0};
        int rc;

        v.ops.open_file = open_late;
        v.io.ops = &v.ops;
        is_int(bed_save(io_system(), root, 3, 1, &e), 0, "saved (%s)", e.text);
        v.step = cases[i].is_opened ? NULL : name;
        rc = step_open(&v.io, root, name, &s, &e);
        if (cases[i].is_opened) {
            is_int(rc, 0, "it is open");
            v.step = name;
            rc = step_verify(&s, &e);
            rc = rc < 0 ? step_or_gone(&s, rc, &e) : 0;
        }
        is_int(rc, -ENOENT, "%s: it is no checkpoint, and not damaged", cases[i].file);
        like(e.text, i == 0 ? "no COMMIT: it was never" : "is being removed", "which is said");
        step_close(&s);
    }
}

/* What is verified before it has a COMMIT is damaged all the same. */
static void test_verify_bare(void)
{
    char name[STEP_NAME_BYTES];
    _step_ struct step s = {0};
    struct error e = {0};

    bed_name(3, 1, name);
    is_int(bed_save(io_system(), root, 3, 1, &e), 0, "saved (%s)", e.text);
    is_int(step_open(io_system(), root, name, &s, &e), 0, "open");
    is_int(unlinkat(s.dir, "COMMIT", 0), 0, "without COMMIT");
    is_int(step_verify(&s, &e), 0, "it may be verified");
    is_int(unlinkat(s.dir, "r00001.safetensors", 0), 0, "and without a file");
    is_int(step_verify(&s, &e), -ERR_FORMAT, "it is damaged");
    is_int(step_remove(io_system(), root, name, &e), 0, "and goes");
}

static int find(bool is_deep, struct step *ret)
{
    return step_find_newest(io_system(), root, is_deep, NULL, NULL, ret, NULL);
}

static void remove_all(void)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    step_list(io_system(), root, &entries, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (step_remove(io_system(), root, entries[i].name, NULL) < 0) {
            bail_out("%s was not removed", entries[i].name);
        }
    }
}

static void test_life(void)
{
    _step_ struct step s = {0}, newer = {0};
    struct error e = {0};
    struct stat st;
    char name[STEP_NAME_BYTES];

    is_int(find(true, &s), -ENOENT, "nothing there");
    is_int(bed_save(io_system(), root, 7, 1, &e), 0, "saved (%s)", e.text);
    is_int(bed_save(io_system(), root, 7, 1, &e), -EEXIST, "not twice");
    is_int(find(true, &s), 0, "found");
    ok(s.commit.step == 7 && bed_is_right(&s), "as it was saved");
    is_int(step_verify(&s, &e), 0, "verified (%s)", e.text);
    is_int(bed_save(io_system(), root, 7, 2, &e), 0, "the step again, by a later "
           "generation");
    is_int(find(true, &newer), 0, "found");
    is_int((int)newer.commit.token, 2, "the later one");
    bed_name(7, 2, name);
    ok(fstatat(root, name, &st, 0) == 0 && (st.st_mode & 0777) == 0700,
       "the directory is private");
    ok(fstatat(newer.dir, "COMMIT", &st, 0) == 0 && (st.st_mode & 0777) == 0600,
       "and so are files");
    is_int(step_remove(io_system(), root, name, &e), 0, "removed (%s)", e.text);
    ok(fstatat(root, name, &st, 0) < 0, "all of it");
    is_int(step_remove(io_system(), root, name, &e), 0, "twice is no error");
    remove_all();
}

/* What is read through counts, not only what is as long as it should be. */
static void test_newest(void)
{
    _step_ struct step s = {0}, deep = {0}, older = {0};
    char path[PATH_MAX], name[STEP_NAME_BYTES];
    int fd;

    bed_save(io_system(), root, 5, 9, NULL);
    bed_save(io_system(), root, 7, 1, NULL);
    is_int(find(false, &s), 0, "a newer step of a lower token");
    is_int((int)s.commit.step, 7, "is newer");
    bed_name(7, 1, name);
    snprintf(path, sizeof(path), "%s/r00001.safetensors", name);
    fd = openat(root, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || pwrite(fd, "\377\0\377", 3, 70) != 3 || close(fd) < 0) {
        bail_out("no %s", path);
    }
    step_close(&s);
    is_int(find(false, &s), 0, "damaged within");
    is_int((int)s.commit.step, 7, "it still looks so");
    is_int(find(true, &deep), 0, "and is read");
    is_int((int)deep.commit.step, 5, "to find that it is none");
    is_int(step_verify(&s, NULL), -ERR_FORMAT, "as it is");
    snprintf(path, sizeof(path), "%s/COMMIT", name);
    unlinkat(root, path, 0);
    bed_save(io_system(), root, 5, 3, NULL);
    bed_save(io_system(), root, 5, 12, NULL);
    is_int(find(true, &older), 0, "of one step");
    is_int((int)older.commit.token, 12, "the highest token counts");
    remove_all();
}

/* A COMMIT that says what its manifest does not. */
static void test_differ(void)
{
    _step_ struct step s = {0};
    _buf_ struct buf b = {0};
    struct commit c;
    char name[STEP_NAME_BYTES], path[2 * STEP_NAME_BYTES];
    struct error e = {0};
    int fd;

    bed_save(io_system(), root, 7, 1, NULL);
    is_int(find(false, &s), 0, "a checkpoint");
    c = s.commit;
    c.n_files++;
    commit_encode(&c, &b);
    bed_name(7, 1, name);
    snprintf(path, sizeof(path), "%s/COMMIT", name);
    fd = openat(root, path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0 || write(fd, b.data, b.len) != (ssize_t)b.len || close(fd) < 0) {
        bail_out("no %s", path);
    }
    step_close(&s);
    is_int(step_open(io_system(), root, name, &s, &e), -ERR_FORMAT, "of another number of files");
    like(e.text, "the manifest lists 4 files", "is none");
    remove_all();
}

/* Nobody reads so much to find that it is none. */
static void test_long(void)
{
    static const struct {
        const char *file, *why;
        uint64_t bytes;
    } cases[] = {
        {"COMMIT", "is no COMMIT: its length is wrong", COMMIT_MAX_BYTES + 1},
        {"manifest.json", "manifest.json is damaged: expected ", MANIFEST_MAX_BYTES + 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _step_ struct step s = {0};
        struct error e = {0};
        char name[STEP_NAME_BYTES], path[2 * STEP_NAME_BYTES];
        int fd;

        bed_save(io_system(), root, 7, 1, NULL);
        bed_name(7, 1, name);
        snprintf(path, sizeof(path), "%s/%s", name, cases[i].file);
        fd = openat(root, path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)cases[i].bytes) < 0 || close(fd) < 0) {
            bail_out("no %s", path);
        }
        is_int(step_open(io_system(), root, name, &s, &e), -ERR_FORMAT, "too long a %s",
               cases[i].file);
        like(e.text, cases[i].why, "is damaged");
        remove_all();
    }
}

static void test_open_none(void)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;
    int n_open = fds_n_open();

    bed_save(io_system(), root, 7, 1, NULL);
    bed_save(io_system(), root, 7, 2, NULL);
    is_int(step_list(io_system(), root, &entries, &n, NULL), 0, "two of one step are told apart");
    ok(n == 2 && entries[0].token == 2 && entries[1].token == 1, "by their tokens");
    is_int(fds_n_open(), n_open, "and none of them stays open");
    remove_all();
}

static unsigned n_unlinks; /* that work still */

static int unlink_some(struct io *io, int dir, const char *name)
{
    return n_unlinks-- > 0 ? io_system_ops.unlink(io, dir, name) : -EIO;
}

static bool is_there(uint64_t step)
{
    char name[STEP_NAME_BYTES];

    bed_name(step, 1, name);
    return faccessat(root, name, F_OK, 0) == 0;
}

static void change(uint64_t step, const char *from, const char *to)
{
    char name[STEP_NAME_BYTES], old[2 * STEP_NAME_BYTES], new[2 * STEP_NAME_BYTES];

    bed_name(step, 1, name);
    snprintf(old, sizeof(old), "%s/%s", name, from);
    snprintf(new, sizeof(new), "%s/%s", name, to);
    if (renameat(root, old, root, new) < 0) {
        bail_out("no %s", old);
    }
}

static int no_room_code;

static int no_room(struct io *io, int dir, const char *from, const char *to)
{
    (void)io, (void)dir, (void)from, (void)to;
    return no_room_code;
}

static int sync_no_room(struct io *io, int fd)
{
    (void)io, (void)fd;
    return no_room_code;
}

typedef int rename_f(struct io *io, int dir, const char *from, const char *to);
typedef int sync_f(struct io *io, int fd);

static void remove_without_room(rename_f *rename, sync_f *sync, const char *what)
{
    struct io_ops ops = io_system_ops;
    struct io full = {.ops = &ops};
    struct error e = {0};
    char name[STEP_NAME_BYTES];

    ops.rename = rename;
    ops.sync = sync;
    is_int(bed_save(io_system(), root, 6, 1, NULL), 0, "saved");
    bed_name(6, 1, name);
    is_int(step_remove(&full, root, name, &e), 0, "%s: %s", what, e.text);
    ok(!is_there(6), "it is gone");
}

/* Where names are written anew for one that changes, and there is no room for that. If the
 * disk does not say that COMMIT has gone either, what is left without any would be nobody's,
 * and stay for good. */
static void test_remove_full(void)
{
    no_room_code = -ENOSPC;
    remove_without_room(no_room, io_system_ops.sync, "a full disk is made room on");
    no_room_code = -EDQUOT;
    remove_without_room(no_room, io_system_ops.sync, "so is a full quota");
    remove_without_room(no_room, sync_no_room, "also where its syncs fail");
    remove_without_room(io_system_ops.rename, sync_no_room, "and where they alone do");
}

/* What a removal has left goes, and nothing that somebody may be saving. */
static void test_cut(void)
{
    struct io_ops ops = io_system_ops;
    struct io bad = {.ops = &ops};
    _step_ struct step s = {0};
    char name[STEP_NAME_BYTES];

    ops.unlink = unlink_some;
    for (uint64_t step = 7; step <= 9; step++) {
        is_int(bed_save(io_system(), root, step, 1, NULL), 0, "saved");
    }
    n_unlinks = 1;
    bed_name(7, 1, name);
    is_int(step_remove(&bad, root, name, NULL), -EIO, "a removal is cut short");
    is_int(step_open(io_system(), root, name, &s, NULL), -ENOENT, "what is left is none");
    change(8, "tensors.index", ".COMMIT.old");
    change(9, "COMMIT", "notes");
    is_int(step_sweep(io_system(), root, NULL), 0, "what was cut short is swept");
    ok(!is_there(7), "it is gone on with");
    ok(is_there(8), "not where there is a COMMIT again");
    ok(is_there(9), "nor where there never was one");
    change(9, "notes", "COMMIT");
    remove_all();
}

/* --- damage --- */

static int open_one(uint64_t step, struct step *ret, struct error *e)
{
    char name[STEP_NAME_BYTES];
    int rc;

    bed_name(step, 1, name);
    rc = step_open(io_system(), root, name, ret, e);
    return rc < 0 ? rc : step_verify(ret, e);
}

static void in_step(uint64_t step, const char *file, char to[PATH_MAX])
{
    char name[STEP_NAME_BYTES];

    bed_name(step, 1, name);
    if (fs_path(to, PATH_MAX, NULL, "%s/%s/%s", root_path, name, file) < 0) {
        bail_out("too long a path");
    }
}

static void cut(const char *path, int by)
{
    struct stat st = {0};

    if (stat(path, &st) < 0 || truncate(path, st.st_size + by) < 0) {
        bail_out("%s was not cut", path);
    }
}

/* Each fault on a newer checkpoint: it is refused, with its reason, and the older
 * one is found. */
static void test_faults(void)
{
    static const char *const files[] = {"r00000.safetensors", "tensors.index",
                                        "manifest.json", "COMMIT"};
    enum { CUT, LONGER, GONE, LINK, DIRECTORY, FIFO, SOCKET, N_FAULTS };
    static const char *const what[] = {"is cut", "is longer", "is gone",
                                       "is a link", "is a directory",
                                       "is a FIFO", "is a socket"};

    bed_save(io_system(), root, 10, 1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        for (int fault = 0; fault < N_FAULTS; fault++) {
            _step_ struct step s = {0}, found = {0};
            char path[PATH_MAX], other[PATH_MAX];
            struct error e = {0};
            int rc;

            if (bed_save(io_system(), root, 20, 1, &e) < 0) {
                bail_out("not saved: %s", e.text);
            }
            in_step(20, files[i], path);
            in_step(10, files[i], other);
            if (fault == CUT || fault == LONGER) {
                cut(path, fault == CUT ? -1 : 1);
            } else {
                unlink(path);
            }
            if ((fault == LINK && symlink(other, path) < 0) ||
                (fault == DIRECTORY && mkdir(path, 0700) < 0) ||
                (fault == FIFO && mkfifo(path, 0600) < 0) ||
                (fault == SOCKET && mknod(path, S_IFSOCK | 0600, 0) < 0)) {
                bail_out("no fault %d", fault);
            }
            rc = open_one(20, &s, &e);
            ok(rc < 0, "%s %s: refused (%s)", files[i], what[fault], e.text);
            is_int(rc, i == 3 && fault == GONE ? -ENOENT : -ERR_FORMAT, "as damaged");
            ok(strstr(e.text, "step-000000000020") ||
                   strstr(e.text, "manifest.json") || strstr(e.text, "COMMIT"),
               "by its name");
            if (i < 2 && fault <= LONGER) {
                like(e.text, fault == CUT ? " is cut: expected " : " is too long: expected ",
                     "and what it is");
            }
            if (fault >= LINK) {
                like(e.text, "expected a file, found a link, a pipe", "and what it is not");
            }
            is_int(find(true, &found), 0, "another is found");
            is_int((int)found.commit.step, 10, "the older one");
            if (fault == DIRECTORY) {
                rmdir(path);
            }
            bed_name(20, 1, other);
            is_int(step_remove(io_system(), root, other, &e), 0, "removed (%s)",
                   e.text);
        }
    }
    remove_all();
}

/* Any bit of any file. */
static void test_flips(void)
{
    static const char *const files[] = {"r00000.safetensors",
                                        "r00001.safetensors", "tensors.index",
                                        "manifest.json", "COMMIT"};
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct io *io = disk_io(d);
    char name[STEP_NAME_BYTES];

    bed_save(io, disk_root(d), 5, 1, NULL);
    bed_name(5, 1, name);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        unsigned n_missed = 0;
        uint64_t bit;

        /* Coprime to 8: every bit of a byte has its turn. */
        for (bit = 0; disk_flip(d, name, files[i], bit); bit += 3) {
            struct step s = {0};

            if (step_open(io, disk_root(d), name, &s, NULL) == 0) {
                n_missed += step_verify(&s, NULL) == 0;
                step_close(&s);
            }
            disk_flip(d, name, files[i], bit);
        }
        ok(n_missed == 0 && bit > 0, "%s: each of %llu flipped bits is seen",
           files[i], (unsigned long long)(bit / 3));
    }
}

static void test_strangers(void)
{
    _step_ struct step s = {0};
    char path[PATH_MAX], name[STEP_NAME_BYTES], other[PATH_MAX];
    struct error e = {0};
    FILE *f;

    bed_save(io_system(), root, 30, 1, NULL);
    in_step(30, "notes.txt", path);
    f = fopen(path, "w");
    if (!f || fclose(f) != 0) {
        bail_out("no notes");
    }
    is_int(open_one(30, &s, &e), 0, "a file of somebody else does no harm");
    bed_name(30, 1, name);
    is_int(step_remove(io_system(), root, name, &e), 0, "removed (%s)", e.text);
    ok(access(path, F_OK) == 0, "but for that file");
    in_step(30, "COMMIT", other);
    ok(access(other, F_OK) < 0, "it is no checkpoint any more");
    is_int(step_remove_all(io_system(), root, name, &e), -ENOTEMPTY, "which is told on request");
    like(e.text, "/notes.txt is not muster's: it stays", "by its name");
    in_step(30, "more.txt", other);
    f = fopen(other, "w");
    if (!f || fclose(f) != 0) {
        bail_out("no notes");
    }
    is_int(step_remove_all(io_system(), root, name, &e), -ENOTEMPTY, "two are");
    like(e.text, "txt and 1 more are not muster's", "told, too");
    unlink(path);
    unlink(other);
    is_int(step_remove_all(io_system(), root, name, &e), 0, "without any it goes");
    ok(faccessat(root, name, F_OK, 0) < 0, "and is gone");
    remove_all();

    is_int(step_remove(io_system(), root, "../x", &e), -EINVAL, "another name");
    is_int(step_remove(io_system(), root, "notes", &e), -EINVAL, "is not ours");
}

/* A copy under another name, and a link to a directory. */
static void test_renamed(void)
{
    _step_ struct step s = {0};
    char from[STEP_NAME_BYTES], to[STEP_NAME_BYTES];
    struct error e = {0};

    bed_save(io_system(), root, 30, 1, NULL);
    bed_name(30, 1, from);
    bed_name(40, 1, to);
    if (symlinkat(from, root, to) < 0) {
        bail_out("no link");
    }
    ok(step_open(io_system(), root, to, &s, &e) < 0, "a link is not followed");
    unlinkat(root, to, 0);
    renameat(root, from, root, to);
    is_int(step_open(io_system(), root, to, &s, &e), -ERR_FORMAT,
           "one that was renamed");
    like(e.text, "holds the checkpoint step-000000000030", "and why");
    is_int(find(false, &s), -ENOENT, "is not found");
    is_int(step_open_renamed(io_system(), root, to, &s, &e), 0, "who is given its path has it");
    is_int(step_verify(&s, &e), 0, "with all of its bytes");
    step_close(&s);
    remove_all();
}

static unsigned n_told;

static void count(void *arg, const char *name, const struct error *why)
{
    (void)arg;
    (void)name;
    n_told += why->code != 0;
}

static void test_tells(void)
{
    _step_ struct step s = {0};
    char path[PATH_MAX];

    for (uint64_t step = 1; step <= 3; step++) {
        bed_save(io_system(), root, step, 1, NULL);
    }
    in_step(3, "COMMIT", path);
    unlink(path);
    in_step(2, "r00001.safetensors", path);
    cut(path, -1);
    is_int(step_find_newest(io_system(), root, true, count, NULL, &s, NULL), 0,
           "found");
    is_int((int)s.commit.step, 1, "the only one");
    is_int((int)n_told, 2, "and what was passed over is told");
    remove_all();
}

int main(void)
{
    make_root();
    test_names();
    test_place();
    test_vanishing();
    test_verify_bare();
    test_life();
    test_newest();
    test_differ();
    test_long();
    test_open_none();
    test_remove_full();
    test_cut();
    test_faults();
    test_flips();
    test_strangers();
    test_renamed();
    test_tells();
    remove_root();
    return tap_done();
}
