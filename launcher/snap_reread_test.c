/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who reads a checkpoint again gives way to saves, for so long, and leaves nothing in the
 * page cache. The linker's hand sees what it waits for, and passes the time.
 */
#include <config.h>

#include "launcher/snap_reread.h"

#include "base/clock.h"
#include "launcher/commit_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>

enum { STEP = 3 };

static struct reread_gate gate;
static uint64_t now_ms;
static int n_waits, n_forgotten, n_whole;
static enum { OPENS, ENDS, NEVER } then; /* what comes of waiting */

uint64_t __wrap_clock_mono_ms(void);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until);
int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice);

uint64_t __wrap_clock_mono_ms(void)
{
    return now_ms;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until)
{
    uint64_t until_ms = (uint64_t)until->tv_sec * 1000 + (uint64_t)until->tv_nsec / 1000000;

    (void)c, (void)m; /* it has the lock */
    n_waits++;
    if (then == NEVER) {
        now_ms = until_ms > now_ms ? until_ms : now_ms;
        return ETIMEDOUT;
    }
    now_ms += 1000;
    gate.is_held = false;
    gate.is_over = then == ENDS;
    return 0;
}

int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice)
{
    (void)fd;
    if (advice == POSIX_FADV_DONTNEED) {
        n_forgotten += len > 0;
        n_whole += at == 0 && len == 0;
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
    return snap_reread(b->top, name, &gate, e);
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
    then = ENDS;
    is_int(reread(b, true, &e), -ECANCELED, "it is to end while it waits");
    is_int(n_forgotten, 0, "and has read nothing");
    reread_gate_end(&gate);
    reread_gate_destroy(&gate);
}

static void test_over(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    reread_gate_init(&gate);
    reread_gate_end(&gate);
    commit_bed_name(b, STEP, name);
    is_int(snap_reread(b->top, name, &gate, &e), -ECANCELED, "it was to end before");
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

int main(void)
{
    struct commit_bed b = {0};

    commit_bed_make(&b, "snap_reread_test");
    commit_bed_save(&b, STEP);
    test_open(&b);
    test_held(&b);
    test_over(&b);
    test_never(&b);
    commit_bed_close(&b);
    return tap_done();
}
