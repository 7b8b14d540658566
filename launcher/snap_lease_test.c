/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of a lease: it renews what is held, as its run is by then, one at a time with
 * who asks; it lets go when it is told to, each time, also where it is to end; and it changes
 * nothing once the office is over. What it does to the directory, and when time has passed,
 * is in the linker's hand.
 */
#include <config.h>

#include "launcher/snap_lease.h"

#include "base/fs.h"
#include "base/str.h"
#include "ckpt/lease.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[] = "/tmp/snap_lease_test.XXXXXX";
static struct lease_note own = {.is_alone = true};

/* --- what is done to the directory --- */

enum { NONE, ADOPT, HOLD, DROP };
static atomic_int n_adopted, n_held, n_dropped;
static atomic_int n_inside, n_together; /* at once, which may not be */
static atomic_int last; /* of these */
static atomic_bool was_alone, may_change;
static atomic_int waits_in; /* until it is set to another one */
static atomic_int is_inside;
static _Atomic(struct snap_lease *) drops_again; /* as it is let go of */
static atomic_bool time_passes, is_signalled;
static atomic_bool was_cancelled; /* who holds, and waits for others, is told so */
static atomic_int hold_rc;
static atomic_int n_too_late; /* it would be renewed */

int __wrap_lease_hold(struct lease *l, struct io *io, int dir, struct error *e);
int __wrap_lease_adopt(struct lease *l, struct io *io, int dir, struct error *e);
void __wrap_lease_drop(struct lease *l, struct io *io, int dir);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);

static void do_one(int what, struct lease *l, struct io *io, int dir)
{
    int fd;

    n_together += atomic_fetch_add(&n_inside, 1) > 0;
    was_alone = l->own.is_alone;
    if (what != HOLD) {
        fd = io->ops->create(io, dir, "x");
        may_change = fd >= 0;
        if (fd >= 0) {
            io->ops->close(io, fd);
            io->ops->unlink(io, dir, "x");
        }
    }
    is_inside = what;
    while (waits_in == what) {
        poll(NULL, 0, 1);
    }
    is_inside = NONE;
    last = what;
    atomic_fetch_sub(&n_inside, 1);
}

int __wrap_lease_hold(struct lease *l, struct io *io, int dir, struct error *e)
{
    do_one(HOLD, l, io, dir);
    was_cancelled = !l->world.wait(l->world.arg, 0);
    n_held++;
    return hold_rc < 0 ? error_text(e, -hold_rc, "another run") : 0;
}

int __wrap_lease_adopt(struct lease *l, struct io *io, int dir, struct error *e)
{
    (void)e;
    do_one(ADOPT, l, io, dir);
    n_adopted++;
    return 0;
}

void __wrap_lease_drop(struct lease *l, struct io *io, int dir)
{
    struct snap_lease *again = atomic_exchange(&drops_again, NULL);

    do_one(DROP, l, io, dir);
    if (again) {
        snap_lease_drop(again);
    }
    n_dropped++;
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    is_signalled = true;
    return __real_pthread_cond_signal(cond);
}

/* Woken, or time has passed. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    n_too_late += until->tv_sec > now.tv_sec + LEASE_RENEW_MS / 1000;
    for (;;) {
        struct timespec soon;

        if (atomic_exchange(&is_signalled, false)) {
            return 0;
        }
        if (atomic_exchange(&time_passes, false)) {
            return ETIMEDOUT;
        }
        clock_gettime(CLOCK_MONOTONIC, &soon);
        soon.tv_nsec += 1000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        __real_pthread_cond_timedwait(cond, mutex, &soon);
    }
}

static void wait_for(const atomic_int *count, int n)
{
    for (int i = 0; i < 20000 && *count < n; i++) {
        poll(NULL, 0, 1);
    }
    is_int(*count, n, "so often");
}

static void wait_inside(int what)
{
    for (int i = 0; i < 20000 && is_inside != what; i++) {
        poll(NULL, 0, 1);
    }
    is_int(is_inside, what, "it is at work");
}

/* --- a lease --- */

static struct office office;

static struct snap_lease *create(const char *path)
{
    struct snap_lease *l = NULL;
    struct error e = {0};

    n_adopted = n_held = n_dropped = n_together = 0;
    waits_in = NONE;
    hold_rc = 0;
    office_begin(&office);
    if (snap_lease_create(path, &own, &office, &l, &e) < 0) {
        bail_out("%s", e.text);
    }
    return l;
}

static void end(struct snap_lease *l)
{
    bool has_ended = false;

    for (int i = 0; i < 20000 && !(has_ended = snap_lease_end(l)); i++) {
        poll(NULL, 0, 1);
    }
    ok(has_ended, "the thread ends");
}

static void test_renewed(void)
{
    struct snap_lease *l = create(root);

    is_str(snap_lease_root(l), root, "of a directory");
    wait_for(&n_adopted, 1);
    ok(was_alone && may_change, "what the run has there is taken at once, as it is");
    snap_lease_alone(l, false);
    time_passes = true;
    wait_for(&n_adopted, 2);
    ok(!was_alone, "others may lead the run on by now, which is told with the next");
    office_set(&office, 0);
    time_passes = true;
    wait_for(&n_adopted, 3);
    ok(!may_change, "who leads no more changes nothing");
    is_int(n_dropped, 0, "nor lets it go of it");
    end(l);
    is_int(n_dropped, 0, "also in the end");
    is_int(n_too_late, 0, "it was never to be renewed later than it has to be");
}

static void test_dropped(void)
{
    struct snap_lease *l = create(root);

    wait_for(&n_adopted, 1);
    ok(!snap_lease_is_dropping(l), "nothing is to be done");
    waits_in = DROP;
    snap_lease_drop(l);
    wait_inside(DROP);
    ok(snap_lease_is_dropping(l) && may_change, "it is let go of at once, which takes time");
    waits_in = NONE;
    wait_for(&n_dropped, 1);
    for (int i = 0; i < 20000 && snap_lease_is_dropping(l); i++) {
        poll(NULL, 0, 1);
    }
    ok(!snap_lease_is_dropping(l), "then it is done");
    is_int(n_dropped, 1, "once");
    office_set(&office, 0);
    snap_lease_drop(l);
    wait_for(&n_dropped, 2);
    ok(!may_change, "not by who leads no more");
    end(l);
}

/* Between both somebody may have asked for it. */
static void test_dropped_again(void)
{
    struct snap_lease *l = create(root);

    wait_for(&n_adopted, 1);
    drops_again = l;
    snap_lease_drop(l);
    wait_for(&n_dropped, 2);
    end(l);
    is_int(last, DROP, "who lets go twice has let go");
}

static void test_ends(void)
{
    struct snap_lease *l = create(root);

    wait_for(&n_adopted, 1);
    waits_in = ADOPT;
    time_passes = true;
    wait_inside(ADOPT);
    snap_lease_drop(l);
    ok(!snap_lease_end(l), "a thread that hangs is not waited for");
    waits_in = NONE;
    end(l);
    is_int(n_dropped, 1, "it lets go before it ends");
}

/* --- who asks --- */

static void *ask(void *arg)
{
    static struct error e;
    int rc = snap_lease_hold(arg, io_system(), -1, &e);

    return rc < 0 ? &e : NULL;
}

static void test_asked(void)
{
    struct snap_lease *l = create(root);
    pthread_t thread;
    void *ret = &thread;
    struct error e = {0};

    wait_for(&n_adopted, 1);
    snap_lease_alone(l, false);
    waits_in = HOLD;
    ok(!snap_lease_is_asking(l), "nobody asks");
    if (pthread_create(&thread, NULL, ask, l) != 0) {
        bail_out("no thread");
    }
    wait_inside(HOLD);
    ok(snap_lease_is_asking(l) && !was_alone, "somebody does, as the run is by now");
    time_passes = true;
    snap_lease_drop(l); /* which wakes it, too */
    poll(NULL, 0, 20);
    waits_in = NONE;
    pthread_join(thread, &ret);
    ok(!ret && !snap_lease_is_asking(l) && !was_cancelled, "and has it");
    wait_for(&n_dropped, 1);
    is_int(n_together, 0, "one at a time");
    hold_rc = -EBUSY;
    snap_lease_hurry(l);
    is_int(snap_lease_hold(l, io_system(), -1, &e), -EBUSY, "another run has it");
    ok(strstr(e.text, root) && strstr(e.text, "another run"), "where: %s", e.text);
    ok(was_cancelled, "who hurries waits for nobody");
    end(l);
}

/* A directory that is not there. */
static void test_gone(void)
{
    struct snap_lease *l = create("/nonexistent/snap_lease_test");

    snap_lease_drop(l);
    for (int i = 0; i < 20000 && snap_lease_is_dropping(l); i++) {
        poll(NULL, 0, 1);
    }
    ok(!snap_lease_is_dropping(l) && n_adopted == 0 && n_dropped == 0,
       "in what is not there nothing is done");
    end(l);
}

int main(void)
{
    if (!mkdtemp(root)) {
        bail_out("no directory %s", root);
    }
    test_renewed();
    test_dropped();
    test_dropped_again();
    test_ends();
    test_asked();
    test_gone();
    fs_remove_tree(root, NULL);
    return tap_done();
}
