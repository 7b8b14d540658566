/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mutex guards what the caller's thread and the writer share: a pending
 * buffer for each file and the newest status. The writer takes a pending buffer
 * whole (so the caller never waits for more than a swap of pointers), writes it
 * without the lock, and keeps what did not go through for the next try.
 */
#include <config.h>

#include "launcher/journal.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/status_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    JOURNAL_VERSION = 1,
    DEFAULT_QUEUE_BYTES = 8 << 20,
    DEFAULT_STATUS_MS = 200,
    MAX_LINE_BYTES = 65536,
    RETRY_MS = 1000,
};

/* One file, on the writer's side. */
struct sink {
    const char *name;
    int fd;
    bool is_torn;      /* the last write stopped inside a line */
    struct buf batch;  /* taken from the queue, written from `done` on */
    size_t done;
};

struct journal {
    char run_dir[PATH_MAX];
    size_t max_bytes;
    uint64_t status_ns; /* least time between two status files */
    journal_error_f *on_error;
    void *arg;
    pthread_t thread;

    pthread_mutex_t lock; /* guards from here ... */
    pthread_cond_t wake;    /* for the writer */
    pthread_cond_t ended;   /* for journal_close() */
    struct buf pending[JOURNAL_N_FILES];
    size_t taken[JOURNAL_N_FILES]; /* bytes in the writer's batches */
    uint64_t n_dropped[JOURNAL_N_FILES];
    struct run_status *status;
    bool is_closing, has_ended, is_abandoned;
    struct error result;
    /* ... to here; the rest is the writer's alone. */
    struct sink sinks[JOURNAL_N_FILES];
    struct run_status *writing; /* taken, not yet on disk */
    uint64_t last_status_ns;
    bool was_whole;   /* the run directory had its run.json */
    bool has_reserve; /* room is kept for a status on a full disk */
    bool is_failing;
};

static const char *const file_names[JOURNAL_N_FILES] = {
    [JOURNAL_EVENTS] = "events.jsonl",
    [JOURNAL_METRICS] = "metrics.jsonl",
};

static void journal_free(struct journal *j)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        buf_release(&j->pending[i]);
        buf_release(&j->sinks[i].batch);
        close_fd(&j->sinks[i].fd);
    }
    run_status_destroy(j->status);
    run_status_destroy(j->writing);
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

static int open_sink(struct journal *j, struct sink *s, struct error *e)
{
    char path[PATH_MAX];
    char last = '\n';
    off_t size;
    int rc;

    if (s->fd >= 0) {
        return 0;
    }
    rc = fs_path(path, sizeof(path), e, "%s/%s", j->run_dir, s->name);
    if (rc < 0) {
        return rc;
    }
    s->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                 0600);
    if (s->fd < 0) {
        return error_set(e, errno, "open %s", path);
    }
    /* A predecessor that was killed may have left part of a line. */
    size = lseek(s->fd, 0, SEEK_END);
    if (size > 0 && pread(s->fd, &last, 1, size - 1) == 1) {
        s->is_torn = last != '\n';
    }
    return 0;
}

static int write_some(struct sink *s, const char *data, size_t len,
                      size_t *ret_n)
{
    ssize_t n = write(s->fd, data, len);

    if (n < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    *ret_n += (size_t)n;
    return 0;
}

/* Writes the batch from where it stopped. On failure what is on disk ends inside
 * a line perhaps: the rest of that line comes first at the next try. */
static int write_sink(struct journal *j, struct sink *s, struct error *e)
{
    int rc;

    if (s->done == s->batch.len) {
        return 0;
    }
    rc = open_sink(j, s, e);
    if (rc < 0) {
        return rc;
    }
    if (s->is_torn && s->done == 0) {
        size_t n = 0;

        rc = write_some(s, "\n", 1, &n);
        s->is_torn = n == 0;
    }
    while (rc == 0 && s->done < s->batch.len) {
        rc = write_some(s, s->batch.data + s->done, s->batch.len - s->done,
                        &s->done);
    }
    return rc == 0 ? 0 : error_set(e, -rc, "write %s/%s", j->run_dir, s->name);
}

/* A run directory that somebody removes does not come back as half of one. */
static int check_dir(struct journal *j, struct error *e)
{
    char path[PATH_MAX];
    int rc = fs_path(path, sizeof(path), e, "%s/run.json", j->run_dir);

    if (rc == 0 && access(path, F_OK) == 0) {
        j->was_whole = true;
    } else if (rc == 0 && errno == ENOENT && j->was_whole) {
        rc = error_text(e, ENOENT, "%s was removed", j->run_dir);
    }
    return rc;
}

static int write_status(struct journal *j, struct error *e)
{
    bool is_reduced;
    int rc;

    if (!j->writing) {
        return 0;
    }
    rc = check_dir(j, e);
    if (rc < 0) {
        return rc;
    }
    if (!j->has_reserve) {
        /* What fails here fails again below, and is told then. */
        j->has_reserve = status_file_reserve(j->run_dir, NULL) == 0;
    }
    rc = status_file_write(j->run_dir, j->writing, &is_reduced, e);
    j->last_status_ns = clock_mono_ns();
    if (rc == 0 || is_reduced) {
        run_status_destroy(j->writing);
        j->writing = NULL;
        j->has_reserve = j->has_reserve && !is_reduced;
    }
    return rc;
}

/* With the lock held: takes what is pending, unless the last batch still waits
 * for the disk. */
static void take_pending(struct journal *j, bool status_is_due)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        struct sink *s = &j->sinks[i];

        if (s->done == s->batch.len) {
            struct buf empty = s->batch;

            buf_clear(&empty);
            s->batch = j->pending[i];
            j->pending[i] = empty;
            s->done = 0;
        }
        j->taken[i] = s->batch.len - s->done;
    }
    if (j->status && status_is_due) {
        run_status_destroy(j->writing);
        j->writing = take_ptr(&j->status);
    }
}

static bool has_batch(const struct journal *j)
{
    bool has = j->writing;

    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        has = has || j->sinks[i].done < j->sinks[i].batch.len;
    }
    return has;
}

/* Without the lock. The files fail one by one: a status can be written where
 * events cannot. */
static int write_batch(struct journal *j, struct error *e)
{
    int rc = 0;

    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        int one = write_sink(j, &j->sinks[i], rc < 0 ? NULL : e);

        rc = rc < 0 ? rc : one;
    }
    return write_status(j, rc < 0 ? NULL : e) < 0 && rc == 0 ? -e->code : rc;
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
        jsonw_str(&w, "file", file_names[i]);
        jsonw_int(&w, "n", (int64_t)j->n_dropped[i]);
        jsonw_end_object(&w);
        append_event(&j->pending[JOURNAL_EVENTS], &line);
        j->n_dropped[i] = 0;
    }
}

/* With the lock held: sleeps until there is something to do. The answer is
 * whether a status may be written now. */
static bool wait_for_work(struct journal *j)
{
    for (;;) {
        uint64_t now = clock_mono_ns();
        uint64_t due = j->last_status_ns ? j->last_status_ns + j->status_ns : 0;
        struct timespec until;
        bool lines = j->pending[0].len || j->pending[1].len;
        bool over = j->status && status_run_is_over(j->status->state);
        bool status_is_due = now >= due || over || j->is_closing;

        if (lines || (j->status && status_is_due) || j->is_closing ||
            has_batch(j)) {
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

/* With the lock held, so that it cannot be called after journal_close(). */
static void report(struct journal *j, int rc, const struct error *e)
{
    if (rc < 0 && !j->is_failing && j->on_error && !j->is_abandoned) {
        j->on_error(j->arg, e->text);
    }
    j->is_failing = rc < 0;
}

static void sync_all(struct journal *j, struct error *e)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        if (j->sinks[i].fd >= 0 && fsync(j->sinks[i].fd) < 0 &&
            errno != EINVAL && errno != EROFS && !e->code) {
            error_set(e, errno, "sync %s/%s", j->run_dir, file_names[i]);
        }
    }
}

/* With the lock held; gives it up while it writes. */
static void work_once(struct journal *j)
{
    bool status_is_due = wait_for_work(j);
    struct error e = {0};
    int rc;

    take_pending(j, status_is_due);
    pthread_mutex_unlock(&j->lock);
    rc = write_batch(j, &e);
    pthread_mutex_lock(&j->lock);
    report(j, rc, &e);
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        j->taken[i] = j->sinks[i].batch.len - j->sinks[i].done;
    }
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
    return j->pending[0].len || j->pending[1].len || j->status || has_batch(j);
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
    while (has_work(j) && !j->is_abandoned) {
        work_once(j);
        if (j->result.code) {
            break;
        }
    }
    pthread_mutex_unlock(&j->lock);
    sync_all(j, &j->result);
    status_file_unreserve(j->run_dir);
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

/* The thread takes no signals: they are the loop's. */
static int start_thread(struct journal *j)
{
    sigset_t all, old;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&j->thread, NULL, writer, j);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
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
    rc = fs_path(j->run_dir, sizeof(j->run_dir), e, "%s", config->run_dir);
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
    j->arg = config->arg;
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        j->sinks[i].fd = -1;
        j->sinks[i].name = file_names[i];
    }
    rc = init_sync(j);
    rc = rc ? rc : start_thread(j);
    if (rc) {
        journal_free(j);
        return error_set(e, rc, "start the journal");
    }
    *ret = j;
    return 0;
}

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

struct jsonw journal_event_begin(struct buf *line, uint64_t wall_ns,
                                 const char *event, int generation)
{
    struct jsonw w = jsonw_start(line);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", JOURNAL_VERSION);
    jsonw_time(&w, "t", wall_ns);
    jsonw_str(&w, "event", event);
    jsonw_int(&w, "generation", generation);
    return w;
}

void journal_event_end(struct journal *j, struct jsonw *w)
{
    jsonw_end_object(w);
    if (!w->to->failed) {
        journal_line(j, JOURNAL_EVENTS, w->to->data, w->to->len);
    }
    buf_release(w->to);
}

void journal_metric(struct journal *j, uint64_t wall_ns, int generation,
                    int rank, int64_t step, const char *name, double value)
{
    _buf_ struct buf line = {0};
    struct jsonw w = jsonw_start(&line);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", JOURNAL_VERSION);
    jsonw_time(&w, "t", wall_ns);
    jsonw_int(&w, "generation", generation);
    jsonw_int(&w, "rank", rank);
    jsonw_int(&w, "step", step);
    jsonw_str(&w, "name", name);
    jsonw_num(&w, "value", value);
    jsonw_end_object(&w);
    if (!line.failed) {
        journal_line(j, JOURNAL_METRICS, line.data, line.len);
    }
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
                        "within %u ms", j->run_dir, timeout_ms);
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
