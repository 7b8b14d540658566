/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a run: one holder at a time, who is named; and on a filesystem without
 * locks (made up by --wrap) what the file says, as far as this host can tell.
 */
#include <config.h>

#include "launcher/rundir_bed.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int lock_errno; /* what the filesystem says to who asks for a lock; 0: it has them */

int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);

int __wrap_fcntl(int fd, int cmd, ...)
{
    va_list ap;
    void *arg;

    va_start(ap, cmd);
    arg = va_arg(ap, void *);
    va_end(ap);
    if (lock_errno && (cmd == F_OFD_SETLK || cmd == F_OFD_GETLK)) {
        errno = lock_errno;
        return -1;
    }
    return __real_fcntl(fd, cmd, arg);
}

/* Another one who sees the same directory. */
static struct rundir *open_again(const struct rundir *r)
{
    struct rundir *again = NULL;
    struct error e = {0};

    if (rundir_open(r->path, &again, &e) < 0) {
        bail_out("%s", e.text);
    }
    return again;
}

static const char *lock_path(const struct rundir *r)
{
    static char path[PATH_MAX];

    if (rundir_path(r, path, sizeof(path), NULL, "lock") < 0) {
        bail_out("the path of a lock");
    }
    return path;
}

static void write_owner(const struct rundir *r, const char *host, long pid,
                        unsigned long long ticks)
{
    char text[512];

    snprintf(text, sizeof(text), "{\"v\":1,\"host\":\"%s\",\"pid\":%ld,"
             "\"start_ticks\":%llu,\"since\":\"2026-01-01T00:00:00Z\"}\n", host, pid,
             ticks);
    bed_write(lock_path(r), text);
}

static void test_locked(void)
{
    struct rundir *r = bed_create(&(struct rundir_params){.name = "locked"});
    struct rundir *other = open_again(r);
    struct rundir_owner owner = {0};
    uint64_t before = clock_wall_ns();
    char host[256] = "", text[600];
    struct error e = {0};

    ok(!rundir_is_locked(r, NULL), "nobody has it");
    snprintf(text, sizeof(text), "%500s", "what somebody wrote before");
    bed_write(lock_path(r), text);
    chmod(lock_path(r), 0600);
    is_int(rundir_lock(r, &e), 0, "one takes it: %s", e.text);
    ok(bed_has_mode(lock_path(r), 0600), "for itself");
    gethostname(host, sizeof(host) - 1);
    ok(rundir_is_locked(other, &owner), "another one sees that");
    ok(owner.pid == getpid() && strcmp(owner.host, host) == 0 && owner.start_ticks > 0,
       "and who it is: pid %ld on %s", (long)owner.pid, owner.host);
    ok(owner.since_ns / 1000000000 >= before / 1000000000 &&
           owner.since_ns <= clock_wall_ns(), "since when");
    is_int(rundir_lock(other, &e), -ERR_LOCKED, "who wants it has to wait");
    snprintf(text, sizeof(text), "is alive: pid %ld on %s has held it", (long)getpid(),
             host);
    like(e.text, text, "and hears for whom");
    rundir_unlock(r);
    ok(!rundir_is_locked(other, NULL), "it is given back");
    is_int(rundir_lock(other, NULL), 0, "and taken by that one");
    rundir_destroy(other);
    ok(!rundir_is_locked(r, NULL), "its end gives it back");
    unlink(lock_path(r));
    is_int(rundir_lock(r, NULL), 0, "a new one");
    ok(bed_has_mode(lock_path(r), 0600), "is private");
    rundir_destroy(r);
}

/* Whoever may write there is not to lead this one to a file elsewhere. */
static void test_link(void)
{
    struct rundir *r = bed_create(&(struct rundir_params){.name = "link"});

    bed_write("elsewhere", "");
    ok(symlink("../../../elsewhere", lock_path(r)) == 0, "a lock that is a link");
    ok(rundir_lock(r, NULL) < 0, "is not followed");
    ok(!rundir_is_locked(r, NULL), "nor looked at");
    rundir_destroy(r);
}

static void test_no_locks(int code)
{
    struct rundir *r = bed_create(&(struct rundir_params){.name = "no-locks"});
    struct rundir *other = open_again(r);
    struct rundir_owner owner = {0};
    char host[256] = "", text[300];
    struct error e = {0};

    gethostname(host, sizeof(host) - 1);
    lock_errno = code;
    is_int(rundir_lock(r, &e), 0, "%s: one takes it: %s", strerror(code), e.text);
    ok(rundir_is_locked(other, &owner) && owner.pid == getpid(), "by what the file says");
    is_int(rundir_lock(other, &e), -ERR_LOCKED, "which keeps others away");
    snprintf(text, sizeof(text), "may be alive: its filesystem has no locks, and pid %ld "
             "on %s took it", (long)getpid(), host);
    like(e.text, text, "and is no more than a guess");
    rundir_unlock(r);
    ok(!rundir_is_locked(other, NULL), "until it is given back");
    write_owner(r, host, getpid(), owner.start_ticks + 1);
    ok(!rundir_is_locked(other, NULL), "a later process of that number has not taken it");
    write_owner(r, "some.other.host", 1L << 30, 1);
    ok(rundir_is_locked(other, NULL), "of another host nobody can tell");
    is_int(rundir_lock(other, &e), -ERR_LOCKED, "so it stays");
    write_owner(r, host, 1L << 30, 1);
    is_int(rundir_lock(other, &e), 0, "of this one it is known to be gone: %s", e.text);
    lock_errno = 0;
    rundir_destroy(other);
    rundir_destroy(r);
}

/* That is no filesystem without locks. */
static void test_broken(void)
{
    struct rundir *r = bed_create(&(struct rundir_params){.name = "broken"});
    struct error e = {0};

    lock_errno = EIO;
    is_int(rundir_lock(r, &e), -EIO, "a filesystem that fails");
    like(e.text, "lock ", "is told as that");
    lock_errno = 0;
    rundir_destroy(r);
}

int main(void)
{
    bed_up();
    test_locked();
    test_link();
    test_no_locks(ENOLCK);
    test_no_locks(EOPNOTSUPP);
    test_broken();
    bed_down();
    return tap_done();
}
