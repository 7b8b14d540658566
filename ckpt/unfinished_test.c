/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of saves that came to no end: since when nobody has written to it, what it
 * takes, and whether a run saves beside it; also where the filesystem fails. */
#include <config.h>

#include "ckpt/unfinished.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME "step-000000000007-0f3a9c2e"

static char root_path[] = "/tmp/unfinished_test.XXXXXX";
static int root = -1;

/* --- a filesystem that fails at a call --- */

enum call { NO_CALL, OPEN_DIR, OPEN_FILE, SIZE, CHANGED, TOUCH, LIST };

static struct odd {
    struct io io;
    struct io_ops ops;
    enum call call;
    int rc, n_open;
} odd;

static int opened(int fd)
{
    odd.n_open += fd >= 0;
    return fd;
}

static int open_dir_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return odd.call == OPEN_DIR ? odd.rc
                                : opened(io_system()->ops->open_dir(io_system(), dir, name));
}

static int open_file_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return odd.call == OPEN_FILE && strcmp(name, "COMMIT") != 0
               ? odd.rc : opened(io_system()->ops->open_file(io_system(), dir, name));
}

static int close_odd(struct io *io, int fd)
{
    (void)io;
    odd.n_open--;
    return io_system()->ops->close(io_system(), fd);
}

static int size_odd(struct io *io, int fd, uint64_t *ret)
{
    (void)io;
    return odd.call == SIZE ? odd.rc : io_system()->ops->size(io_system(), fd, ret);
}

static int changed_odd(struct io *io, int fd, int64_t *ret_ns)
{
    (void)io;
    return odd.call == CHANGED ? odd.rc : io_system()->ops->changed(io_system(), fd, ret_ns);
}

static int touch_odd(struct io *io, int fd)
{
    (void)io;
    return odd.call == TOUCH ? odd.rc : io_system()->ops->touch(io_system(), fd);
}

static int list_odd(struct io *io, int dir, int (*each)(void *arg, const char *name), void *arg)
{
    (void)io;
    return odd.call == LIST ? odd.rc : io_system()->ops->list(io_system(), dir, each, arg);
}

static struct io *with(enum call call, int rc)
{
    odd = (struct odd){.ops = *io_system()->ops, .call = call, .rc = rc};
    odd.ops.open_dir = open_dir_odd;
    odd.ops.open_file = open_file_odd;
    odd.ops.close = close_odd;
    odd.ops.size = size_odd;
    odd.ops.changed = changed_odd;
    odd.ops.touch = touch_odd;
    odd.ops.list = list_odd;
    odd.io.ops = &odd.ops;
    return &odd.io;
}

/* --- what is there --- */

static void set_time(const char *path, int64_t s)
{
    const struct timespec times[2] = {{.tv_sec = s}, {.tv_sec = s}};

    if (utimensat(root, path, times, AT_SYMLINK_NOFOLLOW) < 0) {
        bail_out("no time of %s", path);
    }
}

/* With so many bytes, changed then. */
static void put(const char *path, size_t bytes, int64_t s)
{
    _close_ int fd = openat(root, path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
        bail_out("no %s", path);
    }
    set_time(path, s);
}

static int64_t seconds(const struct unfinished *u)
{
    return u->changed_ns / 1000000000;
}

static void test_look(void)
{
    struct unfinished u = {.bytes = 77};
    struct error e = {0};

    is_int(unfinished_look(io_system(), root, NAME, &u, &e), -ENOENT, "nothing there: %s", e.text);
    is_int((int)u.bytes, 77, "nothing is said then");
    mkdirat(root, NAME, 0700);
    set_time(NAME, 5000);
    is_int(unfinished_look(io_system(), root, NAME, &u, &e), 0, "an empty one");
    ok(u.bytes == 0 && seconds(&u) == 5000, "has the time of its directory");
    put(NAME "/r00000.safetensors", 1000, 6000);
    put(NAME "/r00001.part", 23, 4000);
    set_time(NAME, 5000);
    is_int(unfinished_look(with(NO_CALL, 0), root, NAME, &u, &e), 0, "one with files");
    ok(u.bytes == 1023 && seconds(&u) == 6000, "has all their bytes, and the latest time");
    is_int(odd.n_open, 0, "nothing stays open");
    set_time(NAME, 7000);
    unfinished_look(io_system(), root, NAME, &u, &e);
    ok(seconds(&u) == 7000, "which may be that of the directory");
    set_time(NAME, -7000);
    set_time(NAME "/r00000.safetensors", -6000);
    set_time(NAME "/r00001.part", -8000);
    unfinished_look(io_system(), root, NAME, &u, &e);
    ok(seconds(&u) == -6000, "or one before all clocks");
}

/* A name is no file, or goes while it is looked at. */
static void test_odd_files(void)
{
    struct unfinished u;
    struct error e = {0};

    symlinkat("/nowhere", root, NAME "/link");
    mkdirat(root, NAME "/directory", 0700);
    mkfifoat(root, NAME "/pipe", 0600);
    is_int(unfinished_look(io_system(), root, NAME, &u, &e), 0, "links, pipes, directories");
    is_int((int)u.bytes, 1023, "take nothing");
    unlinkat(root, NAME "/link", 0);
    unlinkat(root, NAME "/pipe", 0);
    unlinkat(root, NAME "/directory", AT_REMOVEDIR);
    is_int(unfinished_look(with(OPEN_FILE, -ENOENT), root, NAME, &u, &e), 0,
           "files that go while it is looked at");
    is_int((int)u.bytes, 0, "are not there any more");
}

/* Somebody may be at it, as nobody can tell. */
static void test_fails(void)
{
    static const struct {
        const char *what;
        enum call call;
    } cases[] = {{"the directory", OPEN_DIR}, {"its names", LIST},   {"a file", OPEN_FILE},
                 {"a time", CHANGED},         {"a length", SIZE}};
    struct unfinished u = {.bytes = 77};
    struct error e = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        is_int(unfinished_look(with(cases[i].call, -EIO), root, NAME, &u, &e), -EIO,
               "not to be read: %s", cases[i].what);
        like(e.text, "look at " NAME ": ", "which is told with its name");
        ok(odd.n_open == 0 && u.bytes == 77, "nothing stays open, nothing is said");
    }
}

static void test_finished(void)
{
    struct unfinished u;

    put(NAME "/COMMIT", 1, 1);
    is_int(unfinished_look(io_system(), root, NAME, &u, NULL), -ENOENT, "a checkpoint is none");
    unlinkat(root, NAME "/COMMIT", 0);
}

static void test_clock(void)
{
    int64_t now_ns = 0, there_ns = (int64_t)time(NULL) * 1000000000;

    set_time(".", 1000);
    is_int(unfinished_clock(io_system(), root, &now_ns), 0, "the filesystem says what time it is");
    ok(now_ns > there_ns - INT64_C(60000000000) && now_ns < there_ns + INT64_C(60000000000),
       "and not when something was changed last");
    is_int(unfinished_clock(with(TOUCH, -EROFS), root, &now_ns), -EROFS, "or why it does not");
    is_int(unfinished_clock(with(CHANGED, -EIO), root, &now_ns), -EIO, "whichever call fails");
}

static int has_run(struct io *io, int64_t now_s, char ret[LEASE_NAME_BYTES])
{
    struct error e = {0};

    ret[0] = '\0';
    return unfinished_has_run(io, root, now_s * 1000000000, ret, &e);
}

static void test_runs(void)
{
    char name[LEASE_NAME_BYTES];

    is_int(has_run(io_system(), 10000, name), 0, "no run saves there");
    put(".muster-run-b", 10, 10000);
    is_int(has_run(io_system(), 10030, name), 1, "one that has renewed its file half a minute ago");
    is_str(name, ".muster-run-b", "which one");
    is_int(has_run(io_system(), 9000, name), 1, "or in the future");
    is_int(has_run(io_system(), 10061, name), 0, "not one that has not for more than a minute");
    put(".muster-run-a", 10, 10060);
    is_int(has_run(with(NO_CALL, 0), 10061, name), 1, "of two the one that does");
    ok(strcmp(name, ".muster-run-a") == 0 && odd.n_open == 0, "and nothing stays open");
    is_int(has_run(with(LIST, -EIO), 10061, name), -EIO, "nobody can tell without a list");
    is_int(has_run(with(OPEN_FILE, -EACCES), 10061, name), -EACCES, "or without its file");
    unlinkat(root, ".muster-run-a", 0);
    unlinkat(root, ".muster-run-b", 0);
    symlinkat("/", root, ".muster-run-c");
    is_int(has_run(io_system(), 10061, name), 0, "a link is nobody's");
}

int main(void)
{
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    test_look();
    test_odd_files();
    test_fails();
    test_finished();
    test_clock();
    test_runs();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
