/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/office_io.h"

#include <errno.h>

static struct office_io *of(struct io *io)
{
    return (struct office_io *)io;
}

static struct io *below(struct io *io)
{
    return of(io)->below;
}

static bool may(struct io *io)
{
    of(io)->was_over = of(io)->was_over || !office_holds(of(io)->office);
    return !of(io)->was_over;
}

/* --- changes --- */

static int create(struct io *io, int dir, const char *name)
{
    return may(io) ? below(io)->ops->create(below(io), dir, name) : -ESTALE;
}

static int make_dir(struct io *io, int dir, const char *name)
{
    return may(io) ? below(io)->ops->make_dir(below(io), dir, name) : -ESTALE;
}

static int allocate(struct io *io, int fd, uint64_t len)
{
    return may(io) ? below(io)->ops->allocate(below(io), fd, len) : -ESTALE;
}

static ssize_t write_at(struct io *io, int fd, const void *data, size_t len, uint64_t at)
{
    return may(io) ? below(io)->ops->write(below(io), fd, data, len, at) : -ESTALE;
}

static int write_blocks(struct io *io, int fd, const struct io_blocks *b)
{
    return may(io) ? io_write_blocks(below(io), fd, b) : -ESTALE;
}

static int rename_over(struct io *io, int dir, const char *from, const char *to)
{
    return may(io) ? below(io)->ops->rename(below(io), dir, from, to) : -ESTALE;
}

static int remove_file(struct io *io, int dir, const char *name)
{
    return may(io) ? below(io)->ops->unlink(below(io), dir, name) : -ESTALE;
}

static int remove_dir(struct io *io, int dir, const char *name)
{
    return may(io) ? below(io)->ops->remove_dir(below(io), dir, name) : -ESTALE;
}

static int touch(struct io *io, int fd)
{
    return may(io) ? below(io)->ops->touch(below(io), fd) : -ESTALE;
}

/* --- the others --- */

static int open_dir(struct io *io, int dir, const char *name)
{
    return below(io)->ops->open_dir(below(io), dir, name);
}

static int open_file(struct io *io, int dir, const char *name)
{
    return below(io)->ops->open_file(below(io), dir, name);
}

static int close_it(struct io *io, int fd)
{
    return below(io)->ops->close(below(io), fd);
}

static ssize_t read_at(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    return below(io)->ops->read(below(io), fd, to, len, at);
}

static int size_of(struct io *io, int fd, uint64_t *ret)
{
    return below(io)->ops->size(below(io), fd, ret);
}

static int identity(struct io *io, int fd, const char *name, uint64_t *ret)
{
    return below(io)->ops->identity(below(io), fd, name, ret);
}

static int changed(struct io *io, int fd, int64_t *ret_ns)
{
    return below(io)->ops->changed(below(io), fd, ret_ns);
}

static int sync_it(struct io *io, int fd)
{
    return below(io)->ops->sync(below(io), fd);
}

static int list(struct io *io, int dir, int (*each)(void *arg, const char *name),
                void *arg)
{
    return below(io)->ops->list(below(io), dir, each, arg);
}

static const struct io_ops ops = {
    .open_dir = open_dir, .open_file = open_file, .create = create,
    .make_dir = make_dir, .close = close_it, .allocate = allocate,
    .write = write_at, .read = read_at, .size = size_of, .identity = identity,
    .sync = sync_it, .changed = changed, .touch = touch,
    .rename = rename_over, .unlink = remove_file, .remove_dir = remove_dir,
    .list = list,
};

void office_io_begin(struct office_io *o, struct io *below_it,
                     const struct office *office)
{
    *o = (struct office_io){.io = {.ops = &ops, .write_blocks = write_blocks},
                            .below = below_it, .office = office};
}
