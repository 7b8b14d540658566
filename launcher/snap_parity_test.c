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

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct node *n = ctx;

    if (first->type == SNAP_PARITY_OFFER || first->type == SNAP_PARITY_WANT) {
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
    is_int((int)n_taken, 0, "cut, or beyond its bounds, it is nothing");
    buf_clear(&b);
    parity_sums_encode(&s, &b);
    f.type = SNAP_PARITY_END;
    f.data = (void *)b.data;
    f.len = b.len;
    ok(parity_sums_decode(&f, &sums) && sums.sums[1] == 8, "digests");
    f.len--;
    ok(!parity_sums_decode(&f, &sums), "cut");
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
    ok(x.n_refused >= 2, "all of that is refused");
    ok(save_all(&b, UUID(2), 20) && b.n_whole == 3, "others are none the worse");
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
    test_not_whole();
    test_short();
    test_damaged();
    test_half();
    test_changed_mind();
    test_liars();
    return tap_done();
}
