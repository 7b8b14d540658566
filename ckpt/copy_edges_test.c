/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on filesystems that fail, of what changes meanwhile, and to odd places. */
#include <config.h>

#include "ckpt/copy.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/found_bed.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char weights[] = "\2\0\0\0\0\0\0\0{}";

struct bench {
    char path[FOUND_BED_PATH_BYTES], to_path[FOUND_BED_PATH_BYTES + 8];
    int top, from, to;
};

/* --- calls that fail --- */

static struct {
    int n_syncs, at_sync; /* the n-th sync fails */
    const char *open;     /* when that name is opened, after so often, this happens first */
    int n_opens, at_open;
    void (*happens)(int dir, const char *name);
    int at_list;          /* the n-th directory with a state cannot be listed */
    bool has_room;        /* else as large as it is */
    unsigned long room, room_all;
    uid_t user;
    int exchange;         /* an error of it */
    dev_t dev;            /* of what fstat() looks at, so many more */
} fails;

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);
int __wrap_fsync(int fd);
int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __real_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret);
uid_t __wrap_geteuid(void);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    errno = fails.exchange;
    return fails.exchange ? -1 : __real_renameat2(a, from, b, to, flags);
}

int __wrap_openat(int dir, const char *name, int flags, ...)
{
    if (fails.open && strcmp(name, fails.open) == 0 && fails.n_opens++ == fails.at_open) {
        fails.open = NULL;
        fails.happens(dir, name);
    }
    return __real_openat(dir, name, flags, 0600);
}

struct dirent *__wrap_readdir(DIR *d)
{
    struct dirent *entry = __real_readdir(d);

    if (entry && fails.at_list > 0 && strcmp(entry->d_name, "trainer_state.json") == 0 &&
        --fails.at_list == 0) {
        errno = EIO;
        return NULL;
    }
    return entry;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    errno = EIO;
    return ++fails.n_syncs == fails.at_sync ? -1 : 0;
}

int __wrap_fstat(int fd, struct stat *st)
{
    int rc = __real_fstat(fd, st);

    st->st_dev += rc == 0 ? fails.dev : 0;
    return rc;
}

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    int rc = __real_fstatvfs(fd, ret);

    if (rc == 0 && fails.has_room) {
        *ret = (struct statvfs){.f_frsize = 1, .f_blocks = 1000, .f_bfree = fails.room_all,
                                .f_bavail = fails.room};
    }
    return rc;
}

uid_t __wrap_geteuid(void)
{
    return fails.user;
}

/* --- the bed --- */

static int make_dir(int at, const char *name)
{
    int dir = mkdirat(at, name, 0700) < 0 ? -1
                                          : openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0) {
        bail_out("no directory %s", name);
    }
    return dir;
}

static void setup(struct bench *b)
{
    static const char state[] = "{\"global_step\": 5}";

    memset(&fails, 0, sizeof(fails));
    b->top = found_bed_open(b->path);
    snprintf(b->to_path, sizeof(b->to_path), "%s/to", b->path);
    b->from = make_dir(b->top, "from");
    b->to = make_dir(b->top, "to");
    found_bed_put(b->from, "m-5.safetensors", weights, sizeof(weights) - 1);
    mkdirat(b->from, "checkpoint-5", 0700);
    found_bed_put(b->from, "checkpoint-5/model.safetensors", weights, sizeof(weights) - 1);
    found_bed_put(b->from, "checkpoint-5/trainer_state.json", state, sizeof(state) - 1);
}

static void teardown(struct bench *b)
{
    memset(&fails, 0, sizeof(fails));
    close(b->from);
    close(b->to);
    found_bed_close(b->top, b->path);
}

static const struct found file = {.name = "m-5.safetensors", .kind = FOUND_SAFETENSORS},
                          dir = {.name = "checkpoint-5", .kind = FOUND_TRAINER};

static int copy(struct bench *b, struct io *io, const struct found *f, struct error *e)
{
    struct found_facts facts = {0};

    *e = (struct error){0};
    return copy_checkpoint(io, b->from, f, b->to, b->to_path, &facts, e);
}

static int fails_with(struct bench *b, const struct found *f, const char *why)
{
    struct error e;
    int rc = copy(b, io_system(), f, &e);

    like(e.text, why, "said so");
    return rc;
}

static bool is_there(const struct bench *b, const struct found *f)
{
    return faccessat(b->to, f->name, F_OK, 0) == 0;
}

/* --- what fails --- */

static void test_syncs(void)
{
    static const struct {
        const struct found *f;
        int n; /* each file, each directory, and where it lies */
    } cases[] = {{&file, 2}, {&dir, 4}};
    struct error e;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bench b;

        setup(&b);
        for (int at = 1; at <= cases[i].n; at++) {
            fails.n_syncs = 0;
            fails.at_sync = at;
            is_int(copy(&b, io_system(), cases[i].f, &e), -EIO, "sync %d of %s: %s", at,
                   cases[i].f->name, e.text);
            fs_remove_tree(b.to_path, NULL);
            close(b.to);
            b.to = make_dir(b.top, "to");
        }
        fails.n_syncs = fails.at_sync = 0;
        is_int(copy(&b, io_system(), cases[i].f, &e), 0, "all of them");
        is_int(fails.n_syncs, cases[i].n, "so many");
        teardown(&b);
    }
}

static void make_link(int at, const char *name)
{
    unlinkat(at, name, 0);
    symlinkat("/dev/null", at, name);
}

static int late_to;

static void take_file(int at, const char *name)
{
    (void)at, (void)name;
    found_bed_put(late_to, ".muster-copy-m-5.safetensors", "x", 1);
}

/* Somebody is faster. */
static void test_races(void)
{
    struct bench b;

    setup(&b);
    late_to = b.to;
    fails.open = "model.safetensors";
    fails.happens = make_link;
    is_int(fails_with(&b, &dir, "written to while it was copied"), -EAGAIN,
           "a file that is a link all at once");
    ok(!is_there(&b, &dir), "is not followed");
    fails.open = file.name;
    fails.n_opens = 0;
    fails.at_open = 1; /* it is held first */
    fails.happens = take_file;
    is_int(fails_with(&b, &file, "copy m-5.safetensors: File exists"), -EEXIST,
           "what is there already is not written over");
    teardown(&b);

}

/* The names of the directory cannot be read, at each of the times that they are: for the
 * room, for what it was before, to copy them, for what it is then, and to check the copy. */
static void test_unlisted(void)
{
    static const int want[] = {0, -EIO, -EIO, -EIO, -EIO, -EIO};

    for (int at = 1; at <= (int)ARRAY_SIZE(want); at++) {
        struct error e;
        struct bench b;

        setup(&b);
        fails.at_list = at;
        is_int(copy(&b, io_system(), &dir, &e), want[at - 1], "listing %d: %s", at, e.text);
        ok(is_there(&b, &dir) == (want[at - 1] == 0), "it is there if that went well");
        teardown(&b);
    }
}

static ssize_t read_touched(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = 1}};

    utimensat(late_to, file.name, times, 0);
    return io_system_ops.read(io, fd, to, len, at);
}

static void test_written(void)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    struct error e;
    struct bench b;

    setup(&b);
    late_to = b.from;
    ops.read = read_touched;
    is_int(copy(&b, &io, &file, &e), -EAGAIN, "one that is written to: %s", e.text);
    ok(!is_there(&b, &file), "is not there");
    teardown(&b);
}

static void test_depth(void)
{
    char path[128] = "checkpoint-5";
    struct error e;
    struct bench b;
    size_t len = strlen(path);

    setup(&b);
    for (int i = 1; i <= 15; i++, len += 2) {
        memcpy(path + len, "/d", 3);
        mkdirat(b.from, path, 0700);
    }
    is_int(copy(&b, io_system(), &dir, &e), 0, "sixteen directories in each other: %s", e.text);
    fs_remove_tree(b.to_path, NULL);
    close(b.to);
    b.to = make_dir(b.top, "to");
    memcpy(path + len, "/d", 3);
    mkdirat(b.from, path, 0700);
    is_int(copy(&b, io_system(), &dir, &e), -EINVAL, "one more: %s", e.text);
    teardown(&b);
}

static void test_locked(void)
{
    struct bench b;
    int other;

    setup(&b);
    other = open(b.to_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ok(flock(other, LOCK_EX | LOCK_NB) == 0, "another one has the lock");
    is_int(fails_with(&b, &file, "somebody else copies into"), -EBUSY, "it is told");
    close(other);
    teardown(&b);
}

static void test_room(void)
{
    static const struct {
        uid_t user;
        unsigned long all, available;
        int rc;
    } cases[] = {
        {0, 10, 0, 0}, {0, 9, 9, -ENOSPC}, {1000, 10, 10, 0}, {1000, 10, 9, -ENOSPC},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e;
        struct bench b;

        setup(&b);
        fails.has_room = true;
        fails.user = cases[i].user;
        fails.room_all = cases[i].all;
        fails.room = cases[i].available;
        is_int(copy(&b, io_system(), &file, &e), cases[i].rc, "room %zu: %s", i, e.text);
        teardown(&b);
    }
}

/* --- where --- */

static void place(const struct bench *b, const struct found *f, int want, const char *path,
                  const char *what)
{
    is_int(copy_check_place(b->from, f, path, NULL), want, "%s", what);
}

static void test_places(void)
{
    char from[FOUND_BED_PATH_BYTES + 32];
    struct bench b;
    int was = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    setup(&b);
    snprintf(from, sizeof(from), "%s/from", b.path);
    place(&b, &file, -EINVAL, from, "where it lies already");
    fails.dev = 1;
    place(&b, &file, 0, from, "a directory of that number on another disk");
    fails.dev = 0;
    snprintf(from, sizeof(from), "%s/from/new/more", b.path);
    place(&b, &file, 0, from, "a new one in there");
    place(&b, &dir, 0, from, "also for a directory");
    snprintf(from, sizeof(from), "%s/to", b.path);
    place(&b, &file, 0, from, "another one");
    place(&b, &dir, 0, from, "for both");
    snprintf(from, sizeof(from), "%s/from/checkpoint-5/new", b.path);
    place(&b, &dir, -EINVAL, from, "in itself");
    place(&b, &file, 0, from, "where a file may go");
    if (fchdir(b.from) < 0 || chdir("checkpoint-5") < 0) {
        bail_out("no directory to go to");
    }
    place(&b, &dir, -EINVAL, "new/more", "in itself, from here");
    place(&b, &dir, 0, "/muster-none", "one of the root, that is not there");
    place(&b, &dir, 0, "../../new", "beside it");
    place(&b, &dir, -EINVAL, ".", "itself");
    if (fchdir(was) < 0) {
        bail_out("no way back");
    }
    close(was);
    teardown(&b);
}

static void test_count_odd(void)
{
    struct found f = {.name = "fifo", .kind = FOUND_TORCH};
    struct found_facts facts = {.bytes = 9, .n_files = 9};
    struct bench b;

    setup(&b);
    mkfifoat(b.from, "fifo", 0600);
    copy_count(b.from, &f, &facts);
    ok(facts.bytes == 0 && facts.n_files == 0, "what is no file has nothing");
    teardown(&b);
}

/* One that has grown takes the place of the one before, in one step where there is that. */
static void test_grown(void)
{
    static const int errors[] = {EINVAL, ENOSYS, EIO};

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        bool is_known = errors[i] != EIO;
        struct error e;
        struct bench b;

        setup(&b);
        is_int(copy(&b, io_system(), &dir, &e), 0, "one is there");
        found_bed_put(b.from, "checkpoint-5/more.json", "{}", 2);
        fails.exchange = errors[i];
        is_int(copy(&b, io_system(), &dir, &e), is_known ? 0 : -EIO, "it has grown: %s", e.text);
        is_int(faccessat(b.to, "checkpoint-5/more.json", F_OK, 0) == 0, is_known,
               is_known ? "and is what it was copied from" : "it is what it was");
        ok(is_there(&b, &dir) && faccessat(b.to, ".muster-copy-checkpoint-5", F_OK, 0) < 0 &&
           faccessat(b.to, ".muster-old-checkpoint-5", F_OK, 0) < 0, "and nothing is beside it");
        teardown(&b);
    }
}

int main(void)
{
    test_grown();
    test_syncs();
    test_races();
    test_unlisted();
    test_written();
    test_depth();
    test_locked();
    test_room();
    test_places();
    test_count_odd();
    return tap_done();
}
