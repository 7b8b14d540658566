/* SPDX-License-Identifier: Apache-2.0 */
/* Each piece of work is done once, by no more threads than are wanted; the first that fails ends
 * it. */
#include <config.h>

#include "ckpt/crowd.h"

#include "base/cleanup.h"
#include "ckpt/threads_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 500 };

struct threads_bed threads_bed = {.n_granted = MANY};

/* --- work --- */

static atomic_uint n_done[MANY + 1];

static int count(void *arg, size_t i, struct error *e)
{
    (void)arg, (void)e;
    n_done[i < MANY ? i : MANY]++;
    return (int)(i % 2); /* whatever is not less than 0 is no failure */
}

static void test_each(void)
{
    static const size_t numbers[] = {0, 1, 2, 7, MANY}, threads[] = {0, 1, 3, MANY};

    for (size_t k = 0; k < ARRAY_SIZE(numbers) * ARRAY_SIZE(threads); k++) {
        size_t n = numbers[k % ARRAY_SIZE(numbers)];
        const struct crowd c = {.n_threads = threads[k / ARRAY_SIZE(numbers)], .work = count};
        size_t most = c.n_threads < n ? c.n_threads : n;
        unsigned n_wrong = 0;

        memset(n_done, 0, sizeof(n_done));
        threads_bed_reset();
        threads_bed.n_granted = MANY;
        is_int(crowd_run(&c, n, NULL), 0, "%zu pieces by %zu threads", n, c.n_threads);
        for (size_t i = 0; i <= MANY; i++) {
            n_wrong += n_done[i] != (i < n);
        }
        is_int((intmax_t)n_wrong, 0, "each is done once");
        ok(threads_bed.n_started + 1 <= most || threads_bed.n_started == 0,
           "by no more than are wanted: %u more", threads_bed.n_started);
        ok(most < 2 || threads_bed.n_started > 0, "nor by one where several are");
        is_int((intmax_t)threads_bed.n_joined, threads_bed.n_started, "who have all come back");
    }
}

/* Nor any at all. */
static void test_few(void)
{
    const struct crowd c = {.n_threads = 5, .work = count};

    for (threads_bed.n_granted = 0; threads_bed.n_granted < 3; threads_bed.n_granted++) {
        unsigned n = 0;

        memset(n_done, 0, sizeof(n_done));
        threads_bed_reset();
        is_int(crowd_run(&c, MANY, NULL), 0, "%u threads are to be had", threads_bed.n_granted);
        for (size_t i = 0; i < MANY; i++) {
            n += n_done[i];
        }
        ok(n == MANY && threads_bed.n_joined == threads_bed.n_granted,
           "they, and this one, do it all");
    }
    threads_bed.n_granted = MANY;
}

/* --- failures --- */

/* The second fails first, and the first when that is known. */
struct failing {
    sem_t is_known;
    atomic_uint n_begun;
    bool is_alone;
    int n_stops;
};

static int fail(void *arg, size_t i, struct error *e)
{
    struct failing *f = arg;

    f->n_begun++;
    if (i == 0 && f->is_alone) {
        return 0;
    }
    if (i == 0) {
        for (int ms = 0; sem_trywait(&f->is_known) < 0 && ms < 20000; ms++) {
            usleep(1000);
        }
        return error_text(e, EIO, "the second failure");
    }
    return error_text(e, EINVAL, "the first failure");
}

static void stop(void *arg)
{
    struct failing *f = arg;

    f->n_stops++;
    sem_post(&f->is_known);
}

static void test_failures(void)
{
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        struct failing f = {.is_alone = is_alone};
        const struct crowd c = {.n_threads = is_alone ? 1 : 2, .work = fail, .arg = &f,
                                .stop = stop, .stop_arg = &f};
        struct error e = {0};

        sem_init(&f.is_known, 0, 0);
        is_int(crowd_run(&c, MANY, &e), -EINVAL, "%s", is_alone ? "one fails" : "two fail");
        is_str(e.text, "the first failure", "the first of them is told");
        is_int(f.n_stops, 1, "the others are stopped once");
        is_int((intmax_t)f.n_begun, 2, "and nothing more is begun");
        sem_destroy(&f.is_known);
    }
}

static void test_no_stop(void)
{
    struct failing f = {.is_alone = true};
    const struct crowd c = {.n_threads = 1, .work = fail, .arg = &f};

    is_int(crowd_run(&c, 2, NULL), -EINVAL, "one may fail without a stop, and without a word");
}

/* --- how many --- */

static int n_cpus; /* 0: nobody knows */

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret)
{
    (void)pid;
    memset(ret, 0, size);
    for (size_t i = 0; i < (size_t)n_cpus; i++) {
        CPU_SET(2 * i, ret);
    }
    errno = EINVAL;
    return n_cpus > 0 ? 0 : -1;
}

static void test_n_threads(void)
{
    static const struct {
        int n;
        unsigned want;
    } cases[] = {{0, 1}, {1, 1}, {2, 2}, {4, 4}, {5, 4}, {200, 4}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        n_cpus = cases[i].n;
        is_int((intmax_t)crowd_n_threads(), cases[i].want, "for %d processors", n_cpus);
    }
}

int main(void)
{
    test_each();
    test_few();
    test_failures();
    test_no_stop();
    test_n_threads();
    return tap_done();
}
