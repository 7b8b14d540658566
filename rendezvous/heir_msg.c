/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/heir_priv.h"

#include "rendezvous/mutant.h"

#define FOLLOW_FORMAT 2

void follow_encode(const struct follow *f, struct buf *b)
{
    wire_put_u8(b, FOLLOW_FORMAT);
    wire_put_u32(b, f->rank);
    wire_put_u64(b, f->serial);
    wire_put_u32(b, f->view);
    wire_put_u64(b, f->heard_ago_ms);
    wire_put_u64(b, f->order_serial);
    wire_put_u32(b, f->generation);
    wire_put_u8(b, f->has_verdict);
    wire_put_u8(b, f->status);
    wire_put_str(b, f->reason);
    past_put(b, &f->past);
}

int follow_decode(const void *data, size_t len, struct follow *ret,
                  struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    struct follow f = {0};
    uint8_t format = wire_get_u8(&r), has_verdict;

    if (len && format != FOLLOW_FORMAT) {
        return error_text(e, ERR_VERSION, "follow of format %u, expected %d",
                          format, FOLLOW_FORMAT);
    }
    f.rank = wire_get_u32(&r);
    f.serial = wire_get_u64(&r);
    f.view = wire_get_u32(&r);
    f.heard_ago_ms = wire_get_u64(&r);
    f.order_serial = wire_get_u64(&r);
    f.generation = wire_get_u32(&r);
    has_verdict = wire_get_u8(&r);
    f.has_verdict = has_verdict;
    f.status = wire_get_u8(&r);
    wire_get_str(&r, f.reason, sizeof(f.reason));
    past_get(&r, &f.past);
    if (has_verdict > 1 || f.rank >= ORDER_MAX_NODES || f.serial == 0 ||
        !wire_done(&r)) {
        return error_text(e, ERR_FORMAT, "malformed follow of %zu bytes", len);
    }
    *ret = f;
    return 0;
}

/* --- beats --- */

struct heir_seen heir_seen_own(const struct heir *h)
{
    uint64_t ms = heir_seen_ms(h);
    bool is_free = heir_is_free(h);

    return (struct heir_seen){.all_ms = ms, .live_ms = is_free ? HEIR_NEVER : ms,
                              .n_suspect = is_free};
}

void heir_seen_add(struct heir_seen *sum, const struct heir_seen *child)
{
    sum->all_ms = child->all_ms < sum->all_ms ? child->all_ms : sum->all_ms;
    sum->live_ms = child->live_ms < sum->live_ms ? child->live_ms
                                                 : sum->live_ms;
    sum->n_suspect += child->n_suspect;
    sum->n_quiet += child->n_quiet;
}
