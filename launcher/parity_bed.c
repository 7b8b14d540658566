/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/parity_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

enum { PATIENT_MS = 300000, MIB = 1 << 20 };

const uint8_t parity_bed_key[CHANNEL_KEY_BYTES] = {4, 5, 6};

/* --- what is said --- */

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct parity_node *n = arg;

    if (question & SNAP_PARITY_QUESTION) {
        snap_parity_begun(n->parity, question, s, e);
    }
}

static void on_short(void *arg)
{
    struct parity_node *n = arg;

    snap_parity_drop(n->parity);
}

static bool find(void *arg, uint32_t agent, struct strlist *addrs, uint16_t *port)
{
    struct parity_node *n = arg, *to = &n->bed->nodes[agent / 10];

    if (to->is_unknown) {
        return false;
    }
    strlist_add(addrs, "127.0.0.1");
    *port = to->is_gone ? 1 : link_listener_port(to->listener);
    return true;
}

static void on_sent(void *arg, uint32_t rank, const char *uuid, const struct error *e)
{
    struct parity_node *n = arg;

    (void)rank, (void)uuid;
    n->n_sent++;
    n->bed->n_sent++;
    n->sent = *e;
}

static void on_whole(void *arg, const struct snap_head *head,
                     const struct parity_group *g)
{
    struct parity_node *n = arg;

    n->n_whole += head->step > 0 && g->shape.n > 0;
    n->bed->n_whole++;
}

static void on_built(void *arg, const struct snap_head *head, uint32_t from,
                     bool is_ordered, const struct error *e)
{
    struct parity_node *n = arg;

    (void)head;
    n->n_ordered += is_ordered;
    n->n_built++;
    n->bed->n_built++;
    n->built = *e;
    n->built_from = from;
}

static void on_liar_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    (void)l, (void)f, (void)ctx;
}

static void on_liar_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    (void)l, (void)closed, (void)why, (void)ctx;
}

static const struct link_ops liar_ops = {.on_frame = on_liar_frame,
                                         .on_down = on_liar_down};

static void give(struct link *l, uint64_t n_bytes)
{
    _buf_ struct buf b = {0};

    for (uint64_t i = 0; i < n_bytes; i++) {
        buf_append(&b, "x", 1);
    }
    link_send_buf(l, SNAP_PARITY_DATA, &b);
}

/* To who asks for something. */
static void give_falsely(struct link *l, const struct channel_frame *first,
                         enum parity_lie lie)
{
    const struct parity_sums none = {0};
    struct parity_want w;
    _buf_ struct buf b = {0};

    if (!parity_want_decode(first, &w)) {
        bail_out("what it asks for");
    }
    if (lie == PARITY_SOME) {
        give(l, w.segs[0].len);
        return;
    }
    link_send(l, SNAP_PARITY_READY, NULL, 0);
    if (lie == PARITY_MORE) {
        give(l, w.segs[0].len + 1);
    }
    if (lie == PARITY_EMPTY) {
        give(l, 0);
    }
    for (unsigned i = 0; lie == PARITY_BEHIND && i < w.n; i++) {
        give(l, w.segs[i].len);
    }
    if (lie == PARITY_BEHIND) {
        give(l, 1);
    }
    parity_sums_encode(&none, &b);
    link_send_buf(l, SNAP_PARITY_END, &b);
}

static void lie_to(struct parity_node *n, struct link *l,
                   const struct channel_frame *first)
{
    link_close(n->lied_to);
    n->lied_to = l;
    link_adopt(l, &liar_ops, n);
    if (n->lie == PARITY_DONE) {
        link_send(l, SNAP_PARITY_DONE, NULL, 0);
    } else if (n->lie != PARITY_MUTE) {
        give_falsely(l, first, n->lie);
    }
}

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct parity_node *n = ctx;

    if (n->lie) {
        lie_to(n, l, first);
    } else if (first->type == SNAP_PARITY_OFFER || first->type == SNAP_PARITY_WANT) {
        snap_parity_take(n->parity, l, first);
    } else {
        link_close(l);
    }
}

/* --- the bed --- */

static void node_open(struct parity_bed *b, unsigned i, uint64_t budget)
{
    struct parity_node *n = &b->nodes[i];
    struct snap_hold_config own, copies;
    struct snap_parity_config config = {
        .loop = &b->loop, .key = parity_bed_key, .agent = i * 10, .stuck_ms = PATIENT_MS,
        .find = find, .on_sent = on_sent, .on_whole = on_whole,
        .on_built = on_built, .arg = n};
    struct error e;

    n->bed = b;
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
    link_listener_open(n->listener, parity_bed_key, on_peer, n);
}

void parity_bed_open(struct parity_bed *b, unsigned n, unsigned m, uint64_t budget)
{
    memset(b, 0, sizeof(*b));
    snap_bed_open("parity_bed", &b->loop, b->top);
    b->group.shape = (struct parity){n, m};
    b->n_nodes = n > PARITY_BED_NODES ? n : PARITY_BED_NODES;
    for (unsigned i = 0; i < b->n_nodes; i++) {
        node_open(b, i, budget);
        b->group.agents[i] = i * 10;
        b->group.ranks[i] = 10 + i;
    }
}

void parity_bed_close(struct parity_bed *b)
{
    for (unsigned i = 0; i < b->n_nodes; i++) {
        struct parity_node *n = &b->nodes[i];

        snap_parity_destroy(n->parity);
        link_close(n->lied_to);
        link_listener_close(n->listener);
        snap_hold_destroy(n->own);
        snap_hold_destroy(n->copies);
    }
    snap_bed_close(&b->loop, b->top);
}

uint64_t parity_bed_bytes(unsigned i)
{
    return (uint64_t)SNAP_PAGE_BYTES * (1 + i * 177) + (i == 3 ? 2 * MIB : 0);
}

void parity_bed_save(struct parity_bed *b, unsigned i, const char *uuid, uint64_t step)
{
    struct parity_node *n = &b->nodes[i];
    struct error e;

    snap_bed_begin(&b->loop, n->own, &n->said, 10 + i, uuid, step, b->top,
                   parity_bed_bytes(i) + SNAP_PAGE_BYTES);
    for (uint64_t at = 0; at < parity_bed_bytes(i) + SNAP_PAGE_BYTES; at++) {
        ((char *)snap_image(n->said.snap))[at] =
            (char)(at * 7 / 5 + i * 31 + step + at / 4096);
    }
    if (snap_hold_done(n->own, 10 + i, uuid, parity_bed_bytes(i), 100, &e) < 0) {
        bail_out("%s", e.text);
    }
}

void parity_bed_send(struct parity_bed *b, unsigned i, const char *uuid)
{
    struct error e = {0};

    if (snap_parity_send(b->nodes[i].parity, 10 + i, uuid, &b->group, &e) < 0) {
        bail_out("%s", e.text);
    }
}

bool parity_bed_save_all(struct parity_bed *b, const char *uuid, uint64_t step)
{
    int n = b->n_sent;

    for (unsigned i = 0; i < b->group.shape.n; i++) {
        if (b->group.ranks[i] != PARITY_NO_RANK) {
            parity_bed_save(b, i, uuid, step);
            parity_bed_send(b, i, uuid);
            n++;
        }
    }
    return snap_bed_run_until(&b->loop, &b->n_sent, n);
}

static bool is_same_head(const struct snap_head *a, const struct snap_head *b)
{
    return a->rank == b->rank && a->n_ranks == b->n_ranks && a->step == b->step &&
           a->generation == b->generation && a->token == b->token &&
           a->image_bytes == b->image_bytes && a->part_bytes == b->part_bytes &&
           strcmp(a->uuid, b->uuid) == 0 && strcmp(a->root, b->root) == 0;
}

bool parity_bed_is_same(struct parity_bed *b, unsigned at, unsigned i, const char *uuid)
{
    const struct snap *a = snap_hold_get(b->nodes[i].own, 10 + i, uuid);
    const struct snap *s = snap_hold_get(b->nodes[at].copies, 10 + i, uuid);

    return a && s && s->head.rank == 10 + i && is_same_head(&a->head, &s->head) &&
           memcmp(snap_image(a), snap_image(s), parity_image_bytes(&a->head)) == 0;
}

int parity_bed_build(struct parity_bed *b, unsigned at, unsigned i, const char *uuid,
                     const uint32_t *lost, size_t n_lost)
{
    struct parity_node *n = &b->nodes[at];
    const struct snap_parity_order order = {10 + i, uuid, lost, n_lost, false};
    int n_built = n->n_built;

    snap_hold_settle(n->copies, uuid, false);
    if (snap_parity_build(n->parity, &order, &n->built) < 0) {
        return n->built.code;
    }
    return snap_bed_run_until(&b->loop, &n->n_built, n_built + 1) ? n->built.code : -1;
}

static void give_up_after(struct parity_bed *b, unsigned ms)
{
    for (unsigned i = 0; i < b->n_nodes; i++) {
        b->nodes[i].parity->config.stuck_ms = ms;
    }
}

void parity_bed_be_impatient(struct parity_bed *b)
{
    give_up_after(b, 1000);
}

void parity_bed_be_patient(struct parity_bed *b)
{
    give_up_after(b, PATIENT_MS);
}

void parity_bed_offer(struct buf *b, const struct parity_group *g, uint32_t rank,
                      uint32_t from)
{
    struct snap_head h = {.rank = rank, .n_ranks = 16, .step = 5, .image_bytes = 100,
                          .uuid = UUID(1), .root = "/x"};

    buf_clear(b);
    parity_offer_encode(g, &h, from, b);
}
