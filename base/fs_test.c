/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64] = "/tmp/muster-fs-test.XXXXXX";

static void test_write_and_read(void)
{
    struct error e = {0};
    _free_ char *data = NULL;
    char path[128];
    struct stat st;
    size_t len;

    fs_path(path, sizeof(path), NULL, "%s/file", dir);
    is_int(fs_write_atomic(path, "one", 3, &e), 0, "write");
    is_int(fs_write_atomic(path, "two!", 4, &e), 0, "write over it");
    is_int(fs_read(path, 4, &data, &len, &e), 0, "read at the limit");
    is_str(data, "two!", "what was written");
    is_int((intmax_t)len, 4, "length");
    is_int(fs_read(path, 3, &data, &len, &e), -EFBIG, "over the limit");
    like(e.text, "larger than 3 bytes", "says so");
    stat(path, &st);
    is_int(st.st_mode & 0777, 0600, "private");
    is_int(fs_read("/nonexistent/x", 9, &data, NULL, &e), -ENOENT, "missing");
    like(e.text, "/nonexistent/x", "named");
}

static void test_failed_write_leaves_nothing(void)
{
    struct error e = {0};
    char path[128];

    fs_path(path, sizeof(path), NULL, "%s/a/dir", dir);
    is_int(fs_mkdirs(path, &e), 0, "make directories");
    is_int(fs_write_atomic(path, "x", 1, &e), -EISDIR,
           "a directory is not replaced");
    fs_path(path, sizeof(path), NULL, "%s/a", dir);
    is_int(rmdir(path), -1, "not empty yet");
    fs_path(path, sizeof(path), NULL, "%s/a/dir", dir);
    is_int(rmdir(path), 0, "no temporary beside it");
    fs_path(path, sizeof(path), NULL, "%s/a", dir);
    is_int(rmdir(path), 0, "nor above it");
}

static void test_remove_tree(void)
{
    struct error e = {0};
    char path[128], outside[128];

    fs_path(outside, sizeof(outside), NULL, "%s/outside", dir);
    fs_write_atomic(outside, "x", 1, &e);
    fs_path(path, sizeof(path), NULL, "%s/t/u/v", dir);
    fs_mkdirs(path, &e);
    fs_path(path, sizeof(path), NULL, "%s/t/u/link", dir);
    is_int(symlink(outside, path), 0, "a link out of the tree");
    fs_path(path, sizeof(path), NULL, "%s/t", dir);
    is_int(fs_remove_tree(path, &e), 0, "remove the tree");
    is_int(access(path, F_OK), -1, "gone");
    is_int(access(outside, F_OK), 0, "what the link led to is still there");
    is_int(fs_remove_tree(path, &e), 0, "a missing tree is no error");
}

static void test_runtime_dir(void)
{
    struct error e = {0};
    char path[128];
    struct stat st;

    setenv("XDG_RUNTIME_DIR", dir, 1);
    is_int(fs_runtime_dir(path, sizeof(path), &e), 0, "runtime directory");
    stat(path, &st);
    is_int(st.st_mode & 0777, 0700, "private");
    chmod(path, 0755);
    fs_runtime_dir(path, sizeof(path), &e);
    stat(path, &st);
    is_int(st.st_mode & 0777, 0700, "made private again");
    rmdir(path);
    ok(symlink("/tmp", path) == 0 &&
           fs_runtime_dir(path, sizeof(path), &e) == -EPERM,
       "a link in its place is refused");
}

static void test_which(void)
{
    char path[128];

    is_int(fs_which("sh", "/nonexistent:/bin", path, sizeof(path)), 0, "sh");
    is_str(path, "/bin/sh", "in the second directory");
    is_int(fs_which("no-such", "/bin", path, sizeof(path)), -ENOENT, "absent");
    is_int(fs_which("/etc/passwd", "", path, sizeof(path)), -EACCES,
           "not executable");
    is_int(fs_which("/etc", "", path, sizeof(path)), -EACCES, "a directory");
    is_int(fs_which("", "/bin", path, sizeof(path)), -ENOENT, "empty name");
}

int main(void)
{
    if (!mkdtemp(dir)) {
        bail_out("mkdtemp: %s", strerror(errno));
    }
    test_write_and_read();
    test_failed_write_leaves_nothing();
    test_remove_tree();
    test_runtime_dir();
    test_which();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
