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

enum { MAX_INS = 16 }; /* senders send one at a time, and have few partners */

static void answer_no(struct link *l, const struct error *e)
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

/* What it has begun stays as it is, half full: memory for the next one. */
void copy_in_end(struct copy_in *in, const struct error *e)
{
    struct snap_copy *c = in->copy;

    if (e) {
        answer_no(in->link, e);
    }
    link_close(in->link);
    unlink_in(in);
    free(in);
    copy_watch(c);
}

void copy_ins_forget(struct snap_copy *c)
{
    while (c->ins) {
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

static void take_data(struct copy_in *in, const struct channel_frame *f)
{
    struct snap *s = snap_hold_fill(in->copy->copies, in->head.rank,
                                    in->head.uuid);

    if (!s || f->len == 0 || f->len > in->room - in->at ||
        in->room > s->room) {
        fail(in, EPROTO, "more came than was offered, or it is not wanted any more");
        return;
    }
    memcpy((char *)s->map + SNAP_PAGE_BYTES + in->at, f->data, f->len);
    in->sum = copy_sum(in->sum, s->map + SNAP_PAGE_BYTES + in->at, f->len);
    in->at += f->len;
    in->moved_ms = uv_now(in->copy->config.loop);
}

static void take_end(struct copy_in *in, const struct channel_frame *f)
{
    struct snap_copy *c = in->copy;
    struct wire_reader r = wire_reader(f->data, f->len);
    uint64_t sum = wire_get_u64(&r);
    struct snap_head head = in->head;
    uint32_t from = in->from;
    struct error e = {0};

    if (!wire_done(&r) || in->at != in->room || sum != in->sum) {
        error_text(&e, ERR_FORMAT, "the copy differs from what was sent");
    } else {
        snap_hold_done(c->copies, head.rank, head.uuid, head.image_bytes,
                       head.part_bytes, &e);
    }
    if (e.code == 0) {
        link_send(in->link, SNAP_COPY_DONE, NULL, 0);
    }
    copy_in_end(in, e.code ? &e : NULL);
    if (e.code == 0) {
        c->config.on_got(c->config.arg, &head, from);
    }
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct copy_in *in = ctx;

    (void)l;
    if (in->is_ready && f->type == SNAP_COPY_DATA) {
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
    (void)why;
    copy_in_end(ctx, NULL);
}

static const struct link_ops in_ops = {.on_frame = on_frame, .on_down = on_down};

/* --- offers --- */

/* Whoever offers a rank anew has given up what it was sending. */
static void forget_rank(struct snap_copy *c, uint32_t rank)
{
    for (struct copy_in *in = c->ins, *next; in; in = next) {
        next = in->next;
        if (in->head.rank == rank) {
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

static int begin(struct snap_copy *c, const struct snap_head *h, uint64_t question,
                 struct error *e)
{
    struct snap_rank who = {.rank = h->rank, .n_ranks = h->n_ranks,
                            .generation = h->generation, .token = h->token};

    if (!c->copies) {
        return error_text(e, ENOTSUP, "it holds no copies");
    }
    forget_rank(c, h->rank);
    if (count(c) >= MAX_INS) {
        return error_text(e, EBUSY, "it gets %d others", MAX_INS);
    }
    return snap_hold_begin(c->copies, &who, h->step, h->uuid, h->root,
                           snap_room(h->image_bytes, h->part_bytes), question, e);
}

static void refuse(struct link *l, const struct error *e)
{
    answer_no(l, e);
    link_close(l);
}

void snap_copy_take(struct snap_copy *c, struct link *l,
                    const struct channel_frame *first)
{
    struct copy_in *in = calloc(1, sizeof(*in));
    struct error e = {0};

    if (!in) {
        error_set(&e, ENOMEM, "take a copy");
    } else if (!copy_offer_decode(first, &in->head, &in->from)) {
        error_text(&e, EPROTO, "an offer of a copy that makes no sense");
    } else {
        in->question = c->n_questions++;
        begin(c, &in->head, in->question, &e);
    }
    if (e.code) {
        refuse(l, &e);
        free(in);
        return;
    }
    in->copy = c;
    in->link = l;
    in->room = snap_room(in->head.image_bytes, in->head.part_bytes);
    in->moved_ms = uv_now(c->config.loop);
    in->next = c->ins;
    c->ins = in;
    link_adopt(l, &in_ops, in);
    copy_watch(c);
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
}
