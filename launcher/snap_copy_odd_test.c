/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender of copies whose peers do odd things: they say something at the wrong time, read
 * nothing, or are too many.
 */
#include <config.h>

#include "launcher/copy_bed.h"

#include "base/clock.h"
#include "base/link_priv.h"
#include "launcher/snap_copy_priv.h"
#include "launcher/snap_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void say(struct copy_out *o, uint16_t type)
{
    const struct channel_frame f = {.type = type};

    o->link->ops->on_frame(o->link, &f, o->link->ctx);
}

/* What is half on its way is neither wanted anew, nor there. */
static void test_in_the_middle(uint16_t type, const char *what)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_send_half(&b);
    ok(b.from->outs->at > 0 && b.from->outs->at < b.from->outs->room, "half of it has gone");
    say(b.from->outs, type);
    ok(b.copied.n_sent == 1 && b.copied.error.code == EPROTO, "%s comes too early: %s", what,
       b.copied.error.text);
    copy_bed_close(&b);
}

/* Others come before it. */
static void test_turn(void)
{
    uint64_t began_ms = clock_mono_ms();
    struct copy_bed b;
    struct copy_out *o;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_send_half(&b);
    copy_bed_fetch(&b, 2, UUID(1));
    while (!b.from->outs->next) {
        snap_bed_turn(&b.loop, began_ms);
    }
    o = b.from->outs->next;
    ok(o->is_asked && !o->is_begun, "one that was asked for is behind one on its way");
    say(o, SNAP_COPY_READY);
    ok(!b.from->outs->next && copy_bed_run_until(&b, &b.copied.n_fetched, 1) &&
           b.copied.error.code == EPROTO, "who is ready before its turn is sent nothing");
    like(b.copied.error.text, "it does not wait for its turn", "and hears why");
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1) && b.copied.error.code == 0,
       "the other one comes");
    copy_bed_close(&b);
}

/* It is sent no second chunk where the kernel has not taken the first. */
static void test_slow(void)
{
    uint64_t began_ms = clock_mono_ms();
    struct copy_bed b;
    uint64_t at;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 0, UUID(1), 10, COPY_LONG_ROOM, 1);
    copy_bed_send(&b, 0, UUID(1));
    while (!b.to->ins) {
        snap_bed_turn(&b.loop, began_ms);
    }
    snap_bed_narrow(b.from->outs->link, SO_SNDBUF);
    snap_bed_narrow(b.to->ins->link, SO_RCVBUF);
    while (b.from->outs->at == 0) {
        snap_bed_turn(&b.loop, began_ms);
    }
    link_hold(b.to->ins->link, true);
    do {
        at = b.from->outs->at;
        for (int i = 0; i < 20; i++) {
            snap_bed_turn(&b.loop, began_ms);
        }
    } while (b.from->outs->at != at);
    ok(at < b.from->outs->room && link_queued(b.from->outs->link) <= COPY_CHUNK_BYTES + 1000,
       "who reads nothing has no more than a chunk kept for it: %zu bytes",
       link_queued(b.from->outs->link));
    link_hold(b.to->ins->link, false);
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1) && b.copied.error.code == 0 &&
           copy_bed_is_same(&b, 0, UUID(1)), "when it reads all of it comes");
    copy_bed_close(&b);
}

/* No more than 256 wait, or are sent something; copies do not count. */
static void test_many(void)
{
    enum { MANY = 256 };
    struct copy_out *waits = calloc(MANY, sizeof(*waits));
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_send_half(&b);
    for (int i = 0; waits && i < MANY; i++) {
        waits[i] = (struct copy_out){.next = i > 0 ? &waits[i - 1] : NULL, .copy = b.from,
                                     .is_asked = true, .rank = 99};
    }
    b.from->waits = &waits[MANY - 2];
    copy_bed_fetch(&b, 2, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1) && b.copied.error.code == 0,
       "one asks, while 255 others wait, and a copy is sent: it is served");
    b.from->waits = &waits[MANY - 1];
    copy_bed_fetch(&b, 3, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 2) && b.copied.error.code == EBUSY,
       "one more is not");
    is_str(b.copied.error.text, "256 others ask for snapshots", "and hears why");
    b.from->waits = NULL;
    free(waits);
    copy_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_in_the_middle(SNAP_COPY_READY, "that it is ready");
    test_in_the_middle(SNAP_COPY_MAKING, "that it makes memory");
    test_in_the_middle(SNAP_COPY_DONE, "that it is there");
    test_turn();
    test_slow();
    test_many();
    return tap_done();
}
