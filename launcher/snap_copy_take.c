/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver's end: what comes is put into memory of a hold, which refuses what
 * does not fit, with numbers. */
#include <config.h>

#include "launcher/snap_copy_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_INS = 16, /* senders send one at a time, and have few partners */
    CONNECT_MS = 20000, /* until who has it says so, which sends one at a time */
};

void copy_refuse(struct link *l, const struct error *e)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, (uint32_t)e->code);
    wire_put_str(&b, e->text);
    if (!b.failed) {
        link_send_buf(l, SNAP_COPY_REFUSED, &b);
    }
}

static void unlink_in(struct copy_in *in)
{
    struct copy_in **at = &in->copy->ins;

    while (*at != in) {
        at = &(*at)->next;
    }
    *at = in->next;
}

/* Says how many blocks of the image are there, to whoever reads it meanwhile. */
static void tell_filled(const struct copy_in *in, uint64_t n)
{
    struct snap *s = snap_hold_fill(in->copy->copies, in->head.rank, in->head.uuid);

    if (s) {
        atomic_store_explicit(snap_filled(s->map), n, memory_order_release);
    }
}

/* What it has begun stays as it is, half full: memory for the next one. */
void copy_in_end(struct copy_in *in, const struct error *e)
{
    struct snap_copy *c = in->copy;
    const struct copy_in was = *in;
    struct error why = {0};

    if (e) {
        why = *e; /* it may be the link's, which goes */
        copy_refuse(in->link, &why);
    } else if (!in->is_whole) {
        error_text(&why, ECANCELED, "it is not wanted any more");
    }
    if (in->is_ready && !in->is_whole) {
        tell_filled(in, SNAP_NO_MORE);
    }
    link_close(in->link);
    unlink_in(in);
    free(in);
    copy_watch(c);
    if (was.is_wanted) {
        c->config.on_fetched(c->config.arg, was.head.rank, was.head.uuid, &why);
    }
}

void copy_ins_forget(struct snap_copy *c)
{
    while (c->ins) {
        c->ins->is_wanted = false; /* nobody is told */
        copy_in_end(c->ins, NULL);
    }
}

static void fail(struct copy_in *in, int code, const char *text)
{
    struct error e = {0};

    error_text(&e, code, "%s", text);
    copy_in_end(in, &e);
}

/* --- what comes --- */

/* Of the bytes that come next, so many; NULL: they are not wanted. */
static char *place_of(const struct copy_in *in, size_t len)
{
    struct snap *s = snap_hold_fill(in->copy->copies, in->head.rank,
                                    in->head.uuid);

    return s && len > 0 && len <= in->room - in->at && in->room <= s->room
               ? s->map + SNAP_PAGE_BYTES + in->at
               : NULL;
}

/* A large frame is opened there at once. If it is none of a copy, or of nobody who has
 * the key, this copy comes to nothing anyway. */
static void *place(struct link *l, size_t len, void *ctx)
{
    const struct copy_in *in = ctx;

    (void)l;
    return in->is_ready ? place_of(in, len) : NULL;
}

static void take_data(struct copy_in *in, const struct channel_frame *f)
{
    char *to = place_of(in, f->len);

    if (!to) {
        fail(in, EPROTO, "more came than was offered, or it is not wanted any more");
        return;
    }
    if ((const char *)f->data != to) {
        memcpy(to, f->data, f->len);
    }
    in->at += f->len;
    tell_filled(in, in->at < in->head.image_bytes ? in->at / DIGEST_BLOCK_BYTES
                                                  : digest_n_blocks(in->head.image_bytes));
    in->moved_ms = uv_now(in->copy->config.loop);
}

static void take_end(struct copy_in *in, const struct channel_frame *f)
{
    struct snap_copy *c = in->copy;
    struct snap_head head = in->head;
    uint32_t from = in->from;
    bool is_wanted = in->is_wanted;
    struct error e = {0};

    if (f->len != 0 || in->at != in->room) {
        error_text(&e, ERR_FORMAT, "%llu of %llu bytes came",
                   (unsigned long long)in->at, (unsigned long long)in->room);
    } else {
        snap_hold_done(c->copies, head.rank, head.uuid, head.image_bytes,
                       head.part_bytes, &e);
    }
    if (e.code == 0) {
        link_send(in->link, SNAP_COPY_DONE, NULL, 0);
        in->is_whole = true;
    }
    copy_in_end(in, e.code ? &e : NULL);
    if (e.code == 0 && !is_wanted) {
        c->config.on_got(c->config.arg, &head, from);
    }
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct copy_in *in = ctx;
    struct error e = {0};

    (void)l;
    if (in->is_wanted && f->type == SNAP_COPY_REFUSED) {
        copy_refused_decode(f, &e); /* it has changed its mind */
        copy_in_end(in, &e);
    } else if (in->is_ready && f->type == SNAP_COPY_DATA) {
        take_data(in, f);
    } else if (in->is_ready && f->type == SNAP_COPY_END) {
        take_end(in, f);
    } else {
        fail(in, EPROTO, "what came was not asked for");
    }
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    (void)l;
    (void)closed;
    copy_in_end(ctx, why);
}

static const struct link_ops in_ops = {.on_frame = on_frame,
                                       .on_down = on_down,
                                       .place = place};

/* --- offers --- */

/* Whoever offers a rank anew has given up what it was sending. */
static void forget_rank(struct snap_copy *c, uint32_t rank)
{
    for (struct copy_in *in = c->ins, *next; in; in = next) {
        next = in->next;
        if (in->head.rank == rank && !in->is_wanted) {
            copy_in_end(in, NULL);
        }
    }
}

static unsigned count(const struct snap_copy *c)
{
    unsigned n = 0;

    for (const struct copy_in *in = c->ins; in; in = in->next) {
        n++;
    }
    return n;
}

static bool is_it(const struct snap_head *a, const struct snap_head *b)
{
    return a->rank == b->rank && strcmp(a->uuid, b->uuid) == 0;
}

/* Of one save of a rank one comes here at a time. What is offered gives way: its sender
 * offers it anew, or has put it off for just this one. */
static int replace_same(struct copy_in *in, struct error *e)
{
    for (struct copy_in *o = in->copy->ins, *next; o; o = next) {
        next = o->next;
        if (o == in || o->question == 0 || !is_it(&o->head, &in->head)) {
            continue;
        }
        if (o->is_wanted) {
            return error_text(e, EBUSY, "another node sends that snapshot of rank %u",
                              in->head.rank);
        }
        copy_in_end(o, NULL);
    }
    return 0;
}

int copy_in_begin(struct copy_in *in, struct error *e)
{
    struct snap_copy *c = in->copy;
    const struct snap_head *h = &in->head;
    struct snap_rank who = {.rank = h->rank, .n_ranks = h->n_ranks,
                            .generation = h->generation, .token = h->token};
    int rc;

    if (!c->copies) {
        return error_text(e, ENOTSUP, "it holds no copies");
    }
    rc = replace_same(in, e);
    if (rc < 0) {
        return rc;
    }
    in->question = ++c->n_questions; /* 0: it has asked for no memory yet */
    in->room = snap_room(h->image_bytes, h->part_bytes);
    in->moved_ms = uv_now(c->config.loop);
    return snap_hold_begin(c->copies, &who, h->step, h->uuid, h->root,
                           snap_room(h->image_bytes, h->part_bytes), in->question, e);
}

static int take_offer(struct copy_in *in, const struct channel_frame *first,
                      struct error *e)
{
    if (!copy_offer_decode(first, &in->head, &in->from)) {
        return error_text(e, EPROTO, "an offer of a copy that makes no sense");
    }
    forget_rank(in->copy, in->head.rank);
    if (count(in->copy) >= MAX_INS) {
        return error_text(e, EBUSY, "it gets %d others", MAX_INS);
    }
    return copy_in_begin(in, e);
}

static void take(struct snap_copy *c, struct link *l,
                 const struct channel_frame *first)
{
    struct copy_in *in = calloc(1, sizeof(*in));
    struct error e = {0};

    if (!in) {
        error_set(&e, ENOMEM, "take a copy");
    } else {
        in->copy = c;
        take_offer(in, first, &e);
    }
    if (e.code) {
        copy_refuse(l, &e);
        link_close(l);
        free(in);
        return;
    }
    in->link = l;
    in->next = c->ins;
    c->ins = in;
    link_adopt(l, &in_ops, in);
    copy_watch(c);
}

void snap_copy_take(struct snap_copy *c, struct link *l,
                    const struct channel_frame *first)
{
    if (first->type == SNAP_COPY_WANT) {
        copy_out_asked(c, l, first);
    } else {
        take(c, l, first);
    }
}

/* --- what we have asked for --- */

static void on_want_up(struct link *l, void *ctx)
{
    struct copy_in *in = ctx;
    _buf_ struct buf b = {0};

    copy_want_encode(in->head.rank, in->head.uuid, &b);
    if (link_send_buf(l, SNAP_COPY_WANT, &b) < 0) {
        fail(in, ENOMEM, "no memory to ask for it");
    }
}

static void on_want_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct copy_in *in = ctx;
    struct snap_head head;
    struct error e = {0};

    if (f->type == SNAP_COPY_REFUSED) {
        copy_refused_decode(f, &e);
    } else if (!copy_offer_decode(f, &head, &in->from) || !is_it(&head, &in->head)) {
        error_text(&e, EPROTO, "another one came than was asked for");
    } else {
        in->head = head;
        link_adopt(l, &in_ops, in);
        copy_in_begin(in, &e);
    }
    if (e.code) {
        copy_in_end(in, &e);
    }
}

static const struct link_ops want_ops = {
    .on_up = on_want_up,
    .on_frame = on_want_frame,
    .on_down = on_down,
};

int snap_copy_fetch(struct snap_copy *c, uint32_t rank, const char *uuid,
                    char *const *addrs, uint16_t port, struct error *e)
{
    struct link_target target = {.addrs = addrs, .port = port,
                                 .timeout_ms = CONNECT_MS};
    struct copy_in *in = c->copies ? calloc(1, sizeof(*in)) : NULL;
    int rc;

    if (!in) {
        return error_text(e, c->copies ? ENOMEM : ENOTSUP,
                          "no memory for a snapshot of rank %u", rank);
    }
    in->copy = c;
    in->is_wanted = true;
    in->head.rank = rank;
    str_copy(in->head.uuid, sizeof(in->head.uuid), uuid);
    in->moved_ms = uv_now(c->config.loop);
    rc = link_connect(c->config.loop, &target, c->key, &want_ops, in, &in->link, e);
    if (rc < 0) {
        free(in);
        return rc;
    }
    in->next = c->ins;
    c->ins = in;
    copy_watch(c);
    return 0;
}

void snap_copy_fetch_forget(struct snap_copy *c)
{
    for (struct copy_in *in = c->ins, *next; in; in = next) {
        next = in->next;
        if (in->is_wanted) {
            in->is_wanted = false;
            copy_in_end(in, NULL);
        }
    }
}

void snap_copy_begun(struct snap_copy *c, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct copy_in *in = c->ins;

    while (in && in->question != question) {
        in = in->next;
    }
    if (!in) {
        return; /* its sender has gone */
    }
    if (!s) {
        copy_in_end(in, e);
        return;
    }
    in->is_ready = true;
    in->moved_ms = uv_now(c->config.loop);
    link_send(in->link, SNAP_COPY_READY, NULL, 0);
    if (in->is_wanted && c->config.on_coming) {
        c->config.on_coming(c->config.arg, &in->head);
    }
}
