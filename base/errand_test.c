/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/errand.h"

#include "tests/lib/tap.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct work {
    int n;
    pthread_t by;
    bool takes_signals;
    sem_t may_end;
};

static void count(void *arg)
{
    struct work *w = arg;
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    w->takes_signals = !sigismember(&blocked, SIGTERM);
    w->by = pthread_self();
    w->n++;
}

static void hang(void *arg)
{
    struct work *w = arg;

    sem_wait(&w->may_end);
    w->n++;
}

static void test_often(void)
{
    _cleanup_(errand) struct errand *e = errand_create();
    struct work w = {0};
    pthread_t first;

    if (!e) {
        bail_out("no thread");
    }
    errand_await(e);
    is_int(w.n, 0, "nothing was sent, and nothing is waited for");
    errand_send(e, count, &w);
    errand_await(e);
    first = w.by;
    ok(w.n == 1 && !pthread_equal(first, pthread_self()), "another thread does it");
    ok(!w.takes_signals, "which takes no signals");
    for (int i = 0; i < 1000; i++) {
        errand_send(e, count, &w);
        errand_await(e);
    }
    ok(w.n == 1001 && pthread_equal(w.by, first), "each time the same");
    errand_await(e);
    is_int(w.n, 1001, "who waits twice waits once");
}

static void test_end(void)
{
    struct errand *e = errand_create();
    struct work w = {0};

    sem_init(&w.may_end, 0, 0);
    errand_send(e, hang, &w);
    sem_post(&w.may_end);
    errand_destroy(e);
    is_int(w.n, 1, "the end waits for what was sent");
    errand_destroy(NULL);
    e = errand_create();
    errand_destroy(e);
    ok(true, "or for nothing");
}

/* The child's memory has it, and nobody does it there. */
static void test_fork(void)
{
    struct errand *e = errand_create();
    struct work w = {0};
    int status = -1;
    pid_t pid;

    sem_init(&w.may_end, 0, 0);
    errand_send(e, hang, &w);
    pid = fork();
    if (pid == 0) {
        bool is_here = errand_is_here(e);

        errand_destroy(e);
        _exit(is_here);
    }
    ok(errand_is_here(e), "the thread is here");
    ok(waitpid(pid, &status, 0) == pid && status == 0,
       "and not in a child, which can do without: status %d", status);
    sem_post(&w.may_end);
    errand_destroy(e);
    is_int(w.n, 1, "it has done what it was sent for");
}

int main(void)
{
    test_often();
    test_end();
    test_fork();
    return tap_done();
}
