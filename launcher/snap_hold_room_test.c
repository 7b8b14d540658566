/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether there is room for one more snapshot, to the page: in the budget, and in the
 * filesystem. What others have is made up: slots of which threads are at work, or are not.
 */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include "launcher/snap_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PAGE = SNAP_PAGE_BYTES, BUDGET = 100, PLENTY = 1 << 20 }; /* pages */

static uint64_t left; /* pages in the filesystem */
static bool has_no_size;

int __wrap_fstatvfs(int fd, struct statvfs *ret);

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    (void)fd;
    *ret = (struct statvfs){.f_blocks = has_no_size ? 0 : PLENTY, .f_bavail = left,
                            .f_frsize = PAGE, .f_bsize = 1};
    return 0;
}

/* --- what there is --- */

struct bed {
    uv_loop_t loop;
    char top[64], dir[2][96];
    struct snap_said said;
    struct snap_hold *own, *copies;
};

static void bed_open(struct bed *b)
{
    memset(b, 0, sizeof(*b));
    snap_bed_open("snap_hold_room", &b->loop, b->top);
    for (int i = 0; i < 2; i++) {
        struct snap_hold_config config;
        struct snap_hold *h;

        snprintf(b->dir[i], sizeof(b->dir[i]), "%s/%d", b->top, i);
        config = snap_bed_config(&b->loop, b->dir[i], &b->said);
        config.budget = BUDGET * PAGE;
        h = *(i ? &b->copies : &b->own) = snap_bed_hold(&config);
        if (snap_hold_dir(h, NULL) < 0) {
            bail_out("%s", b->dir[i]);
        }
    }
    snap_hold_lend(b->own, b->copies);
    left = PLENTY;
    has_no_size = false;
}

static void be_idle(struct snap_hold *h)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        s->doing = IDLE;
        s->n_pins = 0;
    }
}

static void bed_close(struct bed *b)
{
    be_idle(b->own);
    be_idle(b->copies);
    snap_hold_destroy(b->own);
    snap_hold_destroy(b->copies);
    snap_bed_close(&b->loop, b->top);
}

/* A thread makes so many pages for that rank. */
static struct slot *making(struct snap_hold *h, uint32_t rank, unsigned which, uint64_t pages)
{
    struct slot *s = snap_hold_slot(h, rank, which, true);

    if (!s) {
        bail_out("memory");
    }
    s->doing = MAKING;
    s->is_asked = true;
    s->room = s->wanted = pages * PAGE;
    return s;
}

/* Of those that are there already. */
static void put_pages(const struct slot *s, uint64_t pages)
{
    static const char page[PAGE];
    int fd = openat(s->hold->dir, s->name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    for (uint64_t i = 0; i < pages; i++) {
        if (write(fd, page, sizeof(page)) != (ssize_t)sizeof(page)) {
            bail_out("a file");
        }
    }
    close(fd);
}

/* For so many pages there is room, and for none more. */
static void fits(struct snap_hold *h, struct slot *s, uint64_t pages, const char *what)
{
    struct error e = {0};

    is_int(snap_hold_has_room(h, s, pages * PAGE, &e), 0, "%s: room for %d pages %s", what,
           (int)pages, e.text);
    is_int(snap_hold_has_room(h, s, (pages + 1) * PAGE, &e), -ENOMEM, "and no more");
}

/* Where so much is left there is room for that, and none where a page less is. */
static void takes(struct snap_hold *h, struct slot *s, uint64_t pages, uint64_t least,
                  const char *what)
{
    struct error e = {0};

    left = least;
    is_int(snap_hold_has_room(h, s, pages * PAGE, &e), 0, "%s: %d pages take %d %s", what,
           (int)pages, (int)least, e.text);
    left = least - 1;
    is_int(snap_hold_has_room(h, s, pages * PAGE, &e), -ENOMEM, "and no less");
    left = PLENTY;
}

/* --- the budget --- */

static void test_others(void)
{
    struct slot *s, *o;
    struct bed b;

    bed_open(&b);
    s = snap_hold_slot(b.own, 0, 0, true);
    fits(b.own, s, BUDGET, "nothing else");
    o = making(b.own, 1, 0, 10);
    fits(b.own, s, 90, "one that is being made");
    o->wanted = 30 * PAGE;
    fits(b.own, s, 70, "that is asked for more than it has");
    o->is_asked = false;
    fits(b.own, s, 90, "or was");
    o->is_given_up = true;
    fits(b.own, s, BUDGET, "and is given up");
    is_int(snap_hold_beside(b.own, 20 * PAGE, NULL), 0, "what is beside it");
    fits(b.own, s, 80, "counts");
    is_int(snap_hold_beside(b.own, (BUDGET + 1) * PAGE, NULL), -ENOMEM, "more than there is");
    fits(b.own, s, 80, "changes nothing");
    bed_close(&b);
}

/* What it has itself is as good as free. */
static void test_same(void)
{
    struct slot *s, *o;
    struct bed b;

    bed_open(&b);
    s = making(b.own, 0, 0, 30);
    o = making(b.own, 0, 1, 60);
    fits(b.own, s, 40, "one that has some");
    o->room = o->wanted = 95 * PAGE;
    fits(b.own, s, 30, "which it keeps, where others have more than there is");
    bed_close(&b);
}

/* Copies of other nodes' give way to a second one of each rank, as large as the first. */
static void test_lent(void)
{
    struct slot *s;
    struct bed b;

    bed_open(&b);
    making(b.own, 0, 0, 20);
    snap_hold_slot(b.own, 0, 1, true);
    making(b.own, 1, 0, 10);
    making(b.own, 1, 1, 10);
    s = snap_hold_slot(b.copies, 7, 0, true);
    fits(b.copies, s, 40, "copies beside two of 20 pages, and two of 10");
    making(b.copies, 7, 1, 15);
    fits(b.copies, s, 25, "and another copy");
    fits(b.own, snap_hold_slot(b.own, 0, 1, false), 45, "which counts for its own, too");
    bed_close(&b);
}

/* --- the filesystem --- */

/* Each has a page in front. */
static void test_left(void)
{
    struct slot *s, *o;
    struct bed b;

    bed_open(&b);
    s = making(b.own, 0, 0, 20);
    takes(b.own, s, 20, 21, "one that has nothing yet");
    put_pages(s, 5);
    takes(b.own, s, 20, 16, "that has five");
    o = making(b.own, 1, 0, 10);
    takes(b.own, s, 20, 16 + 11, "beside what another one was promised");
    put_pages(o, 4);
    takes(b.own, s, 20, 16 + 7, "and has in part");
    making(b.copies, 2, 0, 8);
    takes(b.own, s, 20, 16 + 7 + 9, "and a copy");
    o->is_asked = false;
    o->is_given_up = true;
    takes(b.own, s, 20, 16 - 4 + 9, "what is given up comes back");
    left = 0;
    has_no_size = true;
    is_int(snap_hold_has_room(b.own, s, 20 * PAGE, NULL), 0,
           "a filesystem that says no size has what it takes");
    bed_close(&b);
}

static void test_lent_left(void)
{
    struct slot *s;
    struct bed b;

    bed_open(&b);
    making(b.own, 0, 0, 20);
    s = making(b.copies, 1, 0, 10);
    takes(b.copies, s, 10, 11 + 21, "a copy beside what the node's own was promised");
    bed_close(&b);
}

/* --- who makes way --- */

/* Nobody does in vain: what is read is not given back. */
static void test_in_vain(void)
{
    struct slot *s, *spare, *copy;
    struct error e = {0};
    struct bed b;

    bed_open(&b);
    s = snap_hold_slot(b.own, 0, 0, true);
    spare = making(b.own, 1, 0, 10);
    spare->is_asked = false;
    put_pages(spare, 5);
    copy = snap_hold_slot(b.copies, 2, 0, true);
    put_pages(copy, 30);
    copy->n_pins = 1;
    left = 0;
    is_int(snap_hold_make_way(b.own, s, 20 * PAGE, &e), -ENOMEM, "no room: %s", e.text);
    ok(!spare->is_given_up && !spare->progress.cancel,
       "what is made ahead stays, where that and a copy that is read would do");
    copy->n_pins = 0;
    is_int(snap_hold_make_way(b.own, s, 20 * PAGE, &e), -ENOMEM,
           "and where nobody reads it: a file that stands for memory is none");
    ok(spare->is_given_up && spare->progress.cancel && !snap_hold_slot(b.copies, 2, 0, false),
       "both were given up");
    bed_close(&b);
}

int main(void)
{
    test_others();
    test_same();
    test_lent();
    test_left();
    test_lent_left();
    test_in_vain();
    return tap_done();
}
