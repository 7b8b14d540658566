/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/slow_disk_bed.h"

#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* Whether the main thread's table has it: see base/thread.h. */
static bool is_shared(int fd)
{
    struct stat own, shared;
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return fstat(fd, &own) == 0 && stat(path, &shared) == 0 && own.st_dev == shared.st_dev &&
           own.st_ino == shared.st_ino;
}

static ssize_t write_late(struct io *io, int fd, const void *data, size_t len,
                          uint64_t at)
{
    atomic_fetch_add(&slow_disk.n_blocks, 1);
    atomic_fetch_add(&slow_disk.n_shared, is_shared(fd));
    while (!atomic_load(&slow_disk.may_write)) {
        poll(NULL, 0, 1);
    }
    return io_system_ops.write(io, fd, data, len, at);
}

static int make_dir(struct io *io, int dir, const char *name)
{
    atomic_fetch_add(&slow_disk.n_made, 1);
    return io_system_ops.make_dir(io, dir, name);
}

static int close_it(struct io *io, int fd)
{
    int rc = io_system_ops.close(io, fd);

    atomic_fetch_add(&slow_disk.n_closed, 1);
    return rc;
}

static void on_written(void *arg, const struct snap_head *head, const struct error *e)
{
    struct snap_said *said = arg;

    said->n_written += e->code == 0;
    said->n_failed += e->code != 0;
    said->error = *e;
    if (slow_disk.n_order < 4) {
        slow_disk.order[slow_disk.n_order++] = head->rank;
    }
}

static int sync_badly(struct io *io, int fd)
{
    struct stat st;
    int n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return io_system_ops.sync(io, fd);
    }
    n = atomic_fetch_add(&slow_disk.n_syncs, 1) + 1 - atomic_load(&slow_disk.first_bad);
    if (n < 0 || n >= atomic_load(&slow_disk.n_bad)) {
        return io_system_ops.sync(io, fd);
    }
    slow_disk.bad_file = st;
    dup(fd); /* its number is no other file's as long as that thread runs */
    return -EIO;
}

void slow_disk_open(struct hold_bed *b)
{
    struct snap_hold_config config;

    hold_bed_open(b, 1 << 20);
    snap_hold_destroy(b->hold);
    slow_disk = (struct slow_disk){.ops = io_system_ops};
    slow_disk.ops.write = write_late;
    slow_disk.ops.make_dir = make_dir;
    slow_disk.ops.close = close_it;
    slow_disk.ops.sync = sync_badly;
    slow_disk.io.ops = &slow_disk.ops;
    config = snap_bed_config(&b->loop, b->dir, &b->said);
    config.agent = 3;
    config.io = &slow_disk.io;
    config.on_written = on_written;
    b->hold = snap_bed_hold(&config);
}

void slow_disk_wait(atomic_int *count, int n, const char *what)
{
    for (int i = 0; i < 60000 && atomic_load(count) < n; i++) {
        poll(NULL, 0, 1);
    }
    is_int(atomic_load(count), n, "%s", what);
}

void slow_disk_wait_block(void)
{
    slow_disk_wait(&slow_disk.n_blocks, 1, "the first block is on its way");
}

void slow_disk_save(struct hold_bed *b, uint32_t rank, uint64_t step, const char *uuid,
                    const char *what)
{
    atomic_store(&slow_disk.may_write, false);
    atomic_store(&slow_disk.n_blocks, 0);
    is_int(hold_bed_save(b, rank, step, uuid), 0, "%s", what);
    slow_disk_wait_block();
}

bool slow_disk_has(const struct hold_bed *b, const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    step_name(1, UUID(1), name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->root, name, file);
    return access(path, F_OK) == 0;
}
