/* SPDX-License-Identifier: Apache-2.0 */
/* Setting aside what is broken, on filesystems that cannot do all of it. */
#include <config.h>

#include "ckpt/watch.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/found_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    int rename; /* instead of one that promises that nothing is there */
    int stat;
    size_t write_bytes; /* a write of so many finds no room */
    unsigned n_renames, n_syncs;
} fails;

int __real_renameat2(int from, const char *name, int to, const char *to_name, unsigned flags);
int __wrap_renameat2(int from, const char *name, int to, const char *to_name, unsigned flags);
int __real_fstatat(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags);
ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
int __wrap_fsync(int fd);

static bool fail(int error)
{
    errno = error ? error : errno;
    return error != 0;
}

int __wrap_renameat2(int from, const char *name, int to, const char *to_name, unsigned flags)
{
    fails.n_renames++;
    return fail(fails.rename) ? -1 : __real_renameat2(from, name, to, to_name, flags);
}

int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags)
{
    return fail(fails.stat) ? -1 : __real_fstatat(dir, name, st, flags);
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    return fail(n == fails.write_bytes ? ENOSPC : 0) ? -1 : __real_write(fd, data, n);
}

int __wrap_fsync(int fd)
{
    (void)fd;
    fails.n_syncs += fails.n_renames > 0;
    return 0;
}

struct bench {
    char path[FOUND_BED_PATH_BYTES];
    int dir;
};

static void setup(struct bench *b)
{
    memset(&fails, 0, sizeof(fails));
    b->dir = found_bed_open(b->path);
    found_bed_put(b->dir, "m-3", "x", 1);
}

static void teardown(struct bench *b)
{
    memset(&fails, 0, sizeof(fails));
    found_bed_close(b->dir, b->path);
}

static bool is_there(const struct bench *b, const char *name)
{
    return faccessat(b->dir, name, F_OK, 0) == 0;
}

static void aside(const struct bench *b, const char *want, const char *what)
{
    char to[FOUND_NAME_BYTES];
    struct error e = {0};

    is_int(watch_set_aside(b->dir, "m-3", "why", to, &e), 0, "%s: %s", what, e.text);
    is_str(to, want, "under that name");
    ok(is_there(b, want) && !is_there(b, "m-3"), "it is there");
}

static void stays(const struct bench *b, int want, const char *what)
{
    char to[FOUND_NAME_BYTES];
    struct error e = {0};

    is_int(watch_set_aside(b->dir, "m-3", "why", to, &e), want, "%s", what);
    like(e.text, "set m-3 aside", "said of it");
    ok(is_there(b, "m-3"), "it stays");
}

static void test_no_promise(void)
{
    static const int errors[] = {EINVAL, ENOSYS};

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        char to[FOUND_NAME_BYTES];
        struct bench b;

        setup(&b);
        fails.rename = errors[i];
        aside(&b, "m-3.broken", "it is looked what is there");
        found_bed_put(b.dir, "m-3", "y", 1);
        aside(&b, "m-3.broken-2", "and nothing is written over");
        found_bed_put(b.dir, "m-3", "z", 1);
        fails.stat = EACCES;
        stays(&b, -EACCES, "where that cannot be looked at");
        fails.stat = 0;
        symlinkat("nowhere", b.dir, "m-3.broken-3");
        aside(&b, "m-3.broken-4", "a link is something, whatever it leads to");
        is_int(watch_set_aside(b.dir, "m-3", "why", to, NULL), -ENOENT, "one that is gone");
        teardown(&b);
    }
}

static void test_errors(void)
{
    struct bench b;

    setup(&b);
    fails.rename = EROFS;
    stays(&b, -EROFS, "nothing can be renamed");
    is_int((int)fails.n_renames, 1, "once is enough");
    fails.n_renames = 0;
    fails.rename = EEXIST;
    stays(&b, -EEXIST, "all names are taken");
    is_int((int)fails.n_renames, 1000, "a thousand");
    teardown(&b);
}

static void test_why(void)
{
    _free_ char *text = NULL;
    struct bench b;
    char path[FOUND_BED_PATH_BYTES + 32];

    setup(&b);
    fails.write_bytes = strlen("why");
    aside(&b, "m-3.broken", "a full disk");
    ok(!is_there(&b, "m-3.broken.why"), "without a word");
    is_int((int)fails.n_syncs, 1, "and is on the disk");
    fails.write_bytes = strlen("\n");
    found_bed_put(b.dir, "m-3", "xx", 2);
    aside(&b, "m-3.broken-2", "one that is full in the end");
    ok(!is_there(&b, "m-3.broken-2.why"), "rather than half of it");
    fails.write_bytes = 0;
    unlinkat(b.dir, "m-3.broken", 0);
    found_bed_put(b.dir, "m-3", "x", 1);
    found_bed_put(b.dir, "m-3.broken.why", "of another", 10);
    aside(&b, "m-3.broken", "where a reason is there already");
    snprintf(path, sizeof(path), "%s/m-3.broken.why", b.path);
    is_int(fs_read(path, 100, &text, NULL, NULL), 0, "it can be read");
    is_str(text ? text : "", "of another", "as it was");
    teardown(&b);
}

static void test_long_names(void)
{
    char name[FOUND_NAME_BYTES], to[FOUND_NAME_BYTES];
    struct bench b;

    setup(&b);
    memset(name, 'n', sizeof(name));
    name[255 - strlen(FOUND_ASIDE)] = '\0';
    found_bed_put(b.dir, name, "x", 1);
    is_int(watch_set_aside(b.dir, name, "why", to, NULL), 0, "the longest name");
    is_int((int)strlen(to), 255, "has just room");
    fails.n_renames = 0;
    name[255 - strlen(FOUND_ASIDE)] = 'n';
    name[256 - strlen(FOUND_ASIDE)] = '\0';
    found_bed_put(b.dir, name, "x", 1);
    is_int(watch_set_aside(b.dir, name, "why", to, NULL), -ENAMETOOLONG, "a longer one has not");
    is_int((int)fails.n_renames, 0, "and is not tried");
    teardown(&b);
}

int main(void)
{
    test_no_promise();
    test_errors();
    test_why();
    test_long_names();
    return tap_done();
}
