/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_msg.h"

#include "base/wire.h"

void tree_hello_encode(const struct tree_hello *h, struct buf *b)
{
    wire_put_u32(b, h->rank);
    wire_put_u32(b, h->view);
    wire_put_str(b, h->run_id);
    wire_put_str(b, h->version);
}

int tree_hello_decode(const void *data, size_t len, struct tree_hello *ret,
                      struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    struct tree_hello h;

    h.rank = wire_get_u32(&r);
    h.view = wire_get_u32(&r);
    wire_get_str(&r, h.run_id, sizeof(h.run_id));
    wire_get_str(&r, h.version, sizeof(h.version));
    if (!wire_done(&r)) {
        return error_text(e, ERR_FORMAT, "a hello that does not parse");
    }
    *ret = h;
    return 0;
}

void tree_config_encode(uint64_t age_ms, const void *data, size_t len, struct buf *b)
{
    wire_put_u64(b, age_ms);
    buf_append(b, data, len);
}

void tree_output_encode(const struct tree_output *o, struct buf *b)
{
    wire_put_u32(b, o->node);
    wire_put_u32(b, o->generation);
    wire_put_u32(b, o->rank);
    wire_put_u8(b, o->which);
    wire_put_u8(b, o->piece);
    wire_put_bytes(b, o->data, o->len);
}

int tree_output_decode(const void *data, size_t len, struct tree_output *ret)
{
    struct wire_reader r = wire_reader(data, len);

    ret->node = wire_get_u32(&r);
    ret->generation = wire_get_u32(&r);
    ret->rank = wire_get_u32(&r);
    ret->which = wire_get_u8(&r);
    ret->piece = wire_get_u8(&r);
    ret->data = wire_get_bytes(&r, TREE_OUTPUT_MAX, &ret->len);
    return wire_done(&r) && ret->which <= 1 ? 0 : -ERR_FORMAT;
}

void tree_seen_put(struct buf *b, const struct tree_seen *s)
{
    wire_put_u32(b, s->view);
    wire_put_u64(b, s->all_ms);
    wire_put_u64(b, s->live_ms);
    wire_put_u32(b, s->n_suspect);
    wire_put_u32(b, s->n_quiet);
    wire_put_u32(b, s->n);
}

void tree_seen_get(struct wire_reader *r, struct tree_seen *ret)
{
    ret->view = wire_get_u32(r);
    ret->all_ms = wire_get_u64(r);
    ret->live_ms = wire_get_u64(r);
    ret->n_suspect = wire_get_u32(r);
    ret->n_quiet = wire_get_u32(r);
    ret->n = wire_get_u32(r);
    r->bad = r->bad || ret->n > TREE_MAX_SEEN || ret->n_suspect > ret->n ||
             ret->n_quiet > ret->n;
}

void tree_loss_encode(const struct tree_loss *l, struct buf *b)
{
    wire_put_u8(b, l->dead);
    wire_put_u64(b, l->quiet_ms);
    wire_put_str(b, l->why);
}

int tree_loss_decode(const void *data, size_t len, struct tree_loss *ret)
{
    struct wire_reader r = wire_reader(data, len);
    uint8_t dead = wire_get_u8(&r);

    *ret = (struct tree_loss){.dead = dead};
    ret->quiet_ms = wire_get_u64(&r);
    wire_get_str(&r, ret->why, sizeof(ret->why));
    return wire_done(&r) && dead <= 1 ? 0 : -ERR_FORMAT;
}
