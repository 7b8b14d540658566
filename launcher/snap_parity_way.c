/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link on which bytes go to another agent: the pieces of which that keeps parity, or
 * what it has asked for who makes a snapshot again. What is sent is looked for again
 * before each chunk: a save may come to nothing on the way.
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

void parity_way_free(struct parity_way *w)
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

/* Without one of them there is no parity. */
void parity_way_end(struct parity_way *w, const struct error *e)
{
    struct parity_out *o = w->out;
    struct error why = {0};

    if (o && e) {
        error_text(&why, e->code, "node %u: %s", o->group.agents[w->to], e->text);
        parity_out_end(o, &why);
        return;
    }
    if (e) {
        why = *e;
        copy_refuse(w->link, &why);
    }
    parity_way_free(w);
    if (o && --o->n_left == 0) {
        parity_out_end(o, NULL);
    }
}

static void fail(struct parity_way *w, int code, const char *text)
{
    struct error e = {0};

    error_text(&e, code, "%s", text);
    parity_way_end(w, &e);
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
        parity_way_end(w, NULL);
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
    if (copy_send_bytes(w->link, w->parity->config.hides, SNAP_PARITY_DATA, bytes + w->at,
                        n) < 0) {
        fail(w, EPIPE, "the link took no more");
        return;
    }
    w->sum = w->out ? parity_sum(w->sum, bytes + w->at, n) : 0;
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
        parity_way_end(w, &e);
    } else if (w->out && f->type == SNAP_PARITY_READY && w->i == 0 && w->at == 0) {
        begin(w);
    } else if (w->out && f->type == SNAP_PARITY_DONE && w->is_sent) {
        parity_way_end(w, NULL);
    } else {
        fail(w, EPROTO, "it answers what was not asked");
    }
}

static void on_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    (void)l;
    (void)closed;
    parity_way_end(ctx, why);
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

int parity_way_connect(struct parity_way *w, struct error *e)
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

void parity_ways_watch(struct snap_parity *c, const struct error *late)
{
    struct parity_way *w = c->ways;

    while (w && !parity_is_stuck(c, w->moved_ms, w->is_sent ? WAIT_TIMES : 1)) {
        w = w->next;
    }
    if (w) {
        parity_way_end(w, late); /* others that are late: in a second */
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
