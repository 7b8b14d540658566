/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mutex guards the bytes that wait. The thread takes them whole, and writes
 * without it. A disk that hangs keeps the thread, which is left to itself at the end.
 */
#include <config.h>

#include "launcher/agent_steps.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/thread.h"
#include "launcher/agent.h"
#include "rendezvous/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_BYTES = 64 << 20,
    MAX_WAITING = 8 << 20,
    CUT_BYTES = 5,
    END_MS = 2000,
};

struct agent_steps {
    char dir[PATH_MAX], path[PATH_MAX];
    pthread_t thread;

    pthread_mutex_t lock; /* guards from here ... */
    pthread_cond_t wake;  /* for the thread */
    pthread_cond_t ended; /* for agent_steps_stop() */
    struct buf waiting;
    bool is_closing, has_ended, is_abandoned;
    bool is_full;         /* nothing is taken any more */
    /* ... to here. */
    uint64_t n_bytes;     /* taken; the loop's thread alone, as is ... */
    bool is_told;         /* ... that it has ended */
};

static void steps_free(struct agent_steps *s)
{
    buf_release(&s->waiting);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* --- the thread --- */

static int open_file(const struct agent_steps *s)
{
    if (fs_mkdirs(s->dir, NULL) < 0) {
        return -1;
    }
    return open(s->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                0600);
}

/* With the lock held; gives it up while it writes. */
static bool write_once(struct agent_steps *s, int fd)
{
    _buf_ struct buf bytes = {0};
    bool is_good;

    while (!s->waiting.len && !s->is_closing) {
        pthread_cond_wait(&s->wake, &s->lock);
    }
    bytes = s->waiting;
    s->waiting = (struct buf){0};
    pthread_mutex_unlock(&s->lock);
    is_good = fs_write_all(fd, bytes.data, bytes.len) == 0;
    pthread_mutex_lock(&s->lock);
    return is_good && (s->waiting.len || !s->is_closing);
}

static void *writer(void *arg)
{
    struct agent_steps *s = arg;
    _close_ int fd = open_file(s);
    bool is_abandoned;

    pthread_mutex_lock(&s->lock);
    while (fd >= 0 && write_once(s, fd)) {
    }
    s->is_full = s->has_ended = true;
    is_abandoned = s->is_abandoned;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    if (is_abandoned) {
        steps_free(s);
    }
    return NULL;
}

/* --- life --- */

static int begin(struct agent_steps *s, const struct agent *a, const char *dir)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->ended, &attr);
    pthread_condattr_destroy(&attr);
    if (dir[0] != '/' || fs_path(s->dir, sizeof(s->dir), NULL, "%s", dir) < 0 ||
        fs_path(s->path, sizeof(s->path), NULL, "%s/%s.%u-%u.steps", dir,
                a->run.id, a->config.n_starts + 1, a->rank) < 0) {
        return EINVAL;
    }
    return thread_start_apart(&s->thread, writer, s, -1);
}

/* Takes `record`, which is whole. */
static void take(struct agent *a, const struct buf *record)
{
    struct agent_steps *s = a->steps;
    bool is_over;

    pthread_mutex_lock(&s->lock);
    if (!s->is_full &&
        (record->failed || record->len > STEPS_MAX_RECORD ||
         s->n_bytes + record->len > MAX_BYTES - CUT_BYTES ||
         s->waiting.len + record->len > MAX_WAITING)) {
        s->is_full = true;
        steps_put_cut(&s->waiting);
    } else if (!s->is_full) {
        buf_append(&s->waiting, record->data, record->len);
        s->n_bytes += record->len;
    }
    pthread_cond_signal(&s->wake);
    is_over = s->is_full && !s->is_told;
    s->is_told = s->is_told || is_over;
    pthread_mutex_unlock(&s->lock);
    if (is_over) {
        agent_log(a, "%s ends here: it is full, or there is no writing it, or not "
                  "fast enough", s->path);
    }
}

void agent_steps_start(struct agent *a)
{
    const char *dir = strlist_getenv(&a->config.env, "MUSTER_STEPS_DIR");
    _buf_ struct buf head = {0};
    struct agent_steps *s;
    int rc;

    if (!dir || !dir[0] || a->steps) {
        return;
    }
    s = calloc(1, sizeof(*s));
    rc = s ? begin(s, a, dir) : ENOMEM;
    if (rc) {
        agent_log(a, "no log of steps in '%s': it has to be an absolute path, and a "
                  "thread is needed", dir);
        if (s) {
            steps_free(s);
        }
        return;
    }
    a->steps = s;
    steps_put_head(&head, a->rank);
    take(a, &head);
}

void agent_steps_stop(struct agent *a)
{
    struct agent_steps *s = take_ptr(&a->steps);
    uint64_t at = clock_mono_ns() + END_MS * 1000000ull;
    struct timespec until = {.tv_sec = (time_t)(at / 1000000000u),
                             .tv_nsec = (long)(at % 1000000000u)};
    int rc = 0;

    if (!s) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    pthread_cond_signal(&s->wake);
    while (!s->has_ended && rc == 0) {
        rc = pthread_cond_timedwait(&s->ended, &s->lock, &until);
    }
    if (!s->has_ended) {
        s->is_abandoned = true;
        pthread_detach(s->thread);
        pthread_mutex_unlock(&s->lock);
        return;
    }
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    steps_free(s);
}

/* --- what happens --- */

void agent_steps_member_begins(struct agent *a, const struct member_config *c,
                               uint64_t now_ms)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_member_create(&b, c, now_ms);
        take(a, &b);
    }
}

void agent_steps_heir_begins(struct agent *a, const struct heir_config *c,
                             uint64_t now_ms)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_heir_create(&b, c, now_ms);
        take(a, &b);
    }
}

void agent_steps_lead_begins(struct agent *a, const struct lead_config *c,
                             uint64_t now_ms)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_lead_create(&b, c, now_ms);
        take(a, &b);
    }
}

void agent_steps_heir_grows(struct agent *a, uint32_t n, const uint32_t *node_of)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_heir_grow(&b, n, node_of);
        take(a, &b);
    }
}

void agent_steps_lead_grows(struct agent *a, uint32_t n, const char *const *names,
                            const uint32_t *node_of)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_lead_grow(&b, n, names, node_of);
        take(a, &b);
    }
}

void agent_steps_member(struct agent *a, const struct member_event *event, int rc,
                        const struct member_actions *do_)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_member(&b, a->member, event, rc, do_);
        take(a, &b);
    }
}

void agent_steps_heir(struct agent *a, const struct heir *h,
                      const struct heir_event *event, int rc,
                      const struct heir_actions *do_)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_heir(&b, h, event, rc, do_);
        take(a, &b);
    }
}

void agent_steps_lead(struct agent *a, const struct lead *l,
                      const struct lead_event *event, int rc,
                      const struct lead_actions *do_)
{
    _buf_ struct buf b = {0};

    if (a->steps) {
        steps_put_lead(&b, l, event, rc, do_);
        take(a, &b);
    }
}
