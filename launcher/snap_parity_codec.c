/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"

#include <string.h>

enum {
    MAX_RANKS = 1 << 20,
    MAX_INDEX = 4096,      /* ranks of a node */
    MAX_HEAD_BYTES = 4096, /* as an offer of a copy */
};

/* As in snap_copy.c: far from where sums overflow. */
#define MAX_BYTES (UINT64_C(1) << 50)

void parity_offer_encode(const struct parity_group *g, const struct snap_head *h,
                         uint32_t from, struct buf *b)
{
    _buf_ struct buf head = {0};

    copy_offer_encode(h, from, &head);
    wire_put_u32(b, g->index);
    wire_put_u32(b, g->shape.m);
    wire_put_u32(b, g->shape.n);
    for (unsigned i = 0; i < g->shape.n; i++) {
        wire_put_u32(b, g->agents[i]);
        wire_put_u32(b, g->ranks[i]);
    }
    wire_put_bytes(b, head.data, head.len);
    b->failed = b->failed || head.failed;
}

static bool are_members(const struct parity_group *g, uint32_t n_ranks)
{
    for (unsigned i = 0; i < g->shape.n; i++) {
        if (g->ranks[i] != PARITY_NO_RANK && g->ranks[i] >= n_ranks) {
            return false;
        }
        for (unsigned j = 0; j < i; j++) {
            if (g->agents[i] == g->agents[j] ||
                (g->ranks[i] != PARITY_NO_RANK && g->ranks[i] == g->ranks[j])) {
                return false;
            }
        }
    }
    return true;
}

bool parity_offer_decode(const struct channel_frame *f, struct parity_group *ret_g,
                         struct snap_head *ret_h, uint32_t *ret_from)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    struct channel_frame head = {.type = SNAP_COPY_OFFER};
    unsigned me;

    memset(ret_g, 0, sizeof(*ret_g));
    ret_g->index = wire_get_u32(&r);
    ret_g->shape.m = wire_get_u32(&r);
    ret_g->shape.n = wire_get_u32(&r);
    if (f->type != SNAP_PARITY_OFFER || !parity_makes_sense(&ret_g->shape) ||
        ret_g->index >= MAX_INDEX) {
        return false;
    }
    for (unsigned i = 0; i < ret_g->shape.n; i++) {
        ret_g->agents[i] = wire_get_u32(&r);
        ret_g->ranks[i] = wire_get_u32(&r);
    }
    head.data = wire_get_bytes(&r, MAX_HEAD_BYTES, &head.len);
    if (!wire_done(&r) || !copy_offer_decode(&head, ret_h, ret_from) ||
        !are_members(ret_g, ret_h->n_ranks)) {
        return false;
    }
    me = parity_member(ret_g, *ret_from);
    return me < ret_g->shape.n && ret_g->ranks[me] == ret_h->rank;
}

void parity_want_encode(const struct parity_want *w, struct buf *b)
{
    wire_put_str(b, w->uuid);
    wire_put_u32(b, w->rank);
    wire_put_u32(b, w->lost);
    wire_put_u32(b, w->n);
    for (unsigned i = 0; i < w->n; i++) {
        wire_put_u8(b, w->segs[i].kept);
        wire_put_u64(b, w->segs[i].at);
        wire_put_u64(b, w->segs[i].len);
    }
}

static bool is_seg(const struct parity_seg *s)
{
    return s->kept <= PARITY_MAX && s->at <= MAX_BYTES && s->len > 0 &&
           s->len <= MAX_BYTES;
}

bool parity_want_decode(const struct channel_frame *f, struct parity_want *ret)
{
    struct wire_reader r = wire_reader(f->data, f->len);

    memset(ret, 0, sizeof(*ret));
    wire_get_str(&r, ret->uuid, sizeof(ret->uuid));
    ret->rank = wire_get_u32(&r);
    ret->lost = wire_get_u32(&r);
    ret->n = wire_get_u32(&r);
    if (f->type != SNAP_PARITY_WANT || ret->n > PARITY_MAX_SEGS ||
        (ret->rank >= MAX_RANKS && ret->rank != PARITY_NO_RANK) ||
        ret->lost >= MAX_RANKS) {
        return false;
    }
    for (unsigned i = 0; i < ret->n; i++) {
        ret->segs[i].kept = wire_get_u8(&r);
        ret->segs[i].at = wire_get_u64(&r);
        ret->segs[i].len = wire_get_u64(&r);
        if (!is_seg(&ret->segs[i])) {
            return false;
        }
    }
    return wire_done(&r) && strlen(ret->uuid) == COMMIT_UUID_BYTES - 1;
}

void parity_sums_encode(const struct parity_sums *s, struct buf *b)
{
    wire_put_u32(b, s->n);
    for (unsigned i = 0; i < s->n; i++) {
        wire_put_u32(b, s->stripes[i]);
        wire_put_u64(b, s->sums[i]);
    }
}

bool parity_sums_decode(const struct channel_frame *f, struct parity_sums *ret)
{
    struct wire_reader r = wire_reader(f->data, f->len);

    memset(ret, 0, sizeof(*ret));
    ret->n = wire_get_u32(&r);
    if (f->type != SNAP_PARITY_END || ret->n > PARITY_MAX_SEGS) {
        return false;
    }
    for (unsigned i = 0; i < ret->n; i++) {
        ret->stripes[i] = wire_get_u32(&r);
        ret->sums[i] = wire_get_u64(&r);
        if (ret->stripes[i] >= PARITY_MAX_MEMBERS) {
            return false;
        }
    }
    return wire_done(&r);
}
