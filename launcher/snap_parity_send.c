/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender's end: pieces of a snapshot to all others of the group at once, one
 * snapshot after the other; and what somebody asks for who makes one again. What is
 * sent is looked for again before each chunk: a save may come to nothing on the way.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_MS = 5000,
    WAIT_TIMES = 12, /* for all others of a set, as for one */
    MAX_ASKED = 256,
};

static void free_way(struct parity_way *w)
{
    struct parity_way **at = &w->parity->ways;

    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    link_close(w->link);
    free(w);
}

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
            free_way(w);
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
        free_way(c->ways);
    }
}

static void out_end(struct parity_out *o, const struct error *e)
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

/* Without one of them there is no parity. */
static void way_end(struct parity_way *w, const struct error *e)
{
    struct parity_out *o = w->out;
    struct error why = {0};

    if (o && e) {
        error_text(&why, e->code, "node %u: %s", o->group.agents[w->to], e->text);
        out_end(o, &why);
        return;
    }
    if (e) {
        why = *e;
        copy_refuse(w->link, &why);
    }
    free_way(w);
    if (o && --o->n_left == 0) {
        out_end(o, NULL);
    }
}

static void fail(struct parity_way *w, int code, const char *text)
{
    struct error e = {0};

    error_text(&e, code, "%s", text);
    way_end(w, &e);
}

/* --- what is sent --- */

/* NULL: it is there no more, or has no such bytes. */
static const unsigned char *find_bytes(const struct parity_way *w,
                                       const struct parity_seg *s)
{
    const struct snap_parity *c = w->parity;
    const struct parity_kept *k;
    const struct snap *snap;

    if (s->kept == 0) {
        snap = snap_hold_get(c->config.own, w->what.rank, w->what.uuid);
        return snap && s->at <= parity_image_bytes(&snap->head) &&
                       s->len <= parity_image_bytes(&snap->head) - s->at
                   ? (const unsigned char *)snap_image(snap) + s->at
                   : NULL;
    }
    k = parity_kept_find(c, w->what.uuid, w->what.lost);
    if (!k || !k->is_whole || s->kept > k->group.shape.m) {
        return NULL;
    }
    return s->at <= k->memory[s->kept - 1].room &&
                   s->len <= k->memory[s->kept - 1].room - s->at
               ? k->memory[s->kept - 1].at + s->at
               : NULL;
}

static int send_sums(struct parity_way *w)
{
    const struct parity_kept *k;
    struct buf b = {0};
    int rc;

    if (!w->out) {
        k = parity_kept_find(w->parity, w->what.uuid, w->what.lost);
        w->sums.n = 0;
        if (k) {
            parity_kept_sums(k, parity_member_of_rank(&k->group, w->what.lost),
                             &w->sums);
        }
    }
    parity_sums_encode(&w->sums, &b);
    rc = b.failed ? -ENOMEM : link_send_buf(w->link, SNAP_PARITY_END, &b);
    buf_release(&b);
    return rc;
}

/* All of it is with the kernel, or will be. Who has asked has what it needs. */
static void sent_all(struct parity_way *w)
{
    struct parity_out *o = w->out;

    w->is_sent = true;
    w->is_eager = false;
    if (send_sums(w) < 0) {
        fail(w, EPIPE, "the link took no more");
    } else if (!o) {
        way_end(w, NULL);
    } else if (--o->n_sending == 0) {
        snap_hold_unpin(w->parity->config.own, o->rank, o->uuid);
        o->is_pinned = false;
        parity_go_on(w->parity);
    }
}

static void end_seg(struct parity_way *w)
{
    w->sums.stripes[w->i] = w->stripes[w->i];
    w->sums.sums[w->i] = w->sum;
    w->sums.n = ++w->i;
    w->at = w->sum = 0;
}

static void pump(struct parity_way *w)
{
    const struct parity_seg *s = &w->what.segs[w->i];
    const unsigned char *bytes;
    size_t n;

    while (w->i < w->what.n && w->at == s->len) { /* a piece may be of no bytes */
        end_seg(w);
        s++;
    }
    if (w->i == w->what.n) {
        sent_all(w);
        return;
    }
    bytes = find_bytes(w, s);
    if (!bytes) {
        fail(w, ECANCELED, "it is not in memory any more");
        return;
    }
    n = s->len - w->at < PARITY_CHUNK_BYTES ? (size_t)(s->len - w->at)
                                            : PARITY_CHUNK_BYTES;
    if (link_send(w->link, SNAP_PARITY_DATA, bytes + w->at, n) < 0) {
        fail(w, EPIPE, "the link took no more");
        return;
    }
    w->sum = w->out ? copy_sum(w->sum, bytes + w->at, n) : 0;
    w->at += n;
    w->moved_ms = uv_now(w->parity->config.loop);
    w->is_eager = link_queued(w->link) == 0;
    if (w->is_eager) {
        parity_go_on(w->parity);
    } else {
        link_tell_drained(w->link);
    }
}

/* One chunk of each: any of them may end others. */
void parity_ways_pump(struct snap_parity *c)
{
    struct parity_way *w = c->ways;

    c->n_turns++;
    while (w) {
        if (w->is_eager && w->turn != c->n_turns) {
            w->turn = c->n_turns;
            pump(w);
            w = c->ways;
        } else {
            w = w->next;
        }
    }
}

static void begin(struct parity_way *w)
{
    w->moved_ms = uv_now(w->parity->config.loop);
    w->is_eager = true;
    parity_go_on(w->parity);
}

/* --- what comes --- */

static void on_up(struct link *l, void *ctx)
{
    struct parity_way *w = ctx;
    const struct snap *s = snap_hold_get(w->parity->config.own, w->what.rank,
                                         w->what.uuid);
    struct buf b = {0};

    if (!s) {
        fail(w, ECANCELED, "the save came to nothing");
        return;
    }
    parity_offer_encode(&w->out->group, &s->head, w->parity->config.agent, &b);
    if (b.failed || link_send_buf(l, SNAP_PARITY_OFFER, &b) < 0) {
        fail(w, ENOMEM, "no memory to offer it");
    }
    buf_release(&b);
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct parity_way *w = ctx;
    struct error e = {0};

    (void)l;
    w->moved_ms = uv_now(w->parity->config.loop);
    if (f->type == SNAP_COPY_REFUSED) {
        copy_refused_decode(f, &e);
        way_end(w, &e);
    } else if (w->out && f->type == SNAP_PARITY_READY && w->i == 0 && w->at == 0) {
        begin(w);
    } else if (w->out && f->type == SNAP_PARITY_DONE && w->is_sent) {
        way_end(w, NULL);
    } else {
        fail(w, EPROTO, "it answers what was not asked");
    }
}

static void on_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    (void)l;
    (void)closed;
    way_end(ctx, why);
}

static void on_drained(struct link *l, void *ctx)
{
    (void)l;
    begin(ctx);
}

static const struct link_ops way_ops = {
    .on_up = on_up,
    .on_frame = on_frame,
    .on_down = on_down,
    .on_drained = on_drained,
};

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

static int connect_way(struct parity_way *w, struct error *e)
{
    struct snap_parity *c = w->parity;
    uint32_t agent = w->out->group.agents[w->to];
    _strlist_ struct strlist addrs = {0};
    struct link_target target = {.timeout_ms = CONNECT_MS};

    if (!c->config.find(c->config.arg, agent, &addrs, &target.port) || addrs.failed) {
        return error_text(e, ENOENT, "node %u is not known", agent);
    }
    target.addrs = addrs.items;
    return link_connect(c->config.loop, &target, c->key, &way_ops, w, &w->link, e);
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
    return connect_way(w, e);
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
        out_end(o, &e);
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

void parity_outs_watch(struct snap_parity *c, const struct error *late)
{
    struct parity_way *w = c->ways;

    while (w && !parity_is_stuck(c, w->moved_ms, w->is_sent ? WAIT_TIMES : 1)) {
        w = w->next;
    }
    if (w) {
        way_end(w, late); /* others that are late: in a second */
    }
}

/* --- for who makes one again --- */

static bool has_all(const struct parity_way *w)
{
    for (unsigned i = 0; i < w->what.n; i++) {
        if (!find_bytes(w, &w->what.segs[i])) {
            return false;
        }
    }
    return true;
}

void parity_asked(struct snap_parity *c, struct link *l,
                  const struct channel_frame *first)
{
    struct parity_way *w = calloc(1, sizeof(*w));
    struct error e = {0};
    unsigned n = 0;

    for (const struct parity_way *o = c->ways; o; o = o->next) {
        n += o->out == NULL;
    }
    if (!w) {
        error_set(&e, ENOMEM, "send what is asked for");
    } else if (!parity_want_decode(first, &w->what)) {
        error_text(&e, EPROTO, "what is asked for makes no sense");
    } else if (n >= MAX_ASKED) {
        error_text(&e, EBUSY, "%d others ask", MAX_ASKED);
    } else {
        w->parity = c;
        if (!has_all(w)) {
            error_text(&e, ENOENT, "it is not in memory here");
        }
    }
    if (e.code) {
        copy_refuse(l, &e);
        link_close(l);
        free(w);
        return;
    }
    w->link = l;
    w->next = c->ways;
    c->ways = w;
    link_adopt(l, &way_ops, w);
    link_send(l, SNAP_PARITY_READY, NULL, 0); /* no first frame may be long */
    begin(w);
}
