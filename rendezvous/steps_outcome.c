/* SPDX-License-Identifier: Apache-2.0 */
/* What the core said to an event, as bytes: all of its actions, and of its state what
 * it tells of itself. */
#include <config.h>

#include "rendezvous/steps_priv.h"

static void put_rc(struct buf *b, int rc)
{
    wire_put_u32(b, (uint32_t)rc);
}

static void put_order_or_not(struct buf *b, const struct order *o)
{
    wire_put_u8(b, o != NULL);
    if (o) {
        steps_put_order(b, o);
    }
}

static void put_view_or_not(struct buf *b, const struct view *v)
{
    wire_put_u8(b, v != NULL);
    if (v) {
        steps_put_view(b, v);
    }
}

void steps_put_member_outcome(struct buf *b, const struct member *m, int rc,
                              const struct member_actions *do_)
{
    put_rc(b, rc);
    wire_put_u8(b, (uint8_t)do_->stop);
    wire_put_u32(b, do_->stop_grace_ms);
    wire_put_u32(b, do_->close_store);
    wire_put_u32(b, do_->open_store);
    put_order_or_not(b, do_->start);
    wire_put_u8(b, do_->send != NULL);
    if (do_->send) {
        report_encode(do_->send, b);
    }
    wire_put_u8(b, do_->has_verdict);
    wire_put_u8(b, do_->leave);
    wire_put_u64(b, do_->wake_ms);
    wire_put_u64(b, member_order(m) ? member_order(m)->serial : 0);
    wire_put_u8(b, member_status(m));
    wire_put_str(b, member_reason(m));
}

void steps_put_heir_outcome(struct buf *b, const struct heir *h, int rc,
                            const struct heir_actions *do_)
{
    put_rc(b, rc);
    wire_put_u32(b, do_->floor);
    wire_put_u64(b, do_->heard_ms);
    wire_put_u8(b, do_->obey);
    wire_put_u8(b, do_->quit);
    wire_put_u8(b, do_->follow != NULL);
    if (do_->follow) {
        follow_encode(do_->follow, b);
    }
    wire_put_u32(b, do_->seek);
    put_order_or_not(b, do_->order);
    put_view_or_not(b, do_->claim);
    wire_put_u8(b, do_->lead != NULL);
    if (do_->lead) {
        steps_put_heritage(b, do_->lead);
    }
    wire_put_str(b, do_->leave);
    wire_put_u64(b, do_->wake_ms);
    wire_put_str(b, heir_state_name(h));
    wire_put_u32(b, heir_view(h)->number);
    wire_put_u32(b, heir_view(h)->lead);
    wire_put_u64(b, heir_seen_ms(h));
}

static void put_note(struct buf *b, const struct lead_note *n)
{
    wire_put_u8(b, (uint8_t)n->type);
    wire_put_u32(b, n->generation);
    wire_put_u32(b, n->rank);
    wire_put_u8(b, n->failure != NULL);
    if (n->failure) {
        steps_put_failure(b, n->failure);
    }
    wire_put_str(b, n->text);
}

void steps_put_lead_outcome(struct buf *b, const struct lead *l, int rc,
                            const struct lead_actions *do_)
{
    put_rc(b, rc);
    put_order_or_not(b, do_->order);
    wire_put_u32(b, (uint32_t)do_->n_notes);
    for (size_t i = 0; i < do_->n_notes; i++) {
        put_note(b, &do_->notes[i]);
    }
    wire_put_u8(b, do_->ask_checkpoint);
    put_view_or_not(b, do_->claim);
    wire_put_u64(b, do_->wake_ms);
    wire_put_u8(b, do_->finished);
    wire_put_str(b, lead_phase_name(l));
    wire_put_u32(b, lead_generation(l));
    wire_put_u32(b, lead_n_restarts(l));
    wire_put_u32(b, lead_n_losses(l));
    wire_put_u32(b, lead_view(l)->number);
}
