/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/agent_start.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "base/seqsock.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_MS = 5 };

extern char **environ;

/* Starts muster-watch, which starts the agent, with nothing of ours but the
 * lock and the descriptor that it says "ready" on. */
static int spawn_watch(const char *dir, unsigned index, int lock_fd,
                       int ready_fd, struct error *e)
{
    char watch[PATH_MAX], muster[PATH_MAX];
    _strlist_ struct strlist argv = {0};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int rc;

    if ((rc = fs_helper("muster-watch", watch, sizeof(watch), e)) < 0 ||
        (rc = fs_program(muster, sizeof(muster), e)) < 0) {
        return rc;
    }
    strlist_add(&argv, "muster-watch");
    strlist_addf(&argv, "--keep=%d", lock_fd);
    strlist_addf(&argv, "--keep=%d", ready_fd);
    strlist_add(&argv, "--");
    strlist_add(&argv, muster);
    strlist_add(&argv, "agent");
    strlist_addf(&argv, "--dir=%s", dir);
    strlist_addf(&argv, "--index=%u", index);
    strlist_addf(&argv, "--lock-fd=%d", lock_fd);
    strlist_addf(&argv, "--ready-fd=%d", ready_fd);
    if (argv.failed) {
        return error_set(e, ENOMEM, "start the agent");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    rc = posix_spawn(&pid, watch, &actions, NULL, argv.items, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc ? error_set(e, rc, "start %s", watch) : 0;
}

/* The agent writes one byte when it listens; end of file means that it died. */
static int wait_ready(int fd, const char *dir, unsigned index,
                      unsigned timeout_ms, struct error *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n = poll(&p, 1, (int)timeout_ms);
    char byte;

    if (n == 1 && read(fd, &byte, 1) == 1) {
        return 0;
    }
    return error_text(e, n == 1 ? EIO : ETIMEDOUT, "the agent %s: see "
                      "%s/agent-%u.log", n == 1 ? "ended at its start"
                      : "does not get ready", dir, index);
}

static int start(const char *dir, unsigned index, int lock_fd,
                 unsigned timeout_ms, struct error *e)
{
    _close_ int near = -1;
    _close_ int far = -1;
    int ends[2], rc;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe");
    }
    near = ends[0];
    far = ends[1];
    if (fcntl(far, F_SETFD, 0) < 0 || fcntl(lock_fd, F_SETFD, 0) < 0) {
        return error_set(e, errno, "pass descriptors on");
    }
    rc = spawn_watch(dir, index, lock_fd, far, e);
    close_fd(&far);
    return rc < 0 ? rc : wait_ready(near, dir, index, timeout_ms, e);
}

/* Locks the file at `path`, and no other: the agent that leaves removes its
 * lock file. 1 if the lock is ours, 0 if somebody has it. */
static int try_lock(const char *path, int flags, int *ret_fd, struct error *e)
{
    _close_ int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    struct stat mine, there;

    if (fd < 0) {
        return error_set(e, errno, "open %s", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK ? 0 : error_set(e, errno, "lock %s", path);
    }
    if (fstat(fd, &mine) < 0 || stat(path, &there) < 0 ||
        mine.st_ino != there.st_ino) {
        return 0;
    }
    *ret_fd = take_fd(&fd);
    return 1;
}

int agent_find_or_start(const char *tag, unsigned index, unsigned timeout_ms,
                        struct error *e)
{
    char base[PATH_MAX], dir[PATH_MAX], path[PATH_MAX];
    uint64_t deadline = clock_mono_ms() + timeout_ms;
    static const struct timespec pause = {0, RETRY_MS * 1000000L};
    int rc;

    if ((rc = fs_runtime_dir(base, sizeof(base), e)) < 0 ||
        (rc = fs_path(dir, sizeof(dir), e, "%s/%s", base, tag)) < 0 ||
        (rc = fs_mkdirs(dir, e)) < 0) {
        return rc;
    }
    for (;;) {
        _close_ int lock = -1;

        fs_path(path, sizeof(path), NULL, "%s/agent-%u.lock", dir, index);
        rc = try_lock(path, O_CREAT, &lock, e);
        if (rc == -ENOENT) { /* the directory went with the last agent */
            rc = fs_mkdirs(dir, e);
        } else if (rc == 1) {
            rc = start(dir, index, lock, timeout_ms, e);
        }
        if (rc < 0) {
            return rc;
        }
        fs_path(path, sizeof(path), NULL, "%s/mpi-%u", dir, index);
        rc = seqsock_connect(path, e);
        if (rc >= 0 || clock_mono_ms() >= deadline) {
            return rc;
        }
        nanosleep(&pause, NULL); /* it is being started, or swept up after */
    }
}

int agent_is_dead(const char *tag, unsigned index, unsigned timeout_ms,
                  int *ret_lock)
{
    char base[PATH_MAX], path[PATH_MAX];
    uint64_t deadline = clock_mono_ms() + timeout_ms;
    static const struct timespec pause = {0, RETRY_MS * 1000000L};
    int rc = 0;

    if (fs_runtime_dir(base, sizeof(base), NULL) < 0 ||
        fs_path(path, sizeof(path), NULL, "%s/%s/agent-%u.lock", base, tag,
                index) < 0) {
        return 0;
    }
    while (rc == 0 && clock_mono_ms() < deadline) {
        rc = try_lock(path, 0, ret_lock, NULL);
        if (rc == 0) {
            nanosleep(&pause, NULL);
        }
    }
    return rc == 1;
}

void agent_remove_leftovers(const char *tag)
{
    char base[PATH_MAX], dir[PATH_MAX];

    if (fs_runtime_dir(base, sizeof(base), NULL) == 0 &&
        fs_path(dir, sizeof(dir), NULL, "%s/%s", base, tag) == 0) {
        leftover_remove(dir, NULL);
    }
}
