/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of those who are asked: what comes of it is added to what is made again, from
 * elsewhere by a link, or from here, a chunk in each turn of the loop.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_MS = 5000 };

static void fail(struct parity_ask *a, int code, const char *text)
{
    struct error e = {0};

    error_text(&e, code, "%s", text);
    parity_build_without(a, &e);
}

/* False: more than was asked for. */
static bool add(struct parity_ask *a, const unsigned char *bytes, size_t len)
{
    unsigned char *to = parity_build_target(a->build);

    if (!to || a->i == a->want.n || len == 0 || len > a->want.segs[a->i].len - a->at) {
        return false;
    }
    parity_add(to + a->to[a->i] + a->at, bytes, len, a->factors[a->i]);
    a->at += len;
    if (a->at == a->want.segs[a->i].len) {
        a->i++;
        a->at = 0;
    }
    a->moved_ms = uv_now(a->build->parity->config.loop);
    return true;
}

/* --- from elsewhere --- */

static void on_up(struct link *l, void *ctx)
{
    struct parity_ask *a = ctx;
    struct buf b = {0};
    int rc;

    parity_want_encode(&a->want, &b);
    rc = b.failed ? -ENOMEM : link_send_buf(l, SNAP_PARITY_WANT, &b);
    buf_release(&b);
    a->moved_ms = uv_now(a->build->parity->config.loop);
    if (rc < 0) {
        fail(a, ENOMEM, "no memory to ask for it");
    }
}

static void take_end(struct parity_ask *a, const struct channel_frame *f)
{
    struct parity_build *b = a->build;
    struct parity_sums s;

    if (a->i < a->want.n || !parity_sums_decode(f, &s)) {
        fail(a, EPROTO, "less came than was asked for");
        return;
    }
    parity_build_sums(b, &s);
    a->is_over = true;
    parity_build_look(b);
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct parity_ask *a = ctx;
    struct error e = {0};

    (void)l;
    if (f->type == SNAP_COPY_REFUSED) {
        copy_refused_decode(f, &e);
        parity_build_without(a, &e);
    } else if (f->type == SNAP_PARITY_READY && a->i == 0 && a->at == 0) {
        a->moved_ms = uv_now(a->build->parity->config.loop);
    } else if (f->type == SNAP_PARITY_END && !a->is_over) {
        take_end(a, f);
    } else if (f->type != SNAP_PARITY_DATA || !add(a, f->data, f->len)) {
        fail(a, EPROTO, "what came was not asked for");
    }
}

static void on_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct parity_ask *a = ctx;
    const struct error e = *why; /* the link goes */

    (void)l;
    (void)closed;
    if (!a->is_over) {
        parity_build_without(a, &e);
    }
}

static const struct link_ops ask_ops = {
    .on_up = on_up, .on_frame = on_frame, .on_down = on_down};

int parity_ask_connect(struct parity_ask *a, const struct parity_kept *k,
                       struct error *e)
{
    struct snap_parity *c = a->build->parity;
    _strlist_ struct strlist addrs = {0};
    struct link_target target = {.timeout_ms = CONNECT_MS};

    if (!c->config.find(c->config.arg, k->group.agents[a->member], &addrs,
                        &target.port) || addrs.failed) {
        return error_text(e, ENOENT, "node %u is not known",
                          k->group.agents[a->member]);
    }
    target.addrs = addrs.items;
    return link_connect(c->config.loop, &target, c->key, &ask_ops, a, &a->link, e);
}

/* --- what is here --- */

static const unsigned char *find_here(const struct parity_ask *a)
{
    const struct snap_parity *c = a->build->parity;
    const struct parity_seg *s = &a->want.segs[a->i];
    const struct parity_kept *k = parity_kept_find(c, a->want.uuid, a->want.lost);
    const struct snap *snap = snap_hold_get(c->config.own, a->want.rank,
                                            a->want.uuid);
    uint64_t room = !k ? 0 : k->memory[s->kept ? s->kept - 1 : 0].room;

    if (s->kept == 0) {
        return snap ? (const unsigned char *)snap_image(snap) + s->at : NULL;
    }
    return s->len <= room ? k->memory[s->kept - 1].at : NULL;
}

/* A chunk of it in each turn of the loop. */
void parity_ask_here(struct parity_ask *a)
{
    struct snap_parity *c = a->build->parity;
    const unsigned char *from;
    uint64_t left;

    if (a->i == a->want.n) {
        a->is_over = true;
        parity_build_look(a->build);
        return;
    }
    from = find_here(a);
    left = a->want.segs[a->i].len - a->at;
    if (!from || !add(a, from + a->at, left < PARITY_CHUNK_BYTES
                                           ? (size_t)left : PARITY_CHUNK_BYTES)) {
        fail(a, ECANCELED, "it is not in memory any more");
        return;
    }
    parity_go_on(c);
}
