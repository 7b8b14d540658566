/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file with data waits in the queue once, with all of its data in one buffer:
 * many small lines become one write, and no file starves another.
 */
#include <config.h>

#include "launcher/logwriter.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct logfile {
    /* under the lock */
    struct buf pending;
    bool is_queued;
    bool is_closing;
    unsigned n_users;
    struct logfile *next;
    /* the thread's */
    struct log_store store;
    bool is_failing;
    char path[]; /* constant */
};

struct logwriter {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    size_t high_bytes;
    struct log_root root; /* the thread's */
    struct log_limits limits;
    /* under the lock */
    struct logfile *head, **tail;
    size_t queued_bytes;
    bool is_full;
    unsigned n_failing;
    uint64_t lost_bytes;
    char reason[512];
    uint64_t busy_since_ms; /* 0: not in a call */
    bool finish;
    bool finished;
    bool released;
    void (*wake)(void *arg);
    void *arg;
};

/* With the lock held. */
static void wake_owner(struct logwriter *w)
{
    if (!w->released) {
        w->wake(w->arg);
    }
}

/* With the lock held. */
static void describe(struct logwriter *w, const struct logfile *f, int code)
{
    if (w->root.is_removed) {
        snprintf(w->reason, sizeof(w->reason), "%.400s was removed: nothing "
                 "more is written there", w->root.path);
        w->n_failing++; /* for good: it is told once */
    } else {
        snprintf(w->reason, sizeof(w->reason), "%s: %s", f->path,
                 strerror(-code));
    }
}

/* With the lock held. */
static void account(struct logwriter *w, struct logfile *f, size_t lost,
                    int code)
{
    w->lost_bytes += lost;
    if (lost && !f->is_failing) {
        f->is_failing = true;
        if (w->n_failing++ == 0) {
            describe(w, f, code);
            wake_owner(w);
        }
    } else if (!lost && f->is_failing) {
        f->is_failing = false;
        if (--w->n_failing == 0) {
            wake_owner(w);
        }
    }
}

static void file_destroy(struct logfile *f)
{
    log_store_close(&f->store);
    buf_release(&f->pending);
    free(f);
}

/* With the lock held, which it gives up while it writes. */
static void write_one(struct logwriter *w)
{
    struct logfile *f = w->head;
    struct buf data = f->pending;
    bool closing = f->is_closing;
    size_t lost;
    int code;

    w->head = f->next;
    if (!w->head) {
        w->tail = &w->head;
    }
    f->is_queued = false;
    f->pending = (struct buf){0};
    w->busy_since_ms = clock_mono_ms();
    pthread_mutex_unlock(&w->lock);

    lost = log_store_append(&f->store, data.data, data.len, clock_wall_ns(),
                            &code);
    if (closing) {
        /* NFS may take its time, too. */
        log_store_close(&f->store);
    }

    pthread_mutex_lock(&w->lock);
    w->busy_since_ms = 0;
    w->queued_bytes -= data.len;
    if (data.len) {
        account(w, f, lost, code);
    }
    if (closing) {
        w->n_failing -= f->is_failing;
        file_destroy(f);
    }
    if (w->is_full && w->queued_bytes <= w->high_bytes / 4) {
        w->is_full = false;
        wake_owner(w);
    }
    buf_release(&data);
}

static void writer_free(struct logwriter *w)
{
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static void *writer_main(void *arg)
{
    struct logwriter *w = arg;
    bool released;

    log_root_is_removed(&w->root); /* or rather: is it there at all? */
    pthread_mutex_lock(&w->lock);
    for (;;) {
        if (w->head) {
            write_one(w);
        } else if (w->finish) {
            break;
        } else {
            pthread_cond_wait(&w->work, &w->lock);
        }
    }
    w->finished = true;
    wake_owner(w);
    released = w->released;
    pthread_mutex_unlock(&w->lock);
    if (released) {
        writer_free(w);
    }
    return NULL;
}

int logwriter_create(const struct logwriter_config *config,
                     struct logwriter **ret, struct error *e)
{
    struct logwriter *w = calloc(1, sizeof(*w));
    int rc;

    if (!w) {
        return error_set(e, ENOMEM, "start the writer of logs");
    }
    w->high_bytes = config->high_bytes;
    w->limits = config->limits;
    str_copy(w->root.path, sizeof(w->root.path),
             config->root ? config->root : "");
    w->wake = config->wake;
    w->arg = config->arg;
    w->tail = &w->head;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    rc = thread_start_apart(&w->thread, writer_main, w, config->wake_fd);
    if (rc) {
        writer_free(w);
        return error_set(e, rc, "start the writer of logs");
    }
    *ret = w;
    return 0;
}

struct logfile *logwriter_open(struct logwriter *w, const char *path)
{
    size_t len = strlen(path);
    struct logfile *f = calloc(1, sizeof(*f) + len + 1);

    if (f) {
        f->n_users = 1;
        memcpy(f->path, path, len);
        f->store = log_store(f->path, &w->limits, &w->root);
    }
    return f;
}

struct logfile *logwriter_share(struct logwriter *w, struct logfile *f)
{
    pthread_mutex_lock(&w->lock);
    f->n_users++;
    pthread_mutex_unlock(&w->lock);
    return f;
}

const char *logwriter_path(const struct logfile *f)
{
    return f->path;
}

/* With the lock held. */
static void enqueue(struct logwriter *w, struct logfile *f)
{
    if (!f->is_queued) {
        f->is_queued = true;
        f->next = NULL;
        *w->tail = f;
        w->tail = &f->next;
        pthread_cond_signal(&w->work);
    }
}

void logwriter_write(struct logwriter *w, struct logfile *f, const void *data,
                     size_t len)
{
    size_t before;

    pthread_mutex_lock(&w->lock);
    before = f->pending.len;
    buf_append(&f->pending, data, len);
    if (f->pending.len == before) {
        /* No memory: lost like anything else that cannot be written. */
        f->pending.failed = false;
        w->lost_bytes += len;
    }
    w->queued_bytes += f->pending.len - before;
    w->is_full = w->is_full || w->queued_bytes > w->high_bytes;
    enqueue(w, f);
    pthread_mutex_unlock(&w->lock);
}

void logwriter_close(struct logwriter *w, struct logfile *f)
{
    pthread_mutex_lock(&w->lock);
    if (--f->n_users == 0) {
        f->is_closing = true;
        enqueue(w, f);
    }
    pthread_mutex_unlock(&w->lock);
}

bool logwriter_is_full(struct logwriter *w)
{
    bool is_full;

    pthread_mutex_lock(&w->lock);
    is_full = w->is_full;
    pthread_mutex_unlock(&w->lock);
    return is_full;
}

void logwriter_look(struct logwriter *w, struct logwriter_state *ret)
{
    pthread_mutex_lock(&w->lock);
    *ret = (struct logwriter_state){
        .lost_bytes = w->lost_bytes,
        .failing = w->n_failing > 0,
        .stuck_ms = w->busy_since_ms ? clock_mono_ms() - w->busy_since_ms : 0,
        .finished = w->finished,
    };
    str_copy(ret->reason, sizeof(ret->reason), w->reason);
    pthread_mutex_unlock(&w->lock);
}

void logwriter_finish(struct logwriter *w)
{
    pthread_mutex_lock(&w->lock);
    w->finish = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

void logwriter_release(struct logwriter *w)
{
    bool finished;

    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->released = true;
    w->finish = true;
    finished = w->finished;
    if (!finished) {
        pthread_detach(w->thread);
    }
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    if (finished) {
        pthread_join(w->thread, NULL);
        writer_free(w);
    }
}
