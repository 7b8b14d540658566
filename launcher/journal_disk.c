/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/journal_disk.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/status_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

const char *const journal_file_names[JOURNAL_N_FILES] = {
    [JOURNAL_EVENTS] = "events.jsonl",
    [JOURNAL_METRICS] = "metrics.jsonl",
};

int journal_disk_init(struct journal_disk *d, const char *dir,
                      struct error *e)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        d->sinks[i].fd = -1;
    }
    d->generation = INT_MIN;
    return fs_path(d->dir, sizeof(d->dir), e, "%s", dir);
}

void journal_disk_release(struct journal_disk *d)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        buf_release(&d->sinks[i].batch);
    }
    run_status_destroy(d->status);
}

/* --- what waits --- */

void journal_disk_take(struct journal_disk *d, enum journal_file file,
                       struct buf *pending)
{
    struct journal_sink *s = &d->sinks[file];
    struct buf empty = s->batch;

    if (s->done == s->batch.len) {
        buf_clear(&empty);
        s->batch = *pending;
        *pending = empty;
        s->done = 0;
    }
}

void journal_disk_take_status(struct journal_disk *d, struct run_status *s)
{
    run_status_destroy(d->status);
    d->status = s;
}

size_t journal_disk_left(const struct journal_disk *d, enum journal_file file)
{
    return d->sinks[file].batch.len - d->sinks[file].done;
}

bool journal_disk_has_work(const struct journal_disk *d)
{
    bool has = d->status;

    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        has = has || journal_disk_left(d, i);
    }
    return has;
}

/* --- writing --- */

static int open_sink(const struct journal_disk *d, enum journal_file file,
                     struct journal_sink *s, struct error *e)
{
    char path[PATH_MAX];
    char last = '\n';
    off_t size;
    int rc;

    if (s->fd >= 0) {
        return 0;
    }
    rc = fs_path(path, sizeof(path), e, "%s/%s", d->dir,
                 journal_file_names[file]);
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

static int write_some(struct journal_sink *s, const char *data, size_t len,
                      size_t *ret_n)
{
    ssize_t n = write(s->fd, data, len);

    if (n < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    *ret_n += (size_t)n;
    return 0;
}

/* Writes the batch from where it stopped. On failure what is on disk ends
 * inside a line perhaps: the rest of that line comes first at the next try. */
static int write_sink(struct journal_disk *d, enum journal_file file,
                      struct error *e)
{
    struct journal_sink *s = &d->sinks[file];
    int rc;

    if (s->done == s->batch.len) {
        return 0;
    }
    rc = open_sink(d, file, s, e);
    if (rc < 0) {
        return rc;
    }
    while (rc == 0 && s->is_torn) {
        size_t n = 0;

        rc = write_some(s, "\n", 1, &n);
        s->is_torn = n == 0;
    }
    while (rc == 0 && s->done < s->batch.len) {
        rc = write_some(s, s->batch.data + s->done, s->batch.len - s->done,
                        &s->done);
    }
    return rc == 0 ? 0 : error_set(e, -rc, "write %s/%s", d->dir,
                                   journal_file_names[file]);
}

/* A run directory that somebody removes does not come back as half of one. */
static int check_dir(struct journal_disk *d, struct error *e)
{
    char path[PATH_MAX];
    int rc = fs_path(path, sizeof(path), e, "%s/run.json", d->dir);

    if (rc == 0 && access(path, F_OK) == 0) {
        d->was_whole = true;
    } else if (rc == 0 && errno == ENOENT && d->was_whole) {
        rc = error_text(e, ENOENT, "%s was removed", d->dir);
    }
    return rc;
}

static int write_status(struct journal_disk *d, struct error *e)
{
    bool is_reduced;
    int rc;

    if (!d->status) {
        return 0;
    }
    rc = check_dir(d, e);
    if (rc < 0) {
        return rc;
    }
    if (!d->has_reserve) {
        /* What fails here fails again below, and is told then. */
        d->has_reserve = status_file_reserve(d->dir, NULL) == 0;
    }
    rc = status_file_write(d->dir, d->status, &is_reduced, e);
    d->status_at_ns = clock_mono_ns();
    if (rc == 0 || is_reduced) {
        d->generation = d->status->generation;
        run_status_destroy(d->status);
        d->status = NULL;
        d->has_reserve = d->has_reserve && !is_reduced;
    }
    return rc;
}

int journal_disk_write(struct journal_disk *d, struct error *e)
{
    int rc = 0;

    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        int one = write_sink(d, i, rc < 0 ? NULL : e);

        rc = rc < 0 ? rc : one;
    }
    return write_status(d, rc < 0 ? NULL : e) < 0 && rc == 0 ? -e->code : rc;
}

void journal_disk_close(struct journal_disk *d, struct error *e)
{
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        if (d->sinks[i].fd >= 0 && fsync(d->sinks[i].fd) < 0 &&
            errno != EINVAL && errno != EROFS && !e->code) {
            error_set(e, errno, "sync %s/%s", d->dir,
                      journal_file_names[i]);
        }
        close_fd(&d->sinks[i].fd);
    }
}
