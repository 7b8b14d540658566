/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the worker takes while it fills it: who gets such, and what becomes of it. */
#include <config.h>

#include "launcher/hold_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { IMAGE = 5000, PART = 100, PAGE = SNAP_PAGE_BYTES, BUDGET = 16 << 20 };

static uint64_t room;      /* of such a save */
static uint64_t left = -1; /* that the filesystem says it has */

int __real_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret);

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    int rc = __real_fstatvfs(fd, ret);

    if (rc == 0 && left != (uint64_t)-1) {
        ret->f_bavail = left / PAGE;
        ret->f_frsize = PAGE;
    }
    return rc;
}

static uint64_t bytes_taken(const struct snap *s)
{
    struct stat st;

    return fstat(s->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

static const struct snap *begin(struct hold_bed *b, uint32_t rank, uint64_t step,
                                const char *uuid, uint64_t bytes)
{
    is_int(hold_bed_begin(b, rank, step, uuid, bytes), 0, "step %d of rank %u begins",
           (int)step, rank);
    return b->said.snap;
}

static void fill(struct hold_bed *b, const struct snap *s, uint32_t rank, const char *uuid)
{
    memset(s->map + PAGE, 1, IMAGE);
    memset(s->map + PAGE + snap_room(IMAGE, 0), 2, PART);
    is_int(snap_hold_done(b->hold, rank, uuid, IMAGE, PART, NULL), 0, "it is filled");
}

/* Twice each of two, made and filled, and then again. */
static void test_filled(void)
{
    struct hold_bed b;
    const struct snap *first, *again;

    hold_bed_open(&b, BUDGET);
    first = begin(&b, 0, 10, UUID(1), 1 << 20);
    ok(first->is_bare && bytes_taken(first) <= 2 * PAGE, "what is waited for has no memory");
    fill(&b, first, 0, UUID(1));
    ok(first->is_bare, "with less in it than it has room for not all is there");
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_settle(b.hold, UUID(1), false);

    first = begin(&b, 1, 10, UUID(2), room);
    ok(first->is_bare, "that of another rank");
    fill(&b, first, 1, UUID(2));
    ok(!first->is_bare, "has it when it is full");
    hold_bed_run_until(&b, &b.said.n_written, 2);
    snap_hold_settle(b.hold, UUID(2), false);
    again = begin(&b, 1, 20, UUID(3), room);
    ok(again == first && !again->is_bare, "and keeps it for the next one");
    hold_bed_close(&b);
}

/* A worker begins, and is killed, or cuts it. */
static void test_given_up(void)
{
    struct hold_bed b;
    char path[PATH_MAX];
    const struct snap *s;

    hold_bed_open(&b, BUDGET);
    begin(&b, 3, 10, UUID(1), room);
    s = begin(&b, 3, 20, UUID(2), room);
    ok(s->is_bare, "what was not filled has no memory for the next one either");
    snprintf(path, sizeof(path), "%s/snap-3-3-0", b.dir);
    ok(truncate(path, 0) == 0, "it is cut, as by a worker that found too little");
    s = begin(&b, 3, 30, UUID(3), room);
    ok(s->is_bare && snap_check(s, NULL) == 0, "then it is made anew");
    fill(&b, s, 3, UUID(3));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    hold_bed_close(&b);
}

static void test_next_agent(void)
{
    struct hold_bed b;
    const struct snap *s;

    hold_bed_open(&b, BUDGET);
    fill(&b, begin(&b, 0, 10, UUID(1), room), 0, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    begin(&b, 0, 20, UUID(2), room);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, BUDGET, NULL);
    s = snap_hold_find(b.hold, 0, UUID(1));
    ok(s && !s->is_bare, "the next agent finds the one that is full");
    s = begin(&b, 0, 30, UUID(3), room);
    ok(s && s->is_bare, "and does not rely on what is in the other one");
    hold_bed_close(&b);
}

/* Less is put into one than it has room for: the next agent knows. */
static void test_smaller(void)
{
    struct hold_bed b;
    const struct snap *s;

    hold_bed_open(&b, BUDGET);
    fill(&b, begin(&b, 0, 10, UUID(1), 1 << 20), 0, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    snap_hold_destroy(b.hold);
    hold_bed_make(&b, BUDGET, NULL);
    s = snap_hold_find(b.hold, 0, UUID(1));
    ok(s && s->is_bare && s->room == 1 << 20, "the next agent finds that not all is there");
    hold_bed_close(&b);
}

/* There has to be enough for all that may be taken. */
static void test_little(void)
{
    struct hold_bed b;
    const struct snap *s;

    hold_bed_open(&b, BUDGET);
    left = 2 * room;
    s = begin(&b, 0, 10, UUID(1), room);
    ok(s->is_bare, "enough for one");
    is_int(hold_bed_begin(&b, 1, 10, UUID(1), room), -ENOMEM, "but not for another one");
    like(b.said.error.text, "others have still to take", "and why");
    left = room + PAGE;
    fill(&b, s, 0, UUID(1)); /* it has taken its own */
    hold_bed_run_until(&b, &b.said.n_written, 1);
    begin(&b, 1, 10, UUID(1), room);
    left = 0;
    is_int(hold_bed_begin(&b, 0, 20, UUID(2), room), -ENOMEM, "where nothing is left");
    snap_hold_settle(b.hold, UUID(1), false);
    s = begin(&b, 0, 20, UUID(2), room);
    ok(!s->is_bare, "there is what one has already");
    left = -1;
    hold_bed_close(&b);
}

/* What was promised to one is not made ahead for another. */
static void test_ahead(void)
{
    struct hold_bed b;

    hold_bed_open(&b, BUDGET);
    fill(&b, begin(&b, 0, 10, UUID(1), room), 0, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    begin(&b, 1, 10, UUID(1), room);
    left = room + 2 * PAGE;
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(!hold_bed_has(&b, "snap-3-0-1"), "what another one has still to take is not taken");
    left = 3 * room;
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(hold_bed_has(&b, "snap-3-0-1"), "what is left beside that is");
    left = -1;
    hold_bed_close(&b);
}

/* The machine's memory, too, is promised once. */
static void test_ahead_memory(void)
{
    struct hold_bed b;

    hold_bed_open(&b, BUDGET);
    fill(&b, begin(&b, 0, 10, UUID(1), room), 0, UUID(1));
    hold_bed_run_until(&b, &b.said.n_written, 1);
    begin(&b, 1, 10, UUID(1), room);
    b.said.left = room + PAGE;
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(!hold_bed_has(&b, "snap-3-0-1"), "memory that another one has still to take is not taken");
    b.said.left = 3 * room;
    snap_hold_make_ahead(b.hold, 0);
    hold_bed_run_works(&b);
    ok(hold_bed_has(&b, "snap-3-0-1"), "what is left of it beside that is");
    hold_bed_close(&b);
}

/* One for copies, which is the bed's, lent its budget by the agent's own, which is returned. */
static struct snap_hold *open_lent(struct hold_bed *b)
{
    struct snap_hold *own;

    hold_bed_open(b, BUDGET);
    own = b->hold;
    hold_bed_make(b, BUDGET, "copy");
    snap_hold_lend(own, b->hold);
    return own;
}

static void close_lent(struct hold_bed *b, struct snap_hold *own, struct snap_hold *copies)
{
    snap_hold_lend(own, NULL);
    snap_hold_destroy(copies);
    b->hold = own;
    left = -1;
    hold_bed_close(b);
}

static void test_copies(void)
{
    struct snap_hold *own, *copies;
    struct hold_bed b;

    own = open_lent(&b);
    copies = b.hold;
    ok(!begin(&b, 2, 10, UUID(1), room)->is_bare, "a copy is filled by the agent");
    b.hold = own;
    left = room + PAGE;
    begin(&b, 0, 10, UUID(1), room);
    b.hold = copies;
    is_int(hold_bed_begin(&b, 3, 10, UUID(1), room), -ENOMEM,
           "what this node's own may still take is not for copies");
    close_lent(&b, own, copies);
}

/* Others lose theirs where that helps, and else not. */
static void test_way(void)
{
    struct snap_hold *own, *copies;
    struct hold_bed b;

    own = open_lent(&b);
    copies = b.hold;
    hold_bed_save(&b, 2, 10, UUID(1));
    b.hold = own;
    left = 0;
    is_int(hold_bed_begin(&b, 0, 10, UUID(2), 100 * PAGE), -ENOMEM, "far too much");
    ok(snap_hold_get(copies, 2, UUID(1)) != NULL, "costs no copy");
    hold_bed_begin(&b, 0, 10, UUID(3), PAGE);
    ok(!snap_hold_get(copies, 2, UUID(1)), "less than a copy has does");
    close_lent(&b, own, copies);
}

int main(void)
{
    room = snap_room(IMAGE, PART);
    test_filled();
    test_given_up();
    test_next_agent();
    test_smaller();
    test_little();
    test_ahead();
    test_ahead_memory();
    test_copies();
    test_way();
    return tap_done();
}
