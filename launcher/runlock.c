/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a run: an open file description lock on <run dir>/lock. It can be
 * asked after without being taken, works over NFS, and the kernel drops it with
 * the process. The file says who holds it, for people. Filesystems without locks
 * exist (Lustre mounted without `flock`); there the words in the file are the
 * lock, and are believed unless this host knows better.
 */
#include <config.h>

#include "launcher/rundir.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LOCK_FILE = 4096 };

/* Field 22 of /proc/PID/stat; 0 if there is no such process. */
static uint64_t start_ticks(pid_t pid)
{
    char path[64];
    _free_ char *text = NULL;
    unsigned long long ticks;
    char *after;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    if (fs_read(path, 8192, &text, NULL, NULL) < 0) {
        return 0;
    }
    after = strrchr(text, ')');
    if (!after || sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u "
                         "%*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks) != 1) {
        return 0;
    }
    return ticks;
}

static bool no_locks_here(int err)
{
    return err == ENOLCK || err == ENOSYS || err == EOPNOTSUPP ||
           err == EINVAL;
}

static void read_owner(int fd, struct rundir_owner *o)
{
    char text[MAX_LOCK_FILE];
    ssize_t n = pread(fd, text, sizeof(text), 0);
    const char *host;
    json_t *root;

    *o = (struct rundir_owner){0};
    root = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
    host = json_string_value(json_object_get(root, "host"));
    str_copy(o->host, sizeof(o->host), host ? host : "");
    o->pid = (pid_t)json_integer_value(json_object_get(root, "pid"));
    o->start_ticks = (uint64_t)json_integer_value(
        json_object_get(root, "start_ticks"));
    jsonw_read_time(json_object_get(root, "since"), &o->since_ns);
    json_decref(root);
}

static int write_owner(const struct rundir *r, int fd, struct error *e)
{
    char host[256] = "";
    _buf_ struct buf text = {0};
    struct jsonw w = jsonw_start(&text);
    ssize_t n;

    gethostname(host, sizeof(host) - 1);
    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", 1);
    jsonw_str(&w, "host", host);
    jsonw_int(&w, "pid", getpid());
    jsonw_int(&w, "start_ticks", (int64_t)start_ticks(getpid()));
    jsonw_time(&w, "since", clock_wall_ns());
    jsonw_end_object(&w);
    buf_putc(&text, '\n');
    if (text.failed) {
        return error_set(e, ENOMEM, "write %s/lock", r->path);
    }
    if (ftruncate(fd, 0) < 0) {
        return error_set(e, errno, "write %s/lock", r->path);
    }
    n = pwrite(fd, text.data, text.len, 0);
    if (n != (ssize_t)text.len) {
        return error_set(e, n < 0 ? errno : ENOSPC, "write %s/lock", r->path);
    }
    return 0;
}

/* Whether the process that wrote itself into the file may still live. */
static bool owner_may_live(const struct rundir_owner *o)
{
    char host[256] = "";

    if (!o->pid) {
        return false;
    }
    gethostname(host, sizeof(host) - 1);
    if (strcmp(host, o->host) != 0) {
        return true;
    }
    return start_ticks(o->pid) == o->start_ticks;
}

static int say_locked(const struct rundir *r, const struct rundir_owner *o,
                      bool is_guess, struct error *e)
{
    uint64_t now = clock_wall_ns();
    char span[32] = "?";

    if (o->since_ns && o->since_ns < now) {
        clock_format_span((now - o->since_ns) / 1000000u, span, sizeof(span));
    }
    if (is_guess) {
        return error_text(e, ERR_LOCKED, "run %s may be alive: its filesystem "
                          "has no locks, and pid %ld on %s took it %s ago; see "
                          "muster status %s, and if that process is gone, "
                          "remove %s/lock", r->id, (long)o->pid, o->host, span,
                          r->id, r->path);
    }
    return error_text(e, ERR_LOCKED, "run %s is alive: pid %ld on %s has held "
                      "it for %s; see muster status %s; if that process is "
                      "gone, muster attach %s takes the run over", r->id,
                      (long)o->pid, o->host[0] ? o->host : "an unknown host",
                      span, r->id, r->id);
}

int rundir_lock(struct rundir *r, struct error *e)
{
    struct flock want = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct rundir_owner owner;
    char path[PATH_MAX];
    _close_ int fd = -1;
    int rc = rundir_path(r, path, sizeof(path), e, "lock");

    if (rc < 0) {
        return rc;
    }
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return error_set(e, errno, "open %s", path);
    }
    if (fcntl(fd, F_OFD_SETLK, &want) < 0) {
        int err = errno;

        read_owner(fd, &owner);
        if (err == EAGAIN || err == EACCES) {
            return say_locked(r, &owner, false, e);
        }
        if (!no_locks_here(err)) {
            return error_set(e, err, "lock %s", path);
        }
        if (owner_may_live(&owner)) {
            return say_locked(r, &owner, true, e);
        }
    }
    rc = write_owner(r, fd, e);
    if (rc < 0) {
        return rc;
    }
    r->lock_fd = take_fd(&fd);
    return 0;
}

int rundir_inherit(const struct rundir *r, struct error *e)
{
    return write_owner(r, r->lock_fd, e);
}

void rundir_unlock(struct rundir *r)
{
    if (r->lock_fd >= 0) {
        /* For filesystems without locks: nobody is named any more. */
        if (ftruncate(r->lock_fd, 0) < 0) {
            /* Nothing to do: the process is told apart by its start. */
        }
        close_fd(&r->lock_fd);
    }
}

bool rundir_is_locked(const struct rundir *r, struct rundir_owner *ret_owner)
{
    struct flock ask = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct rundir_owner owner;
    char path[PATH_MAX];
    _close_ int fd = -1;
    bool locked;

    if (rundir_path(r, path, sizeof(path), NULL, "lock") < 0) {
        return false;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    read_owner(fd, &owner);
    if (fcntl(fd, F_OFD_GETLK, &ask) == 0) {
        locked = ask.l_type != F_UNLCK;
    } else {
        locked = owner_may_live(&owner);
    }
    if (locked && ret_owner) {
        *ret_owner = owner;
    }
    return locked;
}
