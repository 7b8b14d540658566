/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/lease_odd_bed.h"

#include <stdio.h>
#include <string.h>

static struct io *below(const struct lease_odd_bed *w)
{
    return disk_io(w->bed.disk);
}

static void log_call(struct lease_odd_bed *w, const char *call)
{
    size_t n = strlen(w->calls);

    snprintf(w->calls + n, sizeof(w->calls) - n, "%s ", call);
}

static bool is_now(const struct lease_odd_bed *w, int *at, const char *name)
{
    return w->name && strcmp(w->name, name) == 0 && *at > 0 && --*at == 0;
}

static int once(int *error)
{
    int rc = -*error;

    *error = 0;
    return rc;
}

static int odd_open(struct io *io, int dir, const char *name)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;
    int fd = is_now(w, &w->at_open, name) ? -w->error
                                          : below(w)->ops->open_file(below(w), dir, name);

    w->opened = w->name && strcmp(w->name, name) == 0 ? fd : -1;
    return fd;
}

static int odd_create(struct io *io, int dir, const char *name)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;

    log_call(w, "create");
    return is_now(w, &w->at_create, name) ? -w->error : below(w)->ops->create(below(w), dir, name);
}

static int odd_close(struct io *io, int fd)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;
    int rc = below(w)->ops->close(below(w), fd);

    log_call(w, "close");
    return rc < 0 ? rc : once(&w->error_close);
}

static ssize_t odd_write(struct io *io, int fd, const void *data, size_t len, uint64_t at)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;

    log_call(w, "write");
    return below(w)->ops->write(below(w), fd, data, len, at);
}

static ssize_t odd_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;

    return below(w)->ops->read(below(w), fd, to, len, at);
}

static int odd_size(struct io *io, int fd, uint64_t *ret)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;
    int rc = below(w)->ops->size(below(w), fd, ret);

    *ret += rc == 0 && fd == w->opened ? w->too_long : 0;
    return rc;
}

static int odd_changed(struct io *io, int fd, int64_t *ret)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;

    return below(w)->ops->changed(below(w), fd, ret);
}

static int odd_touch(struct io *io, int fd)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;

    lease_bed_set_time(&w->bed, w->bed.now_ms + w->slow_ms);
    return w->error_touch ? once(&w->error_touch) : below(w)->ops->touch(below(w), fd);
}

static int odd_sync(struct io *io, int fd)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;

    log_call(w, "sync");
    lease_bed_set_time(&w->bed, w->bed.now_ms + w->slow_ms);
    return w->error_sync ? once(&w->error_sync) : below(w)->ops->sync(below(w), fd);
}

static int odd_rename(struct io *io, int dir, const char *from, const char *to)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;
    int rc = below(w)->ops->rename(below(w), dir, from, to);

    log_call(w, "rename");
    return rc == 0 && w->is_lost ? below(w)->ops->unlink(below(w), dir, to) : rc;
}

static int odd_unlink(struct io *io, int dir, const char *name)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;

    log_call(w, "unlink");
    return is_now(w, &w->at_unlink, name) ? -w->error : below(w)->ops->unlink(below(w), dir, name);
}

static int odd_list(struct io *io, int dir, int (*each)(void *arg, const char *name), void *arg)
{
    struct lease_odd_bed *w = (struct lease_odd_bed *)io;
    char name[LEASE_NAME_BYTES + 32];

    for (int i = 0; i < w->n_long; i++) {
        snprintf(name, sizeof(name), LEASE_PREFIX "%0*d", LEASE_NAME_BYTES, i);
        each(arg, name);
    }
    return below(w)->ops->list(below(w), dir, each, arg);
}

static const struct io_ops odd_ops = {
    .open_file = odd_open, .create = odd_create, .close = odd_close, .write = odd_write,
    .read = odd_read, .size = odd_size, .changed = odd_changed, .touch = odd_touch,
    .sync = odd_sync, .rename = odd_rename, .unlink = odd_unlink, .list = odd_list,
};

void lease_odd_bed_begin(struct lease_odd_bed *w)
{
    *w = (struct lease_odd_bed){.io = {.ops = &odd_ops}};
    lease_bed_begin(&w->bed);
    w->bed.io = &w->io;
}
