/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's end. The memory that is sent is looked for again before each chunk: a
 * save may come to nothing on the way. */
#include <config.h>

#include "launcher/snap_copy_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_MS = 5000,
    CHUNKS_A_TURN = 2, /* of the loop */
    MAX_ASKED = 256,   /* that wait, or are sent */
};

static const struct link_ops out_ops;

static void unlink_out(struct copy_out *o)
{
    struct copy_out **at = &o->copy->outs;

    while (*at != o) {
        at = &(*at)->next;
    }
    *at = o->next;
}

static void free_out(struct copy_out *o)
{
    if (o->hold) {
        snap_hold_unpin(o->hold, o->rank, o->uuid);
    }
    link_close(o->link);
    strlist_release(&o->addrs);
    free(o);
}

void copy_outs_forget(struct snap_copy *c)
{
    while (c->outs) {
        struct copy_out *o = c->outs;

        c->outs = o->next;
        free_out(o);
    }
    while (c->waits) {
        struct copy_out *o = c->waits;

        c->waits = o->next;
        free_out(o);
    }
}

void copy_out_end(struct copy_out *o, const struct error *e)
{
    struct snap_copy *c = o->copy;
    struct error why = {0};
    char uuid[COMMIT_UUID_BYTES];
    uint32_t rank = o->rank, to = o->to;
    bool is_asked = o->is_asked;

    if (e) {
        why = *e; /* it may be the link's, which goes */
    }
    str_copy(uuid, sizeof(uuid), o->uuid);
    if (c->outs == o) {
        uv_timer_stop(c->pace);
    }
    if (is_asked && e) {
        copy_refuse(o->link, &why);
    }
    unlink_out(o);
    free_out(o);
    copy_send_next(c);
    copy_watch(c);
    if (!is_asked) {
        c->config.on_sent(c->config.arg, rank, uuid, to, &why);
    }
}

static void fail(struct copy_out *o, int code, const char *text)
{
    struct error e = {0};

    error_text(&e, code, "%s", text);
    copy_out_end(o, &e);
}

/* --- what is sent --- */

static void on_pace(uv_timer_t *t)
{
    struct snap_copy *c = t->data;

    if (c->outs) {
        copy_pump(c->outs);
    }
}

int copy_send_bytes(struct link *l, bool hides, uint16_t type, const void *data,
                    size_t len)
{
    return (hides ? link_send : link_send_open)(l, type, data, len);
}

static int send_chunk(struct copy_out *o, const struct snap *s)
{
    const char *at = (const char *)snap_image(s) + o->at;
    uint64_t left = o->room - o->at;
    size_t n = left < COPY_CHUNK_BYTES ? (size_t)left : COPY_CHUNK_BYTES;
    int rc = copy_send_bytes(o->link, o->copy->config.hides, SNAP_COPY_DATA, at, n);

    o->at += n;
    o->moved_ms = uv_now(o->copy->config.loop);
    return rc;
}

/* What the kernel does not take of an open one is copied: it is left until it does. What
 * is sealed is copied anyway, and is ready then. */
static bool may_send(const struct copy_out *o)
{
    return o->at < o->room && (o->copy->config.hides || link_queued(o->link) == 0);
}

void copy_pump(struct copy_out *o)
{
    const struct snap *s = snap_hold_get(o->hold, o->rank, o->uuid);
    struct error e = {0};
    int rc = 0;

    if (!s) {
        fail(o, ECANCELED, "the save came to nothing");
        return;
    }
    for (int i = 0; i < CHUNKS_A_TURN && may_send(o) && rc == 0; i++) {
        rc = send_chunk(o, s);
    }
    if (snap_check(s, &e) < 0) {
        copy_out_end(o, &e);
        return;
    }
    if (rc == 0 && o->at == o->room) {
        rc = link_send(o->link, SNAP_COPY_END, NULL, 0);
    } else if (rc == 0 && link_queued(o->link) > 0) {
        link_tell_drained(o->link);
    } else if (rc == 0) {
        uv_timer_start(o->copy->pace, on_pace, 0, 0);
    }
    if (rc < 0) {
        fail(o, -rc, "the link took no more");
    }
}

/* --- what comes --- */

static void offer(struct copy_out *o)
{
    const struct snap *s = snap_hold_get(o->hold, o->rank, o->uuid);
    struct buf b = {0};

    if (!s) {
        fail(o, ECANCELED, "the save came to nothing");
        return;
    }
    o->room = snap_room(s->head.image_bytes, s->head.part_bytes);
    o->moved_ms = uv_now(o->copy->config.loop);
    copy_offer_encode(&s->head, o->copy->config.agent, &b);
    if (b.failed || link_send_buf(o->link, SNAP_COPY_OFFER, &b) < 0) {
        fail(o, ENOMEM, "no memory to offer it");
    }
    buf_release(&b);
}

static void on_up(struct link *l, void *ctx)
{
    (void)l;
    offer(ctx);
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct copy_out *o = ctx;
    struct error e = {0};

    (void)l;
    if (!o->is_begun) {
        fail(o, EPROTO, "it does not wait for its turn");
    } else if (f->type == SNAP_COPY_READY && o->at == 0) {
        copy_pump(o);
    } else if (f->type == SNAP_COPY_MAKING && o->at == 0) {
        o->moved_ms = uv_now(o->copy->config.loop);
    } else if (f->type == SNAP_COPY_DONE && o->at == o->room) {
        copy_out_end(o, NULL);
    } else if (f->type == SNAP_COPY_REFUSED) {
        copy_refused_decode(f, &e);
        copy_out_end(o, &e);
    } else {
        fail(o, EPROTO, "it answers what was not asked");
    }
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    (void)l;
    (void)closed;
    copy_out_end(ctx, why);
}

static void on_drained(struct link *l, void *ctx)
{
    (void)l;
    copy_pump(ctx);
}

static const struct link_ops out_ops = {
    .on_up = on_up,
    .on_frame = on_frame,
    .on_down = on_down,
    .on_drained = on_drained,
};

/* --- one after the other --- */

static int start(struct copy_out *o, struct error *e)
{
    struct link_target target = {.addrs = o->addrs.items, .port = o->port,
                                 .timeout_ms = CONNECT_MS};

    o->moved_ms = uv_now(o->copy->config.loop);
    return link_connect(o->copy->config.loop, &target, o->copy->key, &out_ops, o,
                        &o->link, e);
}

/* Not from inside snap_copy_send(). */
static void on_start(uv_timer_t *t)
{
    struct snap_copy *c = t->data;
    struct error e = {0};

    if (!c->outs || c->outs->is_begun) {
        return;
    }
    c->outs->is_begun = true;
    if (c->outs->is_asked) {
        offer(c->outs);
    } else if (start(c->outs, &e) < 0) {
        copy_out_end(c->outs, &e);
    }
}

void copy_send_next(struct snap_copy *c)
{
    if (c->outs && !c->outs->is_begun) {
        uv_timer_start(c->pace, on_start, 0, 0);
    }
}

/* Nothing of it was sent: it is offered anew, in its turn. */
static void put_off(struct copy_out *o)
{
    link_close(take_ptr(&o->link));
    o->is_begun = false;
}

/* For what is asked for workers wait, who start; not for copies, of which many may be
 * for a node that is lost. Memory for a copy may be made for longer than anybody waits
 * for an answer. */
static void append(struct copy_out *o)
{
    struct copy_out **at = &o->copy->outs;

    while (*at && (!o->is_asked || (*at)->at > 0 || (*at)->is_asked)) {
        at = &(*at)->next;
    }
    if (*at && (*at)->is_begun) {
        put_off(*at);
    }
    o->next = *at;
    *at = o;
    copy_send_next(o->copy);
    copy_watch(o->copy);
}

int snap_copy_send(struct snap_copy *c, uint32_t rank, const char *uuid,
                   uint32_t to, char *const *addrs, uint16_t port,
                   struct error *e)
{
    struct copy_out *o = calloc(1, sizeof(*o));

    if (o) {
        strlist_add_all(&o->addrs, addrs);
    }
    if (!o || o->addrs.failed) {
        free(o);
        return error_set(e, ENOMEM, "copy a snapshot");
    }
    o->copy = c;
    o->hold = c->config.own;
    o->rank = rank;
    o->to = to;
    o->port = port;
    str_copy(o->uuid, sizeof(o->uuid), uuid);
    if (!snap_hold_pin(c->config.own, rank, uuid)) {
        strlist_release(&o->addrs);
        free(o);
        return error_text(e, ENOENT, "no snapshot of rank %u to copy", rank);
    }
    append(o);
    return 0;
}

/* --- for who has asked --- */

static unsigned count_asked(const struct snap_copy *c)
{
    unsigned n = 0;

    for (const struct copy_out *o = c->outs; o; o = o->next) {
        n += o->is_asked;
    }
    for (const struct copy_out *o = c->waits; o; o = o->next) {
        n++;
    }
    return n;
}

static bool pin(struct copy_out *o, struct snap_hold *h)
{
    o->hold = h;
    return h && snap_hold_pin(h, o->rank, o->uuid);
}

/* True: it is here. */
static bool pin_any(struct copy_out *o, struct error *e)
{
    if (!pin(o, o->copy->config.own) && !pin(o, o->copy->copies)) {
        o->hold = NULL;
        error_text(e, ENOENT, "there is no snapshot of rank %u, save %s", o->rank,
                   o->uuid);
    }
    return o->hold != NULL;
}

static int check_asked(struct copy_out *o, const struct channel_frame *first,
                       struct error *e)
{
    struct snap_copy *c = o->copy;

    if (!copy_want_decode(first, &o->rank, o->uuid)) {
        return error_text(e, EPROTO, "what is asked for makes no sense");
    }
    if (count_asked(c) >= MAX_ASKED) {
        return error_text(e, EBUSY, "%d others ask for snapshots", MAX_ASKED);
    }
    return 0;
}

static void refuse(struct copy_out *o, const struct error *e)
{
    copy_refuse(o->link, e);
    link_close(take_ptr(&o->link));
    free(o);
}

/* --- of what is being made --- */

static void unlink_wait(struct copy_out *o)
{
    struct copy_out **at = &o->copy->waits;

    while (*at != o) {
        at = &(*at)->next;
    }
    *at = o->next;
}

static void on_wait_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct error e = {0};

    (void)l, (void)f;
    error_text(&e, EPROTO, "it does not wait for an answer");
    unlink_wait(ctx);
    refuse(ctx, &e);
}

static void on_wait_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct copy_out *o = ctx;

    (void)l, (void)closed, (void)why;
    unlink_wait(o);
    link_close(take_ptr(&o->link));
    free(o);
}

static const struct link_ops wait_ops = {.on_frame = on_wait_frame,
                                         .on_down = on_wait_down};

static void wait_for(struct copy_out *o)
{
    link_adopt(o->link, &wait_ops, o);
    o->next = o->copy->waits;
    o->copy->waits = o;
}

static void send_asked(struct copy_out *o)
{
    link_adopt(o->link, &out_ops, o);
    append(o);
}

void snap_copy_made(struct snap_copy *c, uint32_t rank, const char *uuid)
{
    struct error e = {0};

    for (struct copy_out *o = c->waits, *next; o; o = next) {
        next = o->next;
        if (o->rank != rank || strcmp(o->uuid, uuid) != 0) {
            continue;
        }
        unlink_wait(o);
        if (pin_any(o, &e)) {
            send_asked(o);
        } else {
            refuse(o, &e);
        }
    }
}

void copy_out_asked(struct snap_copy *c, struct link *l,
                    const struct channel_frame *first)
{
    struct copy_out *o = calloc(1, sizeof(*o));
    struct error e = {0};

    if (!o) {
        error_set(&e, ENOMEM, "send a snapshot");
        copy_refuse(l, &e);
        link_close(l);
        return;
    }
    o->copy = c;
    o->link = l;
    o->is_asked = true;
    if (check_asked(o, first, &e) < 0) {
        refuse(o, &e);
    } else if (pin_any(o, &e)) {
        send_asked(o);
    } else if (c->config.make && c->config.make(c->config.arg, o->rank, o->uuid)) {
        wait_for(o);
    } else {
        refuse(o, &e);
    }
}
