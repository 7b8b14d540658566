/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who counts as lost. A link that breaks says little: its child, and those who spoke
 * through it, have time to come back, here or below another parent. Who does not is
 * given up; who is known to be dead at once.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/str.h"
#include "base/wire.h"

static void on_lost_timer(uv_timer_t *timer);

static void expect_back(struct tree *t, uint32_t rank, uint64_t ms,
                        uint64_t word_ms, const char *why)
{
    struct below *b = &t->below[rank];
    uint64_t due = tree_now_ms(t) + ms;

    if (b->lost || (b->due_ms && b->due_ms <= due)) {
        return;
    }
    b->due_ms = due;
    b->quiet_at_ms = word_ms > b->word_ms ? word_ms : b->word_ms;
    b->dead = false;
    str_copy(b->why, sizeof(b->why), why);
    if (!uv_is_active((uv_handle_t *)t->lost) ||
        uv_timer_get_due_in(t->lost) > ms) {
        uv_timer_start(t->lost, on_lost_timer, ms, 0);
    }
}

struct tree_loss tree_loss_of(const struct tree *t, uint32_t rank)
{
    const struct below *b = &t->below[rank];
    struct tree_loss loss = {.dead = b->dead,
                             .quiet_ms = tree_now_ms(t) - b->quiet_at_ms};

    str_copy(loss.why, sizeof(loss.why), b->why);
    return loss;
}

void tree_send_lost(struct tree *t, uint32_t rank)
{
    struct tree_loss loss = tree_loss_of(t, rank);
    _buf_ struct buf bytes = {0};
    _buf_ struct buf b = {0};

    tree_loss_encode(&loss, &bytes);
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, bytes.data, bytes.len);
    tree_send_up(t, TREE_LOST, &b);
}

/* The lead waits a little before it believes it: who reconnects to another
 * parent is not lost. */
void tree_pass_lost(struct tree *t, uint32_t rank, uint32_t via,
                    const struct tree_loss *loss)
{
    struct below *b = &t->below[rank];
    uint64_t now = tree_now_ms(t);

    if (b->other == via) {
        b->other = NO_RANK;
    }
    if (b->via != NO_RANK && b->via != via) {
        return; /* it has found another way here */
    }
    expect_back(t, rank, tree_is_lead(t) && !loss->dead ? TREE_RETURN_MS : 0,
                now > loss->quiet_ms ? now - loss->quiet_ms : 0, loss->why);
    if (loss->dead && b->due_ms) {
        b->dead = true;
        tree_give_up(t, rank);
    }
}

/* Whether another child has spoken for this one since its own link was heard of last:
 * then it is there, and has had the words that came both ways. */
static bool goes_on_elsewhere(struct tree *t, const struct child *c)
{
    struct below *b = &t->below[c->rank];

    if (b->via != c->rank || b->other == NO_RANK ||
        b->other_ms <= link_last_heard_ms(c->link) ||
        !tree_child_of(t, b->other)) {
        return false;
    }
    b->word_ms = c->word_ms > b->word_ms ? c->word_ms : b->word_ms;
    b->via = b->other;
    b->other = NO_RANK;
    return true;
}

/* All that spoke through this child have to find another way. The time for that
 * is what it takes to see that a parent is silent, and to dial past it. */
void tree_child_lost(struct tree *t, const struct child *c, uint64_t return_ms,
                     const char *why)
{
    uint32_t child = c->rank;

    if (!goes_on_elsewhere(t, c) &&
        (t->below[child].via == NO_RANK || t->below[child].via == child)) {
        expect_back(t, child, return_ms, c->word_ms, why);
    }
    for (uint32_t i = 0; i < t->n_below; i++) {
        if (t->below[i].other == child) {
            t->below[i].other = NO_RANK;
        }
        if (i != child && t->below[i].via == child) {
            expect_back(t, i, t->config.lease_ms + 2 * tree_connect_ms(t),
                        c->word_ms, "its parent in the tree was lost, and it "
                        "found no other");
        }
    }
}

void tree_give_up(struct tree *t, uint32_t rank)
{
    struct tree_loss loss = tree_loss_of(t, rank);
    struct below *b = &t->below[rank];

    b->due_ms = 0;
    b->lost = true;
    if (tree_is_lead(t)) {
        t->ops.on_lost(t->config.ctx, rank, &loss);
    } else {
        tree_send_lost(t, rank);
    }
    if (loss.dead && t->ops.on_dead) {
        t->ops.on_dead(t->config.ctx, rank);
    }
    buf_clear(&b->follow);
    if (t->ops.on_unfollow) {
        t->ops.on_unfollow(t->config.ctx, rank);
    }
}

void tree_is_dead(struct tree *t, uint32_t rank)
{
    if (t->below[rank].due_ms) {
        t->below[rank].dead = true;
        tree_give_up(t, rank);
    } else if (!t->below[rank].dead) {
        t->below[rank].dead = true;
        if (t->ops.on_dead) {
            t->ops.on_dead(t->config.ctx, rank);
        }
    }
}

/* Gives up those who did not come back in time. */
static void give_up_lost(struct tree *t)
{
    uint64_t now = tree_now_ms(t), next = UINT64_MAX;

    for (uint32_t rank = 0; rank < t->n_below; rank++) {
        uint64_t due = t->below[rank].due_ms;

        if (due && due <= now) {
            tree_give_up(t, rank);
        } else if (due) {
            next = due < next ? due : next;
        }
    }
    if (next != UINT64_MAX) {
        uv_timer_start(t->lost, on_lost_timer, next - now, 0);
    }
}

static void on_lost_timer(uv_timer_t *timer)
{
    give_up_lost(timer->data);
}
