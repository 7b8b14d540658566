/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_bin.h"

#include "base/fs.h"
#include "launcher/hold_bed.h"
#include "launcher/snap_hold_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MUCH = 20 << 20, LITTLE = 3 << 20 }; /* more than lies around what is mapped */

static char dir_path[] = "/dev/shm/snap_bin_test.XXXXXX";
static int dir;

/* --- a kernel that takes its time --- */

static bool is_slow;          /* with much memory, until it is told */
static sem_t asked, may_go_on;
static _Atomic(pthread_t) by; /* the thread that gave back last */
static atomic_int n_given;

int __real_munmap(void *at, size_t len);
int __wrap_munmap(void *at, size_t len);

int __wrap_munmap(void *at, size_t len)
{
    if (len >= LITTLE) {
        by = pthread_self();
        if (is_slow && len >= MUCH) {
            sem_post(&asked);
            while (sem_wait(&may_go_on) < 0 && errno == EINTR) {
            }
        }
        n_given++;
    }
    return __real_munmap(at, len);
}

/* --- a system that has no thread --- */

static bool has_no_thread;

int __real_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);
int __wrap_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

int __wrap_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
    return has_no_thread ? EAGAIN : __real_thread_start(ret, run, arg);
}

/* --- a filesystem that has no more --- */

static bool is_full;

int __real_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret);

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    int rc = __real_fstatvfs(fd, ret);

    ret->f_bavail = is_full ? 0 : ret->f_bavail;
    return rc;
}

/* --- what is given back --- */

static struct snap *make(const char *name, uint64_t bytes)
{
    const struct snap_want want = {.room = bytes, .n_threads = 1};
    struct snap *s = NULL;
    struct error e = {0};

    if (snap_create(dir, name, &want, &s, &e) < 0) {
        bail_out("%s", e.text);
    }
    unlinkat(dir, name, 0);
    return s;
}

static void test_little(void)
{
    struct snap_bin *b = snap_bin_create();

    n_given = 0;
    snap_bin_put(b, make("little", LITTLE), false);
    is_int(n_given, 1, "little is given back at once");
    ok(pthread_equal(by, pthread_self()), "by whoever does not need it");
    snap_bin_put(b, NULL, false);
    snap_bin_wait(b);
    is_int((intmax_t)snap_bin_bytes(b), 0, "nothing is left to be");
    snap_bin_unref(b);
}

static void *wait_for_all(void *arg)
{
    snap_bin_wait(arg);
    return (void *)(intptr_t)(n_given + 1);
}

static void test_much(void)
{
    struct snap_bin *b = snap_bin_create();
    struct snap *first = make("first", MUCH), *second = make("second", MUCH);
    uint64_t bytes = snap_bytes_there(first);
    pthread_t waiting;
    void *n = NULL;

    is_slow = true;
    n_given = 0;
    snap_bin_put(b, first, false);
    sem_wait(&asked);
    ok(n_given == 0 && !pthread_equal(by, pthread_self()),
       "much is given back by another thread, and not waited for");
    snap_bin_put(b, second, false);
    is_int((intmax_t)snap_bin_bytes(b), (intmax_t)(2 * bytes), "it counts until it is");
    pthread_create(&waiting, NULL, wait_for_all, b);
    sem_post(&may_go_on);
    sem_wait(&asked);
    is_int((intmax_t)snap_bin_bytes(b), (intmax_t)bytes, "one after the other");
    sem_post(&may_go_on);
    pthread_join(waiting, &n);
    is_int((intptr_t)n - 1, 2, "who waits goes on when all is");
    is_int((intmax_t)snap_bin_bytes(b), 0, "nothing is left to be");

    snap_bin_put(b, make("third", MUCH), false); /* after the thread has ended, or while it does */
    sem_wait(&asked);
    sem_post(&may_go_on);
    snap_bin_wait(b);
    is_int(n_given, 3, "and so is what comes later");
    is_slow = false;
    snap_bin_unref(b);
}

static void test_users(void)
{
    struct snap_bin *b = snap_bin_create(), *other = snap_bin_ref(b);

    n_given = 0;
    is_slow = true;
    snap_bin_put(b, make("users", MUCH), false);
    snap_bin_unref(b);
    sem_wait(&asked);
    is_int(n_given, 0, "who leaves it to another one does not wait");
    sem_post(&may_go_on);
    snap_bin_unref(other);
    is_int(n_given, 1, "the last one does");
    is_slow = false;
    snap_bin_unref(NULL);
}

/* Better late than never. */
static void test_no_thread(void)
{
    struct snap_bin *b = snap_bin_create();

    n_given = 0;
    has_no_thread = true;
    snap_bin_put(b, make("none", MUCH), false);
    ok(n_given == 1 && pthread_equal(by, pthread_self()),
       "where there is no thread much is given back at once");
    snap_bin_wait(b);
    is_int((intmax_t)snap_bin_bytes(b), 0, "and nothing waited for");
    has_no_thread = false;
    snap_bin_put(b, make("some", MUCH), false);
    snap_bin_wait(b);
    ok(n_given == 2 && !pthread_equal(by, pthread_self()), "by a thread, when there is one");
    snap_bin_unref(b);
}

/* Of what a worker has mapped, too. */
static void test_cut(void)
{
    struct snap_bin *b = snap_bin_create();
    struct snap *s = make("cut", MUCH), *same = make("same", MUCH);
    int fd = dup(s->fd), other = dup(same->fd);
    struct stat st;

    snap_bin_put(b, s, true);
    snap_bin_put(b, same, false);
    snap_bin_wait(b);
    ok(fstat(fd, &st) == 0 && st.st_blocks == 0, "what is cut has no memory any more");
    ok(fstat(other, &st) == 0 && st.st_blocks > 0, "what is not keeps that for who has it open");
    close(other);
    snap_bin_put_file(b, fd);
    snap_bin_put_file(b, -1);
    errno = 0;
    ok(fcntl(fd, F_GETFD) < 0 && errno == EBADF, "a small file is closed at once");
    snap_bin_unref(b);
}

/* Ranks that save somewhere else from now on: their memory does not hold up the loop, and
 * whose is made next waits for it. */
static void test_hold(void)
{
    struct hold_bed b;
    char left[PATH_MAX];
    int fd;

    hold_bed_open(&b, 1 << 30);
    is_int(hold_bed_begin(&b, 0, 40, UUID(1), MUCH), 0, "a rank saves");
    memset(b.said.snap->map + SNAP_PAGE_BYTES, 1, MUCH);
    snprintf(left, sizeof(left), "%s/snap-3-7-0", b.dir);
    fd = open(left, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ok(fd >= 0 && posix_fallocate(fd, 0, MUCH) == 0 && close(fd) == 0,
       "and an agent before this one has left memory");
    is_slow = true;
    n_given = 0;
    snap_hold_serve(b.hold, 5, 1);
    sem_wait(&asked);
    ok(n_given == 0 && !hold_bed_has(&b, "snap-3-0-0") && !hold_bed_has(&b, "snap-3-7-0"),
       "all of it is gone for others before it is given back");
    ok(snap_bin_bytes(b.hold->bin) >= 2 * (uint64_t)MUCH, "which both wait for");
    is_full = true; /* but for that */
    hold_bed_begin_later(&b, 5, 41, UUID(2), HOLD_ROOM);
    is_full = false;
    for (int i = 0; i < 100; i++) {
        uv_run(&b.loop, UV_RUN_NOWAIT);
    }
    is_int(b.said.n_begun, 1, "until it is nobody takes more");
    sem_post(&may_go_on);
    hold_bed_run_until(&b, &b.said.n_begun, 2);
    ok(n_given > 0 && !pthread_equal(by, pthread_self()), "and then it is by a thread");
    is_slow = false;
    hold_bed_close(&b);
}

int main(void)
{
    if (!mkdtemp(dir_path) || sem_init(&asked, 0, 0) < 0 || sem_init(&may_go_on, 0, 0) < 0) {
        bail_out("a directory: %s", strerror(errno));
    }
    dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    test_little();
    test_much();
    test_users();
    test_no_thread();
    test_cut();
    test_hold();
    close(dir);
    fs_remove_tree(dir_path, NULL);
    return tap_done();
}
