/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is given up on the way of a copy, and who is not: whoever watches looks each
 * millisecond here, and when something last came further is what a case says. And what
 * is left of copies when there is no place for them any more.
 */
#include <config.h>

#include "launcher/copy_bed.h"

#include "base/cleanup.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

enum { SOON_MS = 1, AGO_MS = 60000, STUCK_MS = 30000, PATIENT_MS = 300000, NO_ANSWER = 1 };

/* From now on it looks all the time. */
static void look_soon(struct snap_copy *c, unsigned stuck_ms)
{
    c->config.stuck_ms = stuck_ms;
    uv_timer_set_repeat(c->watch, SOON_MS);
    uv_timer_again(c->watch);
}

static uint64_t long_ago(const struct copy_bed *b)
{
    return uv_now(&b->loop) - AGO_MS;
}

/* What was offered is here, of that rank. */
static struct copy_in *in_of(const struct copy_bed *b, uint32_t rank)
{
    struct copy_in *in = b->to->ins;

    while (in && in->head.rank != rank) {
        in = in->next;
    }
    return in;
}

static void run_until_offered(struct copy_bed *b, uint32_t rank)
{
    while (!in_of(b, rank) || in_of(b, rank)->question == 0) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

/* --- one end that is this test --- */

struct peer {
    struct copy_bed *bed;
    struct link *link;
    int n_answers;
    uint16_t answer; /* last */
};

static void on_peer_up(struct link *l, void *ctx)
{
    (void)l, (void)ctx;
}

static void on_peer_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct peer *p = ctx;

    (void)l;
    p->answer = f->type;
    p->n_answers++;
}

static void on_peer_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct peer *p = ctx;

    (void)l, (void)closed, (void)why;
    p->answer = 0;
    p->n_answers++;
}

static const struct link_ops peer_ops = {.on_up = on_peer_up,
                                         .on_frame = on_peer_frame,
                                         .on_down = on_peer_down};

/* Others may come before. */
static void await(struct peer *p, uint16_t answer)
{
    while (p->answer != answer && copy_bed_run_until(p->bed, &p->n_answers, p->n_answers + 1)) {
    }
    is_int(p->answer, answer, "the answer");
}

static struct snap_head head_of(uint32_t rank, const char *uuid)
{
    struct snap_head h = {.rank = rank, .n_ranks = 16, .step = 10, .image_bytes = 1000,
                          .part_bytes = 10};

    str_copy(h.uuid, sizeof(h.uuid), uuid);
    str_copy(h.root, sizeof(h.root), "/ck");
    return h;
}

static void send_offer(struct link *l, const struct snap_head *h)
{
    _buf_ struct buf bytes = {0};

    copy_offer_encode(h, 7, &bytes);
    link_send_buf(l, SNAP_COPY_OFFER, &bytes);
}

static void offer_it(struct peer *p, struct copy_bed *b, const struct snap_head *h)
{
    struct link_target target = {.addrs = copy_said_addrs,
                                 .port = link_listener_port(b->listener),
                                 .timeout_ms = 60000};

    *p = (struct peer){.bed = b, .answer = NO_ANSWER};
    if (link_connect(&b->loop, &target, copy_said_key, &peer_ops, p, &p->link, NULL) < 0) {
        bail_out("no link");
    }
    send_offer(p->link, h);
}

static void offer(struct peer *p, struct copy_bed *b, uint32_t rank)
{
    struct snap_head h = head_of(rank, UUID(1));

    offer_it(p, b, &h);
}

/* --- who sends --- */

/* The receiver says nothing, not even that it makes memory. */
static void test_silent_receiver(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_send(&b, 2, UUID(1));
    run_until_offered(&b, 2);
    uv_timer_stop(b.to->watch);
    b.from->outs->moved_ms = long_ago(&b);
    look_soon(b.from, STUCK_MS);
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1), "it is given up");
    is_int(b.copied.error.code, ETIMEDOUT, "for that reason");
    like(b.copied.error.text, "no progress for 30 s", "which is said: %s", b.copied.error.text);
    snap_jam_end(&b.jam);
    copy_bed_close(&b);
}

/* What is asked for is as old as its offer, and what is sent as its last chunk. */
static void test_sender_moves(void)
{
    struct copy_bed b;
    uint64_t at;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_fetch(&b, 2, UUID(1));
    run_until_offered(&b, 2);
    ok(b.from->outs->moved_ms > 0, "one that was asked for has just been offered");
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1), "it comes");
    copy_bed_send_half(&b);
    b.from->outs->moved_ms = 0;
    at = b.from->outs->at;
    while (b.from->outs && b.from->outs->at == at) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(b.from->outs && b.from->outs->moved_ms > 0, "one that is sent has come further");
    copy_bed_close(&b);
}

/* Its turn has come just now, and it has not begun. */
static void test_not_begun(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(1), 10, COPY_ROOM, 1);
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_send(&b, 2, UUID(1));
    copy_bed_send(&b, 3, UUID(1));
    run_until_offered(&b, 2);
    look_soon(b.from, 1000);
    uv_sleep(5 * SOON_MS); /* it is due before the next one begins */
    uv_update_time(&b.loop);
    copy_out_end(b.from->outs, NULL);
    uv_run(&b.loop, UV_RUN_NOWAIT);
    is_int(b.copied.n_sent, 1, "the one before is done");
    b.from->config.stuck_ms = PATIENT_MS;
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 2), "and so is this one");
    is_int(b.copied.error.code, 0, "and not given up: %s", b.copied.error.text);
    ok(copy_bed_is_same(&b, 3, UUID(1)), "it is there");
    copy_bed_close(&b);
}

/* --- who gets it --- */

static bool make(void *arg, uint32_t rank, const char *uuid)
{
    (void)arg, (void)rank, (void)uuid;
    return true;
}

/* Who has memory, and sends nothing; who waits for memory; who has not offered yet. */
static void test_late(void)
{
    struct peer ready, waits;
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    b.from->config.make = make;
    offer(&ready, &b, 1);
    await(&ready, SNAP_COPY_READY);
    snap_jam_begin(&b.jam, &b.loop);
    offer(&waits, &b, 2);
    run_until_offered(&b, 2);
    copy_bed_fetch(&b, 3, UUID(1));
    while (!b.from->waits) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(in_of(&b, 1) && in_of(&b, 2) && in_of(&b, 3), "three are on their way");
    for (uint32_t rank = 1; rank <= 3; rank++) {
        in_of(&b, rank)->moved_ms = long_ago(&b);
    }
    look_soon(b.to, STUCK_MS);
    await(&ready, SNAP_COPY_REFUSED);
    ok(!in_of(&b, 1), "one that has memory, and comes no further, is given up");
    ok(in_of(&b, 2) != NULL, "one for which it is made is given more time");
    ok(in_of(&b, 3) != NULL, "one that was asked for has the time of its link");
    b.to->config.stuck_ms = STUCK_MS / 10;
    await(&waits, SNAP_COPY_REFUSED);
    ok(!in_of(&b, 2) && in_of(&b, 3), "not for ever");
    is_int(b.copied.n_fetched, 0, "nobody is told of what was asked for");
    snap_jam_end(&b.jam);
    link_close(ready.link);
    link_close(waits.link);
    copy_bed_close(&b);
}

/* There is none: who offers hears it, and does not wait for longer. */
static void test_no_memory(void)
{
    struct error e = {0};
    struct peer p;
    struct copy_bed b;

    error_text(&e, ENOMEM, "none is left");
    copy_bed_open(&b, UINT64_C(1) << 30);
    snap_jam_begin(&b.jam, &b.loop);
    offer(&p, &b, 1);
    run_until_offered(&b, 1);
    snap_copy_begun(b.to, in_of(&b, 1)->question, NULL, &e);
    ok(!in_of(&b, 1), "memory for one cannot be had");
    await(&p, SNAP_COPY_REFUSED);
    snap_jam_end(&b.jam);
    link_close(p.link);
    copy_bed_close(&b);
}

/* It has come further with its offer, with memory, and with what is sent. */
static void test_receiver_moves(void)
{
    struct peer p;
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    snap_jam_begin(&b.jam, &b.loop);
    offer(&p, &b, 1);
    run_until_offered(&b, 1);
    ok(in_of(&b, 1)->moved_ms > 0, "it was offered just now");
    in_of(&b, 1)->moved_ms = 0;
    snap_jam_end(&b.jam);
    await(&p, SNAP_COPY_READY);
    ok(in_of(&b, 1)->moved_ms > 0, "then there is memory");
    in_of(&b, 1)->moved_ms = 0;
    link_send(p.link, SNAP_COPY_DATA, "x", 1);
    while (in_of(&b, 1)->at == 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(in_of(&b, 1)->moved_ms > 0, "then some of it comes");
    link_close(p.link);
    copy_bed_close(&b);
}

/* --- several of one rank --- */

/* Whoever offers another save has given up the one before; that of other ranks goes on. */
static void test_offered_anew(void)
{
    struct snap_head h = head_of(1, UUID(2));
    struct peer first, other, anew;
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    offer(&first, &b, 1);
    await(&first, SNAP_COPY_READY);
    offer(&other, &b, 2);
    await(&other, SNAP_COPY_READY);
    offer_it(&anew, &b, &h);
    await(&anew, SNAP_COPY_READY);
    await(&first, 0);
    ok(in_of(&b, 2) != NULL, "another rank's goes on");
    ok(in_of(&b, 1) && strcmp(in_of(&b, 1)->head.uuid, UUID(2)) == 0, "of this one the new one");
    link_close(first.link);
    link_close(other.link);
    link_close(anew.link);
    copy_bed_close(&b);
}

/* What was asked for is made elsewhere, for who knows how long: one that is offered comes. */
static void test_offered_and_asked(void)
{
    struct peer p;
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    b.from->config.make = make;
    copy_bed_fetch(&b, 1, UUID(1));
    while (!b.from->waits) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    offer(&p, &b, 1);
    await(&p, SNAP_COPY_READY);
    is_int(b.copied.n_fetched, 0, "and who has asked waits on");
    snap_copy_fetch_forget(b.to);
    ok(b.to->ins && !b.to->ins->next && b.to->ins->question > 0,
       "when nobody has asked any more it comes all the same");
    link_close(p.link);
    copy_bed_close(&b);
}

/* What was asked for is on its way: the same one is not taken, and is not in its way. */
static void test_offered_too_late(void)
{
    struct snap_head h = head_of(2, UUID(1));
    struct peer p;
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    h.image_bytes = snap_hold_get(b.own, 2, UUID(1))->head.image_bytes;
    h.part_bytes = snap_hold_get(b.own, 2, UUID(1))->head.part_bytes;
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_fetch(&b, 2, UUID(1));
    run_until_offered(&b, 2);
    offer_it(&p, &b, &h);
    await(&p, SNAP_COPY_REFUSED);
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1) && b.copied.error.code == 0,
       "that comes: %s", b.copied.error.text);
    ok(copy_bed_is_same(&b, 2, UUID(1)), "whole");
    link_close(p.link);
    copy_bed_close(&b);
}

/* --- no place any more --- */

static void test_no_place(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_send_half(&b);
    copy_bed_fetch(&b, 2, UUID(1));
    snap_copy_hold(b.to, NULL);
    ok(!b.to->ins, "what was on its way is forgotten");
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1) && b.copied.error.code != 0,
       "who sends hears of it: %s", b.copied.error.text);
    is_int(b.copied.n_fetched + b.copied.n_got, 0, "nobody else does");
    copy_bed_close(&b);
}

/* --- another one than was asked for --- */

static void on_liar_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    (void)l, (void)f, (void)ctx;
}

static void on_liar_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    (void)closed, (void)why, (void)ctx;
    link_close(l);
}

static const struct link_ops liar_ops = {.on_frame = on_liar_frame, .on_down = on_liar_down};

static void on_asked(struct link *l, const struct channel_frame *first, void *ctx)
{
    (void)first;
    link_adopt(l, &liar_ops, NULL);
    send_offer(l, ctx);
}

static void test_other_came(void)
{
    struct snap_head others[] = {head_of(2, UUID(2)), head_of(3, UUID(1))};

    for (int i = 0; i < 2; i++) {
        struct link_listener *liar;
        struct copy_bed b;

        copy_bed_open(&b, UINT64_C(1) << 30);
        if (link_listen(&b.loop, true, &liar, NULL) < 0) {
            bail_out("no port");
        }
        link_listener_open(liar, copy_said_key, on_asked, &others[i]);
        is_int(snap_copy_fetch(b.to, 2, UUID(1), copy_said_addrs, link_listener_port(liar),
                               NULL), 0, "one is asked for");
        ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1), "of which is heard");
        is_int(b.copied.error.code, EPROTO, "that %s is another one",
               i == 0 ? "the save" : "the rank");
        is_int((intmax_t)b.copied.n_got, 0, "nothing comes of it");
        link_listener_close(liar);
        copy_bed_close(&b);
    }
}

/* It is offered what it has asked for, and nothing comes. */
static void test_offer_alone(void)
{
    struct snap_head h = head_of(2, UUID(1));
    struct link_listener *liar;
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    if (link_listen(&b.loop, true, &liar, NULL) < 0) {
        bail_out("no port");
    }
    link_listener_open(liar, copy_said_key, on_asked, &h);
    is_int(snap_copy_fetch(b.to, 2, UUID(1), copy_said_addrs, link_listener_port(liar), NULL),
           0, "one is asked for");
    while (b.to->ins && !b.to->ins->is_ready) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(b.to->ins != NULL, "and offered");
    b.to->ins->moved_ms = long_ago(&b);
    look_soon(b.to, STUCK_MS);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1), "then nothing comes: it is given up");
    is_int(b.copied.error.code, ETIMEDOUT, "for that reason");
    link_listener_close(liar);
    copy_bed_close(&b);
}

/* --- one that is there no more --- */

static void test_gone_before_its_turn(void)
{
    struct copy_bed b;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(2), 10, COPY_ROOM, 1);
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_fetch(&b, 2, UUID(1));
    run_until_offered(&b, 2);
    copy_bed_fetch(&b, 3, UUID(2));
    while (!b.from->outs->next) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    snap_hold_settle(b.own, UUID(2), false);
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 2), "two were asked for");
    is_int(b.copied.error.code, ECANCELED, "one came to nothing before its turn");
    ok(copy_bed_is_same(&b, 2, UUID(1)), "the other one is there");
    copy_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_silent_receiver();
    test_sender_moves();
    test_not_begun();
    test_late();
    test_no_memory();
    test_receiver_moves();
    test_offered_anew();
    test_offered_and_asked();
    test_offered_too_late();
    test_no_place();
    test_other_came();
    test_offer_alone();
    test_gone_before_its_turn();
    return tap_done();
}
