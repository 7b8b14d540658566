/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/agent_find.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "base/seqsock.h"
#include "base/str.h"
#include "base/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    RETRY_MS = 5,
    MAX_INDEX = 65535,
    KEEPER_TRIES = 100,
    QUESTION_MS = 2000, /* it is sent at once; the keeper has more to do */
};

/* Between muster-mpi and the keeper of its node: one question, one answer. */
enum {
    KEEPER_START = 1, /* u32: index of the agent */
    KEEPER_STARTED,
    KEEPER_FAILED,    /* string: why */
};

extern char **environ;

/* Starts muster-watch with these arguments and, behind them, muster with `command`; with
 * nothing of ours but the descriptors that it is told to keep. */
static int spawn_watch(struct strlist *argv, const struct strlist *command,
                       struct error *e)
{
    char watch[PATH_MAX], muster[PATH_MAX];
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int rc;

    if ((rc = fs_helper("muster-watch", watch, sizeof(watch), e)) < 0 ||
        (rc = fs_program(muster, sizeof(muster), e)) < 0) {
        return rc;
    }
    strlist_add(argv, "--");
    strlist_add(argv, muster);
    for (size_t i = 0; i < command->n; i++) {
        strlist_add(argv, command->items[i]);
    }
    if (argv->failed || command->failed) {
        return error_set(e, ENOMEM, "start %s", watch);
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    rc = posix_spawn(&pid, watch, &actions, NULL, argv->items, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc ? error_set(e, rc, "start %s", watch) : 0;
}

/* muster-watch starts the agent, and muster tidy when that has ended badly: not where a
 * keeper waits for all that it has started, which does it at its own end. */
static int spawn_agent(const char *dir, unsigned index, bool is_kept, int lock_fd,
                       int ready_fd, struct error *e)
{
    _strlist_ struct strlist watch = {0};
    _strlist_ struct strlist agent = {0};

    strlist_add(&watch, "muster-watch");
    strlist_addf(&watch, "--keep=%d", lock_fd);
    strlist_addf(&watch, "--keep=%d", ready_fd);
    if (!is_kept) {
        strlist_add(&watch, "--after=tidy");
        strlist_addf(&watch, "--after=--tag=%s", strrchr(dir, '/') + 1);
        strlist_addf(&watch, "--after=--index=%u", index);
    }
    strlist_add(&agent, "agent");
    strlist_addf(&agent, "--dir=%s", dir);
    strlist_addf(&agent, "--index=%u", index);
    strlist_addf(&agent, "--lock-fd=%d", lock_fd);
    strlist_addf(&agent, "--ready-fd=%d", ready_fd);
    if (is_kept) {
        strlist_add(&agent, "--kept");
    }
    return spawn_watch(&watch, &agent, e);
}

int agent_tidy_after(const char *tag, unsigned index, struct error *e)
{
    _strlist_ struct strlist watch = {0};
    _strlist_ struct strlist tidy = {0};

    strlist_add(&watch, "muster-watch");
    strlist_add(&tidy, "tidy");
    strlist_addf(&tidy, "--tag=%s", tag);
    strlist_addf(&tidy, "--index=%u", index);
    return spawn_watch(&watch, &tidy, e);
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

static int start(const char *dir, unsigned index, bool is_kept, int lock_fd,
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
    rc = spawn_agent(dir, index, is_kept, lock_fd, far, e);
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

/* The directory of the run's sockets and locks on this host. */
static int make_dir(const char *tag, char *to, size_t size, struct error *e)
{
    char base[PATH_MAX];
    int rc = fs_runtime_dir(base, sizeof(base), e);

    rc = rc < 0 ? rc : fs_path(to, size, e, "%s/%s", base, tag);
    return rc < 0 ? rc : fs_mkdirs(to, e);
}

/* Here and now, unless one lives. 0 does not mean that it can be reached yet. */
static int start_if_none(const char *dir, unsigned index, bool is_kept,
                         unsigned timeout_ms, struct error *e)
{
    char path[PATH_MAX];
    _close_ int lock = -1;
    int rc = fs_path(path, sizeof(path), e, "%s/agent-%u.lock", dir, index);

    rc = rc < 0 ? rc : try_lock(path, O_CREAT, &lock, e);
    if (rc == -ENOENT) { /* the directory went with the last agent */
        return fs_mkdirs(dir, e);
    }
    return rc == 1 ? start(dir, index, is_kept, lock, timeout_ms, e) : rc;
}

/* --- the keeper of a node --- */

static int keeper_answer(int fd, unsigned timeout_ms, struct error *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;
    struct wire_reader r;
    char text[1024];

    seqsock_msg_init(&m);
    if (poll(&p, 1, (int)timeout_ms) != 1 || seqsock_recv(fd, &m) != 1) {
        return error_text(e, ETIMEDOUT, "the keeper of the agents on this node "
                          "does not answer");
    }
    if (m.type == KEEPER_STARTED) {
        return 0;
    }
    r = wire_reader(m.data.data, m.data.len);
    wire_get_str(&r, text, sizeof(text));
    return error_text(e, EIO, "%s", r.bad ? "the keeper of the agents answers "
                      "strangely" : text);
}

static int ask_keeper(const char *dir, unsigned index, unsigned timeout_ms,
                      struct error *e)
{
    char path[PATH_MAX];
    _buf_ struct buf b = {0};
    _close_ int fd = -1;
    int rc = fs_path(path, sizeof(path), e, "%s/keeper", dir);

    if (rc < 0) {
        return rc;
    }
    fd = seqsock_connect(path, e);
    if (fd < 0) {
        return error_wrap(e, "the step of the agents has ended on this node");
    }
    wire_put_u32(&b, index);
    rc = seqsock_send(fd, KEEPER_START, &b, NULL, 0);
    return rc < 0 ? error_set(e, -rc, "ask the keeper of the agents")
                  : keeper_answer(fd, timeout_ms, e);
}

/* The directory may go with its last inhabitant before the lock is there. */
static int lock_keeper(const char *tag, char *dir, size_t size, int *ret_lock,
                       struct error *e)
{
    char path[PATH_MAX];
    int rc = -ENOENT;

    for (int i = 0; rc == -ENOENT && i < KEEPER_TRIES; i++) {
        rc = make_dir(tag, dir, size, e);
        rc = rc < 0 ? rc : fs_path(path, sizeof(path), e, "%s/keeper.lock",
                                   dir);
        rc = rc < 0 ? rc : try_lock(path, O_CREAT, ret_lock, e);
    }
    return rc;
}

int agent_keeper_open(const char *tag, int *ret_lock, struct error *e)
{
    char dir[PATH_MAX], path[PATH_MAX];
    int rc = lock_keeper(tag, dir, sizeof(dir), ret_lock, e);

    if (rc <= 0) {
        return rc < 0 ? rc : error_text(e, EEXIST, "run %s has a keeper on "
                                        "this node already", tag);
    }
    rc = fs_path(path, sizeof(path), e, "%s/keeper", dir);
    return rc < 0 ? rc : seqsock_listen(path, e);
}

static int take_question(int fd, uint32_t *ret_index, struct error *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;
    struct wire_reader r;

    seqsock_msg_init(&m);
    if (poll(&p, 1, QUESTION_MS) != 1 || seqsock_recv(fd, &m) != 1) {
        return 0;
    }
    r = wire_reader(m.data.data, m.data.len);
    *ret_index = wire_get_u32(&r);
    if (m.type != KEEPER_START || !wire_done(&r) || *ret_index > MAX_INDEX) {
        return error_text(e, ERR_FORMAT, "a question that does not parse");
    }
    return 1;
}

int agent_keeper_serve(int listener, const char *tag, unsigned timeout_ms,
                       struct error *e)
{
    _buf_ struct buf reply = {0};
    _close_ int fd = seqsock_accept(listener, e);
    char dir[PATH_MAX];
    uint32_t index;
    int rc;

    if (fd < 0) {
        return fd;
    }
    rc = take_question(fd, &index, e);
    if (rc <= 0) {
        return rc;
    }
    rc = make_dir(tag, dir, sizeof(dir), e);
    rc = rc < 0 ? rc : start_if_none(dir, index, true, timeout_ms, e);
    if (rc < 0) {
        wire_put_str(&reply, e->text);
    }
    seqsock_send(fd, rc < 0 ? KEEPER_FAILED : KEEPER_STARTED, &reply, NULL, 0);
    return rc < 0 ? rc : 1;
}

/* --- finding one --- */

static int find(const char *tag, unsigned index, bool is_kept,
                unsigned timeout_ms, struct error *e)
{
    char dir[PATH_MAX], path[PATH_MAX];
    uint64_t deadline = clock_mono_ms() + timeout_ms;
    static const struct timespec pause = {0, RETRY_MS * 1000000L};
    int rc = make_dir(tag, dir, sizeof(dir), e);

    rc = rc < 0 ? rc : fs_path(path, sizeof(path), e, "%s/mpi-%u", dir, index);
    if (rc < 0) {
        return rc;
    }
    for (;;) {
        rc = is_kept ? ask_keeper(dir, index, timeout_ms, e)
                     : start_if_none(dir, index, false, timeout_ms, e);
        if (rc < 0) {
            return rc;
        }
        rc = seqsock_connect(path, e);
        if (rc >= 0 || clock_mono_ms() >= deadline) {
            return rc;
        }
        nanosleep(&pause, NULL); /* it is being started, or swept up after */
    }
}

int agent_find_or_start(const char *tag, unsigned index, unsigned timeout_ms,
                        struct error *e)
{
    return find(tag, index, false, timeout_ms, e);
}

int agent_find_kept(const char *tag, unsigned index, unsigned timeout_ms,
                    struct error *e)
{
    return find(tag, index, true, timeout_ms, e);
}

static int lock_path(const char *tag, unsigned index, char *to)
{
    char base[PATH_MAX];
    int rc = fs_runtime_dir(base, sizeof(base), NULL);

    return rc < 0 ? rc : fs_path(to, PATH_MAX, NULL, "%s/%s/agent-%u.lock", base, tag,
                                 index);
}

int agent_is_dead(const char *tag, unsigned index, unsigned timeout_ms,
                  int *ret_lock)
{
    char path[PATH_MAX];
    uint64_t deadline = clock_mono_ms() + timeout_ms;
    static const struct timespec pause = {0, RETRY_MS * 1000000L};
    int rc = 0;

    if (lock_path(tag, index, path) < 0) {
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

bool agent_is_gone(const char *tag, unsigned index, int *ret_lock)
{
    char path[PATH_MAX];

    *ret_lock = -1;
    return lock_path(tag, index, path) == 0 && try_lock(path, 0, ret_lock, NULL) != 0;
}

void agent_remove_leftovers(const char *tag)
{
    char base[PATH_MAX], dir[PATH_MAX];

    if (fs_runtime_dir(base, sizeof(base), NULL) == 0 &&
        fs_path(dir, sizeof(dir), NULL, "%s/%s", base, tag) == 0) {
        leftover_remove(dir, NULL);
    }
}
