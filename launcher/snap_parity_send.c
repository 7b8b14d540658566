/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender's end: pieces of a snapshot to all others of the group at once, one
 * snapshot after the other.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- the end of one --- */

static void forget_out(struct parity_out *o)
{
    struct snap_parity *c = o->parity;
    struct parity_out **at = &c->outs;

    while (*at != o) {
        at = &(*at)->next;
    }
    *at = o->next;
    for (struct parity_way *w = c->ways, *next; w; w = next) {
        next = w->next;
        if (w->out == o) {
            parity_way_free(w);
        }
    }
    if (o->is_pinned) {
        snap_hold_unpin(c->config.own, o->rank, o->uuid);
    }
    free(o);
}

void parity_outs_forget(struct snap_parity *c)
{
    while (c->outs) {
        forget_out(c->outs);
    }
    while (c->ways) {
        parity_way_free(c->ways);
    }
}

void parity_out_end(struct parity_out *o, const struct error *e)
{
    struct snap_parity *c = o->parity;
    char uuid[COMMIT_UUID_BYTES];
    struct error why = {0};
    uint32_t rank = o->rank;

    if (e) {
        why = *e; /* it may be a link's, which goes */
    }
    str_copy(uuid, sizeof(uuid), o->uuid);
    forget_out(o);
    parity_go_on(c);
    c->config.on_sent(c->config.arg, rank, uuid, &why);
}

/* --- to the others of the group --- */

/* The pieces that this one keeps parity of. */
static void choose_pieces(struct parity_way *w, uint64_t bytes)
{
    const struct parity *shape = &w->out->group.shape;

    for (unsigned k = 0; k < shape->m; k++) {
        unsigned stripe = parity_stripe(shape, w->to, k);
        struct parity_seg *s = &w->what.segs[w->what.n];

        if (parity_kept(shape, stripe, w->out->me) < 0) {
            parity_piece(shape, stripe, w->out->me, bytes, &s->at, &s->len);
            w->stripes[w->what.n++] = stripe;
        }
    }
}

static int add_way(struct parity_out *o, unsigned to, const struct snap *s,
                   struct error *e)
{
    struct parity_way *w = calloc(1, sizeof(*w));

    if (!w) {
        return error_set(e, ENOMEM, "send pieces of a snapshot");
    }
    w->parity = o->parity;
    w->out = o;
    w->to = to;
    w->what.rank = o->rank;
    w->moved_ms = uv_now(o->parity->config.loop);
    str_copy(w->what.uuid, sizeof(w->what.uuid), o->uuid);
    choose_pieces(w, parity_image_bytes(&s->head));
    w->next = o->parity->ways;
    o->parity->ways = w;
    o->n_sending++;
    o->n_left++;
    return parity_way_connect(w, e);
}

static void start_out(struct parity_out *o)
{
    struct snap_parity *c = o->parity;
    const struct snap *s = snap_hold_get(c->config.own, o->rank, o->uuid);
    const struct parity *shape = &o->group.shape;
    struct error e = {0};
    int rc = s ? 0 : error_text(&e, ECANCELED, "the save came to nothing");

    o->is_begun = true;
    for (unsigned i = 1; i < shape->n && rc == 0; i++) {
        rc = add_way(o, (o->me + i) % shape->n, s, &e);
    }
    if (rc < 0) {
        parity_out_end(o, &e);
    }
    parity_watch(c);
}

void parity_outs_start(struct snap_parity *c)
{
    struct parity_out *o = c->outs;

    while (o && o->is_begun && o->n_sending == 0) {
        o = o->next;
    }
    if (o && !o->is_begun) {
        start_out(o);
    }
}

int snap_parity_send(struct snap_parity *c, uint32_t rank, const char *uuid,
                     const struct parity_group *g, struct error *e)
{
    struct parity_out **at = &c->outs, *o = calloc(1, sizeof(*o));

    if (!o) {
        return error_set(e, ENOMEM, "send pieces of a snapshot");
    }
    o->parity = c;
    o->group = *g;
    o->me = parity_member(g, c->config.agent);
    o->rank = rank;
    str_copy(o->uuid, sizeof(o->uuid), uuid);
    if (o->me == PARITY_MAX_MEMBERS || !snap_hold_pin(c->config.own, rank, uuid)) {
        free(o);
        return error_text(e, ENOENT, "no snapshot of rank %u to send", rank);
    }
    o->is_pinned = true;
    while (*at) {
        at = &(*at)->next;
    }
    *at = o;
    parity_go_on(c);
    return 0;
}
