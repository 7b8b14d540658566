/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files where the system is in the way: calls that a signal interrupts, or that fail, and
 * filesystems that cannot do something. The linker's hand has them fail.
 */
#include <config.h>

#include "base/fs.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum call { READ, WRITE, CLOSE, SYNC_FILE, SYNC_DIR, RENAME_NEW, LINK, REMOVE, N_CALLS };

static char dir[64] = "/tmp/fs_fault_test.XXXXXX";

static int codes[N_CALLS], n_left[N_CALLS]; /* how often each fails yet, and why */
static int n_sync_files;
static struct stat synced;                  /* the directory, last */
static bool is_pretended;                   /* what is put into / is put nowhere */

static void fail(enum call call, int n, int code)
{
    n_left[call] = n;
    codes[call] = code;
}

static void fail_nothing(void)
{
    memset(n_left, 0, sizeof(n_left));
}

static bool fails(enum call call)
{
    if (n_left[call] == 0) {
        return false;
    }
    n_left[call]--;
    errno = codes[call];
    return true;
}

/* --- the linker's hand --- */

ssize_t __real_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len);
ssize_t __real_write(int fd, const void *from, size_t len);
ssize_t __wrap_write(int fd, const void *from, size_t len);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __real_unlinkat(int at, const char *name, int flags);
int __wrap_unlinkat(int at, const char *name, int flags);
int __real_mkostemp(char *name, int flags);
int __wrap_mkostemp(char *name, int flags);

ssize_t __wrap_read(int fd, void *to, size_t len)
{
    return fails(READ) ? -1 : __real_read(fd, to, len);
}

/* With the code 0: nothing is written, and nothing has failed. */
ssize_t __wrap_write(int fd, const void *from, size_t len)
{
    return !fails(WRITE) ? __real_write(fd, from, len) : errno ? -1 : 0;
}

int __wrap_close(int fd)
{
    int rc = __real_close(fd);

    return fails(CLOSE) ? -1 : rc;
}

int __wrap_fsync(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        return -1;
    }
    if (S_ISDIR(st.st_mode)) {
        synced = st;
        return fails(SYNC_DIR) ? -1 : 0;
    }
    n_sync_files++;
    return fails(SYNC_FILE) ? -1 : 0;
}

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    return fails(RENAME_NEW) ? -1 : __real_renameat2(a, from, b, to, flags);
}

int __wrap_rename(const char *from, const char *to)
{
    return is_pretended ? 0 : __real_rename(from, to);
}

int __wrap_link(const char *from, const char *to)
{
    return fails(LINK) ? -1 : __real_link(from, to);
}

int __wrap_unlinkat(int at, const char *name, int flags)
{
    return fails(REMOVE) ? -1 : __real_unlinkat(at, name, flags);
}

int __wrap_mkostemp(char *name, int flags)
{
    return is_pretended ? memfd_create("fs_fault_test", MFD_CLOEXEC)
                        : __real_mkostemp(name, flags);
}

/* --- what there is --- */

static const char *at(const char *name)
{
    static char path[2][PATH_MAX];
    static int which;

    which = !which;
    snprintf(path[which], PATH_MAX, "%s/%s", dir, name);
    return path[which];
}

static int n_names(void)
{
    DIR *d = opendir(dir);
    int n = -2;

    while (d && readdir(d)) {
        n++;
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static bool has(const char *name, const char *text)
{
    _free_ char *got = NULL;

    return fs_read(at(name), 100, &got, NULL, NULL) == 0 && strcmp(got, text) == 0;
}

/* --- reading and writing --- */

static void test_interrupted(void)
{
    fail(WRITE, 2, EINTR);
    is_int(fs_write_replace(at("x"), "old", 3, NULL), 0, "signals while a file is written");
    fail(READ, 2, EINTR);
    ok(has("x", "old"), "or read are in the way of neither");
    fail(WRITE, 1, 0);
    is_int(fs_write_replace(at("x"), "new", 3, NULL), -EIO, "a disk that takes no byte is full");
    ok(has("x", "old") && n_names() == 1, "and what was there stays, alone");
    fail_nothing();
}

static void test_close(void)
{
    struct error e = {0};

    fail(CLOSE, 1, EDQUOT);
    is_int(fs_write_replace(at("x"), "new", 3, &e), -EDQUOT,
           "what a server says as a file is closed counts");
    ok(has("x", "old") && n_names() == 1, "nothing of it stays");
    fail(WRITE, 1, ENOSPC);
    fail(CLOSE, 1, EDQUOT);
    is_int(fs_write_replace(at("x"), "new", 3, &e), -ENOSPC,
           "but not more than what has failed before");
    fail_nothing();
}

static void test_sync(void)
{
    struct error e = {0};

    fail(SYNC_FILE, 1, EIO);
    is_int(fs_write_atomic(at("x"), "new", 3, &e), -EIO, "a file that cannot be synced");
    ok(has("x", "old") && n_names() == 1, "takes no other one's place");
    n_sync_files = 0;
    is_int(fs_write_replace(at("x"), "old", 3, &e), 0, "one that need not be is not synced");
    is_int(n_sync_files, 0, "at all");
    fail(SYNC_DIR, 1, EINVAL);
    is_int(fs_write_atomic(at("x"), "1", 1, &e), 0, "a directory of which nothing can be");
    fail(SYNC_DIR, 1, EROFS);
    is_int(fs_write_atomic(at("x"), "2", 1, &e), 0, "for the one or the other reason, is none");
    fail(SYNC_DIR, 1, EIO);
    is_int(fs_write_atomic(at("x"), "3", 1, &e), -EIO, "where that fails it is told");
    like(e.text, "sync the directory of /tmp/fs_fault_test", "with what it was");
    fail_nothing();
}

/* Which directory is synced: where the path has no other one, too. */
static void test_which_dir(void)
{
    struct stat want;

    if (chdir(dir) < 0 || stat(dir, &want) < 0) {
        bail_out("%s", dir);
    }
    is_int(fs_write_atomic("y", "1", 1, NULL), 0, "a name alone");
    ok(synced.st_ino == want.st_ino && synced.st_dev == want.st_dev, "is in this directory");
    stat("/", &want);
    is_pretended = true;
    is_int(fs_write_atomic("/fs_fault_test", "1", 1, NULL), 0, "one at the top");
    is_pretended = false;
    ok(synced.st_ino == want.st_ino && synced.st_dev == want.st_dev, "is in /");
    unlink("y");
}

/* Filesystems that know no rename that must not replace, and no links. */
static void test_new(void)
{
    for (int has_links = 1; has_links >= 0; has_links--) {
        unlink(at("x"));
        fail(RENAME_NEW, 2, EINVAL);
        fail(LINK, has_links ? 0 : 2, EPERM);
        is_int(fs_write_new(at("x"), "1", 1, NULL), 0, "a new file, %s links",
               has_links ? "with" : "without");
        ok(has("x", "1") && n_names() == 1, "is there, alone");
        is_int(fs_write_new(at("x"), "2", 1, NULL), -EEXIST, "it is not replaced");
        ok(has("x", "1") && n_names() == 1, "and nothing is left beside it");
        fail_nothing();
    }
}

/* --- removing --- */

/* Somebody may put a link in the place of a directory. */
static void test_link(void)
{
    fs_mkdirs(at("precious"), NULL);
    fs_write_replace(at("precious/x"), "1", 1, NULL);
    if (symlink(at("precious"), at("link")) < 0) {
        bail_out("a link");
    }
    fail(REMOVE, 1, EISDIR);
    is_int(fs_remove_tree(at("link"), NULL), -EISDIR, "what was a directory just now, and is a "
           "link");
    ok(has("precious/x", "1"), "leads nowhere");
    fail_nothing();
    fs_remove_tree(at("link"), NULL);
    ok(has("precious/x", "1"), "nor as it goes");
    fs_remove_tree(at("precious"), NULL);
}

static void make_deep(int n)
{
    char path[PATH_MAX];
    size_t len = (size_t)snprintf(path, sizeof(path), "%s/d", dir);

    for (int i = 0; i < n; i++, len += 2) {
        memcpy(path + len, "/d", 3);
    }
    if (fs_mkdirs(path, NULL) < 0) {
        bail_out("%s", path);
    }
}

static void test_deep(void)
{
    int n_open = fds_n_open();
    struct error e = {0};

    make_deep(64);
    is_int(fs_remove_tree(at("d"), &e), 0, "64 directories one in the other go");
    make_deep(65);
    is_int(fs_remove_tree(at("d"), &e), -ELOOP, "more than that does not");
    if (rename(at("d/d"), at("e")) < 0) {
        bail_out("rename");
    }
    is_int(fs_remove_tree(at("e"), &e) + fs_remove_tree(at("d"), &e), 0, "by parts it does");
    is_int(fds_n_open(), n_open, "nothing stays open");
}

/* --- the directory for sockets --- */

static void test_runtime_dir(void)
{
    char path[PATH_MAX], want[64];
    const char *is_long = at("a-name-that-leaves-no-room-for-that-of-a-socket");

    snprintf(want, sizeof(want), "/tmp/muster-%lu", (unsigned long)geteuid());
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("TMPDIR");
    is_int(fs_runtime_dir(path, sizeof(path), NULL), 0, "no variable says where");
    is_str(path, want, "it is in /tmp");
    fs_mkdirs(is_long, NULL);
    setenv("XDG_RUNTIME_DIR", is_long, 1);
    is_int(fs_runtime_dir(path, sizeof(path), NULL), 0, "one that is there, and too long");
    is_str(path, want, "is passed over");
}

int main(void)
{
    if (!mkdtemp(dir)) {
        bail_out("mkdtemp: %s", strerror(errno));
    }
    test_interrupted();
    test_close();
    test_sync();
    test_which_dir();
    test_new();
    unlink(at("x"));
    test_link();
    test_deep();
    test_runtime_dir();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
