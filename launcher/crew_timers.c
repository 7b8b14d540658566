/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of torch.distributed.elastic, for programs that guard what they do by
 * them: where TORCHELASTIC_ENABLE_FILE_TIMER is 1 the workers of a node find in
 * TORCHELASTIC_TIMER_FILE a FIFO that its agent reads. A process whose timer is over
 * gets the signal that it has asked for, and its worker has failed: whatever else
 * becomes of that process, what it was to do is not done.
 *
 * The FIFO does not say who writes. So only processes of our own workers are
 * signalled, and only the very one that had the pid when the timer was set.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/loop_timer.h"
#include "launcher/last_words.h"
#include "launcher/timers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16 };

struct crew_timers {
    struct timers *core;
    uv_poll_t *poll;
    uv_timer_t *timer;
    int fd;
    bool has_noted; /* what was no request: told once */
    char path[PATH_MAX];
};

/* --- whose it is --- */

static bool start_of(pid_t pid, uint64_t *ret)
{
    struct proc p;

    if (proc_read(pid, &p) < 0 || p.state == 'Z' || p.state == 'X') {
        return false;
    }
    *ret = p.start;
    return true;
}

/* The program of an MPI rank is no descendant of ours: it has the socket. */
static int whose_seated(const struct crew *c, const struct proc *p)
{
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        _buf_ struct buf entry = {0};

        buf_printf(&entry, "MUSTER_SOCKET=%s",
                   worker_socket_path(c->list[i].socket));
        if (proc_env_ask(&c->agent->workers_host.env, p, buf_str(&entry)) ==
            PROC_ENV_HAS) {
            return (int)i;
        }
    }
    return -1;
}

/* A local rank, or -1; the process is in `p`. */
static int whose(const struct crew *c, const struct timer *t, struct proc *p)
{
    if (!c->workers || proc_read(t->pid, p) < 0 || p->start != t->start) {
        return -1;
    }
    return c->agent->config.job->program == JOB_MPI
               ? whose_seated(c, p) : workers_whose(c->workers, t->pid);
}

/* --- timers that are over --- */

static void accuse(struct crew *c, uint32_t i, const struct timer *t,
                   const char *scope)
{
    struct failure f = {0};
    struct member_event event = {.type = MEMBER_FAILED, .failure = &f,
                                 .generation = c->generation};

    if (c->list[i].is_accused || worker_pid(c->workers, i) <= 0) {
        return;
    }
    c->list[i].is_accused = true;
    crew_identify(c, i, &f);
    f.kind = FAILURE_HANG;
    f.grade = FAILURE_OWN;
    f.signal = (uint8_t)t->signal;
    f.pid = t->pid;
    f.wall_ns = clock_wall_ns();
    snprintf(f.what, sizeof(f.what), "timer %s expired", scope);
    agent_member_soon(c->agent, &event);
}

static void on_expired(struct crew *c, const struct timer *t)
{
    char scope[FAILURE_WHAT_BYTES / 2];
    struct proc p;
    int i = whose(c, t, &p);

    last_words_line(t->scope, scope, sizeof(scope));
    if (i < 0 || c->stopping) {
        return;
    }
    if (t->signal <= 0) {
        agent_note(c->agent, "timer %s of process %ld of rank %u expired; it has "
                   "no signal, so the process goes on", scope, (long)t->pid,
                   c->layout.first_rank + (uint32_t)i);
        return;
    }
    accuse(c, (uint32_t)i, t, scope);
    proc_signal(&p, t->signal);
}

static void on_timer(uv_timer_t *timer);

static void wait_for_next(struct crew_timers *t)
{
    uint64_t due, now = clock_mono_ms();

    if (timers_next(t->core, &due)) {
        uv_timer_start(t->timer, on_timer, due > now ? due - now : 0, 0);
    } else {
        uv_timer_stop(t->timer);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct crew *c = timer->data;
    struct timer over;

    while (timers_expire(c->timers->core, clock_mono_ms(), &over)) {
        on_expired(c, &over);
        timer_release(&over);
    }
    wait_for_next(c->timers);
}

/* --- requests --- */

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct crew *c = poll->data;
    struct crew_timers *t = c->timers;
    struct timers_now now = {.wall_ms = clock_wall_ns() / 1000000,
                             .mono_ms = clock_mono_ms()};
    struct error e = {0};
    char bytes[READ_BYTES];
    ssize_t n;

    (void)status;
    (void)events;
    n = read(t->fd, bytes, sizeof(bytes));
    if (n <= 0) {
        return;
    }
    if (timers_feed(t->core, bytes, (size_t)n, now, start_of, &e) > 0 &&
        !t->has_noted) {
        t->has_noted = true;
        agent_note(c->agent, "what was written to the timers of %s is left out: "
                   "%s", c->agent->host, e.text);
    }
    wait_for_next(t);
}

/* --- life --- */

/* Whoever opens it finds a reader, and it never ends: we write as well. */
static int open_fifo(struct crew_timers *t, struct error *e)
{
    struct stat st;

    unlink(t->path);
    if (mkfifo(t->path, 0600) < 0) {
        return error_set(e, errno, "make %s", t->path);
    }
    t->fd = open(t->path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (t->fd < 0 || fstat(t->fd, &st) < 0) {
        return error_set(e, errno, "open %s", t->path);
    }
    return S_ISFIFO(st.st_mode) ? 0
           : error_text(e, EINVAL, "%s is no FIFO", t->path);
}

static void free_handle(uv_handle_t *h)
{
    free(h);
}

int crew_timers_start(struct crew *c, struct error *e)
{
    struct crew_timers *t;
    int rc;

    if (!crew_has_timers(c)) {
        return 0;
    }
    t = c->timers = calloc(1, sizeof(*t));
    if (!t) {
        return error_set(e, ENOMEM, "serve timers");
    }
    t->fd = -1;
    rc = crew_timers_path(c, t->path, sizeof(t->path), e);
    rc = rc < 0 ? rc : open_fifo(t, e);
    if (rc < 0) {
        return rc;
    }
    t->core = timers_create();
    t->poll = calloc(1, sizeof(*t->poll));
    t->timer = loop_timer_create(&c->agent->loop, c);
    if (!t->core || !t->poll || !t->timer) {
        free(take_ptr(&t->poll));
        return error_set(e, ENOMEM, "serve timers");
    }
    if (uv_poll_init(&c->agent->loop, t->poll, t->fd) < 0) {
        free(take_ptr(&t->poll));
        return error_text(e, EIO, "watch %s", t->path);
    }
    t->poll->data = c;
    uv_poll_start(t->poll, UV_READABLE, on_readable);
    return 0;
}

void crew_timers_end(struct crew *c)
{
    struct crew_timers *t = c->timers;

    if (!t) {
        return;
    }
    if (t->poll) {
        uv_poll_stop(t->poll); /* it must not poll what is closed now */
        uv_close((uv_handle_t *)t->poll, free_handle);
    }
    loop_timer_close(t->timer);
    if (t->fd >= 0) {
        close_fd(&t->fd);
        unlink(t->path);
    }
    timers_destroy(t->core);
    free(t);
    c->timers = NULL;
}
