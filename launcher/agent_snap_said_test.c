/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent makes of the lead's word that a save has come to nothing and stays: it is
 * told of again once the workers that saved it have ended, whichever of both comes first,
 * and however late.
 */
#include <config.h>

#include "launcher/agent_snap_bed.h"

#include "base/mapguard.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the disk, which takes nothing before it is let --- */

static atomic_bool may_write;
static atomic_int n_begun;
static struct io_ops slow_ops;
static struct io slow = {.ops = &slow_ops};

static ssize_t write_late(struct io *io, int fd, const void *data, size_t len,
                          uint64_t at)
{
    atomic_fetch_add(&n_begun, 1);
    while (!atomic_load(&may_write)) {
        poll(NULL, 0, 1);
    }
    return io_system_ops.write(io, fd, data, len, at);
}

/* --- an agent without workers --- */

static struct agent_snap_bed *the_bed; /* the hold's callbacks have an argument of their own */
static char told[1024];
static atomic_int n_ended;

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w);

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    (void)a;
    snprintf(told, sizeof(told), "%.*s", (int)w->to->len, w->to->data);
}

static void on_written(void *arg, const struct snap_head *head, const struct error *e)
{
    (void)arg;
    agent_snap_on_written(&the_bed->snap, head, e);
    n_ended++;
}

static void open_bed(struct agent_snap_bed *b)
{
    struct snap_hold_config config;

    agent_snap_bed_open(b);
    snap_hold_destroy(b->hold.hold);
    slow_ops = io_system_ops;
    slow_ops.write = write_late;
    config = snap_bed_config(&b->hold.loop, b->hold.dir, &b->hold.said);
    config.io = &slow;
    config.on_written = on_written;
    b->hold.hold = b->snap.hold = snap_bed_hold(&config);
    the_bed = b;
    told[0] = '\0';
    n_ended = n_begun = 0;
    may_write = true;
}

/* Rank 0 has handed it over, in that try. */
static void add(struct agent_snap_bed *b, uint32_t again)
{
    struct saved *s = calloc(1, sizeof(*s));

    if (!s || !snap_hold_get(b->hold.hold, 0, UUID(1))) {
        bail_out("memory");
    }
    s->head = snap_hold_get(b->hold.hold, 0, UUID(1))->head;
    s->stage = SNAP_STAGE_HELD;
    s->again = again;
    b->snap.saved = s;
}

static void settled(struct agent_snap_bed *b, uint32_t again, uint32_t on)
{
    const struct snap_verdict v = {.uuid = UUID(1), .error = ENOSPC, .why = "full",
                                   .stays = true, .again = again, .on = on};

    agent_snap_settled(&b->agent, &v);
}

static bool is_told(unsigned again)
{
    char want[32];

    snprintf(want, sizeof(want), "\"again\":%u", again);
    return strstr(told, UUID(1)) && strstr(told, want);
}

/* --- cases --- */

enum { GENERATION = 2 }; /* of hold_bed.c */

static void test_ended(struct agent_snap_bed *b)
{
    open_bed(b);
    is_int(hold_bed_stay(&b->hold, 0, 1, UUID(1)), 0, "a save in memory");
    add(b, 0);
    b->snap.offered = GENERATION;
    settled(b, 0, 0);
    ok(is_told(GENERATION), "whose workers have ended is told of at once: %s", told);
    told[0] = '\0';
    settled(b, 0, 0);
    ok(b->snap.saved && b->snap.saved->again == GENERATION && !told[0],
       "a late word of the try before changes nothing");
    settled(b, GENERATION, 0);
    ok(!b->snap.saved && !told[0], "one try for each generation");
    agent_snap_bed_close(b);
}

/* Its write, which nobody can stop at once, ends after the word that it is to stay. */
static void test_writing(struct agent_snap_bed *b)
{
    open_bed(b);
    may_write = false;
    is_int(hold_bed_save(&b->hold, 0, 1, UUID(1)), 0, "a save is being written");
    for (int i = 0; i < 20000 && n_begun == 0; i++) {
        poll(NULL, 0, 1);
    }
    add(b, 0);
    b->snap.offered = GENERATION;
    settled(b, 0, 0);
    ok(!b->snap.saved && !told[0], "what is still on its way is not told of");
    may_write = true;
    for (int i = 0; i < 20000 && n_ended == 0; i++) {
        uv_run(&b->hold.loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    ok(is_told(GENERATION), "but as soon as it has ended: %s", told);
    agent_snap_bed_close(b);
}

/* An agent that was started anew has what the one before it has saved. */
static void test_anew(struct agent_snap_bed *b)
{
    open_bed(b);
    is_int(hold_bed_stay(&b->hold, 0, 1, UUID(1)), 0, "a save in memory");
    add(b, 0);
    settled(b, 0, 5);
    ok(is_told(5), "joins the try that is on: %s", told);
    agent_snap_bed_close(b);
}

int main(void)
{
    struct agent_snap_bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    mapguard_install();
    test_ended(b);
    test_writing(b);
    test_anew(b);
    free(b);
    return tap_done();
}
