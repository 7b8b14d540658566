/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/leftover.h"

#include "base/cleanup.h"
#include "base/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_LOCKS = 256 };

/* Locks that were free are held until the files are gone, so that nobody takes
 * one of them meanwhile. */
struct survey {
    int dir_fd;
    int locks[MAX_LOCKS];
    size_t n_locks;
    bool is_inhabited;
};

static void let_go(struct survey *s)
{
    while (s->n_locks) {
        close(s->locks[--s->n_locks]);
    }
    close_fd(&s->dir_fd);
}

static bool is_lock(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && strcmp(dot, ".lock") == 0;
}

static int look_at_lock(struct survey *s, const char *name, struct error *e)
{
    _close_ int fd = openat(s->dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return errno == ENOENT ? 0 : error_set(e, errno, "open %s", name);
    }
    if (s->n_locks == MAX_LOCKS) {
        return error_set(e, E2BIG, "more than %d locks", MAX_LOCKS);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        s->is_inhabited = true;
        return 0;
    }
    s->locks[s->n_locks++] = take_fd(&fd);
    return 0;
}

/* What was killed holds its sockets for as long as it takes it to end: on a slow
 * disk in the midst of an fsync that is longer than whoever cleans up looks on. */
static bool is_killed(int peer_fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    return getsockopt(peer_fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           proc_is_killed(who.pid);
}

/* errno of a connection to it as `type`, or 0. */
static int try_connect(const struct sockaddr_un *sa, int type)
{
    _close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) < 0) {
        return errno;
    }
    return is_killed(fd) ? ECONNREFUSED : 0;
}

/* Only a refusal says that nobody listens, or nobody will. */
static int look_at_socket(struct survey *s, const char *name, struct error *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s",
                     s->dir_fd, name);
    int why;

    if (n < 0 || (size_t)n >= sizeof(sa.sun_path)) {
        return error_set(e, ENAMETOOLONG, "socket %s", name);
    }
    why = try_connect(&sa, SOCK_STREAM);
    why = why == EPROTOTYPE ? try_connect(&sa, SOCK_SEQPACKET) : why;
    s->is_inhabited |= why != ECONNREFUSED && why != ENOENT;
    return 0;
}

static int look_at(struct survey *s, const char *name, struct error *e)
{
    struct stat st;

    if (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : error_set(e, errno, "look at %s", name);
    }
    if (S_ISSOCK(st.st_mode)) {
        return look_at_socket(s, name, e);
    }
    if (!S_ISREG(st.st_mode)) {
        return error_set(e, ENOTEMPTY, "%s is neither a file nor a socket",
                         name);
    }
    return is_lock(name) ? look_at_lock(s, name, e) : 0;
}

/* Calls `each` for all names; stops at the first that fails. */
static int walk(struct survey *s, struct error *e,
                int (*each)(struct survey *s, const char *name,
                            struct error *e))
{
    int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *d;
    int rc = 0;

    if (!dir) {
        rc = error_set(e, errno, "list the directory");
        close_fd(&fd);
        return rc;
    }
    while (rc == 0 && !s->is_inhabited && (d = readdir(dir))) {
        if (strcmp(d->d_name, ".") && strcmp(d->d_name, "..")) {
            rc = each(s, d->d_name, e);
        }
    }
    closedir(dir);
    return rc;
}

static int remove_one(struct survey *s, const char *name, struct error *e)
{
    if (unlinkat(s->dir_fd, name, 0) < 0 && errno != ENOENT) {
        return error_set(e, errno, "remove %s", name);
    }
    return 0;
}

/* 1 if somebody lives there, 0 if not, and *s is to be let go either way. */
static int survey(struct survey *s, const char *path, struct error *e)
{
    int rc;

    *s = (struct survey){.dir_fd = -1};
    s->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s->dir_fd < 0) {
        return error_set(e, errno, "open %s", path);
    }
    rc = walk(s, e, look_at);
    if (rc < 0) {
        error_wrap(e, "%s", path);
        return rc;
    }
    return s->is_inhabited;
}

int leftover_is_inhabited(const char *path, struct error *e)
{
    struct survey s;
    int rc = survey(&s, path, e);

    let_go(&s);
    return rc == -ENOENT ? 0 : rc;
}

int leftover_remove(const char *path, struct error *e)
{
    struct survey s;
    int rc = survey(&s, path, e);

    if (rc == 0) {
        rc = walk(&s, e, remove_one);
    } else {
        let_go(&s);
        return rc == -ENOENT ? 1 : rc > 0 ? 0 : rc;
    }
    if (rc == 0 && rmdir(path) < 0 && errno != ENOENT) {
        /* Somebody new came into it. */
        rc = errno == ENOTEMPTY ? 0 : error_set(e, errno, "remove %s", path);
    } else if (rc == 0) {
        rc = 1;
    }
    let_go(&s);
    return rc;
}
