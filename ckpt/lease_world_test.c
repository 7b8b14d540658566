/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of the world in which a lease is had: which processes there are, and how it is waited.
 */
#include <config.h>

#include "ckpt/lease.h"

#include "base/proc.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

/* In place of libc's: what may not be asked for, and how often it is waited. */
static bool is_refused;
static unsigned n_sleeps;
static _Atomic bool *set_at_sleep;

int kill(pid_t pid, int signal)
{
    (void)pid, (void)signal;
    errno = EPERM;
    return is_refused ? -1 : 0;
}

int usleep(useconds_t us)
{
    (void)us;
    n_sleeps++;
    if (set_at_sleep) {
        *set_at_sleep = true;
    }
    return 0;
}

static void test_running(void)
{
    struct lease_world world = lease_world(NULL);
    struct rlimit was, none;
    struct proc own;

    is_int(proc_read(getpid(), &own), 0, "this process");
    is_refused = true;
    ok(world.is_running(world.arg, getpid(), own.start), "one that is not for us is there");
    is_refused = false;
    getrlimit(RLIMIT_NOFILE, &was);
    none = was;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    ok(world.is_running(world.arg, getpid(), own.start + 1), "and one of which nothing is known");
    setrlimit(RLIMIT_NOFILE, &was);
    ok(!world.is_running(world.arg, getpid(), own.start + 1), "known, it is another one");
}

static void test_waiting(void)
{
    _Atomic bool cancel = false;
    struct lease_world world = lease_world(&cancel);

    ok(world.wait(world.arg, 1000) && n_sleeps == 10, "ten times a tenth of a second");
    n_sleeps = 0;
    set_at_sleep = &cancel;
    ok(!world.wait(world.arg, 1000) && n_sleeps == 1, "no more once it is to end");
    ok(!world.wait(world.arg, 1000) && n_sleeps == 1, "and never again");
    set_at_sleep = NULL;
    world = lease_world(NULL);
    ok(world.wait(world.arg, 1000) && n_sleeps == 11, "where there is nothing that ends it");
}

int main(void)
{
    test_running();
    test_waiting();
    return tap_done();
}
