/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent holds on its way to a disk that is slow: one after the other, in the
 * order that they came, and no more of it than somebody wants. */
#include <config.h>

#include "launcher/hold_bed.h"

#include "base/cleanup.h"
#include "base/mapguard.h"
#include "ckpt/digest.h"
#include "tests/lib/tap.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The disk takes one block, and no other before it is let. */
static atomic_int n_blocks;
static atomic_bool may_write;

/* Ranks, as they got there. */
static uint32_t order[4];
static int n_order;

static ssize_t write_late(struct io *io, int fd, const void *data, size_t len,
                          uint64_t at)
{
    atomic_fetch_add(&n_blocks, 1);
    while (!atomic_load(&may_write)) {
        poll(NULL, 0, 1);
    }
    return io_system_ops.write(io, fd, data, len, at);
}

/* Nothing comes behind that but what the loop does with it. */
static atomic_int n_closing;
static atomic_bool may_close;

static int close_late(struct io *io, int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        atomic_fetch_add(&n_closing, 1);
        while (!atomic_load(&may_close)) {
            poll(NULL, 0, 1);
        }
    }
    return io_system_ops.close(io, fd);
}

static void on_written(void *arg, const struct snap_head *head, const struct error *e)
{
    struct snap_said *said = arg;

    said->n_written += e->code == 0;
    said->n_failed += e->code != 0;
    if (n_order < 4) {
        order[n_order++] = head->rank;
    }
}

static struct io_ops slow_ops;
static struct io slow = {.ops = &slow_ops};

static void open_slow(struct hold_bed *b)
{
    struct snap_hold_config config;

    hold_bed_open(b, 1 << 20);
    snap_hold_destroy(b->hold);
    slow_ops = io_system_ops;
    slow_ops.write = write_late;
    slow_ops.close = close_late;
    config = snap_bed_config(&b->loop, b->dir, &b->said);
    config.agent = 3;
    config.io = &slow;
    config.on_written = on_written;
    b->hold = snap_bed_hold(&config);
    atomic_store(&n_blocks, 0);
    atomic_store(&may_write, false);
    atomic_store(&n_closing, 0);
    n_order = 0;
    atomic_store(&may_close, true);
}

static void wait_for_block(void)
{
    for (int i = 0; i < 60000 && atomic_load(&n_blocks) == 0; i++) {
        poll(NULL, 0, 1);
    }
    is_int(atomic_load(&n_blocks), 1, "the first block is on its way");
}

/* An agent that ends does not wait for the rest. */
static void test_destroyed(void)
{
    const uint64_t bytes = 3 * DIGEST_BLOCK_BYTES;
    struct hold_bed b;

    open_slow(&b);
    is_int(hold_bed_begin(&b, 0, 1, UUID(1), bytes + HOLD_ROOM), 0, "three blocks");
    is_int(snap_hold_done(b.hold, 0, UUID(1), bytes, 100, &b.said.error), 0,
           "are handed over");
    wait_for_block();
    snap_hold_destroy(take_ptr(&b.hold));
    atomic_store(&may_write, true);
    hold_bed_close(&b);
    is_int(atomic_load(&n_blocks), 1, "the others are not written any more");
}

/* Who came first is first: nobody waits for ever while others save again and again. */
static void test_order(void)
{
    struct hold_bed b;

    open_slow(&b);
    for (uint32_t rank = 0; rank < 4; rank++) {
        is_int(hold_bed_save(&b, 3 - rank, 1, UUID(1)), 0, "rank %u saves", 3 - rank);
    }
    wait_for_block();
    is_int(snap_hold_n_writing(b.hold), 4, "and waits for the disk");
    atomic_store(&may_write, true);
    hold_bed_run_until(&b, &b.said.n_written, 4);
    ok(order[0] == 3 && order[1] == 2 && order[2] == 1 && order[3] == 0,
       "one after the other: %u %u %u %u", order[0], order[1], order[2], order[3]);
    hold_bed_close(&b);
}

/* A save that comes to nothing when all of it is on the disk, and nobody here knows. */
static void test_dropped_late(void)
{
    struct hold_bed b;

    open_slow(&b);
    atomic_store(&may_write, true);
    atomic_store(&may_close, false);
    is_int(hold_bed_save(&b, 0, 1, UUID(1)), 0, "a save");
    for (int i = 0; i < 60000 && atomic_load(&n_closing) == 0; i++) {
        poll(NULL, 0, 1);
    }
    is_int(atomic_load(&n_closing), 1, "all of it is written");
    snap_hold_settle(b.hold, UUID(1), false);
    atomic_store(&may_close, true);
    hold_bed_run_works(&b);
    is_int(b.said.n_written + b.said.n_failed, 1, "which is told");
    ok(!snap_hold_get(b.hold, 0, UUID(1)), "but it counts no more");
    hold_bed_close(&b);
}

int main(void)
{
    mapguard_install();
    test_dropped_late();
    test_destroyed();
    test_order();
    return tap_done();
}
