/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char base[64] = "/tmp/muster-leftover-test.XXXXXX";
static char dir[80];

static void path_of(char *to, size_t size, const char *name)
{
    fs_path(to, size, NULL, "%s/%s", dir, name);
}

/* A lock file, held or not: the descriptor is the caller's. */
static int make_lock(const char *name, bool is_held)
{
    char path[128];
    int fd;

    path_of(path, sizeof(path), name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (is_held) {
        flock(fd, LOCK_EX | LOCK_NB);
    }
    return fd;
}

static int make_socket(const char *name, int type, bool is_listening)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    path_of(sa.sun_path, sizeof(sa.sun_path), name);
    bind(fd, (struct sockaddr *)&sa, sizeof(sa));
    if (is_listening) {
        listen(fd, 4);
    }
    return fd;
}

static void make_file(const char *name)
{
    char path[128];

    path_of(path, sizeof(path), name);
    fs_write_atomic(path, "x", 1, NULL);
}

static int n_left(void)
{
    char path[128];

    path_of(path, sizeof(path), "file");
    return (access(dir, F_OK) == 0) + (access(path, F_OK) == 0);
}

static void start_case(void)
{
    fs_remove_tree(dir, NULL);
    fs_mkdirs(dir, NULL);
    make_file("file");
}

static void test_nobody(void)
{
    struct error e = {0};
    _close_ int lock = -1, stream = -1, packets = -1;

    start_case();
    lock = make_lock("agent-0.lock", false);
    stream = make_socket("front.ctl", SOCK_STREAM, false);
    packets = make_socket("mpi-0", SOCK_SEQPACKET, false);
    is_int(leftover_is_inhabited(dir, &e), 0, "nobody lives there");
    is_int(n_left(), 2, "looking removes nothing");
    is_int(leftover_remove(dir, &e), 1, "so it is removed");
    is_int(n_left(), 0, "with all that is in it");
    is_int(leftover_remove(dir, &e), 1, "what is gone is gone");
    is_int(leftover_is_inhabited(dir, &e), 0, "and nobody lives there");
}

static void expect_untouched(const char *what)
{
    struct error e = {0};

    is_int(leftover_is_inhabited(dir, &e), 1, "%s: somebody lives there",
           what);
    is_int(leftover_remove(dir, &e), 0, "%s: it stays", what);
    is_int(n_left(), 2, "%s: as it is", what);
}

static void test_somebody(void)
{
    _close_ int held = -1, stream = -1, packets = -1;

    start_case();
    held = make_lock("agent-1.lock", true);
    expect_untouched("a held lock");
    close_fd(&held);
    start_case();
    stream = make_socket("front.ctl", SOCK_STREAM, true);
    expect_untouched("a listening socket");
    close_fd(&stream);
    start_case();
    packets = make_socket("mpi-0", SOCK_SEQPACKET, true);
    expect_untouched("a listening socket of another type");
    close_fd(&packets);
    is_int(leftover_remove(dir, NULL), 1, "until they are gone");
}

/* A listener whose queue is full is no dead one. */
static void test_busy_listener(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    _close_ int fd = -1, one = -1, two = -1;

    start_case();
    fd = make_socket("front.ctl", SOCK_STREAM, false);
    listen(fd, 0);
    path_of(sa.sun_path, sizeof(sa.sun_path), "front.ctl");
    one = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    two = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    connect(one, (struct sockaddr *)&sa, sizeof(sa));
    connect(two, (struct sockaddr *)&sa, sizeof(sa));
    expect_untouched("a listener that is busy");
}

/* A killed process that still has its socket open, as one in the midst of an fsync
 * has: here another one keeps it open. */
static void test_killed_listener(void)
{
    _close_ int fd = -1;
    siginfo_t info;
    pid_t pid;

    start_case();
    fd = make_socket("front.ctl", SOCK_STREAM, false);
    pid = fork();
    if (pid == 0) {
        listen(fd, 4);
        raise(SIGSTOP);
        _exit(0);
    }
    waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT);
    expect_untouched("a listener that is stopped");
    kill(pid, SIGKILL);
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    is_int(leftover_remove(dir, NULL), 1, "one that was killed does not live there");
    is_int(n_left(), 0, "even while its socket is open");
    waitpid(pid, NULL, 0);
}

static void test_strangers(void)
{
    struct error e = {0};
    char path[128], outside[128];

    start_case();
    path_of(path, sizeof(path), "sub");
    mkdir(path, 0700);
    is_int(leftover_remove(dir, &e), -ENOTEMPTY, "a directory in it: refused");
    like(e.text, "sub", "and named");
    is_int(n_left(), 2, "and nothing removed");
    rmdir(path);
    fs_path(outside, sizeof(outside), NULL, "%s/outside", base);
    fs_write_atomic(outside, "x", 1, NULL);
    path_of(path, sizeof(path), "a.lock");
    is_int(symlink(outside, path), 0, "a link to elsewhere");
    is_int(leftover_remove(dir, &e), -ENOTEMPTY, "is refused as well");
    is_int(access(outside, F_OK), 0, "and not followed");
    unlink(path);
    unlink(outside);
    fs_path(path, sizeof(path), NULL, "%s/link", base);
    is_int(symlink(dir, path), 0, "the directory itself as a link");
    ok(leftover_remove(path, &e) < 0, "is not followed");
    is_int(n_left(), 2, "nor emptied");
    unlink(path);
}

int main(void)
{
    if (!mkdtemp(base)) {
        return 1;
    }
    fs_path(dir, sizeof(dir), NULL, "%s/run", base);
    test_nobody();
    test_somebody();
    test_busy_listener();
    test_killed_listener();
    test_strangers();
    fs_remove_tree(base, NULL);
    return tap_done();
}
