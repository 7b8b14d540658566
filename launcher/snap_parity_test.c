/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity over agents on one loop: whoever is lost, its snapshot is made again byte by
 * byte, from images of any lengths; keeping it takes less memory than copies; what is
 * short of memory, damaged, incomplete or lost with too many others is refused, with
 * the reason; and what comes from outside is held to its bounds.
 */
#include <config.h>

#include "launcher/snap_bed.h"
#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5, PATIENT_MS = 300000, MIB = 1 << 20 };

static const uint8_t key[CHANNEL_KEY_BYTES] = {4, 5, 6};

struct node {
    struct bed *bed;
    unsigned i;
    char dir[2][96];
    struct snap_said said;
    struct snap_hold *own, *copies;
    struct snap_parity *parity;
    struct link_listener *listener;
    int n_sent, n_whole, n_built, n_ordered;
    struct error sent, built;
    uint32_t built_from;
    bool is_gone;
    bool is_mute; /* it takes links, and says nothing */
    bool is_liar; /* it gives a byte more than it was asked for */
    struct link *mute;
};

struct bed {
    uv_loop_t loop;
    char top[64];
    struct node nodes[N];
    struct parity_group group;
    int n_sent, n_whole, n_built; /* of all */
};

/* --- what is said --- */

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct node *n = arg;

    if (question & SNAP_PARITY_QUESTION) {
        snap_parity_begun(n->parity, question, s, e);
    }
}

static void on_short(void *arg)
{
    struct node *n = arg;

    snap_parity_drop(n->parity);
}

static bool find(void *arg, uint32_t agent, struct strlist *addrs, uint16_t *port)
{
    struct node *n = arg, *to = &n->bed->nodes[agent / 10];

    strlist_add(addrs, "127.0.0.1");
    *port = to->is_gone ? 1 : link_listener_port(to->listener);
    return true;
}

static void on_sent(void *arg, uint32_t rank, const char *uuid, const struct error *e)
{
    struct node *n = arg;

    (void)rank, (void)uuid;
    n->n_sent++;
    n->bed->n_sent++;
    n->sent = *e;
}

static void on_whole(void *arg, const struct snap_head *head,
                     const struct parity_group *g)
{
    struct node *n = arg;

    n->n_whole += head->step > 0 && g->shape.n > 0;
    n->bed->n_whole++;
}

static void on_built(void *arg, const struct snap_head *head, uint32_t from,
                     bool is_ordered, const struct error *e)
{
    struct node *n = arg;

    (void)head;
    n->n_ordered += is_ordered;
    n->n_built++;
    n->bed->n_built++;
    n->built = *e;
    n->built_from = from;
}

static void on_mute_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    (void)l, (void)f, (void)ctx;
}

static void on_mute_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    (void)l, (void)closed, (void)why, (void)ctx;
}

static const struct link_ops mute_ops = {.on_frame = on_mute_frame,
                                         .on_down = on_mute_down};

static void give_more(struct link *l, const struct channel_frame *first)
{
    struct parity_sums none = {0};
    struct parity_want w;
    struct buf b = {0};

    if (!parity_want_decode(first, &w)) {
        bail_out("what it asks for");
    }
    link_send(l, SNAP_PARITY_READY, NULL, 0);
    for (uint64_t i = 0; i <= w.segs[0].len; i++) {
        buf_append(&b, "x", 1);
    }
    link_send_buf(l, SNAP_PARITY_DATA, &b);
    buf_clear(&b);
    parity_sums_encode(&none, &b);
    link_send_buf(l, SNAP_PARITY_END, &b);
    buf_release(&b);
}

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct node *n = ctx;

    if (n->is_mute || n->is_liar) {
        link_close(n->mute);
        n->mute = l;
        link_adopt(l, &mute_ops, n);
        if (n->is_liar) {
            give_more(l, first);
        }
    } else if (first->type == SNAP_PARITY_OFFER || first->type == SNAP_PARITY_WANT) {
        snap_parity_take(n->parity, l, first);
    } else {
        link_close(l);
    }
}

/* --- the bed --- */

static void node_open(struct bed *b, unsigned i, uint64_t budget)
{
    struct node *n = &b->nodes[i];
    struct snap_hold_config own, copies;
    struct snap_parity_config config = {
        .loop = &b->loop, .key = key, .agent = i * 10, .stuck_ms = PATIENT_MS,
        .find = find, .on_sent = on_sent, .on_whole = on_whole,
        .on_built = on_built, .arg = n};
    struct error e;

    n->bed = b;
    n->i = i;
    snprintf(n->dir[0], sizeof(n->dir[0]), "%s/own%u", b->top, i);
    snprintf(n->dir[1], sizeof(n->dir[1]), "%s/copies%u", b->top, i);
    own = snap_bed_config(&b->loop, n->dir[0], &n->said);
    own.is_elsewhere = true; /* the disk is for other tests */
    n->own = snap_bed_hold(&own);
    copies = own;
    copies.dir = n->dir[1];
    copies.name = "copy";
    copies.budget = budget;
    copies.left = NULL;
    copies.on_begun = on_begun;
    copies.on_short = on_short;
    copies.arg = n;
    n->copies = snap_bed_hold(&copies);
    config.own = n->own;
    config.copies = n->copies;
    if (snap_parity_create(&config, &n->parity, &e) < 0 ||
        link_listen(&b->loop, true, &n->listener, &e) < 0) {
        bail_out("%s", e.text);
    }
    link_listener_open(n->listener, key, on_peer, n);
}

/* The first n of them are a group, with m parities; ranks 100, 101, ... */
static void bed_open(struct bed *b, unsigned n, unsigned m, uint64_t budget)
{
    memset(b, 0, sizeof(*b));
    snap_bed_open("parity_bed", &b->loop, b->top);
    b->group.shape = (struct parity){n, m};
    for (unsigned i = 0; i < N; i++) {
        node_open(b, i, budget);
        b->group.agents[i] = i * 10;
        b->group.ranks[i] = 10 + i;
    }
}

static void bed_close(struct bed *b)
{
    for (unsigned i = 0; i < N; i++) {
        struct node *n = &b->nodes[i];

        snap_parity_destroy(n->parity);
        link_close(n->mute);
        link_listener_close(n->listener);
        snap_hold_destroy(n->own);
        snap_hold_destroy(n->copies);
    }
    snap_bed_close(&b->loop, b->top);
}

static uint64_t bytes_of(unsigned i)
{
    return (uint64_t)SNAP_PAGE_BYTES * (1 + i * 177) + (i == 3 ? 2 * MIB : 0);
}

static void save(struct bed *b, unsigned i, const char *uuid, uint64_t step)
{
    struct node *n = &b->nodes[i];
    struct error e;

    snap_bed_begin(&b->loop, n->own, &n->said, 10 + i, uuid, step, b->top,
                   bytes_of(i) + SNAP_PAGE_BYTES);
    for (uint64_t at = 0; at < bytes_of(i) + SNAP_PAGE_BYTES; at++) {
        ((char *)snap_image(n->said.snap))[at] =
            (char)(at * 7 / 5 + i * 31 + step + at / 4096);
    }
    if (snap_hold_done(n->own, 10 + i, uuid, bytes_of(i), 100, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void send_it(struct bed *b, unsigned i, const char *uuid)
{
    struct error e = {0};

    if (snap_parity_send(b->nodes[i].parity, 10 + i, uuid, &b->group, &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* All of the group save, and send. */
static bool save_all(struct bed *b, const char *uuid, uint64_t step)
{
    int n = b->n_sent;

    for (unsigned i = 0; i < b->group.shape.n; i++) {
        if (b->group.ranks[i] != PARITY_NO_RANK) {
            save(b, i, uuid, step);
            send_it(b, i, uuid);
            n++;
        }
    }
    return snap_bed_run_until(&b->loop, &b->n_sent, n);
}

static bool is_same(struct bed *b, unsigned at, unsigned i, const char *uuid)
{
    const struct snap *a = snap_hold_get(b->nodes[i].own, 10 + i, uuid);
    const struct snap *s = snap_hold_get(b->nodes[at].copies, 10 + i, uuid);

    return a && s && a->head.step == s->head.step && s->head.rank == 10 + i &&
           a->head.image_bytes == s->head.image_bytes &&
           memcmp(snap_image(a), snap_image(s), parity_image_bytes(&a->head)) == 0;
}

/* What that node makes of the rank of another one: 0, or a code. -1: nothing came. */
static int build(struct bed *b, unsigned at, unsigned i, const char *uuid,
                 const uint32_t *lost, size_t n_lost)
{
    struct node *n = &b->nodes[at];
    const struct snap_parity_order order = {10 + i, uuid, lost, n_lost, false};
    int n_built = n->n_built;

    snap_hold_settle(n->copies, uuid, false);
    if (snap_parity_build(n->parity, &order, &n->built) < 0) {
        return n->built.code;
    }
    return snap_bed_run_until(&b->loop, &n->n_built, n_built + 1) ? n->built.code : -1;
}

/* --- cases --- */

/* Each by each of the others, of which one more may be lost. */
static void rebuild_all(unsigned n, unsigned m)
{
    unsigned n_wrong = 0, n_made = 0;
    struct bed b;

    bed_open(&b, n, m, UINT64_C(1) << 30);
    ok(save_all(&b, UUID(1), 10), "all of %u are sent", n);
    for (unsigned i = 0; i < n; i++) {
        n_wrong += b.nodes[i].sent.code != 0 || b.nodes[i].n_whole != 1;
    }
    for (unsigned i = 0; i < n; i++) {
        for (unsigned at = 0; at < n; at++) {
            for (unsigned other = 0; at != i && other < n; other++) {
                uint32_t lost[] = {i * 10, other * 10};

                if (other == at || (m == 1 && other != i)) {
                    continue;
                }
                n_wrong += build(&b, at, i, UUID(1), lost, 2) != 0 ||
                           !is_same(&b, at, i, UUID(1));
                n_made++;
            }
        }
    }
    ok(n_wrong == 0 && n_made >= n * (n - 1), "%u of %u, %u parities: %u are wrong",
       n_made, n, m, n_wrong);
    bed_close(&b);
}

static void test_rebuild(void)
{
    rebuild_all(2, 1);
    rebuild_all(3, 1);
    rebuild_all(4, 1);
    rebuild_all(4, 2);
    rebuild_all(5, 2);
    rebuild_all(5, 3);
}

static void test_too_many(void)
{
    const uint32_t lost[] = {0, 10};
    struct bed b;

    bed_open(&b, 4, 1, UINT64_C(1) << 30);
    is_int(build(&b, 2, 0, UUID(1), lost, 1), ENOENT, "nobody has saved");
    save_all(&b, UUID(1), 10);
    is_int(build(&b, 2, 0, UUID(1), lost, 2), ENODATA, "two are lost of four");
    like(b.nodes[2].built.text, "2 of 4 nodes of the group are gone, and parity makes "
         "up for 1", "the reason has numbers");
    ok(!snap_hold_get(b.nodes[2].copies, 10, UUID(1)), "nothing is made");
    is_int((int)b.nodes[2].built_from, 0, "it says whose it was");
    b.nodes[1].is_gone = true; /* nobody has said so */
    is_int(build(&b, 2, 0, UUID(1), lost, 1), ECONNREFUSED, "one more does not answer");
    like(b.nodes[2].built.text, "node 10: ", "which one");
    is_int(build(&b, 2, 2, UUID(1), lost, 1), ENOENT, "its own rank");
    bed_close(&b);
}

/* With two parities it is left out. */
static void test_left_out(void)
{
    const uint32_t lost[] = {0};
    struct snap_parity_order order = {10, UUID(1), lost, 1, true};
    struct bed b;

    bed_open(&b, 4, 2, UINT64_C(1) << 30);
    save_all(&b, UUID(1), 10);
    b.nodes[1].is_gone = true;
    is_int(build(&b, 2, 0, UUID(1), lost, 1), 0, "another one that does not answer");
    ok(is_same(&b, 2, 0, UUID(1)), "is made up for");
    snap_hold_settle(b.nodes[3].own, UUID(1), false);
    is_int(build(&b, 2, 0, UUID(1), lost, 1), ENOENT, "a third is not: %s",
           b.nodes[2].built.text);
    b.nodes[1].is_gone = false;
    snap_hold_settle(b.nodes[2].copies, UUID(1), false);
    is_int(build(&b, 2, 0, UUID(1), lost, 1), 0, "but for one of them");
    b.nodes[1].is_gone = b.nodes[3].is_gone = true;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    order.is_ordered = false;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    ok(snap_bed_run_until(&b.loop, &b.nodes[2].n_built, 4) &&
           b.nodes[2].built.code == 0, "it is there already: nobody is asked");
    is_int(b.nodes[2].n_ordered, 1, "and who has asked last has not ordered it");
    bed_close(&b);
}

/* A node with no such rank, and one with nothing else beside it. */
static void test_no_rank(void)
{
    const uint32_t lost[] = {0};
    struct bed b;

    bed_open(&b, 4, 1, UINT64_C(1) << 30);
    b.group.ranks[1] = PARITY_NO_RANK;
    ok(save_all(&b, UUID(1), 10), "three ranks of four nodes");
    is_int(b.n_whole, 4, "all keep parity");
    is_int(build(&b, 3, 0, UUID(1), lost, 1), 0, "one is lost");
    ok(is_same(&b, 3, 0, UUID(1)), "and there again");
    b.group.index = 1;
    b.group.ranks[2] = b.group.ranks[3] = PARITY_NO_RANK;
    ok(save_all(&b, UUID(2), 10), "one rank alone");
    is_int(build(&b, 3, 0, UUID(2), lost, 1), 0, "is lost");
    ok(is_same(&b, 3, 0, UUID(2)), "and there again");
    bed_close(&b);
}

/* Two saves of a set stay, in memory that is used again. */
static void test_saves(void)
{
    const uint32_t lost[] = {0};
    struct bed b;
    uint64_t bytes;

    bed_open(&b, 4, 1, UINT64_C(1) << 30);
    save_all(&b, UUID(1), 10);
    bytes = b.nodes[0].parity->bytes;
    ok(bytes >= parity_piece_bytes(&b.group.shape, bytes_of(3)) &&
           bytes < bytes_of(3) / 2, "%u bytes of parity, of an image of %u",
       (unsigned)bytes, (unsigned)bytes_of(3));
    save_all(&b, UUID(2), 20);
    is_int((int)b.nodes[0].parity->bytes, (int)(2 * bytes), "as much for the next");
    snap_parity_settle(b.nodes[1].parity, UUID(1), true);
    save_all(&b, UUID(3), 30);
    is_int((int)b.nodes[1].parity->bytes, (int)(2 * bytes), "and no more for a third");
    is_int(build(&b, 1, 0, UUID(3), lost, 1), 0, "which is right");
    ok(is_same(&b, 1, 0, UUID(3)), "to the last byte");
    is_int(build(&b, 1, 0, UUID(2), lost, 1), 0, "so is the one before");
    ok(is_same(&b, 1, 0, UUID(2)), "to the last byte, too");
    is_int(build(&b, 1, 0, UUID(1), lost, 1), ENOENT, "the first one is gone");
    snap_parity_settle(b.nodes[1].parity, UUID(3), false);
    is_int((int)b.nodes[1].parity->bytes, (int)bytes, "what came to nothing, too");
    b.n_whole = 0;
    snap_parity_tell(b.nodes[1].parity);
    is_int(b.n_whole, 1, "what is not settled is told again");
    snap_parity_settle(b.nodes[1].parity, UUID(2), true);
    snap_parity_tell(b.nodes[1].parity);
    is_int(b.n_whole, 1, "and no more when it is");
    bed_close(&b);
}

/* What is on the disk makes way before what only memory has, newer as it may be. */
static void test_settled_first(void)
{
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    save_all(&b, UUID(1), 10);
    save_all(&b, UUID(2), 20);
    snap_parity_settle(b.nodes[1].parity, UUID(2), true);
    save_all(&b, UUID(3), 30);
    ok(snap_parity_find(b.nodes[1].parity, 10, UUID(1)) &&
           !snap_parity_find(b.nodes[1].parity, 10, UUID(2)) &&
           snap_parity_find(b.nodes[1].parity, 10, UUID(3)), "the one on the disk has gone");
    ok(snap_parity_find(b.nodes[2].parity, 10, UUID(2)) &&
           !snap_parity_find(b.nodes[2].parity, 10, UUID(1)), "else the older one goes");
    bed_close(&b);
}

static bool all_know(const struct bed *b, const char *uuid)
{
    for (unsigned i = 0; i < b->group.shape.n; i++) {
        unsigned any = 10;

        while (any < 14 && !parity_kept_find(b->nodes[i].parity, uuid, any)) {
            any++;
        }
        if (any == 14) {
            return false;
        }
    }
    return true;
}

static void save_two(struct bed *b, unsigned i, const char *uuid, uint64_t step)
{
    for (unsigned end = i + 2; i < end; i++) {
        save(b, i, uuid, step);
        send_it(b, i, uuid);
    }
    while (!all_know(b, uuid)) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

/* What not all have sent never makes what is whole go. */
static void test_not_whole(void)
{
    const uint32_t lost[] = {0};
    struct bed b;

    bed_open(&b, 4, 1, UINT64_C(1) << 30);
    save_all(&b, UUID(1), 10);
    save_two(&b, 0, UUID(2), 20);
    save_two(&b, 2, UUID(3), 30);
    is_int(build(&b, 1, 0, UUID(1), lost, 1), 0, "two saves have come that are not whole: "
           "the one before is there");
    ok(is_same(&b, 1, 0, UUID(1)), "to the last byte");
    bed_close(&b);
}

static void test_short(void)
{
    struct bed b;

    bed_open(&b, 4, 1, MIB / 4);
    save_all(&b, UUID(1), 10);
    is_int(b.nodes[3].sent.code, ENOMEM, "no memory for parity");
    like(b.nodes[3].sent.text, "parity of 1 MiB beside 0 MiB of others does not fit "
         "into 0 MiB, all that this test has", "with numbers");
    is_int(b.n_whole, 0, "nobody has any");
    is_int((int)b.nodes[0].parity->bytes, 0, "nor keeps memory for it");
    bed_close(&b);

    bed_open(&b, 4, 1, UINT64_C(1) << 30);
    snap_hold_lend(b.nodes[0].own, b.nodes[0].copies);
    save_all(&b, UUID(1), 10);
    ok(b.nodes[0].parity->bytes > 0, "where there is memory");
    is_int(snap_hold_begin(b.nodes[0].own, &(struct snap_rank){.rank = 9, .n_ranks = 16},
                           11, UUID(7), "/", (UINT64_C(1) << 30) - MIB / 2, 1, NULL), 0,
           "and all of it is needed");
    is_int((int)b.nodes[0].parity->bytes, 0, "parity gives way");
    snap_hold_serve(b.nodes[0].own, 0, 0);
    snap_hold_lend(b.nodes[0].own, NULL);
    bed_close(&b);
}

/* What differs from what was saved is never handed out. */
static void test_damaged(void)
{
    const uint32_t lost[] = {0};
    struct snap_head *h;
    char *changed;
    struct bed b;

    bed_open(&b, 4, 1, UINT64_C(1) << 30);
    save_all(&b, UUID(1), 10);
    b.nodes[2].parity->kept->memory[0].at[77] ^= 0x20;
    is_int(build(&b, 1, 0, UUID(1), lost, 1), ERR_FORMAT, "a bit of another's parity");
    ok(!snap_hold_get(b.nodes[1].copies, 10, UUID(1)), "is no snapshot");
    is_int(build(&b, 2, 0, UUID(1), lost, 1), ERR_FORMAT, "of its own");
    b.nodes[2].parity->kept->memory[0].at[77] ^= 0x20;
    is_int(build(&b, 2, 0, UUID(1), lost, 1), 0, "put back, it is right");
    changed = (char *)snap_image(snap_hold_get(b.nodes[3].own, 13, UUID(1))) +
              parity_piece_bytes(&b.group.shape, bytes_of(3) + SNAP_PAGE_BYTES) + 99;
    *changed ^= 1;
    is_int(build(&b, 1, 0, UUID(1), lost, 1), ERR_FORMAT, "a bit that a worker changed");
    *changed ^= 1;
    h = &b.nodes[1].parity->kept->heads[3];
    h->image_bytes -= 3 * SNAP_PAGE_BYTES;
    is_int(build(&b, 1, 0, UUID(1), lost, 1), ERR_FORMAT, "and another length");
    bed_close(&b);
}

/* Who goes away in the middle spoils what it was added to. */
static void test_half(void)
{
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        save(&b, i, UUID(1), 10);
    }
    send_it(&b, 0, UUID(1));
    send_it(&b, 1, UUID(1));
    snap_bed_run_for(&b.loop, 200);
    is_int(b.n_sent, 0, "all wait for the third");
    is_int(b.n_whole, 1, "but for what is only of those two");
    send_it(&b, 2, UUID(1));
    while (!b.nodes[0].parity->ins || b.nodes[0].parity->ins->from != 2) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    parity_outs_forget(b.nodes[2].parity);
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 2), "which goes away: the others hear");
    ok(b.nodes[0].sent.code != 0 || b.nodes[1].sent.code != 0, "why: %s; %s",
       b.nodes[0].sent.text, b.nodes[1].sent.text);
    ok(b.n_whole <= 2, "nobody believes that it is whole");
    bed_close(&b);
}

static void test_changed_mind(void)
{
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        save(&b, i, UUID(1), 10);
    }
    for (unsigned i = 0; i < 3; i++) {
        send_it(&b, i, UUID(1));
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
    bed_close(&b);
}

/* --- who comes no further --- */

/* From now on; in a group of three. */
static void be_impatient(struct bed *b)
{
    for (unsigned i = 0; i < N; i++) {
        b->nodes[i].parity->config.stuck_ms = 1000;
    }
}

static void test_mute(void)
{
    const uint32_t lost[] = {0}, with_it[] = {0, 20};
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    save_all(&b, UUID(1), 10);
    be_impatient(&b);
    b.nodes[1].is_mute = true;
    save(&b, 0, UUID(2), 20);
    send_it(&b, 0, UUID(2));
    ok(snap_bed_run_until(&b.loop, &b.nodes[0].n_sent, 2), "who never answers an offer");
    is_int(b.nodes[0].sent.code, ETIMEDOUT, "is given up");
    like(b.nodes[0].sent.text, "node 10: no progress for 1 s", "and named");
    is_int(build(&b, 2, 0, UUID(1), lost, 1), ETIMEDOUT, "so is who does not answer what "
           "is asked for");
    like(b.nodes[2].built.text, "node 10: no progress", "and named, too");
    b.nodes[1].is_mute = false;
    b.nodes[1].is_liar = true;
    is_int(build(&b, 2, 0, UUID(1), lost, 1), EPROTO, "who gives more than that");
    like(b.nodes[2].built.text, "node 10: what came was not asked for", "is caught at it");
    b.nodes[1].is_liar = false;
    is_int(build(&b, 2, 0, UUID(1), lost, 1), 0, "when it answers all is there");
    ok(is_same(&b, 2, 0, UUID(1)), "to the last byte");
    is_int(build(&b, 2, 0, UUID(1), with_it, 2), 0, "also for who hears that it is lost "
           "itself");
    bed_close(&b);
}

/* What has failed holds no memory of the rank: a third save has its place. */
static void test_let_go(void)
{
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    b.nodes[1].is_gone = true;
    for (int i = 1; i <= 2; i++) {
        save(&b, 0, i == 1 ? UUID(1) : UUID(2), (uint64_t)i);
        send_it(&b, 0, i == 1 ? UUID(1) : UUID(2));
        ok(snap_bed_run_until(&b.loop, &b.n_sent, i) && b.nodes[0].sent.code,
           "one that is not sent");
        snap_hold_settle(b.nodes[0].own, i == 1 ? UUID(1) : UUID(2), true);
    }
    save(&b, 0, UUID(3), 3);
    ok(snap_hold_get(b.nodes[0].own, 10, UUID(3)) != NULL, "a third one is saved");
    bed_close(&b);
}

/* Memory that parity had is for copies again; and what workers that have gone had saved
 * makes way when a save of others counts. */
static void test_memory(void)
{
    const struct snap_rank who = {.rank = 9, .n_ranks = 16};
    struct parity_kept *k;
    struct node *n;
    struct bed b;
    uint64_t bytes, most;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    n = &b.nodes[1];
    save_all(&b, UUID(1), 10);
    bytes = n->parity->bytes;
    save_all(&b, UUID(2), 20);
    is_int((int)n->parity->bytes, (int)(2 * bytes), "parity of two saves");
    most = (UINT64_C(1) << 30) - bytes / 2;
    k = parity_kept_find(n->parity, UUID(2), 10);
    k->generation++; /* of later workers */
    snap_parity_settle(n->parity, UUID(2), true);
    is_int((int)n->parity->bytes, (int)bytes, "of which that of earlier workers goes");
    ok(!parity_kept_find(n->parity, UUID(1), 10) &&
           parity_kept_find(n->parity, UUID(2), 10), "and no other");
    is_int(snap_hold_begin(n->copies, &who, 11, UUID(7), "/", most, 1, NULL),
           -ENOMEM, "a copy that takes all that there is");
    snap_parity_drop(n->parity);
    is_int(snap_hold_begin(n->copies, &who, 11, UUID(7), "/", most, 1, NULL),
           0, "has it when parity goes");
    bed_close(&b);
}

/* --- bytes from outside --- */

static void offer(struct buf *b, const struct parity_group *g, uint32_t rank,
                  uint32_t from)
{
    struct snap_head h = {.rank = rank, .n_ranks = 16, .step = 5, .image_bytes = 100,
                          .uuid = UUID(1), .root = "/x"};

    buf_clear(b);
    parity_offer_encode(g, &h, from, b);
}

static bool is_taken(const struct buf *b)
{
    struct channel_frame f = {.type = SNAP_PARITY_OFFER, .data = (void *)b->data,
                              .len = b->len};
    struct parity_group g;
    struct snap_head h;
    uint32_t from;

    return parity_offer_decode(&f, &g, &h, &from);
}

static void test_offers(void)
{
    const struct parity_group good = {{3, 1}, 0, {10, 20, 30}, {1, PARITY_NO_RANK, 3}};
    _buf_ struct buf b = {0};
    struct parity_group g;
    unsigned n_taken = 0;

    offer(&b, &good, 3, 30);
    ok(is_taken(&b), "an offer");
    for (size_t len = 0; len < b.len; len++) {
        struct buf cut = {.data = b.data, .len = len};

        n_taken += is_taken(&cut);
    }
    is_int((int)n_taken, 0, "cut anywhere it is none");
    offer(&b, &good, 1, 30);
    ok(!is_taken(&b), "the rank of another one");
    offer(&b, &good, 3, 40);
    ok(!is_taken(&b), "somebody who is no member");
    g = good;
    g.agents[1] = 30;
    offer(&b, &g, 3, 30);
    ok(!is_taken(&b), "one agent twice");
    g = good;
    g.ranks[0] = 3;
    offer(&b, &g, 3, 30);
    ok(!is_taken(&b), "one rank twice");
    g.ranks[0] = 16;
    offer(&b, &g, 3, 30);
    ok(!is_taken(&b), "a rank beyond all");
    g = good;
    g.index = 5000;
    offer(&b, &g, 3, 30);
    ok(!is_taken(&b), "too many ranks of a node");
    g = good;
    g.shape.m = 3;
    offer(&b, &g, 3, 30);
    ok(!is_taken(&b), "nothing but parity");
    g.shape = (struct parity){PARITY_MAX_MEMBERS + 1, 1};
    g.shape.n = 1;
    offer(&b, &g, 3, 30);
    ok(!is_taken(&b), "a group of one");
}

static void test_wants(void)
{
    struct parity_want w = {UUID(2), 3, 4, 2, {{0, 5, 6}, {8, 0, 1}}}, back;
    struct parity_sums s = {2, {5, 63}, {7, 8}}, sums;
    _buf_ struct buf b = {0};
    struct channel_frame f = {.type = SNAP_PARITY_WANT};
    static const struct parity_seg bad[] = {
        {9, 0, 1}, {0, 0, 0}, {0, UINT64_MAX, 1}, {0, 1, UINT64_MAX}};
    unsigned n_taken = 0;

    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    ok(parity_want_decode(&f, &back) && back.n == 2 && back.segs[1].kept == 8 &&
           back.lost == 4, "what is asked for");
    for (f.len = 0; f.len < b.len; f.len++) {
        n_taken += parity_want_decode(&f, &back);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        w.segs[1] = bad[i];
        buf_clear(&b);
        parity_want_encode(&w, &b);
        f.data = (void *)b.data;
        f.len = b.len;
        n_taken += parity_want_decode(&f, &back);
    }
    w.segs[1] = w.segs[0];
    w.lost = 1 << 20;
    buf_clear(&b);
    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    n_taken += parity_want_decode(&f, &back);
    w.lost = 4;
    w.n = PARITY_MAX_SEGS;
    for (unsigned i = 0; i < w.n; i++) {
        w.segs[i] = w.segs[0];
    }
    buf_clear(&b);
    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    ok(parity_want_decode(&f, &back) && back.n == PARITY_MAX_SEGS, "as many as there can be");
    buf_clear(&b);
    wire_put_str(&b, w.uuid);
    wire_put_u32(&b, 3);
    wire_put_u32(&b, 4);
    wire_put_u32(&b, PARITY_MAX_SEGS + 1);
    for (unsigned i = 0; i <= PARITY_MAX_SEGS; i++) {
        wire_put_u8(&b, 0);
        wire_put_u64(&b, 0);
        wire_put_u64(&b, 1);
    }
    f.data = (void *)b.data;
    f.len = b.len;
    n_taken += parity_want_decode(&f, &back);
    is_int((int)n_taken, 0, "cut, or beyond its bounds, it is nothing");
    buf_clear(&b);
    parity_sums_encode(&s, &b);
    f.type = SNAP_PARITY_END;
    f.data = (void *)b.data;
    f.len = b.len;
    ok(parity_sums_decode(&f, &sums) && sums.sums[1] == 8, "digests");
    f.len--;
    ok(!parity_sums_decode(&f, &sums), "cut");
    s = (struct parity_sums){PARITY_MAX_SEGS, {0}, {0}};
    buf_clear(&b);
    parity_sums_encode(&s, &b);
    ok(parity_sums_decode(&(struct channel_frame){.type = SNAP_PARITY_END,
                                                  .data = (void *)b.data, .len = b.len},
                          &sums), "as many as there can be");
    buf_append(&b, "\0\0\0\0\0\0\0\0\0\0\0", 12);
    b.data[0] = (char)(b.data[0] + (b.data[0] ? 1 : 0));
    b.data[3] = (char)(b.data[3] + (b.data[3] ? 1 : 0));
    ok(!parity_sums_decode(&(struct channel_frame){.type = SNAP_PARITY_END,
                                                   .data = (void *)b.data, .len = b.len},
                           &sums), "and one more");
    s = (struct parity_sums){2, {5, 63}, {7, 8}};
    s.stripes[0] = 64;
    buf_clear(&b);
    parity_sums_encode(&s, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    ok(!parity_sums_decode(&f, &sums), "of no stripe");
}

/* Whoever knows the key, and says what it likes. */
struct liar {
    struct link *link;
    uint16_t types[4];
    struct buf *frames[4];
    int n_down, n_refused;
};

static void liar_up(struct link *l, void *ctx)
{
    struct liar *x = ctx;

    for (int i = 0; i < 4 && x->frames[i]; i++) {
        link_send(l, x->types[i], x->frames[i]->data, x->frames[i]->len);
    }
}

static void liar_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct liar *x = ctx;

    (void)l;
    x->n_refused += f->type == SNAP_COPY_REFUSED;
}

static void liar_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct liar *x = ctx;

    (void)l, (void)closed, (void)why;
    x->n_down++;
}

static void lie(struct bed *b, struct liar *x, const char *what)
{
    static const struct link_ops ops = {.on_up = liar_up, .on_frame = liar_frame,
                                        .on_down = liar_down};
    char *const addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target t = {.addrs = addrs, .timeout_ms = 20000,
                            .port = link_listener_port(b->nodes[0].listener)};

    x->n_down = 0;
    if (link_connect(&b->loop, &t, key, &ops, x, &x->link, NULL) < 0) {
        bail_out("no link");
    }
    ok(snap_bed_run_until(&b->loop, &x->n_down, 1), "%s", what);
    link_close(x->link);
}

static void test_liars(void)
{
    struct bed b;
    _buf_ struct buf good = {0}, big = {0}, want = {0}, none = {0};
    struct parity_want w = {UUID(1), 10, 11, 1, {{0, 0, UINT64_C(1) << 40}}};
    struct parity_want far = {UUID(1), 10, 11, 1, {{0, UINT64_C(1) << 40, 1}}};
    struct liar x = {.types = {SNAP_PARITY_OFFER, SNAP_PARITY_DATA, SNAP_PARITY_DATA,
                               SNAP_PARITY_END}};

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    offer(&good, &b.group, 11, 10);
    for (int i = 0; i < 3 * SNAP_PAGE_BYTES; i++) {
        buf_append(&big, "x", 1);
    }
    x.frames[0] = &none;
    lie(&b, &x, "an offer of nothing");
    x.frames[0] = &good;
    x.frames[1] = &big;
    lie(&b, &x, "more than was offered");
    ok(!b.nodes[0].parity->kept, "leaves nothing");
    x.types[1] = SNAP_PARITY_END;
    lie(&b, &x, "an end before its time");
    ok(!b.nodes[0].parity->kept && b.nodes[0].parity->bytes == 0, "leaves nothing");
    x.types[1] = SNAP_PARITY_DONE;
    lie(&b, &x, "an answer to nothing");
    x.types[0] = SNAP_PARITY_WANT;
    x.frames[1] = NULL;
    x.frames[0] = &none;
    lie(&b, &x, "a question for nothing");
    parity_want_encode(&w, &want);
    x.frames[0] = &want;
    save(&b, 0, UUID(1), 10);
    lie(&b, &x, "for more than there is");
    buf_clear(&want);
    parity_want_encode(&far, &want);
    lie(&b, &x, "for what lies behind it");
    ok(x.n_refused >= 3, "all of that is refused");
    ok(save_all(&b, UUID(2), 20) && b.n_whole == 3, "others are none the worse");
    str_copy(far.uuid, sizeof(far.uuid), UUID(2));
    far.segs[0].kept = 1;
    buf_clear(&want);
    parity_want_encode(&far, &want);
    lie(&b, &x, "for what lies behind its parity");
    ok(x.n_refused >= 4, "is refused, too");
    bed_close(&b);
}

/* As many bytes as were offered, or so many more; and a digest that is not theirs. */
static void test_digests(void)
{
    struct parity_sums s = {1, {0}, {12345}};
    _buf_ struct buf good = {0}, data = {0}, end = {0};
    struct liar x = {.types = {SNAP_PARITY_OFFER, SNAP_PARITY_DATA, SNAP_PARITY_END}};
    struct snap_head h = {.image_bytes = 100};
    uint64_t at, len;
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    offer(&good, &b.group, 11, 10);
    parity_piece(&b.group.shape, 0, 1, parity_image_bytes(&h), &at, &len);
    for (uint64_t i = 0; i < len; i++) {
        buf_append(&data, "x", 1);
    }
    parity_sums_encode(&s, &end);
    x.frames[0] = &good;
    x.frames[1] = &data;
    x.frames[2] = &end;
    lie(&b, &x, "bytes that have another digest");
    is_int(x.n_refused, 1, "are refused");
    ok(!b.nodes[0].parity->kept, "and leave nothing");
    s.sums[0] = copy_sum(0, data.data, data.len);
    buf_clear(&end);
    parity_sums_encode(&s, &end);
    buf_append(&data, "x", 1);
    lie(&b, &x, "a byte more");
    is_int(x.n_refused, 2, "is refused");
    x.frames[1] = NULL;
    be_impatient(&b);
    lie(&b, &x, "an offer, and nothing behind it");
    is_int(x.n_refused, 3, "is not waited for");
    ok(!b.nodes[0].parity->kept, "nor kept");
    bed_close(&b);
}

/* What one has sent stays whatever others say of that save. */
static void test_strangers(void)
{
    const struct parity_want half = {UUID(1), PARITY_NO_RANK, 11, 1, {{1, 0, 8}}};
    struct parity_group other;
    _buf_ struct buf first = {0}, want = {0};
    struct liar x = {.types = {SNAP_PARITY_OFFER}, .frames = {&first}};
    struct parity_kept *k;
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        save(&b, i, UUID(1), 10);
    }
    send_it(&b, 1, UUID(1));
    do {
        uv_run(&b.loop, UV_RUN_ONCE);
        k = b.nodes[0].parity->kept;
    } while (!k || k->coming[1] != PARITY_THERE);
    offer(&first, &b.group, 11, 10);
    lie(&b, &x, "one that has sent it offers it again");
    other = b.group;
    other.shape.m = 2;
    offer(&first, &other, 12, 20);
    lie(&b, &x, "another one sees another group");
    is_int(x.n_refused, 2, "both are refused");
    parity_want_encode(&half, &want);
    x.types[0] = SNAP_PARITY_WANT;
    x.frames[0] = &want;
    lie(&b, &x, "who asks for parity that is not whole");
    is_int(x.n_refused, 3, "gets none");
    ok(b.nodes[0].parity->kept == k && k->coming[1] == PARITY_THERE &&
           k->coming[2] == PARITY_NONE, "and what is here stays");
    send_it(&b, 0, UUID(1));
    send_it(&b, 2, UUID(1));
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 3) && b.n_whole == 3, "it becomes whole");
    bed_close(&b);
}

/* Who has given all may go: it is in the sum. */
static void test_gone_after(void)
{
    struct parity_kept *k;
    struct bed b;

    bed_open(&b, 3, 1, UINT64_C(1) << 30);
    save(&b, 1, UUID(1), 10);
    send_it(&b, 1, UUID(1));
    do {
        uv_run(&b.loop, UV_RUN_ONCE);
        k = b.nodes[0].parity->kept;
    } while (!k || k->coming[1] != PARITY_THERE);
    parity_outs_forget(b.nodes[1].parity);
    while (b.nodes[0].parity->ins) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(b.nodes[0].parity->kept == k && k->coming[1] == PARITY_THERE,
       "who goes away behind all that it has to give spoils nothing");
    bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_offers();
    test_wants();
    test_rebuild();
    test_too_many();
    test_left_out();
    test_no_rank();
    test_saves();
    test_settled_first();
    test_not_whole();
    test_short();
    test_damaged();
    test_half();
    test_changed_mind();
    test_mute();
    test_let_go();
    test_memory();
    test_liars();
    test_digests();
    test_strangers();
    test_gone_after();
    return tap_done();
}
