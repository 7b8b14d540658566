/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64] = "/tmp/muster-fs-test.XXXXXX";

/* In place of libc's: what was synced, and whether `watched` was there then. */
static char synced[64];
static char watched[128];

int fsync(int fd)
{
    struct stat st;
    size_t len = strlen(synced);

    if (fstat(fd, &st) == 0) {
        snprintf(synced + len, sizeof(synced) - len, "%s%c",
                 S_ISDIR(st.st_mode) ? "dir" : "file",
                 access(watched, F_OK) == 0 ? '+' : '-');
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Likewise: what cannot be removed, and why. */
static const char *held = "";
static int held_code;

int unlinkat(int at, const char *name, int flags)
{
    if (strcmp(name, held) == 0) {
        errno = held_code;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, at, name, flags);
}

static void test_durable(void)
{
    struct error e = {0};

    fs_path(watched, sizeof(watched), NULL, "%s/durable", dir);
    is_int(fs_write_atomic(watched, "x", 1, &e), 0, "a durable file");
    is_str(synced, "file-dir+", "is synced before it has its name, and its "
           "directory after that");
    synced[0] = '\0';
    is_int(fs_write_replace(watched, "y", 1, &e), 0, "one that need not be");
    is_str(synced, "", "costs no sync");
}

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
    free(data);
    data = NULL;
    is_int(fs_read_regular(path, 4, &data, &len, &e), 0, "a regular file");
    is_str(data, "two!", "the same");
    is_int(fs_read_regular("/nonexistent/x", 9, &data, NULL, &e), -ENOENT,
           "none");
    fs_path(path, sizeof(path), NULL, "%s/pipe", dir);
    is_int(mkfifo(path, 0600), 0, "a pipe that nobody writes to");
    is_int(fs_read_regular(path, 9, &data, NULL, &e), -EINVAL, "is refused");
    like(e.text, "expected a regular file", "saying why");
    is_int(fs_read_regular(dir, 9, &data, NULL, &e), -EINVAL,
           "and so is a directory");
    unlink(path);
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

static void test_tidy(void)
{
    static const struct {
        const char *path, *want;
    } cases[] = {
        {"", ""}, {"/", "/"}, {"///", "/"}, {".", "."}, {"./", "."}, {"/.", "/"},
        {"a", "a"}, {"a/", "a"}, {"a//", "a"}, {"./a", "a"}, {"/a//b/./c/.", "/a/b/c"},
        {"a/../b", "a/../b"}, {"..//", ".."}, {"//a", "/a"}, {".a/b.", ".a/b."},
        {"././", "."},
    };
    char path[32];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(path, sizeof(path), "%s", cases[i].path);
        fs_tidy(path);
        is_str(path, cases[i].want, "'%s'", cases[i].path);
    }
}

static void test_modes(void)
{
    struct error e = {0};
    char path[128], tight[8];
    struct stat st;
    mode_t old = umask(0);

    fs_path(path, sizeof(path), NULL, "%s/m/n", dir);
    is_int(fs_mkdirs(path, &e), 0, "directories");
    umask(old);
    is_int(stat(path, &st) < 0 ? 0 : st.st_mode & 07777, 0700, "are private");
    fs_path(path, sizeof(path), NULL, "%s/m", dir);
    is_int(stat(path, &st) < 0 ? 0 : st.st_mode & 07777, 0700,
           "those on the way, too");
    is_int(fs_path(tight, 4, &e, "%s", "abc"), 0, "a path that just fits");
    is_int(fs_path(tight, 4, &e, "%s", "abcd"), -ENAMETOOLONG,
           "and one that does not");
}

enum { N_LONG = 1 << 20 };

static char byte_at(size_t i)
{
    return (char)(i / 1000 % 251);
}

static int go_fd = -1;

static void on_alarm(int sig)
{
    (void)sig;
    if (write(go_fd, "x", 1) != 1) {
        _exit(1);
    }
}

/* Reads all of it once `go` says so: the status is 0 where it is right. */
static _Noreturn void check_reader(int fd, int go)
{
    static char got[65536];
    size_t at = 0;
    ssize_t n;

    if (read(go, got, 1) != 1) {
        _exit(1);
    }
    while ((n = read(fd, got, sizeof(got))) > 0) {
        for (ssize_t i = 0; i < n; i++, at++) {
            if (got[i] != byte_at(at)) {
                _exit(1);
            }
        }
    }
    _exit(at != N_LONG);
}

/* A signal cuts a write that waits: the rest follows, from where it was cut. */
static void test_short_write(void)
{
    struct itimerval every = {{0, 5000}, {0, 5000}}, never = {0};
    struct sigaction sa = {.sa_handler = on_alarm};
    _free_ char *data = malloc(N_LONG);
    int pipe_fds[2], go[2], status = -1;
    pid_t pid;

    for (size_t i = 0; i < N_LONG; i++) {
        data[i] = byte_at(i);
    }
    if (pipe2(pipe_fds, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    pid = fork();
    if (pid == 0) {
        free(take_ptr(&data));
        close(pipe_fds[1]);
        check_reader(pipe_fds[0], go[0]);
    }
    go_fd = go[1];
    sigaction(SIGALRM, &sa, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    is_int(fs_write_all(pipe_fds[1], data, N_LONG), 0,
           "a write that signals cut");
    setitimer(ITIMER_REAL, &never, NULL);
    close(pipe_fds[1]);
    close(pipe_fds[0]);
    waitpid(pid, &status, 0);
    is_int(status, 0, "arrives as it was");
    close(go[0]);
    close(go[1]);
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

/* It is named, and why. */
static void test_remove_held(void)
{
    struct error e = {0};
    char path[128], file[128], want[160];

    fs_path(file, sizeof(file), NULL, "%s/t/u/v", dir);
    fs_mkdirs(file, &e);
    fs_path(file, sizeof(file), NULL, "%s/t/u/held", dir);
    fs_write_replace(file, "x", 1, &e);
    fs_path(path, sizeof(path), NULL, "%s/t", dir);
    held = "held";
    held_code = EPERM;
    is_int(fs_remove_tree(path, &e), -EPERM, "what nobody may remove");
    fs_path(want, sizeof(want), NULL, "remove %s: Operation not permitted", file);
    is_str(e.text, want, "is named");
    is_int(access(file, F_OK), 0, "and stays");
    held_code = EROFS;
    is_int(fs_remove_tree(path, &e), -EROFS, "on a filesystem that is read only");
    unlink(file);
    is_int(fs_remove_tree(path, &e), 0, "without it all goes");
    held = path;
    is_int(fs_remove_tree(path, &e), 0, "what is not there is no error there either");
    held = "";
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
    if (geteuid() != 0) {
        skip("only root can give a directory away");
    } else if (chown(path, 12345, (gid_t)-1) == 0) {
        is_int(fs_runtime_dir(path, sizeof(path), &e), -EPERM,
               "that of another user is refused");
    }
    rmdir(path);
    ok(symlink("/tmp", path) == 0 &&
           fs_runtime_dir(path, sizeof(path), &e) == -EPERM,
       "a link in its place is refused");
    unlink(path);
    setenv("XDG_RUNTIME_DIR", ".", 1);
    setenv("TMPDIR", dir, 1);
    fs_runtime_dir(path, sizeof(path), &e);
    like(path, dir, "a relative one does not count: it is below TMPDIR");

    setenv("XDG_RUNTIME_DIR", "/a-name-that-leaves-no-room-for-that-of-a-socket",
           1);
    setenv("TMPDIR", dir, 1);
    is_int(fs_runtime_dir(path, sizeof(path), &e), 0, "one that is too long");
    ok(strncmp(path, dir, strlen(dir)) == 0, "is passed over");
    rmdir(path);
    setenv("TMPDIR", "/another-name-that-leaves-no-room-for-a-socket", 1);
    is_int(fs_runtime_dir(path, sizeof(path), &e), 0, "both are too long");
    ok(strncmp(path, "/tmp/muster-", 12) == 0, "so that it is in /tmp");
    setenv("TMPDIR", "/nonexistent", 1);
    is_int(fs_runtime_dir(path, sizeof(path), &e), 0, "none is there");
    ok(strncmp(path, "/tmp/muster-", 12) == 0, "so that it is in /tmp too");
    unsetenv("TMPDIR");
}

static void test_which(void)
{
    char path[128], pipe[128];

    is_int(fs_which("sh", "/nonexistent:/bin", path, sizeof(path)), 0, "sh");
    is_str(path, "/bin/sh", "in the second directory");
    is_int(fs_which("no-such", "/bin", path, sizeof(path)), -ENOENT, "absent");
    is_int(fs_which("/etc/passwd", "", path, sizeof(path)), -EACCES,
           "not executable");
    is_int(fs_which("/etc", "", path, sizeof(path)), -EACCES, "a directory");
    is_int(fs_which("", "/bin", path, sizeof(path)), -ENOENT, "empty name");
    is_int(fs_which("passwd", "/etc:/nonexistent", path, sizeof(path)),
           -EACCES, "one that may not be run, then none");
    snprintf(pipe, sizeof(pipe), "%s/pipe", dir);
    is_int(mkfifo(pipe, 0700), 0, "mkfifo");
    is_int(fs_which(pipe, "", path, sizeof(path)), -EACCES, "a pipe");
}

int main(void)
{
    if (!mkdtemp(dir)) {
        bail_out("mkdtemp: %s", strerror(errno));
    }
    test_durable();
    test_write_and_read();
    test_tidy();
    test_modes();
    test_short_write();
    test_failed_write_leaves_nothing();
    test_remove_tree();
    test_remove_held();
    test_runtime_dir();
    test_which();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
