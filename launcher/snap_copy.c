/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_copy_priv.h"

#include "base/aead.h"
#include "base/loop_timer.h"
#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 1000,
    MAKING_TIMES = 12, /* as long as who makes no progress */
    MAX_RANKS = 1 << 20,
};

/* Larger than the memory of any node, and far from where sums of them overflow. */
#define MAX_BYTES (UINT64_C(1) << 50)

/* --- messages --- */

void copy_offer_encode(const struct snap_head *h, uint32_t from, struct buf *b)
{
    wire_put_u32(b, from);
    wire_put_u32(b, h->rank);
    wire_put_u32(b, h->n_ranks);
    wire_put_u32(b, h->generation);
    wire_put_u64(b, h->token);
    wire_put_u64(b, h->step);
    wire_put_u64(b, h->image_bytes);
    wire_put_u64(b, h->part_bytes);
    wire_put_str(b, h->uuid);
    wire_put_str(b, h->root);
}

static bool is_uuid(const char *s)
{
    return strlen(s) == COMMIT_UUID_BYTES - 1 &&
           strspn(s, "0123456789abcdef") == COMMIT_UUID_BYTES - 1;
}

bool copy_offer_decode(const struct channel_frame *f, struct snap_head *ret,
                       uint32_t *ret_from)
{
    struct wire_reader r = wire_reader(f->data, f->len);

    memset(ret, 0, sizeof(*ret));
    *ret_from = wire_get_u32(&r);
    ret->rank = wire_get_u32(&r);
    ret->n_ranks = wire_get_u32(&r);
    ret->generation = wire_get_u32(&r);
    ret->token = wire_get_u64(&r);
    ret->step = wire_get_u64(&r);
    ret->image_bytes = wire_get_u64(&r);
    ret->part_bytes = wire_get_u64(&r);
    wire_get_str(&r, ret->uuid, sizeof(ret->uuid));
    wire_get_str(&r, ret->root, sizeof(ret->root));
    return f->type == SNAP_COPY_OFFER && wire_done(&r) &&
           ret->n_ranks <= MAX_RANKS && ret->rank < ret->n_ranks &&
           ret->step <= INT64_MAX && ret->image_bytes <= MAX_BYTES &&
           ret->part_bytes <= MAX_BYTES && ret->root[0] == '/' &&
           is_uuid(ret->uuid);
}

void copy_want_encode(uint32_t rank, const char *uuid, struct buf *b)
{
    wire_put_u32(b, rank);
    wire_put_str(b, uuid);
}

bool copy_want_decode(const struct channel_frame *f, uint32_t *ret_rank,
                      char ret_uuid[COMMIT_UUID_BYTES])
{
    struct wire_reader r = wire_reader(f->data, f->len);

    *ret_rank = wire_get_u32(&r);
    wire_get_str(&r, ret_uuid, COMMIT_UUID_BYTES);
    return f->type == SNAP_COPY_WANT && wire_done(&r) &&
           *ret_rank < MAX_RANKS && is_uuid(ret_uuid);
}

void copy_refused_decode(const struct channel_frame *f, struct error *ret)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    uint32_t code = wire_get_u32(&r);
    char why[256];

    wire_get_str(&r, why, sizeof(why));
    error_text(ret, wire_done(&r) && code > 0 && code < 4096 ? (int)code : EPROTO,
               "%s", why);
}

/* --- who comes no further --- */

static bool is_stuck(const struct copy_out *o)
{
    const struct snap_copy *c = o->copy;

    return uv_now(c->config.loop) - o->moved_ms >= c->config.stuck_ms;
}

/* A thread gets its memory, which takes longer than stuck_ms where it is much. */
static bool is_late(const struct snap_copy *c, const struct copy_in *in)
{
    unsigned times = in->is_ready ? 1 : MAKING_TIMES;

    return uv_now(c->config.loop) - in->moved_ms >=
           (uint64_t)c->config.stuck_ms * times;
}

/* One that we have asked for, and has not been offered yet, has the time of its link. */
static bool is_offered(const struct copy_in *in)
{
    return in->question > 0;
}

static void on_watch(uv_timer_t *t)
{
    struct snap_copy *c = t->data;
    struct error e = {0};

    error_text(&e, ETIMEDOUT, "no progress for %u s", c->config.stuck_ms / 1000);
    for (struct copy_in *in = c->ins, *next; in; in = next) {
        next = in->next;
        if (is_offered(in) && is_late(c, in)) {
            copy_in_end(in, &e);
        } else if (is_offered(in) && !in->is_ready) {
            link_send(in->link, SNAP_COPY_MAKING, NULL, 0);
        }
    }
    if (c->outs && c->outs->is_begun && is_stuck(c->outs)) {
        copy_out_end(c->outs, &e);
    }
    copy_watch(c);
}

void copy_watch(struct snap_copy *c)
{
    if (!c->outs && !c->ins) {
        uv_timer_stop(c->watch);
    } else if (!uv_is_active((uv_handle_t *)c->watch)) {
        uv_timer_start(c->watch, on_watch, LOOK_MS, LOOK_MS);
    }
}

/* --- what frames are sealed with --- */

static void prepare(uv_work_t *work)
{
    (void)work;
    aead_prepare();
}

static void after_prepare(uv_work_t *work, int status)
{
    (void)status; /* without, the first chunk has it done */
    free(work);
}

/* By a thread, before there is something to send: the loop would stand still meanwhile. */
static void prepare_to_seal(uv_loop_t *loop)
{
    uv_work_t *work = calloc(1, sizeof(*work));

    if (work && uv_queue_work(loop, work, prepare, after_prepare) < 0) {
        free(work);
    }
}

/* --- life --- */

int snap_copy_create(const struct snap_copy_config *config,
                     struct snap_copy **ret, struct error *e)
{
    struct snap_copy *c = calloc(1, sizeof(*c));

    if (c) {
        c->pace = loop_timer_create(config->loop, c);
        c->watch = loop_timer_create(config->loop, c);
    }
    if (!c || !c->pace || !c->watch) {
        loop_timer_close(c ? c->pace : NULL);
        loop_timer_close(c ? c->watch : NULL);
        free(c);
        return error_set(e, ENOMEM, "copy snapshots");
    }
    c->config = *config;
    memcpy(c->key, config->key, sizeof(c->key));
    prepare_to_seal(config->loop);
    *ret = c;
    return 0;
}

void snap_copy_destroy(struct snap_copy *c)
{
    if (!c) {
        return;
    }
    copy_outs_forget(c);
    copy_ins_forget(c);
    loop_timer_close(c->pace);
    loop_timer_close(c->watch);
    sodium_memzero(c->key, sizeof(c->key));
    free(c);
}

void snap_copy_hold(struct snap_copy *c, struct snap_hold *copies)
{
    copy_ins_forget(c);
    c->copies = copies;
}
