/* SPDX-License-Identifier: Apache-2.0 */
/* How pieces of snapshots are sent: one snapshot after the other, held only as long as it is
 * sent, to agents that are known; and what counts as getting on. */
#include <config.h>

#include "launcher/parity_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void turn(struct parity_bed *b)
{
    uv_run(&b->loop, UV_RUN_NOWAIT);
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

/* Both ends of a link: what has come further is not given up. */
static void test_gets_on(void)
{
    struct parity_way *w;
    struct parity_in *in;
    struct parity_bed b;
    uint64_t at;

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
    w->moved_ms = 0;
    in = b.nodes[w->to].parity->ins;
    ok(in && in->moved_ms > 0, "so has who offers something");
    while (w->at == at && w->i == 0) {
        turn(&b);
    }
    ok(w->moved_ms > 0, "a chunk that goes is progress");
    while (in->k == 0 && in->at == 0) {
        in->moved_ms = 0;
        turn(&b);
    }
    ok(in->moved_ms > 0, "so is one that comes");
    parity_bed_close(&b);
}

/* Likewise of what is asked for. */
static void test_gives_some(void)
{
    const uint32_t lost[] = {0};
    const struct snap_parity_order order = {10, UUID(1), lost, 1, false};
    struct parity_ask *a;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    b.nodes[1].lie = PARITY_SOME;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    while (!b.nodes[2].parity->builds->asks) {
        turn(&b);
    }
    for (a = b.nodes[2].parity->builds->asks; !a->link; a = a->next) {
    }
    while (a->i == 0) {
        a->moved_ms = 0;
        turn(&b);
    }
    ok(a->moved_ms > 0 && !a->is_over, "a part of what was asked for is progress");
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_in_turn();
    test_not_held();
    test_unknown();
    test_gets_on();
    test_gives_some();
    return tap_done();
}
