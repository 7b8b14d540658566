/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mutex guards what the caller's thread and the writer share: a pending
 * buffer for each file and the newest status. The writer takes a pending buffer
 * whole (so the caller never waits for more than a swap of pointers), writes it
 * without the lock, and keeps what did not go through for the next try.
 */
#include <config.h>

#include "launcher/journal_disk.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"
#include "launcher/status_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DEFAULT_QUEUE_BYTES = 8 << 20,
    DEFAULT_STATUS_MS = 200,
    MAX_LINE_BYTES = 65536,
    RETRY_MS = 1000,
};

struct journal {
    size_t max_bytes;
    uint64_t status_ns; /* least time between two status files */
    journal_error_f *on_error;
    journal_generation_f *on_generation;
    void *arg;
    pthread_t thread;

    pthread_mutex_t lock; /* guards from here ... */
    pthread_cond_t wake;    /* for the writer */
    pthread_cond_t ended;   /* for journal_close() */
    struct buf pending[JOURNAL_N_FILES];
    size_t taken[JOURNAL_N_FILES]; /* bytes in the writer's batches */
    uint64_t n_dropped[JOURNAL_N_FILES];
    struct run_status *status;
    uint64_t until_ns; /* nothing is written from then on */
    bool is_closing, has_ended, is_abandoned;
    struct error result;
    /* ... to here; the rest is the writer's alone. */
    struct journal_disk disk;
    bool is_failing;
};

static void journal_free(struct journal *j)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        buf_release(&j->pending[i]);
    }
    journal_disk_release(&j->disk);
    run_status_destroy(j->status);
    pthread_cond_destroy(&j->wake);
    pthread_cond_destroy(&j->ended);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

static struct timespec deadline_in(uint64_t ns)
{
    uint64_t at = clock_mono_ns() + ns;

    return (struct timespec){
        .tv_sec = (time_t)(at / 1000000000u),
        .tv_nsec = (long)(at % 1000000000u),
    };
}

/* --- the writer --- */

/* With the lock held. */
static void count_taken(struct journal *j)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        j->taken[i] = journal_disk_left(&j->disk, i);
    }
}

/* With the lock held. */
static void take_pending(struct journal *j, bool status_is_due)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        journal_disk_take(&j->disk, i, &j->pending[i]);
    }
    count_taken(j);
    if (j->status && status_is_due) {
        journal_disk_take_status(&j->disk, take_ptr(&j->status));
    }
}

static void append_event(struct buf *to, const struct buf *line)
{
    if (!line->failed) {
        buf_append(to, line->data, line->len);
        buf_putc(to, '\n');
    }
}

/* With the lock held, when writing works: tells what was left out. */
static void note_dropped(struct journal *j)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        _buf_ struct buf line = {0};
        struct jsonw w;

        if (!j->n_dropped[i]) {
            continue;
        }
        w = journal_event_begin(&line, clock_wall_ns(), "lines_dropped", 0);
        jsonw_str(&w, "file", journal_file_names[i]);
        jsonw_int(&w, "n", (int64_t)j->n_dropped[i]);
        jsonw_end_object(&w);
        append_event(&j->pending[JOURNAL_EVENTS], &line);
        j->n_dropped[i] = 0;
    }
}

/* With the lock held. What somebody waits for, or may never get again. */
static bool is_urgent(const struct journal *j)
{
    return j->status && (status_run_is_over(j->status->state) ||
                         j->status->generation != j->disk.generation);
}

/* With the lock held. The process may have been stopped since. */
static bool may_write(const struct journal *j)
{
    return clock_mono_ns() < j->until_ns;
}

/* With the lock held: sleeps until it may write; false where it is closed before
 * that. */
static bool wait_for_leave(struct journal *j)
{
    while (!may_write(j) && !j->is_closing) {
        pthread_cond_wait(&j->wake, &j->lock);
    }
    return may_write(j);
}

/* With the lock held: sleeps until there is something to do. The answer is
 * whether a status may be written now. */
static bool wait_for_work(struct journal *j)
{
    for (;;) {
        uint64_t now = clock_mono_ns();
        uint64_t last = j->disk.status_at_ns;
        uint64_t due = last ? last + j->status_ns : 0;
        struct timespec until;
        bool lines = j->pending[0].len || j->pending[1].len;
        bool status_is_due = now >= due || is_urgent(j) || j->is_closing;

        if (lines || (j->status && status_is_due) || j->is_closing ||
            journal_disk_has_work(&j->disk)) {
            return status_is_due;
        }
        if (j->status) {
            until = deadline_in(due - now);
            pthread_cond_timedwait(&j->wake, &j->lock, &until);
        } else {
            pthread_cond_wait(&j->wake, &j->lock);
        }
    }
}

/* With the lock held, so that nothing is called after journal_close(). */
static void report(struct journal *j, int rc, const struct error *e,
                   int generation_before)
{
    if (j->disk.generation != generation_before && j->on_generation &&
        !j->is_abandoned) {
        j->on_generation(j->arg, j->disk.generation);
    }
    if (rc < 0 && !j->is_failing && j->on_error && !j->is_abandoned) {
        j->on_error(j->arg, e->text);
    }
    j->is_failing = rc < 0;
}

/* With the lock held; gives it up while it writes. */
static void work_once(struct journal *j)
{
    bool status_is_due = wait_for_work(j);
    int generation = j->disk.generation;
    struct error e = {0};
    int rc;

    if (!wait_for_leave(j)) {
        return;
    }
    take_pending(j, status_is_due);
    pthread_mutex_unlock(&j->lock);
    rc = journal_disk_write(&j->disk, &e);
    pthread_mutex_lock(&j->lock);
    report(j, rc, &e, generation);
    count_taken(j);
    j->result = e;
    if (rc == 0) {
        note_dropped(j);
    } else if (!j->is_closing) {
        struct timespec until = deadline_in(RETRY_MS * 1000000ull);

        /* Woken early by every new line: go on waiting, unless it is over. */
        while (!j->is_closing &&
               pthread_cond_timedwait(&j->wake, &j->lock, &until) == 0) {
        }
    }
}

static bool has_work(const struct journal *j)
{
    return j->pending[0].len || j->pending[1].len || j->status ||
           journal_disk_has_work(&j->disk);
}

static void *writer(void *arg)
{
    struct journal *j = arg;
    bool is_abandoned;

    pthread_mutex_lock(&j->lock);
    while (!j->is_closing) {
        work_once(j);
    }
    /* What is left gets a last try; a disk that still refuses ends it. */
    while (has_work(j) && may_write(j) && !j->is_abandoned) {
        work_once(j);
        if (j->result.code) {
            break;
        }
    }
    pthread_mutex_unlock(&j->lock);
    journal_disk_close(&j->disk, &j->result);
    status_file_unreserve(j->disk.dir);
    pthread_mutex_lock(&j->lock);
    j->has_ended = true;
    is_abandoned = j->is_abandoned;
    pthread_cond_signal(&j->ended);
    pthread_mutex_unlock(&j->lock);
    if (is_abandoned) {
        journal_free(j);
    }
    return NULL;
}

/* --- life --- */

static int init_sync(struct journal *j)
{
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);

    if (err) {
        return err;
    }
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    err = pthread_mutex_init(&j->lock, NULL);
    if (!err) {
        err = pthread_cond_init(&j->wake, &attr);
    }
    if (!err) {
        err = pthread_cond_init(&j->ended, &attr);
    }
    pthread_condattr_destroy(&attr);
    return err;
}

int journal_create(const struct journal_config *config, struct journal **ret,
                   struct error *e)
{
    struct journal *j = calloc(1, sizeof(*j));
    int rc;

    if (!j) {
        return error_set(e, ENOMEM, "start the journal");
    }
    rc = journal_disk_init(&j->disk, config->run_dir, e);
    if (rc < 0) {
        free(j);
        return rc;
    }
    j->max_bytes = config->max_queue_bytes ? config->max_queue_bytes
                                           : DEFAULT_QUEUE_BYTES;
    j->status_ns = 1000000ull * (config->status_interval_ms
                                     ? config->status_interval_ms
                                     : DEFAULT_STATUS_MS);
    j->on_error = config->on_error;
    j->on_generation = config->on_generation;
    j->arg = config->arg;
    j->until_ns = UINT64_MAX;
    rc = init_sync(j);
    rc = rc ? rc : thread_start_apart(&j->thread, writer, j, config->wake_fd);
    if (rc) {
        journal_free(j);
        return error_set(e, rc, "start the journal");
    }
    *ret = j;
    return 0;
}

int journal_close(struct journal *j, unsigned timeout_ms, struct error *e)
{
    struct timespec until = deadline_in(timeout_ms * 1000000ull);
    int rc = 0;

    if (!j) {
        return 0;
    }
    pthread_mutex_lock(&j->lock);
    j->is_closing = true;
    pthread_cond_signal(&j->wake);
    while (!j->has_ended && rc == 0) {
        rc = pthread_cond_timedwait(&j->ended, &j->lock, &until);
    }
    if (!j->has_ended) {
        j->is_abandoned = true;
        pthread_detach(j->thread);
        rc = error_text(e, ETIMEDOUT, "%s: not all records were written "
                        "within %u ms", j->disk.dir, timeout_ms);
        pthread_mutex_unlock(&j->lock);
        return rc;
    }
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
    rc = -j->result.code;
    if (e && rc) {
        *e = j->result;
    }
    journal_free(j);
    return rc;
}

/* --- the caller's side --- */

/* With the lock held. Metrics may fill half of the queue, events all of it. */
static bool has_room(const struct journal *j, enum journal_file file,
                     size_t len)
{
    size_t used = 0;

    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        used += j->pending[i].len + j->taken[i];
    }
    return used + len <= (file == JOURNAL_METRICS ? j->max_bytes / 2
                                                  : j->max_bytes);
}

void journal_line(struct journal *j, enum journal_file file, const char *line,
                  size_t len)
{
    struct buf *to = &j->pending[file];

    pthread_mutex_lock(&j->lock);
    if (len > MAX_LINE_BYTES || !has_room(j, file, len + 1)) {
        j->n_dropped[file]++;
    } else {
        char *at = buf_reserve(to, len + 1);

        if (at) {
            memcpy(at, line, len);
            at[len] = '\n';
            to->len += len + 1;
            to->data[to->len] = '\0';
        } else {
            to->failed = false; /* this line is lost, not all later ones */
            j->n_dropped[file]++;
        }
    }
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

void journal_status(struct journal *j, struct run_status *s)
{
    struct run_status *old;

    if (!s) {
        return;
    }
    pthread_mutex_lock(&j->lock);
    old = j->status;
    j->status = s;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    run_status_destroy(old);
}

void journal_may_write(struct journal *j, uint64_t until_ns)
{
    pthread_mutex_lock(&j->lock);
    j->until_ns = until_ns;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}
