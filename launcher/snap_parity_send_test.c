/* SPDX-License-Identifier: Apache-2.0 */
/* How pieces of snapshots are sent: one snapshot after the other, held only as long as it is
 * sent, to agents that are known; and what counts as getting on. */
#include <config.h>

#include "launcher/parity_bed.h"

#include "base/cleanup.h"
#include "base/link_priv.h"
#include "launcher/snap_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

static void turn(struct parity_bed *b)
{
    uv_run(&b->loop, UV_RUN_NOWAIT);
}

static void wait_built(struct parity_bed *b)
{
    for (int i = 0; i < 1 << 24 && b->n_built == 0; i++) {
        turn(b);
    }
}

static void test_in_turn(void)
{
    const struct parity_out *first, *second;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save(&b, 0, UUID(1), 10);
    parity_bed_save(&b, 0, UUID(2), 20);
    parity_bed_send(&b, 0, UUID(1));
    while (!b.nodes[0].parity->ways) {
        turn(&b);
    }
    parity_bed_send(&b, 0, UUID(2));
    first = b.nodes[0].parity->outs;
    second = first->next;
    ok(second && strcmp(first->uuid, UUID(1)) == 0 && strcmp(second->uuid, UUID(2)) == 0,
       "the second of two is behind the first");
    while (first->is_pinned && !second->is_begun) {
        turn(&b);
    }
    ok(!first->is_pinned, "and is not sent before that is with the others");
    while (!second->is_begun) {
        turn(&b);
    }
    ok(b.n_sent == 0, "though these wait for more");
    parity_bed_close(&b);
}

/* Others of the group save later: until then a save that is sent may give up its memory. */
static void test_not_held(void)
{
    const struct parity_in *at[2];
    struct snap_hold *own;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    own = b.nodes[0].own;
    parity_bed_save(&b, 0, UUID(1), 1);
    parity_bed_send(&b, 0, UUID(1));
    do {
        turn(&b);
        at[0] = b.nodes[1].parity->ins;
        at[1] = b.nodes[2].parity->ins;
    } while (!at[0] || !at[0]->is_over || !at[1] || !at[1]->is_over);
    snap_hold_settle(own, UUID(1), true);
    parity_bed_save(&b, 0, UUID(2), 2);
    parity_bed_save(&b, 0, UUID(3), 3);
    ok(b.n_sent == 0 && !snap_hold_get(own, 10, UUID(1)) && snap_hold_get(own, 10, UUID(2)),
       "a third save takes the memory of one that is sent");
    parity_bed_close(&b);
}

/* Who keeps parity needs the memory: nobody takes that for a save that came to nothing. */
static void test_dropped(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save(&b, 0, UUID(1), 10);
    parity_bed_send(&b, 0, UUID(1));
    while (!b.nodes[1].parity->ins) {
        turn(&b);
    }
    snap_parity_drop(b.nodes[1].parity);
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 1) && b.nodes[0].sent.code == ENOMEM,
       "parity gives way while it is made");
    like(b.nodes[0].sent.text, "node 10: its memory is needed", "as is told");
    parity_bed_close(&b);
}

static void test_unknown(void)
{
    const uint32_t lost[] = {0};
    struct parity_group other;
    struct parity_bed b;
    struct error e = {0};

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    b.nodes[1].is_unknown = true;
    parity_bed_save(&b, 0, UUID(2), 20);
    parity_bed_send(&b, 0, UUID(2));
    ok(snap_bed_run_until(&b.loop, &b.nodes[0].n_sent, 2) && b.nodes[0].sent.code == ENOENT,
       "nobody knows where one of the group is: it is not sent");
    like(b.nodes[0].sent.text, "node 10 is not known", "as is told");
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), ENOENT, "nor made again");
    like(b.nodes[2].built.text, "node 10 is not known", "as is told");
    other = b.group;
    other.agents[0] = 30;
    ok(snap_parity_send(b.nodes[0].parity, 10, UUID(2), &other, &e) == -ENOENT,
       "to a group of others nothing is sent: %s", e.text);
    parity_bed_close(&b);
}

static void test_gets_on(void)
{
    struct parity_way *w;
    struct parity_in *in;
    struct parity_bed b;
    uint64_t at, before;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save(&b, 3, UUID(1), 10);
    parity_bed_send(&b, 3, UUID(1));
    while (!b.nodes[3].parity->ways) {
        turn(&b);
    }
    w = b.nodes[3].parity->ways;
    ok(w->moved_ms > 0, "who is asked has time from then on");
    while (!w->is_eager && w->at == 0) {
        turn(&b);
    }
    at = w->at;
    w->moved_ms = before = uv_now(&b.loop) - 1000;
    in = b.nodes[w->to].parity->ins;
    ok(in && in->moved_ms > 0, "so has who offers something");
    while (w->at == at && w->i == 0) {
        turn(&b);
    }
    ok(w->moved_ms > before, "a chunk that goes is progress");
    parity_bed_close(&b);
}

/* So that others have their turn, too. */
static void test_chunks(void)
{
    const struct channel_frame ready = {.type = SNAP_PARITY_READY};
    struct parity_bed b;
    struct snap_parity *c;
    struct link *l;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    c = b.nodes[3].parity;
    parity_bed_save(&b, 3, UUID(1), 10);
    parity_bed_send(&b, 3, UUID(1));
    while (!c->ways || !c->ways->is_eager) {
        turn(&b);
    }
    if (c->ways->i > 0 || c->ways->at > 0) {
        bail_out("it was sent something already");
    }
    parity_ways_pump(c);
    ok(c->ways->i == 0 && c->ways->at == PARITY_CHUNK_BYTES, "a chunk is sent in a turn");
    l = c->ways->link;
    l->ops->on_frame(l, &ready, l->ctx);
    ok(b.n_sent == 1 && b.nodes[3].sent.code == EPROTO,
       "who gets it, and says that it is ready, makes no sense");
    parity_bed_close(&b);
}

static void test_ready_twice(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 2, 1, UINT64_C(1) << 30);
    b.nodes[1].lie = PARITY_MUTE;
    parity_bed_save(&b, 0, UUID(1), 10);
    parity_bed_send(&b, 0, UUID(1));
    while (!b.nodes[1].lied_to) {
        turn(&b);
    }
    link_send(b.nodes[1].lied_to, SNAP_PARITY_READY, NULL, 0);
    while (b.nodes[0].parity->ways && !b.nodes[0].parity->ways->is_sent) {
        turn(&b);
    }
    link_send(b.nodes[1].lied_to, SNAP_PARITY_READY, NULL, 0);
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 1) && b.nodes[0].sent.code == EPROTO,
       "who is ready for what it has got already makes no sense");
    like(b.nodes[0].sent.text, "node 10: it answers what was not asked", "as is told");
    parity_bed_close(&b);
}

/* Since when nothing has come, against how long that may be: 12 times as long where all is
 * there, and others of the set are waited for. */
static void test_given_up(void)
{
    const struct error late = {.code = ETIMEDOUT, .text = "late"};
    struct parity_in *in;
    struct parity_bed b;
    struct snap_parity *c;
    uint64_t now;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    c = b.nodes[1].parity;
    parity_bed_save(&b, 0, UUID(1), 10);
    parity_bed_send(&b, 0, UUID(1));
    while (!c->ins || !c->ins->is_over) {
        turn(&b);
    }
    in = c->ins;
    c->config.stuck_ms = 10;
    now = uv_now(&b.loop);
    in->moved_ms = now - 119;
    parity_ins_watch(c, &late);
    ok(c->ins == in, "who has sent all may wait");
    in->is_over = false;
    in->moved_ms = now - 9;
    parity_ins_watch(c, &late);
    ok(c->ins == in, "who has not has to get on");
    in->moved_ms = now - 10;
    parity_ins_watch(c, &late);
    ok(!c->ins && !c->kept, "or spoils it");
    parity_bed_close(&b);
}

/* Likewise of what is asked for. */
static void test_gives_some(void)
{
    const uint32_t lost[] = {0};
    const struct snap_parity_order order = {10, UUID(1), lost, 1, false};
    const struct error late = {.code = ETIMEDOUT, .text = "late"};
    struct parity_ask *a, *own;
    struct parity_bed b;
    uint64_t before;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    b.nodes[1].lie = PARITY_SOME;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    while (!b.nodes[2].parity->builds->asks) {
        turn(&b);
    }
    for (a = b.nodes[2].parity->builds->asks; !a->link; a = a->next) {
    }
    ok(a->moved_ms > 0, "who is asked for something has time from then on");
    before = uv_now(&b.loop) - 1000;
    while (a->i == 0) {
        a->moved_ms = before;
        turn(&b);
    }
    ok(a->moved_ms > before && !a->is_over, "a part of what was asked for is progress");
    b.nodes[2].parity->config.stuck_ms = 1;
    a->is_over = true;
    a->moved_ms = 0;
    parity_builds_watch(b.nodes[2].parity, &late);
    is_int(b.n_built, 0, "who has given all is not late");
    own = b.nodes[2].parity->builds->asks;
    own = own->link ? own->next : own;
    own->is_over = false;
    own->moved_ms = 0;
    parity_builds_watch(b.nodes[2].parity, &late);
    is_int(b.n_built, 0, "nor is this agent itself, which may have stood still");
    own->is_over = true;
    a->is_over = false;
    b.nodes[2].parity->config.stuck_ms = 10;
    a->moved_ms = uv_now(&b.loop) - 9;
    parity_builds_watch(b.nodes[2].parity, &late);
    is_int(b.n_built, 0, "nor who gets on");
    a->moved_ms = uv_now(&b.loop) - 10;
    parity_builds_watch(b.nodes[2].parity, &late);
    ok(b.n_built == 1 && b.nodes[2].built.code == ETIMEDOUT, "who has not is");
    parity_bed_close(&b);
}

/* What becomes of memory that was asked for before is nothing to what is made now. */
static void test_other_memory(void)
{
    const uint32_t lost[] = {0};
    const struct snap_parity_order order = {10, UUID(1), lost, 1, false};
    const struct error none = {.code = ENOMEM, .text = "none"};
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    snap_parity_begun(b.nodes[2].parity, b.nodes[2].parity->builds->question - 1, NULL, &none);
    is_int(b.n_built, 0, "that there is none for another one ends nothing");
    wait_built(&b);
    ok(b.n_built == 1 && b.nodes[2].built.code == 0, "and it is made: %s",
       b.nodes[2].built.text);
    parity_bed_close(&b);
}

static bool is_none(void *arg, uint32_t rank)
{
    (void)arg, (void)rank;
    return false;
}

/* Others may need the memory that it is made in. */
static void test_memory_goes(void)
{
    const uint32_t lost[] = {0};
    const struct snap_parity_order order = {10, UUID(1), lost, 1, false};
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    while (!b.nodes[2].parity->builds->asks) {
        turn(&b);
    }
    snap_hold_keep(b.nodes[2].copies, 11, is_none, NULL);
    wait_built(&b);
    ok(b.n_built == 1 && b.nodes[2].built.code != 0, "it goes, and nothing is made: %s",
       b.nodes[2].built.text);
    parity_bed_close(&b);
}

/* Who is asked says something at the wrong time. */
static void test_wrong_time(bool is_over)
{
    const uint32_t lost[] = {0};
    const struct snap_parity_order order = {10, UUID(1), lost, 1, false};
    const struct parity_sums none = {0};
    struct channel_frame f = {.type = is_over ? SNAP_PARITY_END : SNAP_PARITY_READY};
    _buf_ struct buf text = {0};
    struct parity_ask *a;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    b.nodes[1].lie = is_over ? PARITY_MUTE : PARITY_SOME;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    while (!b.nodes[2].parity->builds->asks || !b.nodes[1].lied_to) {
        turn(&b);
    }
    for (a = b.nodes[2].parity->builds->asks; !a->link; a = a->next) {
    }
    while (!is_over && a->i == 0) {
        turn(&b);
    }
    parity_sums_encode(&none, &text);
    f.data = (void *)text.data;
    f.len = is_over ? text.len : 0;
    a->is_over = is_over;
    a->i = is_over ? a->want.n : a->i;
    a->link->ops->on_frame(a->link, &f, a);
    ok(b.n_built == 1 && b.nodes[2].built.code == EPROTO, "who says %s",
       is_over ? "twice that that was all" : "that it is ready behind the first bytes");
    like(b.nodes[2].built.text, "node 10: what came was not asked for", "makes no sense");
    parity_bed_close(&b);
}

/* Who asks, and reads when it likes. */
struct reader {
    struct link *link;
    struct buf *want;
    size_t n_bytes;
    int n_ends, n_down;
};

static void reader_up(struct link *l, void *ctx)
{
    struct reader *r = ctx;

    link_send_buf(l, SNAP_PARITY_WANT, r->want);
}

static void reader_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct reader *r = ctx;

    if (f->type == SNAP_PARITY_READY) {
        link_hold(l, true);
    }
    r->n_bytes += f->type == SNAP_PARITY_DATA ? f->len : 0;
    r->n_ends += f->type == SNAP_PARITY_END;
}

static void reader_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct reader *r = ctx;

    (void)l, (void)closed, (void)why;
    r->n_down++;
}

/* What nobody takes waits in the snapshot, and not once more in memory of the agent. */
static void test_slow(void)
{
    static const struct link_ops ops = {.on_up = reader_up, .on_frame = reader_frame,
                                        .on_down = reader_down};
    char *const addrs[] = {(char *)"127.0.0.1", NULL};
    struct parity_want want = {UUID(1), 13, 10, 1, {{0, 0, parity_bed_bytes(3)}}};
    struct link_target t = {.addrs = addrs, .timeout_ms = 20000};
    _buf_ struct buf text = {0};
    struct reader r = {.want = &text};
    const struct parity_way *w;
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save(&b, 3, UUID(1), 10);
    parity_want_encode(&want, &text);
    t.port = link_listener_port(b.nodes[3].listener);
    if (link_connect(&b.loop, &t, parity_bed_key, &ops, &r, &r.link, NULL) < 0) {
        bail_out("no link");
    }
    while (!b.nodes[3].parity->ways) {
        turn(&b);
    }
    w = b.nodes[3].parity->ways;
    snap_bed_narrow(w->link, SO_SNDBUF);
    snap_bed_narrow(r.link, SO_RCVBUF);
    while (b.nodes[3].parity->ways == w && w->is_eager) {
        turn(&b);
    }
    for (int i = 0; i < 50; i++) {
        turn(&b);
    }
    if (!ok(b.nodes[3].parity->ways == w && w->i == 0 && w->at == PARITY_CHUNK_BYTES,
            "who reads nothing is sent a chunk, and no more")) {
        bail_out("it was");
    }
    ok(link_queued(w->link) > 0 && link_queued(w->link) < 2 * PARITY_CHUNK_BYTES,
       "which is all that waits for it");
    link_hold(r.link, false);
    ok(snap_bed_run_until(&b.loop, &r.n_down, 1) && r.n_ends == 1 &&
           r.n_bytes == parity_bed_bytes(3), "when it reads it gets all");
    link_close(r.link);
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_in_turn();
    test_not_held();
    test_dropped();
    test_unknown();
    test_gets_on();
    test_given_up();
    test_gives_some();
    test_other_memory();
    test_memory_goes();
    test_wrong_time(false);
    test_wrong_time(true);
    test_slow();
    test_chunks();
    test_ready_twice();
    return tap_done();
}
