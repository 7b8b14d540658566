/* SPDX-License-Identifier: Apache-2.0 */
/* What tells that a checkpoint was written to: each fact of its files by itself. */
#include <config.h>

#include "ckpt/watch.h"

#include "ckpt/found_bed.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct bench {
    char path[FOUND_BED_PATH_BYTES];
    int dir;
};

static void setup(struct bench *b)
{
    b->dir = found_bed_open(b->path);
}

static void teardown(struct bench *b)
{
    found_bed_close(b->dir, b->path);
}

static void set_time(const struct bench *b, const char *name, time_t s, long ns)
{
    const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = s, .tv_nsec = ns}};

    if (utimensat(b->dir, name, times, AT_SYMLINK_NOFOLLOW) < 0) {
        bail_out("set the time of %s", name);
    }
}

/* A file, or a directory where there is no text, of one time. */
static void put(const struct bench *b, const char *name, const char *text)
{
    if (text) {
        found_bed_put(b->dir, name, text, strlen(text));
    } else if (mkdirat(b->dir, name, 0700) < 0) {
        bail_out("make %s", name);
    }
    set_time(b, name, 1000, 5);
}

/* --- calls that fail --- */

/* Of a file or directory of that name, and -errno in its place; 0: another one is there
 * then, `instead`. */
static struct {
    const char *open, *stat, *after;
    int error;
    const char *instead;
    const char *grown; /* it is said to be larger */
} fails;

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __real_fstatat(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags);
struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);

int __wrap_openat(int dir, const char *name, int flags, ...)
{
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_list args;

        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    if (fails.open && strcmp(name, fails.open) == 0) {
        if (fails.error) {
            errno = fails.error;
            return -1;
        }
        unlinkat(dir, name, AT_REMOVEDIR);
        symlinkat(fails.instead, dir, name);
    }
    return __real_openat(dir, name, flags, mode);
}

int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags)
{
    if (fails.stat && strcmp(name, fails.stat) == 0) {
        errno = fails.error;
        return -1;
    }
    if (__real_fstatat(dir, name, st, flags) < 0) {
        return -1;
    }
    st->st_size += fails.grown && strcmp(name, fails.grown) == 0 ? 4096 : 0;
    return 0;
}

/* Nothing can be read behind that name. */
struct dirent *__wrap_readdir(DIR *d)
{
    static bool is_after;
    struct dirent *entry = is_after ? NULL : __real_readdir(d);

    if (is_after) {
        errno = fails.error;
    }
    is_after = entry && fails.after && strcmp(entry->d_name, fails.after) == 0;
    return entry;
}

/* --- marks --- */

static uint64_t mark_of(const struct bench *b)
{
    uint64_t mark = 0;
    int rc = watch_mark(b->dir, "checkpoint-1", &mark);

    return rc < 0 ? 0 : mark;
}

/* Whether there is another one than `mark`. */
static void differs(const struct bench *b, uint64_t mark, bool want, const char *what)
{
    uint64_t now = mark_of(b);

    ok(mark && now && (now != mark) == want, "%s", what);
}

static void put_model(struct bench *b)
{
    setup(b);
    put(b, "checkpoint-1", NULL);
    put(b, "checkpoint-1/a", "text");
    put(b, "checkpoint-1/b", "tent");
    put(b, "checkpoint-1/sub", NULL);
    set_time(b, "checkpoint-1", 1000, 5);
}

static void test_facts(void)
{
    static const char a[] = "checkpoint-1/a";
    struct stat st;
    struct bench b;
    uint64_t mark;

    put_model(&b);
    mark = mark_of(&b);
    differs(&b, mark, false, "the same twice");
    set_time(&b, a, 1000, 6);
    differs(&b, mark, true, "a nanosecond later");
    set_time(&b, a, 1001, 5);
    differs(&b, mark, true, "a second later");
    set_time(&b, a, 999, 5);
    differs(&b, mark, true, "a second before: no clock is asked");
    set_time(&b, a, 1000, 5);
    differs(&b, mark, false, "the time when it was read counts for nothing");
    put(&b, a, "texts");
    differs(&b, mark, true, "longer");
    put(&b, a, "text");
    differs(&b, mark, false, "and as before");
    fchmodat(b.dir, a, 0640, 0);
    differs(&b, mark, true, "of another mode");
    fchmodat(b.dir, a, 0600, 0);
    put(&b, "checkpoint-1/c", "text");
    renameat(b.dir, "checkpoint-1/c", b.dir, a);
    set_time(&b, "checkpoint-1", 1000, 5);
    ok(fstatat(b.dir, a, &st, 0) == 0 && st.st_size == 4 && st.st_mtim.tv_nsec == 5,
       "another file of the same size and time");
    differs(&b, mark, true, "is another one");
    mark = mark_of(&b);
    put(&b, "checkpoint-1/c", "");
    set_time(&b, "checkpoint-1", 1000, 5);
    differs(&b, mark, true, "one more, which is empty");
    teardown(&b);
}

/* Times of directories aside. */
static void test_names(void)
{
    struct bench b;
    uint64_t mark;

    put_model(&b);
    mark = mark_of(&b);
    renameat(b.dir, "checkpoint-1/a", b.dir, "checkpoint-1/c");
    set_time(&b, "checkpoint-1", 1000, 5);
    differs(&b, mark, true, "a file of another name");
    renameat(b.dir, "checkpoint-1/c", b.dir, "checkpoint-1/a");
    renameat(b.dir, "checkpoint-1/a", b.dir, "checkpoint-1/sub/a");
    set_time(&b, "checkpoint-1", 1000, 5);
    set_time(&b, "checkpoint-1/sub", 1000, 5);
    differs(&b, mark, true, "or at another place");
    renameat(b.dir, "checkpoint-1/sub/a", b.dir, "checkpoint-1/a");
    renameat2(b.dir, "checkpoint-1/a", b.dir, "checkpoint-1/b", RENAME_EXCHANGE);
    set_time(&b, "checkpoint-1", 1000, 5);
    set_time(&b, "checkpoint-1/sub", 1000, 5);
    differs(&b, mark, true, "or two that have changed places");
    teardown(&b);
}

/* It may grow with names, and stay so when they have gone. */
static void test_directory_size(void)
{
    struct bench b;
    uint64_t mark;

    put_model(&b);
    mark = mark_of(&b);
    fails.grown = "sub";
    differs(&b, mark, false, "how large a directory is says nothing");
    fails.grown = "a";
    differs(&b, mark, true, "as it does of a file");
    fails.grown = NULL;
    teardown(&b);
}

/* What is deep is none of a checkpoint, and somebody's tree may go on for ever. */
static void test_depth(void)
{
    static const char path[] = "checkpoint-1/d/d/d/d/d/d/d/d/x";
    char name[sizeof(path)];
    struct bench b;
    uint64_t mark;

    put_model(&b);
    for (int i = 1; i <= 8; i++) {
        snprintf(name, sizeof(name), "%.*s", 12 + 2 * i, path);
        put(&b, name, NULL);
    }
    mark = mark_of(&b);
    set_time(&b, name, 1000, 6);
    differs(&b, mark, true, "a directory in seven others is looked at");
    mark = mark_of(&b);
    put(&b, path, "x");
    set_time(&b, name, 1000, 6);
    differs(&b, mark, false, "but not into it");
    teardown(&b);
}

static void test_links(void)
{
    uint64_t mark = 0, now = 0;
    struct bench b;

    put_model(&b);
    symlinkat("checkpoint-1", b.dir, "checkpoint-2");
    is_int(watch_mark(b.dir, "checkpoint-2", &mark), -ELOOP, "a link is none");
    put(&b, "other", NULL);
    put(&b, "other/x", "x");
    symlinkat("../other", b.dir, "checkpoint-1/link");
    is_int(watch_mark(b.dir, "checkpoint-1", &mark), 0, "a link in one is a name of it");
    ok(mark != 0, "and it has a mark");
    put(&b, "other/x", "xx");
    is_int(watch_mark(b.dir, "checkpoint-1", &now), 0, "once more");
    ok(now == mark, "to where it goes is nothing of it");
    is_int(watch_mark(b.dir, "checkpoint-3", &mark), -ENOENT, "one that is not there");
    teardown(&b);
}

/* --- what fails --- */

static void test_errors(void)
{
    struct bench b;
    uint64_t mark;

    put_model(&b);
    put(&b, "other", NULL);
    fails.stat = "a";
    fails.error = ENOENT;
    is_int(watch_mark(b.dir, "checkpoint-1", &mark), 0, "a file that goes meanwhile");
    fails.error = EIO;
    is_int(watch_mark(b.dir, "checkpoint-1", &mark), -EIO, "one that cannot be looked at");
    fails.stat = NULL;
    fails.open = "sub";
    is_int(watch_mark(b.dir, "checkpoint-1", &mark), -EIO, "nor a directory in it");
    fails.error = 0;
    fails.instead = "../other";
    is_int(watch_mark(b.dir, "checkpoint-1", &mark), -ENOTDIR,
           "or it is a link all at once: nobody follows it");
    fails.open = NULL;
    fails.after = "..";
    fails.error = EIO;
    is_int(watch_mark(b.dir, "checkpoint-1", &mark), -EIO, "or its names cannot be read");
    fails.after = NULL;
    teardown(&b);
}

static void is_seen(const struct bench *b, int error, size_t want, const char *what)
{
    _watch_ struct watch w = {.io = io_system()};

    fails.open = "sub";
    fails.error = error;
    is_int(watch_look(&w, b->dir, NULL), 0, "a look");
    fails.open = NULL;
    is_int((int)w.n, (int)want, "%s", what);
    ok(want == 0 || w.entries[0].mark != 0, "with a mark of the others of its files");
}

static void test_no_access(void)
{
    struct bench b;

    put_model(&b);
    is_seen(&b, EACCES, 1, "one that is not for us is seen: a check says that");
    is_seen(&b, EPERM, 1, "likewise");
    is_seen(&b, EIO, 1, "one that a disk does not give up is no reason to take an older one "
                        "without a word");
    teardown(&b);
}

static int n_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

int main(void)
{
    int before = n_open();

    test_facts();
    test_names();
    test_directory_size();
    test_depth();
    test_links();
    test_errors();
    test_no_access();
    is_int(n_open(), before, "whatever was looked at is closed");
    return tap_done();
}
