/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/lease_bed.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

void lease_bed_set_time(struct lease_bed *b, uint64_t now_ms)
{
    b->now_ms = now_ms;
    disk_set_time(b->disk, ((int64_t)now_ms + b->ahead_ms) * 1000000);
}

void lease_bed_begin(struct lease_bed *b)
{
    *b = (struct lease_bed){.disk = disk_create(DISK_SOUND),
                            .ahead_ms = 1000 * LEASE_BED_MINUTE};
    b->io = disk_io(b->disk);
    lease_bed_set_time(b, LEASE_BED_START);
}

void lease_bed_end(struct lease_bed *b)
{
    is_int((int)disk_n_open(b->disk), 0, "no descriptor is left open");
    disk_destroy(b->disk);
}

static uint64_t now(void *arg)
{
    return ((struct lease_bed *)arg)->now_ms;
}

static bool is_running(void *arg, int pid, uint64_t start)
{
    return start == (uint64_t)pid * 10 && pid != ((struct lease_bed *)arg)->dead;
}

static void touch(struct lease_bed *b, const char *name)
{
    struct io *io = disk_io(b->disk);
    int fd = io->ops->open_file(io, disk_root(b->disk), name);

    io->ops->touch(io, fd);
    io->ops->close(io, fd);
}

static bool wait(void *arg, unsigned ms)
{
    struct lease_bed *b = arg;

    lease_bed_set_time(b, b->now_ms + ms);
    b->n_waits++;
    if (b->renewed) {
        lease_adopt(b->renewed, disk_io(b->disk), disk_root(b->disk), NULL);
    }
    if (b->renews) {
        touch(b, b->renews);
    }
    return !b->is_ending;
}

struct lease lease_bed_run(struct lease_bed *b, const char *id, const char *machine, int pid)
{
    const struct lease_world world = {.now_ms = now, .is_running = is_running, .wait = wait,
                                      .arg = b};
    struct lease_note own = {.pid = pid, .start = (uint64_t)pid * 10, .is_alone = true};
    struct lease l;

    lease_note_put(&own, id, machine, machine);
    lease_init(&l, &own, world);
    return l;
}

int lease_bed_hold(struct lease_bed *b, struct lease *l, struct error *e)
{
    *e = (struct error){0};
    return lease_hold(l, b->io, disk_root(b->disk), e);
}

int lease_bed_adopt(struct lease_bed *b, struct lease *l)
{
    return lease_adopt(l, b->io, disk_root(b->disk), NULL);
}

void lease_bed_drop(struct lease_bed *b, struct lease *l)
{
    lease_drop(l, b->io, disk_root(b->disk));
}

static int add_name(void *arg, const char *name)
{
    struct lease_bed *b = arg;
    size_t n = strlen(b->names);

    snprintf(b->names + n, sizeof(b->names) - n, "%s ", name);
    return 0;
}

const char *lease_bed_names(struct lease_bed *b)
{
    b->names[0] = '\0';
    disk_io(b->disk)->ops->list(disk_io(b->disk), disk_root(b->disk), add_name, b);
    return b->names;
}

void lease_bed_put(struct lease_bed *b, const char *name, const char *text, size_t len)
{
    struct io *io = disk_io(b->disk);
    int root = disk_root(b->disk), fd;

    io->ops->unlink(io, root, name);
    fd = io->ops->create(io, root, name);
    io_write_all(io, fd, text, len, 0);
    io->ops->close(io, fd);
}

void lease_bed_put_note(struct lease_bed *b, const struct lease *l, const char *as,
                        enum lease_state state)
{
    char text[LEASE_NOTE_BYTES];
    struct lease_note note = l->own;

    note.state = state;
    lease_bed_put(b, as, text, lease_note_encode(&note, text));
}

void lease_bed_remove(struct lease_bed *b, const char *name)
{
    disk_io(b->disk)->ops->unlink(disk_io(b->disk), disk_root(b->disk), name);
}
