/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that have no better place, by two ranks on the real filesystem, with a layer
 * between that lets single calls fail: who is told what, and what is loaded then. The
 * list of all faults, and which test has each, is in tests/README.md.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/io.h"
#include "ckpt/model_bed.h"
#include "ckpt/save_priv.h"
#include "ckpt/step.h"
#include "ckpt/step_priv.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { WORLD = 2, MAX_FDS = 1024 };

/* --- the layer --- */

enum call { NO_CALL, OPEN, CREATE, WRITE, READ, SYNC, CLOSE, RENAME, UNLINK };

static struct fault {
    enum call call;
    int error;
    bool is_done_all_the_same; /* as of a server whose answer was lost */
    const char *file;  /* names begin so */
    const char *aside; /* then the root's only directory gets that name */
    unsigned limit;    /* so often; 0: always */
    unsigned after;    /* so many calls that work */
    unsigned n;        /* how often it came to it */
} fault;

static int root = -1;
static char root_path[PATH_MAX], names[MAX_FDS][64];
static const struct io_ops *const real = &io_system_ops;

static int remember(int fd, const char *name)
{
    if (fd >= 0 && fd < MAX_FDS) {
        snprintf(names[fd], sizeof(names[fd]), "%s", name);
    }
    return fd;
}

static int move_aside(void *arg, const char *name)
{
    (void)arg;
    return str_starts(name, "step-") ? renameat(root, name, root, fault.aside)
                                     : 0;
}

/* 0, or what it fails of. */
static int meet(enum call call, const char *name)
{
    if (fault.call != call || !str_starts(name, fault.file)) {
        return 0;
    }
    if (fault.after > 0) {
        fault.after--;
        return 0;
    }
    if (fault.limit && fault.n >= fault.limit) {
        return 0;
    }
    fault.n++;
    if (fault.aside && fault.n == 1) {
        real->list(io_system(), root, move_aside, NULL);
    }
    return -fault.error;
}

static int create(struct io *io, int dir, const char *name)
{
    int rc = meet(CREATE, name);

    return rc < 0 ? rc : remember(real->create(io, dir, name), name);
}

static int open_file(struct io *io, int dir, const char *name)
{
    int rc = meet(OPEN, name);

    return rc < 0 ? rc : remember(real->open_file(io, dir, name), name);
}

static ssize_t write_at(struct io *io, int fd, const void *data, size_t len,
                        uint64_t at)
{
    int rc = meet(WRITE, names[fd]);

    return rc < 0 ? rc : real->write(io, fd, data, len, at);
}

static ssize_t read_at(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    int rc = meet(READ, names[fd]);

    return rc < 0 ? rc : real->read(io, fd, to, len, at);
}

static int sync_fd(struct io *io, int fd)
{
    int rc = meet(SYNC, names[fd]);

    return rc < 0 ? rc : real->sync(io, fd);
}

static int rename_in(struct io *io, int dir, const char *from, const char *to)
{
    int rc = meet(RENAME, from);

    if (rc < 0 && fault.is_done_all_the_same) {
        real->rename(io, dir, from, to);
    }
    return rc < 0 ? rc : real->rename(io, dir, from, to);
}

static int unlink_in(struct io *io, int dir, const char *name)
{
    int rc = meet(UNLINK, name);

    if (rc < 0 && fault.is_done_all_the_same) {
        real->unlink(io, dir, name);
    }
    return rc < 0 ? rc : real->unlink(io, dir, name);
}

static int close_fd_of(struct io *io, int fd)
{
    int rc = fd >= 0 && fd < MAX_FDS ? meet(CLOSE, names[fd]) : 0, closed;

    if (fd >= 0 && fd < MAX_FDS) {
        names[fd][0] = '\0';
    }
    closed = real->close(io, fd);
    return rc < 0 ? rc : closed;
}

static struct io *layer(void)
{
    static struct io_ops ops;
    static struct io io = {.ops = &ops};

    ops = io_system_ops;
    ops.create = create;
    ops.open_file = open_file;
    ops.write = write_at;
    ops.read = read_at;
    ops.sync = sync_fd;
    ops.rename = rename_in;
    ops.unlink = unlink_in;
    ops.close = close_fd_of;
    return &io;
}

/* --- ranks --- */

struct play {
    int roots[WORLD]; /* where each looks; 0: the same place */
    int64_t step; /* to save; 0: the newest is loaded */
    int64_t data; /* of which step that has, or should have, the data; 0: of its own */
    int rc[WORLD];
    int64_t loaded[WORLD];
    uint64_t n_wrong[WORLD];
    char text[WORLD][400];
};

static void body(void *arg, const struct muster_ckpt_group *group)
{
    struct play *p = arg;
    struct muster_ckpt_options o = {.size = sizeof(o), .n_threads = 1};
    struct muster_ckpt *ck = NULL;
    struct model *m;
    int r = group->rank;

    if (ckpt_create(NULL, group, layer(), p->roots[r] ? p->roots[r] : root,
                    root_path, &o, &ck) < 0) {
        abort();
    }
    m = model_create(ck, (uint32_t)r, WORLD, p->step ? 1 : 2);
    model_set(m, p->data ? p->data : p->step);
    if (p->step) {
        p->rc[r] = muster_ckpt_save(ck, p->step, 0, NULL);
    } else {
        p->rc[r] = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &p->loaded[r]);
        p->n_wrong[r] = p->rc[r] < 0 ? 1
                                     : model_wrong(m, p->data ? p->data : p->loaded[r]);
    }
    snprintf(p->text[r], sizeof(p->text[r]), "%s", muster_ckpt_error_text(ck));
    model_destroy(m);
    muster_ckpt_close(ck);
}

static struct play save(int64_t step, const struct fault *f)
{
    struct play p = {.step = step};

    fault = f ? *f : (struct fault){0};
    team_run(WORLD, true, body, &p);
    return p;
}

static struct play load(const struct fault *f)
{
    return save(0, f);
}

/* All load that step, and all of it. */
static bool is_loaded(const struct play *p, int64_t step)
{
    bool is_right = true;

    for (int r = 0; r < WORLD; r++) {
        is_right = is_right && p->rc[r] >= 0 && p->loaded[r] == step &&
                   p->n_wrong[r] == 0;
    }
    if (!is_right) {
        diag("%d, step %d: %s", p->rc[0], (int)p->loaded[0], p->text[0]);
    }
    return is_right;
}

static void begin(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root_path, sizeof(root_path), "%s/faults_test.XXXXXX",
             tmp ? tmp : "/tmp");
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                              : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
}

static void end(void)
{
    close(root);
    fs_remove_tree(root_path, NULL);
}

/* The directory of a step. */
static void dir_of(int64_t step, char to[STEP_NAME_BYTES])
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    to[0] = '\0';
    step_list(io_system(), root, &entries, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (entries[i].step == (uint64_t)step) {
            snprintf(to, STEP_NAME_BYTES, "%s", entries[i].name);
        }
    }
}

static void path_of(int64_t step, const char *file, char to[PATH_MAX])
{
    char name[STEP_NAME_BYTES];

    dir_of(step, name);
    if (fs_path(to, PATH_MAX, NULL, "%.3000s/%s/%s", root_path, name, file) < 0) {
        bail_out("too long a path");
    }
}

static unsigned n_steps(void)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    step_list(io_system(), root, &entries, &n, NULL);
    return (unsigned)n;
}

/* --- saving --- */

/* One rank cannot: none has saved, and all are told who could not, and what. */
static void test_one_rank_fails(void)
{
    static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EROFS, EACCES, EIO};
    char part[PATH_MAX];

    begin();
    save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        const struct fault f = {.call = WRITE, .error = errors[i],
                                .file = "r00001.safetensors"};
        struct play p = save(2, &f), back;

        ok(p.rc[0] == -errors[i] && p.rc[1] == -errors[i],
           "%s on rank 1: all fail of it", strerror(errors[i]));
        like(p.text[0], "rank 1", "who");
        like(p.text[0], "r00001.safetensors", "and what");
        is_int(n_steps(), 1, "nothing is left of it");
        back = load(NULL);
        ok(is_loaded(&back, 1), "the one before is there");
    }
    is_int(save(2, NULL).rc[0], 0, "and it goes on, once that is over");
    path_of(2, "r00000.part", part);
    ok(access(part, F_OK) < 0, "what a rank said for that is not left");
    path_of(2, "r00001.part", part);
    ok(access(part, F_OK) < 0, "of no rank");
    end();
}

/* The kernel tells of lost pages once: a second fsync would say that all is well. */
static void test_sync_fails_once(void)
{
    static const char *const files[] = {"r00000.safetensors", "tensors.index",
                                        "manifest.json", STEP_COMMIT_NEW};

    begin();
    save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct fault f = {.call = SYNC, .error = EIO, .file = files[i]};
        struct play p = save(2, &f);

        is_int(p.rc[1], -EIO, "%s: an fsync that fails", files[i]);
        is_int(fault.n, 1, "is not tried again");
        p = load(NULL);
        ok(is_loaded(&p, 1), "and what it was for is no checkpoint");
    }
    end();
}

/* A server that was written to may say only then that it had no room. */
static void test_close_fails(void)
{
    static const char *const files[] = {"r00000.safetensors", "r00001.part",
                                        "manifest.json", STEP_COMMIT_NEW};

    begin();
    save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct fault f = {.call = CLOSE, .error = EDQUOT, .file = files[i]};
        struct play p = save(2, &f);

        ok(p.rc[0] == -EDQUOT && p.rc[1] == -EDQUOT, "%s: a close that fails",
           files[i]);
        is_int(n_steps(), 1, "nothing is left of it");
        p = load(NULL);
        ok(is_loaded(&p, 1), "and the one before is there");
    }
    end();
}

/* Nobody knows whether the name of a save is on the disk: there is none. */
static void test_root_sync_fails(void)
{
    const struct fault f = {.call = SYNC, .error = EIO, .file = ".", .limit = 1};
    struct play p;

    begin();
    save(1, NULL);
    remember(root, ".");
    p = save(2, &f);
    names[root][0] = '\0';
    ok(p.rc[0] == -EIO && p.rc[1] == -EIO, "an fsync of the root that fails");
    is_int(n_steps(), 1, "leaves no directory");
    end();
}

/* A server did what it was asked, its answer was lost, and the question that came
 * again finds nothing to do. */
static void test_answer_lost(void)
{
    const struct fault renamed = {.call = RENAME, .error = ENOENT,
                                  .file = STEP_COMMIT_NEW, .is_done_all_the_same = true};
    const struct fault gone = {.call = UNLINK, .error = ENOENT, .file = "r0000",
                               .is_done_all_the_same = true};
    char name[STEP_NAME_BYTES];
    struct play p;

    begin();
    save(1, NULL);
    p = save(2, &renamed);
    ok(p.rc[0] == p.rc[1], "a rename: all say the same (%d)", p.rc[0]);
    {
        struct play back = load(NULL);

        ok(is_loaded(&back, p.rc[0] < 0 ? 1 : 2), "and it is as they say");
    }
    p = save(3, &gone);
    is_int(p.rc[0], 0, "a removal: it is gone, as it was to be");
    p = load(NULL);
    ok(is_loaded(&p, 3), "loaded");
    dir_of(3, name);
    fault = gone;
    is_int(step_remove(layer(), root, name, NULL), 0, "one is removed by two at once");
    dir_of(3, name);
    ok(!name[0], "and gone");
    end();
}

/* Somebody tidies up. */
static void test_moved_away(void)
{
    static const char *const files[] = {"r00001.safetensors", "manifest.json",
                                        STEP_COMMIT_NEW};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct fault f = {.call = SYNC, .file = files[i], .aside = "aside"};
        struct play p;

        begin();
        p = save(1, &f);
        ok(p.rc[0] == -ENOENT && p.rc[1] == -ENOENT, "moved away at %s: %s",
           files[i], p.text[0]);
        p = load(NULL);
        is_int(p.rc[0], -ENOENT, "nothing under its name is a checkpoint");
        end();
    }
}

/* --- loading --- */

static void test_unreadable(void)
{
    static const int errors[] = {EIO, ESTALE};
    static const char *const files[] = {"r00000.safetensors", "r00001.safetensors"};

    begin();
    save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
            const struct fault f = {.call = READ, .error = errors[i],
                                    .file = files[k]};
            struct play p = load(&f);

            ok(p.rc[0] < 0 && p.rc[0] == p.rc[1], "%s: %s: all fail alike",
               files[k], strerror(errors[i]));
            like(p.text[0], files[k], "which is named");
        }
    }
    save(2, NULL);
    for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
        const struct fault f = {.call = READ, .error = EIO, .file = files[k],
                                .limit = 1};
        struct play p = load(&f);

        ok(is_loaded(&p, 1), "%s of the newest: all load the one before", files[k]);
    }
    end();
}

/* What a process has not says nothing of a checkpoint: nobody takes an older one for it. */
static void test_no_descriptors(void)
{
    const struct fault all = {.call = OPEN, .error = EMFILE, .file = STEP_COMMIT};
    const struct fault second = {.call = OPEN, .error = EMFILE, .file = STEP_COMMIT, .after = 1};
    char why[2][PATH_MAX + 64];
    struct play p;

    begin();
    for (size_t r = 0; r < 2; r++) {
        snprintf(why[r], sizeof(why[r]), "rank %zu: %s: read step-000000000002", r, root_path);
    }
    save(1, NULL);
    save(2, NULL);
    p = load(&all);
    ok(p.rc[0] == -EMFILE && p.rc[1] == -EMFILE, "nobody can open a COMMIT: all fail of that");
    like(p.text[0], why[0], "which is told");
    p = load(&second);
    ok(p.rc[0] == -EMFILE && p.rc[1] == -EMFILE, "rank 1 cannot: all fail of that");
    like(p.text[0], why[1], "who is told");
    p = load(NULL);
    ok(is_loaded(&p, 2), "once it can they load the newest");
    end();
}

static int link_here(void *arg, const char *name)
{
    const int *dirs = arg;

    return linkat(dirs[0], name, dirs[1], name, 0);
}

/* The newest is on one node alone: all load what both have. */
static void test_seen_by_one(void)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX];
    struct play p = {0};
    int dirs[2];

    begin();
    save(1, NULL);
    save(2, NULL);
    dir_of(1, name);
    snprintf(path, sizeof(path), "%.4000s/other", root_path);
    if (mkdir(path, 0700) < 0) {
        bail_out("no %s", path);
    }
    p.roots[1] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dirs[0] = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdirat(p.roots[1], name, 0700);
    dirs[1] = openat(p.roots[1], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_int(real->list(io_system(), dirs[0], link_here, dirs), 0, "the other node");
    fault = (struct fault){0};
    team_run(WORLD, true, body, &p);
    ok(is_loaded(&p, 1), "has not the newest: all load the one before");
    close(dirs[0]);
    close(dirs[1]);
    close(p.roots[1]);
    end();
}

/* Of one step there are two, and one node has the first alone: all load that. */
static void test_one_step_seen_by_one(void)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX];
    struct play p = {.step = 1, .data = 5};
    int dirs[2];

    begin();
    save(1, NULL);
    dir_of(1, name);
    team_run(WORLD, true, body, &p);
    is_int(n_steps(), 2, "two of one step");
    snprintf(path, sizeof(path), "%.4000s/other", root_path);
    if (p.rc[0] < 0 || mkdir(path, 0700) < 0) {
        bail_out("no %s: %s", path, p.text[0]);
    }
    p = (struct play){.data = 5};
    team_run(WORLD, true, body, &p);
    ok(is_loaded(&p, 1), "who sees both loads the later one");
    p = (struct play){.data = 1};
    p.roots[1] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dirs[0] = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdirat(p.roots[1], name, 0700);
    dirs[1] = openat(p.roots[1], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_int(real->list(io_system(), dirs[0], link_here, dirs), 0, "the other node");
    team_run(WORLD, true, body, &p);
    ok(is_loaded(&p, 1), "has the first alone: all load that, and none the later one");
    close(dirs[0]);
    close(dirs[1]);
    close(p.roots[1]);
    end();
}

static void swap(const char *a, const char *b)
{
    if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) < 0) {
        bail_out("%s and %s not swapped", a, b);
    }
}

/* Files of one checkpoint, or of two, in each other's place: of equal length, and each
 * whole in itself. */
static void test_swapped(void)
{
    static const char *const files[] = {"r00000.safetensors", "r00001.safetensors",
                                        "tensors.index"};
    char one[PATH_MAX], two[PATH_MAX];
    struct play p;

    begin();
    save(1, NULL);
    save(2, NULL);
    path_of(2, files[0], one);
    path_of(2, files[1], two);
    swap(one, two);
    p = load(NULL);
    ok(is_loaded(&p, 1), "files of two ranks");
    swap(one, two);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct stat a, b;

        path_of(1, files[i], one);
        path_of(2, files[i], two);
        if (stat(one, &a) < 0 || stat(two, &b) < 0 || a.st_size != b.st_size) {
            bail_out("%s is of another length", two);
        }
        if (strcmp(files[i], "tensors.index") == 0) {
            unlink(two); /* that of step 1 would be right for both, but for digests */
            if (link(one, two) < 0) {
                bail_out("no link %s", two);
            }
        } else {
            swap(one, two);
        }
        p = load(NULL);
        ok(p.rc[0] == -EILSEQ || is_loaded(&p, 1), "%s of another step", files[i]);
        ok(strstr(p.text[0], files[i]), "is named");
        if (strcmp(files[i], "tensors.index") != 0) {
            swap(one, two);
        }
    }
    end();
}

/* A tail that never reached the disk, and a file that has no byte. */
static void test_torn(void)
{
    char path[PATH_MAX], zeros[512] = {0};
    struct play p;
    struct stat st;
    int fd;

    begin();
    save(1, NULL);
    save(2, NULL);
    path_of(2, "r00000.safetensors", path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 ||
        pwrite(fd, zeros, sizeof(zeros), st.st_size - (off_t)sizeof(zeros)) < 0) {
        bail_out("no %s", path);
    }
    p = load(NULL);
    ok(is_loaded(&p, 1), "the last sector is zeros");
    is_int(ftruncate(fd, 0), 0, "it has no byte");
    close(fd);
    p = load(NULL);
    ok(is_loaded(&p, 1), "the one before");
    end();
}

/* --- time and places --- */

static void set_age(const char *path, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) < 0) {
        bail_out("no time for %s", path);
    }
}

/* Clocks go back, copies have times of their own: what counts is the step. */
static void test_times(void)
{
    const time_t now = time(NULL), day = 86400;
    const time_t ages[][2] = {{now + day, now - day}, {now, now}, {0, now + day}};

    begin();
    save(1, NULL);
    save(2, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ages); i++) {
        for (int64_t step = 1; step <= 2; step++) {
            static const char *const files[] = {"COMMIT", "manifest.json",
                                                "r00000.safetensors", "."};

            for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
                char path[PATH_MAX];

                path_of(step, files[k], path);
                set_age(path, ages[i][step - 1]);
            }
        }
        {
            struct play p = load(NULL);

            ok(is_loaded(&p, 2), "the higher step, whatever times files have");
        }
    }
    end();
}

/* The directory that people name may be reached by a link; a link that changes its
 * target meanwhile leaves who has opened it where he is. */
static void test_root_is_link(void)
{
    char link_path[PATH_MAX], other[PATH_MAX], name[STEP_NAME_BYTES];
    int real_root;
    struct play p;

    begin();
    real_root = root;
    snprintf(link_path, sizeof(link_path), "%.4000s.link", root_path);
    snprintf(other, sizeof(other), "%.4000s.other", root_path);
    if (symlink(root_path, link_path) < 0 || mkdir(other, 0700) < 0) {
        bail_out("no %s", link_path);
    }
    root = open(link_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    save(1, NULL);
    unlink(link_path);
    if (symlink(other, link_path) < 0) {
        bail_out("no %s", link_path);
    }
    is_int(save(2, NULL).rc[0], 0, "its link leads elsewhere now");
    close(root);
    root = real_root;
    p = load(NULL);
    ok(is_loaded(&p, 2), "all is in the one that was opened");
    is_int(rmdir(other), 0, "and nothing in the other");
    dir_of(1, name);
    if (symlinkat(name, root, "LATEST") < 0 || symlinkat("gone", root, "step-x") < 0) {
        bail_out("no links");
    }
    p = load(NULL);
    ok(is_loaded(&p, 2), "links beside them say nothing");
    unlink(link_path);
    end();
}

/* More than one call takes: counts of bytes are not ints. */
static void test_large(void)
{
    const uint64_t len = UINT64_C(5) << 30;
    void *data = mmap(NULL, len, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char byte = 'x', got = 0;

    if (data == MAP_FAILED || fd < 0) {
        skip("no room for 5 GiB of addresses");
    } else if (getenv("MUSTER_INSTRUMENTED")) {
        skip("what keeps a book of each byte takes 20 GiB for it");
    } else {
        is_int(io_write_all(io_system(), fd, data, len, 0), 0, "5 GiB at once");
        munmap(data, len);
    }
    close(fd);
    begin();
    fd = openat(root, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ok(io_write_all(io_system(), fd, &byte, 1, len) == 0 &&
           io_read_all(io_system(), fd, &got, 1, len) == 0 && got == 'x',
       "a byte behind 5 GiB of a file");
    is_int(io_read_all(io_system(), fd, &got, 1, len + 1), -ENODATA, "and its end");
    close(fd);
    end();
}

int main(void)
{
    test_one_rank_fails();
    test_sync_fails_once();
    test_close_fails();
    test_root_sync_fails();
    test_answer_lost();
    test_moved_away();
    test_unreadable();
    test_no_descriptors();
    test_seen_by_one();
    test_one_step_seen_by_one();
    test_swapped();
    test_torn();
    test_times();
    test_root_is_link();
    test_large();
    return tap_done();
}
