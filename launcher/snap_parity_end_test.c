/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who goes away, changes its mind or comes no further while parity is made: the others
 * hear of it, hold nothing because of it, and never believe in what is not whole.
 */
#include <config.h>

#include "launcher/parity_bed.h"

#include "base/clock.h"
#include "launcher/snap_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>

/* Of three with a save two have sent theirs. */
static void open_half(struct parity_bed *b)
{
    parity_bed_open(b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        parity_bed_save(b, i, UUID(1), 10);
    }
    parity_bed_send(b, 0, UUID(1));
    parity_bed_send(b, 1, UUID(1));
}

/* Who goes away in the middle spoils what it was added to. */
static void test_half(void)
{
    uint64_t began_ms = clock_mono_ms();
    struct parity_bed b;

    open_half(&b);
    ok(snap_bed_run_until(&b.loop, &b.n_whole, 1), "what is only of two is whole");
    snap_bed_run_for(&b.loop, 200);
    is_int(b.n_sent, 0, "all wait for the third");
    is_int(b.n_whole, 1, "but for that");
    parity_bed_send(&b, 2, UUID(1));
    while (!b.nodes[0].parity->ins || b.nodes[0].parity->ins->from != 2) {
        snap_bed_turn(&b.loop, began_ms);
    }
    parity_outs_forget(b.nodes[2].parity);
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 2), "which goes away: the others hear");
    ok(b.nodes[0].sent.code != 0 || b.nodes[1].sent.code != 0, "why: %s; %s",
       b.nodes[0].sent.text, b.nodes[1].sent.text);
    ok(b.n_whole <= 2, "nobody believes that it is whole");
    parity_bed_close(&b);
}

static void test_changed_mind(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        parity_bed_save(&b, i, UUID(1), 10);
    }
    for (unsigned i = 0; i < 3; i++) {
        parity_bed_send(&b, i, UUID(1));
    }
    snap_hold_settle(b.nodes[0].own, UUID(1), false);
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 1), "a save that comes to nothing");
    is_int(b.nodes[0].sent.code, ECANCELED, "is sent no further");
    for (unsigned i = 0; i < 3; i++) {
        snap_bed_run_for(&b.loop, 50);
        snap_parity_settle(b.nodes[i].parity, UUID(1), false);
    }
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 3), "and the others, who hear of it,");
    is_int(b.nodes[1].sent.code, ECANCELED, "do not wait");
    parity_bed_close(&b);
}

/* A save comes to nothing in the middle of its way. */
static void test_nothing_meanwhile(void)
{
    uint64_t began_ms = clock_mono_ms();
    const struct parity_way *w;
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save(&b, 3, UUID(1), 10);
    parity_bed_send(&b, 3, UUID(1));
    do {
        snap_bed_turn(&b.loop, began_ms);
        w = b.nodes[3].parity->ways;
    } while (!w || (!w->is_eager && w->at == 0)); /* it is the next to be sent */
    snap_hold_settle(b.nodes[3].own, UUID(1), false);
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 1) && b.nodes[3].sent.code == ECANCELED,
       "what comes to nothing meanwhile is not sent");
    like(b.nodes[3].sent.text, "0: it is not in memory any more", "as is told");
    parity_bed_close(&b);
}

/* Who makes one again hears from the others what they have no more. */
static void test_taken_away(void)
{
    uint64_t began_ms = clock_mono_ms();
    const uint32_t lost[] = {30};
    const struct snap_parity_order order = {13, UUID(1), lost, 1, false};
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    while (!b.nodes[0].parity->ways) {
        snap_bed_turn(&b.loop, began_ms);
    }
    snap_parity_drop(b.nodes[0].parity);
    ok(snap_bed_run_until(&b.loop, &b.n_built, 1) && b.nodes[2].built.code == ECANCELED,
       "one of the others needs the memory of its parity");
    like(b.nodes[2].built.text, "node 0: it is not in memory any more", "and says so");
    parity_bed_close(&b);
}

/* So does it when it is what this one has itself. */
static void test_own_goes(void)
{
    uint64_t began_ms = clock_mono_ms();
    const uint32_t lost[] = {30};
    const struct snap_parity_order order = {13, UUID(1), lost, 1, false};
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    while (!b.nodes[2].parity->builds->asks) {
        snap_bed_turn(&b.loop, began_ms);
    }
    snap_hold_settle(b.nodes[2].own, UUID(1), false);
    ok(snap_bed_run_until(&b.loop, &b.n_built, 1) && b.nodes[2].built.code == ECANCELED,
       "what an agent has itself comes to nothing while it makes another one again");
    like(b.nodes[2].built.text, "node 20: it is not in memory any more", "as is told");
    parity_bed_close(&b);
}

/* One is made after the other, whatever becomes of the one before. */
static void test_one_by_one(void)
{
    const uint32_t lost[] = {30, 0};
    const struct snap_parity_order large = {13, UUID(1), lost, 1, false},
                                   other = {10, UUID(1), lost + 1, 1, false},
                                   later = {10, UUID(2), lost + 1, 1, false};
    uint64_t bytes, room = parity_bed_bytes(0) + 4 * SNAP_PAGE_BYTES;
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    bytes = b.nodes[2].parity->bytes;
    parity_bed_save_all(&b, UUID(2), 20);
    snap_parity_build(b.nodes[2].parity, &large, NULL);
    snap_parity_build(b.nodes[2].parity, &other, NULL);
    snap_parity_build(b.nodes[2].parity, &later, NULL);
    ok(snap_bed_run_until(&b.loop, &b.n_built, 3) && parity_bed_is_same(&b, 2, 3, UUID(1)) &&
           parity_bed_is_same(&b, 2, 0, UUID(1)) && parity_bed_is_same(&b, 2, 0, UUID(2)),
       "two of one save are made again, and one of another");
    parity_bed_close(&b);

    parity_bed_open(&b, 4, 1, bytes + room);
    parity_bed_save_all(&b, UUID(1), 10);
    snap_parity_build(b.nodes[2].parity, &large, NULL);
    snap_parity_build(b.nodes[2].parity, &other, NULL);
    ok(snap_bed_run_until(&b.loop, &b.n_built, 1) && b.nodes[2].built.code == ENOMEM,
       "there is no memory for the first one: %s", b.nodes[2].built.text);
    ok(snap_bed_run_until(&b.loop, &b.n_built, 2) && parity_bed_is_same(&b, 2, 0, UUID(1)),
       "the next one is made all the same");
    parity_bed_close(&b);
}

/* The memory for it is promised, and cannot be made. */
static void test_no_memory(void)
{
    uint64_t began_ms = clock_mono_ms();
    const uint32_t lost[] = {0};
    const struct snap_parity_order order = {10, UUID(1), lost, 1, false};
    const struct error why = {.code = ENOSPC, .text = "it is full"};
    struct snap_parity *c;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    c = b.nodes[2].parity;
    snap_parity_build(c, &order, NULL);
    while (!c->builds->is_begun) {
        snap_bed_turn(&b.loop, began_ms);
    }
    snap_parity_begun(c, c->builds->question, NULL, &why);
    ok(b.n_built == 1 && b.nodes[2].built.code == ENOSPC && !c->builds,
       "no memory can be made for one: %s", b.nodes[2].built.text);
    parity_bed_close(&b);
}

/* An agent ends while it sends pieces, is sent some, makes something again and is asked. */
static void test_ends(void)
{
    uint64_t began_ms = clock_mono_ms();
    const uint32_t lost[] = {30};
    const struct snap_parity_order order = {13, UUID(1), lost, 1, false};
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    parity_bed_save(&b, 0, UUID(2), 20);
    parity_bed_send(&b, 0, UUID(2));
    while (!b.nodes[1].parity->ins) {
        snap_bed_turn(&b.loop, began_ms);
    }
    snap_parity_build(b.nodes[0].parity, &order, NULL);
    snap_parity_build(b.nodes[1].parity, &order, NULL);
    while (!b.nodes[2].parity->ways) {
        snap_bed_turn(&b.loop, began_ms);
    }
    ok(b.n_built == 0, "all ends in the middle");
    parity_bed_close(&b);
}

static void test_mute(void)
{
    const uint32_t lost[] = {0}, with_it[] = {0, 20};
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    parity_bed_be_impatient(&b);
    b.nodes[1].lie = PARITY_MUTE;
    parity_bed_save(&b, 0, UUID(2), 20);
    parity_bed_send(&b, 0, UUID(2));
    ok(snap_bed_run_until(&b.loop, &b.nodes[0].n_sent, 2), "who never answers an offer");
    is_int(b.nodes[0].sent.code, ETIMEDOUT, "is given up");
    like(b.nodes[0].sent.text, "node 10: no progress for 1 s", "and named");
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), ETIMEDOUT,
           "so is who does not answer what is asked for");
    like(b.nodes[2].built.text, "node 10: no progress", "and named, too");
    b.nodes[1].lie = PARITY_HONEST;
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), 0,
           "when it answers all is there");
    ok(parity_bed_is_same(&b, 2, 0, UUID(1)), "to the last byte");
    is_int(parity_bed_build(&b, 2, 0, UUID(1), with_it, 2), 0,
           "also for who hears that it is lost itself");
    parity_bed_close(&b);
}

/* Who has given all has more time: others of the group save later. */
static void test_late(void)
{
    struct parity_bed b;

    open_half(&b);
    snap_bed_run_for(&b.loop, 200);
    parity_bed_be_impatient(&b);
    snap_bed_run_for(&b.loop, 3500);
    is_int(b.n_sent, 0, "one saves later: the others wait");
    parity_bed_be_patient(&b);
    parity_bed_send(&b, 2, UUID(1));
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 3) && b.n_whole == 3, "it becomes whole");
    for (unsigned i = 0; i < 3; i++) {
        is_int(b.nodes[i].sent.code, 0, "node %u has sent it: %s", i,
               b.nodes[i].sent.text);
    }
    parity_bed_close(&b);
}

/* One of them says what is not so. */
static void test_lies(void)
{
    static const struct {
        enum parity_lie lie;
        const char *what, *why;
    } cases[] = {
        {PARITY_MORE, "more than was asked for", "node 10: what came was not asked for"},
        {PARITY_BEHIND, "a byte behind it", "node 10: what came was not asked for"},
        {PARITY_EMPTY, "no byte of it", "node 10: what came was not asked for"},
        {PARITY_NOTHING, "nothing", "node 10: less came than was asked for"},
    };
    const uint32_t lost[] = {0};
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        b.nodes[1].lie = cases[i].lie;
        is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), EPROTO, "who gives %s",
               cases[i].what);
        like(b.nodes[2].built.text, cases[i].why, "is caught at it");
    }
    b.nodes[1].lie = PARITY_DONE;
    parity_bed_save(&b, 0, UUID(2), 20);
    parity_bed_send(&b, 0, UUID(2));
    ok(snap_bed_run_until(&b.loop, &b.nodes[0].n_sent, 2) &&
           b.nodes[0].sent.code == EPROTO, "who has all of it before it was sent keeps "
       "nothing: %s", b.nodes[0].sent.text);
    parity_bed_close(&b);
}

/* What has failed holds no memory of the rank: a third save has its place. */
static void test_let_go(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    b.nodes[1].is_gone = true;
    for (int i = 1; i <= 2; i++) {
        parity_bed_save(&b, 0, i == 1 ? UUID(1) : UUID(2), (uint64_t)i);
        parity_bed_send(&b, 0, i == 1 ? UUID(1) : UUID(2));
        ok(snap_bed_run_until(&b.loop, &b.n_sent, i) && b.nodes[0].sent.code,
           "one that is not sent");
        snap_hold_settle(b.nodes[0].own, i == 1 ? UUID(1) : UUID(2), true);
    }
    parity_bed_save(&b, 0, UUID(3), 3);
    ok(snap_hold_get(b.nodes[0].own, 10, UUID(3)) != NULL, "a third one is saved");
    parity_bed_save(&b, 0, UUID(4), 4);
    parity_bed_send(&b, 0, UUID(3));
    parity_bed_send(&b, 0, UUID(4));
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 4), "behind one that is not sent goes the "
       "next");
    parity_bed_close(&b);
}

/* Who waits for the others of a save sends the next one meanwhile: they may have begun with
 * that. */
static void test_other_order(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        parity_bed_save(&b, i, UUID(1), 10);
        parity_bed_save(&b, i, UUID(2), 20);
        parity_bed_send(&b, i, i == 1 ? UUID(2) : UUID(1));
        parity_bed_send(&b, i, i == 1 ? UUID(1) : UUID(2));
    }
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 6) && b.n_whole == 6,
       "two saves, in one order and the other: both are whole");
    parity_bed_close(&b);
}

/* Sending it gives up no other hold of it. */
static void test_held(void)
{
    struct snap_hold *own;
    struct parity_bed b;

    parity_bed_open(&b, 2, 1, UINT64_C(1) << 30);
    own = b.nodes[0].own;
    parity_bed_save(&b, 0, UUID(1), 1);
    parity_bed_save(&b, 1, UUID(1), 1);
    ok(snap_hold_pin(own, 10, UUID(1)) != NULL, "a save that is held");
    parity_bed_send(&b, 0, UUID(1));
    parity_bed_send(&b, 1, UUID(1));
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 2), "is sent");
    snap_hold_settle(own, UUID(1), true);
    parity_bed_save(&b, 0, UUID(2), 2);
    snap_hold_settle(own, UUID(2), true);
    parity_bed_save(&b, 0, UUID(3), 3);
    ok(snap_hold_get(own, 10, UUID(1)) && !snap_hold_get(own, 10, UUID(2)),
       "and held: a third save takes the memory of the second");
    snap_hold_unpin(own, 10, UUID(1));
    parity_bed_close(&b);
}

/* Who has given all may go: it is in the sum. */
static void test_gone_after(void)
{
    uint64_t began_ms = clock_mono_ms();
    struct parity_kept *k;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save(&b, 1, UUID(1), 10);
    parity_bed_send(&b, 1, UUID(1));
    do {
        snap_bed_turn(&b.loop, began_ms);
        k = b.nodes[0].parity->kept;
    } while (!k || k->coming[1] != PARITY_THERE);
    parity_outs_forget(b.nodes[1].parity);
    while (b.nodes[0].parity->ins) {
        snap_bed_turn(&b.loop, began_ms);
    }
    ok(b.nodes[0].parity->kept == k && k->coming[1] == PARITY_THERE,
       "who goes away behind all that it has to give spoils nothing");
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_half();
    test_changed_mind();
    test_nothing_meanwhile();
    test_taken_away();
    test_own_goes();
    test_one_by_one();
    test_no_memory();
    test_ends();
    test_mute();
    test_late();
    test_lies();
    test_let_go();
    test_other_order();
    test_held();
    test_gone_after();
    return tap_done();
}
