/* SPDX-License-Identifier: Apache-2.0 */
/* What programs name as their last checkpoint: whatever is in such a file, and links. */
#include <config.h>

#include "ckpt/tracker.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEGATRON "latest_checkpointed_iteration.txt"

static const struct {
    const char *file, *text, *want; /* NULL: nothing */
} cases[] = {
    {MEGATRON, "100", "iter_0000100"},
    {MEGATRON, "100\n", "iter_0000100"},
    {MEGATRON, "  7\r\n", "iter_0000007"},
    {MEGATRON, "0", "iter_0000000"},
    {MEGATRON, "12345678", "iter_12345678"},
    {MEGATRON, "release", "release"},
    {MEGATRON, "", NULL}, /* as after a crash */
    {MEGATRON, "\n\n", NULL},
    {MEGATRON, "-1", NULL},
    {MEGATRON, "1.5", NULL},
    {MEGATRON, "1 2", NULL},
    {MEGATRON, "0x10", NULL},
    {MEGATRON, "99999999999999999999", NULL},
    {MEGATRON, "../100", NULL},
    {MEGATRON, "iter_0000100", NULL},
    {"latest", "global_step100", "global_step100"},
    {"latest", "global_step100\n", "global_step100"},
    {"latest", "my tag", "my tag"},
    {"latest_universal", "global_step7_universal", "global_step7_universal"},
    {"latest", "", NULL},
    {"latest", "..", NULL},
    {"latest", ".", NULL},
    {"latest", ".hidden", NULL},
    {"latest", "a/b", NULL},
    {"latest", "/etc/passwd", NULL},
    {"latest", "../global_step100", NULL},
};

static void test_text(void)
{
    char name[FOUND_NAME_BYTES], large[FOUND_NAME_BYTES + 16];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool is = tracker_parse(cases[i].file, cases[i].text, strlen(cases[i].text),
                                name);

        is_str(is ? name : "nothing", cases[i].want ? cases[i].want : "nothing",
               "case %zu", i);
    }
    memset(large, 'a', sizeof(large));
    ok(!tracker_parse("latest", large, FOUND_NAME_BYTES, name), "a name that is too long");
    ok(tracker_parse("latest", large, FOUND_NAME_BYTES - 1, name) &&
           strlen(name) == FOUND_NAME_BYTES - 1, "the longest that there is");
    ok(!tracker_parse("latest", "a\0b", 3, name), "one with a zero byte");
}

/* --- calls that fail --- */

/* Of that name, or at all where there is none, the call fails so. */
static struct {
    const char *open, *stat;
    int error;
    bool is_read, is_fstat;
    int n_readdir; /* the n-th from now on */
} fails;

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __real_fstatat(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags);
int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);

static bool fail(bool does)
{
    errno = does ? fails.error : errno;
    return does;
}

int __wrap_openat(int dir, const char *name, int flags, ...)
{
    return fail(fails.open && strcmp(fails.open, name) == 0)
               ? -1 : __real_openat(dir, name, flags, 0600);
}

int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags)
{
    return fail(fails.stat && strcmp(fails.stat, name) == 0)
               ? -1 : __real_fstatat(dir, name, st, flags);
}

int __wrap_fstat(int fd, struct stat *st)
{
    return fail(fails.is_fstat) ? -1 : __real_fstat(fd, st);
}

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    return fail(fails.is_read) ? -1 : __real_pread(fd, to, n, at);
}

struct dirent *__wrap_readdir(DIR *d)
{
    return fail(fails.n_readdir > 0 && --fails.n_readdir == 0) ? NULL : __real_readdir(d);
}

/* --- directories --- */

static void put(int dir, const char *name, const char *text)
{
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0) {
        bail_out("write %s", name);
    }
}

/* All names, in the order in which they were found, a blank behind each. */
static const char *named(int dir)
{
    static char text[1024];
    _strlist_ struct strlist names = {0};
    int rc = tracker_read(dir, &names);

    snprintf(text, sizeof(text), "%s", rc < 0 ? "failed" : "");
    for (size_t i = 0; i < names.n; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ",
                 names.items[i]);
        ok(tracker_has(&names, names.items[i]), "and it has what it lists");
    }
    ok(!tracker_has(&names, "iter_"), "and nothing else");
    return text;
}

static void test_directory(void)
{
    char path[] = "/tmp/tracker.XXXXXX", absolute[64];
    int dir;

    if (!mkdtemp(path)) {
        bail_out("mkdtemp");
    }
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_str(named(dir), "", "an empty directory");
    put(dir, MEGATRON, "20\n");
    put(dir, "latest", "global_step10");
    is_str(named(dir), "iter_0000020 global_step10 ", "two programs");
    put(dir, "latest_universal", "global_step10_universal");
    is_str(named(dir), "iter_0000020 global_step10 global_step10_universal ",
           "one of them says two");
    unlinkat(dir, "latest_universal", 0);
    put(dir, MEGATRON, "");
    unlinkat(dir, "latest", 0);
    mkdirat(dir, "latest", 0700);
    is_str(named(dir), "", "one that was cut, and a directory of that name");
    unlinkat(dir, "latest", AT_REMOVEDIR);
    mkfifoat(dir, "latest", 0600);
    is_str(named(dir), "", "a FIFO, which nobody waits for");
    unlinkat(dir, "latest", 0);

    put(dir, "epoch=1.ckpt", "x");
    put(dir, "epoch=2.ckpt", "x");
    mkdirat(dir, "iter_0000005", 0700);
    symlinkat("nowhere", dir, "gone.ckpt");
    symlinkat("/etc", dir, "away");
    is_str(named(dir), "", "links that lead elsewhere");
    symlinkat("epoch=1.ckpt", dir, "last.ckpt");
    is_str(named(dir), "epoch=1.ckpt ", "a link to one of them");
    unlinkat(dir, "last.ckpt", 0);
    snprintf(absolute, sizeof(absolute), "%s/epoch=2.ckpt", path);
    symlinkat(absolute, dir, "last.ckpt");
    is_str(named(dir), "epoch=2.ckpt ", "by its whole path");
    unlinkat(dir, "last.ckpt", 0);
    symlinkat("latest", dir, "last");
    symlinkat("iter_0000005/", dir, "latest");
    is_str(named(dir), "iter_0000005 ", "and by way of another one, under a name of "
           "DeepSpeed's");
    close(dir);
    fs_remove_tree(path, NULL);
    is_int(tracker_read(-1, &(struct strlist){0}), -EBADF, "a directory that cannot be read");
}

static int read_with(int dir, int error)
{
    _strlist_ struct strlist names = {0};
    int rc;

    fails.error = error;
    rc = tracker_read(dir, &names);
    memset(&fails, 0, sizeof(fails));
    return rc;
}

/* What cannot be read may name any: that is said. */
static void test_errors(void)
{
    char path[] = "/tmp/tracker.XXXXXX";
    int dir, n_wrong = 0;

    if (!mkdtemp(path)) {
        bail_out("mkdtemp");
    }
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(dir, "a.ckpt", "x");
    put(dir, "latest", "a.ckpt");
    symlinkat("a.ckpt", dir, "last");
    fails.open = "latest";
    is_int(read_with(dir, EACCES), -EACCES, "a tracker that is not for us");
    fails.open = MEGATRON;
    is_int(read_with(dir, EIO), -EIO, "one that cannot be opened");
    fails.open = "latest_universal";
    is_int(read_with(dir, ENXIO), 0, "a socket is none");
    fails.open = ".";
    is_int(read_with(dir, EMFILE), -EMFILE, "the directory itself");
    fails.is_fstat = true;
    is_int(read_with(dir, ESTALE), -ESTALE, "one that cannot be looked at");
    fails.is_read = true;
    is_int(read_with(dir, EIO), -EIO, "or read");
    fails.stat = "last";
    is_int(read_with(dir, EIO), -EIO, "a link that cannot be looked at");
    fails.stat = "a.ckpt";
    is_int(read_with(dir, EACCES), -EACCES, "nor what may be behind it");
    fails.stat = "a.ckpt";
    is_int(read_with(dir, ENOENT), 0, "a name that has just gone");
    for (int n = 1; n <= 12; n++) { /* twice two dots, three names, and the end */
        fails.n_readdir = n;
        n_wrong += read_with(dir, EIO) != -EIO;
    }
    is_int(n_wrong, 0, "names that cannot be read, at the first look or the second");
    is_str(named(dir), "a.ckpt a.ckpt ", "else both name it");
    close(dir);
    fs_remove_tree(path, NULL);
}

static void test_many_links(void)
{
    enum { N = 40 };
    char path[] = "/tmp/tracker.XXXXXX", name[32], link[32];
    _strlist_ struct strlist names = {0};
    int dir;

    if (!mkdtemp(path)) {
        bail_out("mkdtemp");
    }
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "m-%d", i);
        snprintf(link, sizeof(link), "%sl-%d", i == 7 ? "." : "", i);
        put(dir, name, "x");
        symlinkat(name, dir, link);
    }
    is_int(tracker_read(dir, &names), 0, "many links");
    is_int((int)names.n, N - 1, "each names one");
    ok(tracker_has(&names, "m-0") && tracker_has(&names, "m-39") && !tracker_has(&names, "m-7"),
       "but for that whose name has a dot in front");
    close(dir);
    fs_remove_tree(path, NULL);
}

int main(void)
{
    test_text();
    test_directory();
    test_errors();
    test_many_links();
    return tap_done();
}
