/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who reads a checkpoint again gives way to saves, for so long, and leaves nothing in the
 * page cache. The linker's hand sees what it waits for, and passes the time.
 */
#include <config.h>

#include "launcher/snap_reread.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/commit_bed.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STEP = 3 };

static struct reread_gate gate;
static uint64_t now_ms;
static atomic_int n_waits;
static int n_forgotten, n_whole;
static struct commit_bed *bed;
static int n_until_removed = -1; /* reads until somebody removes it; below 0: nobody does */
/* What comes of waiting; FOR_REAL: what another thread makes of it. */
static enum { OPENS, WAKES_FIRST, ENDS, NEVER, FOR_REAL } then;
static int last_rc; /* of a wait for real */
static void (*when_read)(void); /* some of it; or NULL */
static bool lacks_threads;

/* Who was told to take only what others leave. */
static int n_nice, niceness;
static pthread_t nice_thread;
static long io_class; /* of who has read last: see ioprio_set(2); below 0: there are none */

uint64_t __real_clock_mono_ms(void);
uint64_t __wrap_clock_mono_ms(void);
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until);
int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice);
int __real_pthread_create(pthread_t *ret, const pthread_attr_t *how, void *(*body)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *how, void *(*body)(void *),
                          void *arg);
int __wrap_setpriority(__priority_which_t which, id_t who, int value);

uint64_t __wrap_clock_mono_ms(void)
{
    return then == FOR_REAL ? __real_clock_mono_ms() : now_ms;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until)
{
    uint64_t until_ms = (uint64_t)until->tv_sec * 1000 + (uint64_t)until->tv_nsec / 1000000;

    n_waits++;
    if (then == FOR_REAL) {
        last_rc = __real_pthread_cond_timedwait(c, m, until);
        return last_rc;
    } /* else it has the lock */
    if (then == NEVER) {
        now_ms = until_ms > now_ms ? until_ms : now_ms;
        return ETIMEDOUT;
    }
    now_ms += 1000;
    gate.is_held = then == ENDS || (then == WAKES_FIRST && n_waits == 1);
    gate.is_over = then == ENDS;
    return 0;
}

int __wrap_setpriority(__priority_which_t which, id_t who, int value)
{
    n_nice += which == PRIO_PROCESS && who == (id_t)syscall(SYS_gettid);
    niceness = value;
    nice_thread = pthread_self();
    return 0;
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *how, void *(*body)(void *),
                          void *arg)
{
    return lacks_threads ? EAGAIN : __real_pthread_create(ret, how, body, arg);
}

/* By a thread that has a table of descriptors of its own. */
static void remove_it(void)
{
    _close_ int root = open(bed->top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[STEP_NAME_BYTES];

    commit_bed_name(bed, STEP, name);
    step_remove(io_system(), root, name, NULL);
}

int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice)
{
    (void)fd;
    io_class = syscall(SYS_ioprio_get, 1, 0) >> 13;
    if (advice == POSIX_FADV_DONTNEED) {
        n_forgotten += len > 0;
        n_whole += at == 0 && len == 0;
    }
    if (len > 0 && n_until_removed-- == 0) {
        remove_it();
    }
    if (len > 0 && when_read) {
        when_read();
    }
    return 0;
}

static int reread(struct commit_bed *b, bool is_held, struct error *e)
{
    char name[STEP_NAME_BYTES];

    reread_gate_init(&gate);
    reread_gate_hold(&gate, is_held);
    n_waits = n_forgotten = n_whole = 0;
    now_ms = 5000;
    *e = (struct error){0};
    commit_bed_name(b, STEP, name);
    return snap_reread(b->top, name, &gate, false, e);
}

static void test_open(struct commit_bed *b)
{
    struct error e;

    is_int(reread(b, false, &e), 0, "nobody wants the disk: it is read: %s", e.text);
    is_int(n_waits, 0, "at once");
    ok(n_whole >= 3, "what of its files was in the page cache is read from the disk: %d",
       n_whole);
    ok(n_forgotten >= 3, "and is not left there: %d", n_forgotten);
    reread_gate_destroy(&gate);
}

static void test_held(struct commit_bed *b)
{
    struct error e;

    then = OPENS;
    is_int(reread(b, true, &e), 0, "a save is on its way: it is read: %s", e.text);
    is_int(n_waits, 1, "after it");
    reread_gate_destroy(&gate);
    then = WAKES_FIRST;
    is_int(reread(b, true, &e), 0, "woken for nothing: %s", e.text);
    is_int(n_waits, 2, "it goes on to wait");
    reread_gate_destroy(&gate);
    then = ENDS;
    is_int(reread(b, true, &e), -ECANCELED, "it is to end while it waits");
    is_int(n_waits, 1, "at once");
    is_int(n_forgotten, 0, "and has read nothing");
    reread_gate_end(&gate);
    reread_gate_destroy(&gate);
}

static void *open_gate(void *arg)
{
    while (n_waits == 0) {
        usleep(1000);
    }
    reread_gate_hold(&gate, false);
    return arg;
}

/* By another thread, and the kernel's clock. */
static void test_woken(struct commit_bed *b)
{
    struct error e;
    pthread_t thread;

    then = FOR_REAL;
    n_waits = 0;
    pthread_create(&thread, NULL, open_gate, NULL);
    is_int(reread(b, true, &e), 0, "it waits until the disk is free: %s", e.text);
    pthread_join(thread, NULL);
    is_int(last_rc, 0, "of which it is told");
    reread_gate_destroy(&gate);
}

static void test_over(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    reread_gate_init(&gate);
    reread_gate_end(&gate);
    commit_bed_name(b, STEP, name);
    is_int(snap_reread(b->top, name, &gate, false, &e), -ECANCELED, "it was to end before");
    reread_gate_destroy(&gate);
}

/* A save that is on its way is this one: who waits for it waits for what is read. */
static void test_urgent(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    reread_gate_init(&gate);
    reread_gate_hold(&gate, true);
    n_waits = 0;
    commit_bed_name(b, STEP, name);
    is_int(snap_reread(b->top, name, &gate, true, &e), 0, "where it is urgent it is read: %s",
           e.text);
    is_int(n_waits, 0, "whoever else wants the disk");
    reread_gate_end(&gate);
    is_int(snap_reread(b->top, name, &gate, true, &e), -ECANCELED, "but for nobody any more");
    reread_gate_destroy(&gate);
}

/* Another lead has removed it meanwhile, or all of the directory. */
static void test_gone(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    reread_gate_init(&gate);
    commit_bed_name(b, STEP + 1, name);
    is_int(snap_reread(b->top, name, &gate, false, &e), -ENOENT, "one that is not there");
    is_int(snap_reread(b->top, "nothing", &gate, false, &e), -ENOENT, "nor by another name");
    like(e.text, "nothing is gone", "%s", e.text);
    is_int(snap_reread("/nonexistent/ck", name, &gate, false, &e), -ENOENT, "nor is its directory");
    like(e.text, "open /nonexistent/ck", "%s", e.text);
    reread_gate_destroy(&gate);
}

/* What nobody has read is not right. */
static void test_no_thread(struct commit_bed *b)
{
    struct error e;

    lacks_threads = true;
    is_int(reread(b, false, &e), -EAGAIN, "without a thread nothing is read");
    like(e.text, "no thread to read step-", "%s", e.text);
    lacks_threads = false;
    n_waits = 0;
    reread_gate_leave(&gate);
    is_int(n_waits, 0, "and nobody waits until it was");
    reread_gate_destroy(&gate);
}

/* Saves follow one another without an end: older checkpoints would stay, all of them. */
static void test_never(struct commit_bed *b)
{
    struct error e;

    then = NEVER;
    is_int(reread(b, true, &e), 0, "one save after the other: it is read all the same: %s",
           e.text);
    is_int((intmax_t)now_ms - 5000, REREAD_WAIT_MS, "when it has waited so long, in all");
    reread_gate_destroy(&gate);
}

/* As muster ckpt prune does, or a later save: it is not called damaged for that. */
static void test_removed(struct commit_bed *b)
{
    struct error e;

    then = NEVER;
    for (int n = 0; n < 3; n++) {
        if (!commit_bed_has(b, STEP, "")) {
            commit_bed_save(b, STEP);
        }
        n_until_removed = n;
        is_int(reread(b, false, &e), -ENOENT, "it is removed after read %d: %s", n, e.text);
        like(e.text, "it is being removed", "which is said");
        ok(!commit_bed_has(b, STEP, "COMMIT"), "it was");
        reread_gate_destroy(&gate);
    }
    n_until_removed = -1;
}

/* How many files this process has open in the checkpoint. */
static int n_open(void)
{
    char path[64], to[PATH_MAX], name[STEP_NAME_BYTES];
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *task;
    int n = 0;

    commit_bed_name(bed, STEP, name);
    while (dir && (task = readdir(dir))) { /* a thread has a table of its own */
        for (int fd = 0; fd < 64; fd++) {
            ssize_t len;

            snprintf(path, sizeof(path), "/proc/self/task/%.16s/fd/%d", task->d_name, fd);
            len = readlink(path, to, sizeof(to) - 1);
            to[len > 0 ? len : 0] = '\0';
            n += strstr(to, name) != NULL;
        }
    }
    closedir(dir);
    return n;
}

static int n_open_before, n_open_after;

static void *leave_it(void *arg)
{
    while (n_waits == 0) {
        usleep(1000);
    }
    n_open_before = n_open();
    reread_gate_leave(&gate);
    n_open_after = n_open();
    return arg;
}

/* What has been removed has its room until nobody has it open. */
static void test_left(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e;
    pthread_t thread;

    then = FOR_REAL;
    n_waits = 0;
    pthread_create(&thread, NULL, leave_it, NULL);
    is_int(reread(b, true, &e), -ECANCELED, "what is read is to go, while a save is on its way");
    pthread_join(thread, NULL);
    ok(n_open_before > 0, "it was open: %d", n_open_before);
    is_int(n_open_after, 0, "and is not when it is left");
    is_int(last_rc, 0, "of which whoever leaves it is told");
    reread_gate_hold(&gate, false);
    commit_bed_name(b, STEP, name);
    is_int(snap_reread(b->top, name, &gate, false, &e), 0, "the next one is not left: %s", e.text);
    n_waits = 0;
    reread_gate_leave(&gate);
    is_int(n_waits, 0, "where nobody reads nobody is waited for");
    is_int(snap_reread(b->top, name, &gate, false, &e), 0, "nor is the one after it left: %s",
           e.text);
    reread_gate_destroy(&gate);
}

/* Behind the back of everybody, but for who waits for it. */
static void test_nice(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e;

    n_nice = 0;
    reread(b, false, &e);
    ok(n_nice == 1 && niceness == 19, "it takes only what others leave of a processor");
    ok(io_class == 3 || io_class < 0, "and of the disk");
    ok(!pthread_equal(nice_thread, pthread_self()), "and none of them gives way");
    commit_bed_name(b, STEP, name);
    snap_reread(b->top, name, &gate, true, &e);
    ok(n_nice == 1 && io_class != 3, "where it is urgent it takes as much as others");
    reread_gate_destroy(&gate);
}

static uint64_t left_ms;

/* By the reader itself, who comes to no end meanwhile. */
static void leave_once(void)
{
    if (n_forgotten == 1) {
        uint64_t began_ms = now_ms;

        reread_gate_leave(&gate);
        left_ms = now_ms - began_ms;
    }
}

/* A disk that hangs holds up nobody for long. */
static void test_left_late(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e;

    then = NEVER;
    when_read = leave_once;
    is_int(reread(b, false, &e), -ECANCELED, "it is left while it is read");
    is_int((intmax_t)left_ms, 1000, "which is waited for, but only so long");
    commit_bed_name(b, STEP, name);
    n_waits = n_forgotten = 0;
    is_int(snap_reread(b->top, name, &gate, true, &e), 0, "one that is urgent goes on: %s",
           e.text);
    is_int(n_waits, 0, "and is not waited for");
    when_read = NULL;
    is_int(snap_reread(b->top, name, &gate, false, &e), 0, "nor is the next one left: %s",
           e.text);
    reread_gate_destroy(&gate);
}

static int n_to_end;

static void end_then(void)
{
    if (n_forgotten == n_to_end) {
        reread_gate_end(&gate);
    }
}

/* Who has told it to end hears nothing else. */
static void test_over_at_last(struct commit_bed *b)
{
    struct error e;

    then = NEVER;
    is_int(reread(b, false, &e), 0, "it is read: %s", e.text);
    n_to_end = n_forgotten;
    reread_gate_destroy(&gate);
    when_read = end_then;
    is_int(reread(b, false, &e), -ECANCELED, "it is to end after the last byte");
    when_read = NULL;
    reread_gate_destroy(&gate);
}

int main(void)
{
    struct commit_bed b = {0};

    commit_bed_make(&b, "snap_reread_test");
    commit_bed_save(&b, STEP);
    test_open(&b);
    test_held(&b);
    test_woken(&b);
    test_over(&b);
    test_urgent(&b);
    test_gone(&b);
    test_no_thread(&b);
    test_never(&b);
    test_nice(&b);
    test_left_late(&b);
    test_over_at_last(&b);
    bed = &b;
    test_left(&b);
    test_removed(&b);
    commit_bed_close(&b);
    return tap_done();
}
