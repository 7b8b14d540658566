/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_reread.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"
#include "ckpt/found.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LEAVE_MS = 1000,
    NICE = 19,
    IOPRIO_PROCESS = 1, /* of linux/ioprio.h, absent in old headers */
    IOPRIO_IDLE = 3 << 13,
};

struct check {
    struct io io; /* reads when the gate lets it */
    struct io_ops ops;
    const char *root, *name;
    struct reread_gate *gate;
    bool is_urgent;
    uint64_t waited_ms;
    int rc;
    struct error *e;
};

/* --- the gate --- */

void reread_gate_init(struct reread_gate *g)
{
    pthread_condattr_t clock;

    *g = (struct reread_gate){0};
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &clock);
    pthread_condattr_destroy(&clock);
}

void reread_gate_destroy(struct reread_gate *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

static void set(struct reread_gate *g, bool *what, bool value)
{
    pthread_mutex_lock(&g->lock);
    *what = value;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void reread_gate_hold(struct reread_gate *g, bool is_held)
{
    set(g, &g->is_held, is_held);
}

void reread_gate_end(struct reread_gate *g)
{
    set(g, &g->is_over, true);
}

static bool is_over(const struct check *c)
{
    struct reread_gate *g = c->gate;
    bool ret;

    pthread_mutex_lock(&g->lock);
    ret = g->is_over || (g->is_left && !c->is_urgent);
    pthread_mutex_unlock(&g->lock);
    return ret;
}

static struct timespec time_at(uint64_t ms)
{
    return (struct timespec){.tv_sec = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000};
}

void reread_gate_leave(struct reread_gate *g)
{
    const struct timespec end = time_at(clock_mono_ms() + LEAVE_MS);
    int rc = 0;

    pthread_mutex_lock(&g->lock);
    g->is_left = g->is_reading;
    pthread_cond_broadcast(&g->changed);
    while (g->is_reading && rc == 0) {
        rc = pthread_cond_timedwait(&g->changed, &g->lock, &end);
    }
    pthread_mutex_unlock(&g->lock);
}

static void note_reading(struct reread_gate *g, bool is_reading)
{
    pthread_mutex_lock(&g->lock);
    g->is_reading = is_reading;
    g->is_left = g->is_left && !is_reading;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Until nobody else wants the disk. False: it is to end. */
static bool pass(struct check *c)
{
    struct reread_gate *g = c->gate;
    uint64_t begin_ms = clock_mono_ms();
    const struct timespec end = time_at(begin_ms + REREAD_WAIT_MS - c->waited_ms);
    int rc = 0;

    pthread_mutex_lock(&g->lock);
    while (g->is_held && !c->is_urgent && !g->is_over && !g->is_left && rc == 0) {
        rc = pthread_cond_timedwait(&g->changed, &g->lock, &end);
    }
    pthread_mutex_unlock(&g->lock);
    c->waited_ms += clock_mono_ms() - begin_ms;
    c->waited_ms = c->waited_ms < REREAD_WAIT_MS ? c->waited_ms : REREAD_WAIT_MS;
    return !is_over(c);
}

/* --- reading --- */

/* What is in the page cache tells nothing of the disk. */
static void forget(int fd, uint64_t at, size_t len)
{
    posix_fadvise(fd, (off_t)at, (off_t)len, POSIX_FADV_DONTNEED);
}

static ssize_t read_on(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    struct check *c = (struct check *)io;
    ssize_t n;

    if (!pass(c)) {
        return -ECANCELED;
    }
    if (at == 0) { /* all of it; later on there is what the kernel has read ahead */
        forget(fd, 0, 0);
    }
    n = io_system()->ops->read(io_system(), fd, to, len, at);
    if (n > 0) {
        forget(fd, at, (size_t)n);
    }
    return n;
}

static int check(struct check *c)
{
    _close_ int root = open(c->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct found_facts facts;
    struct found found;

    if (root < 0) {
        return error_set(c->e, errno, "open %s", c->root);
    }
    if (!found_one(io_system(), root, c->name, &found)) {
        return error_text(c->e, ENOENT, "%s is gone", c->name);
    }
    return found_check(&c->io, root, &found, true, &facts, c->e);
}

static void *run(void *arg)
{
    struct check *c = arg;

    if (!c->is_urgent) {
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
        syscall(SYS_ioprio_set, IOPRIO_PROCESS, 0, IOPRIO_IDLE);
    }
    c->rc = check(c);
    return NULL;
}

int snap_reread(const char *root, const char *name, struct reread_gate *g, bool is_urgent,
                struct error *e)
{
    struct check c = {.ops = *io_system()->ops, .root = root, .name = name,
                      .gate = g, .is_urgent = is_urgent, .e = e};
    pthread_t thread;
    int rc;

    c.ops.read = read_on;
    c.io.ops = &c.ops;
    if (!is_urgent) {
        note_reading(g, true);
    }
    rc = thread_start_apart(&thread, run, &c, -1);
    if (rc == 0) {
        pthread_join(thread, NULL);
        rc = is_over(&c) ? -ECANCELED : c.rc;
    } else {
        rc = error_set(e, rc, "no thread to read %s", name);
    }
    if (!is_urgent) {
        note_reading(g, false);
    }
    return rc;
}
