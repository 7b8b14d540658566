/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes up, one parent at a time, and down, to all children. The newest report
 * and follow of each rank are kept: a parent that is found later has to know them.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

void tree_send_below(struct tree *t, enum tree_type type, const void *data,
                     size_t len)
{
    for (struct child *c = t->children; c; c = c->next) {
        link_send(c->link, (uint16_t)type, data, len);
    }
}

void tree_keep(struct buf *b, const void *data, size_t len)
{
    buf_clear(b);
    buf_append(b, data, len);
}

void tree_publish_config(struct tree *t, uint64_t age_ms, const void *data, size_t len)
{
    tree_keep(&t->config_data, data, len);
    t->config_ms = tree_now_ms(t) - age_ms;
    for (struct child *c = t->children; c; c = c->next) {
        tree_send_config(t, c->link);
    }
}

void tree_send_config(struct tree *t, struct link *l)
{
    _buf_ struct buf b = {0};

    tree_config_encode(tree_now_ms(t) - t->config_ms, t->config_data.data,
                       t->config_data.len, &b);
    link_send_buf(l, TREE_CONFIG, &b);
}

void tree_publish_order(struct tree *t, const struct buf *order)
{
    tree_keep(&t->order, order->data, order->len);
    tree_send_below(t, TREE_ORDER, order->data, order->len);
}

void tree_ask(struct tree *t, const void *json, size_t len)
{
    tree_send_below(t, TREE_ASK, json, len);
}

void tree_send_up(struct tree *t, enum tree_type type, const struct buf *b)
{
    if (t->up_ready) {
        link_send_buf(t->up, (uint16_t)type, b);
    }
}

struct child *tree_child_of(struct tree *t, uint32_t rank)
{
    struct child *c = t->children;

    while (c && c->rank != rank) {
        c = c->next;
    }
    return c;
}

/* It is heard another way than so far: words of the one before may have come, too. */
static void keep_word(struct tree *t, struct below *b)
{
    const struct child *before =
        b->via == NO_RANK ? NULL : tree_child_of(t, b->via);
    uint64_t word_ms = before ? before->word_ms : b->quiet_at_ms;

    b->word_ms = word_ms > b->word_ms ? word_ms : b->word_ms;
}

/* The child `via` speaks for `rank` from now on, but its last beat was without it. */
static void expect_beat(struct tree *t, uint32_t rank, uint32_t via)
{
    struct child *c = via == rank ? NULL : tree_child_of(t, via);

    if (c && c->n_new < TREE_MAX_SEEN) {
        c->n_new++;
    }
}

/* `rank` was heard through the child `via`. Where it has a link of its own, either a
 * parent that it has left repeats what it knew, or it has left us, and the link, which
 * is cut, does not say so. Its silence will tell: see tree_child_lost(). */
void tree_heard(struct tree *t, uint32_t rank, uint32_t via)
{
    struct below *b = &t->below[rank];

    if (via != rank && tree_child_of(t, rank)) {
        if (b->other != via) {
            expect_beat(t, rank, via);
        }
        b->other = via;
        b->other_ms = tree_now_ms(t);
        return;
    }
    if (b->via != via || b->due_ms) {
        keep_word(t, b);
    }
    if (b->via != via || b->due_ms || b->lost) {
        expect_beat(t, rank, via);
    }
    b->other = NO_RANK;
    b->via = via;
    b->lost = false;
    b->dead = false;
    b->due_ms = 0;
}

/* A report of `rank`, from itself or from below. */
void tree_pass_report(struct tree *t, uint32_t rank, const void *data,
                      size_t len)
{
    _buf_ struct buf b = {0};

    if (tree_is_lead(t)) {
        t->ops.on_report(t->config.ctx, data, len);
        return;
    }
    tree_keep(&t->below[rank].report, data, len);
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, data, len);
    tree_send_up(t, TREE_REPORT, &b);
}

void tree_report(struct tree *t, const struct buf *report)
{
    tree_pass_report(t, t->config.rank, report->data, report->len);
}

/* Of one that nobody follows any more, because it leads, none is kept. */
void tree_pass_follow(struct tree *t, uint32_t rank, const void *data,
                      size_t len)
{
    _buf_ struct buf b = {0};

    tree_keep(&t->below[rank].follow, data, len);
    if (t->ops.on_follow && (tree_is_lead(t) || !t->up_ready)) {
        t->ops.on_follow(t->config.ctx, data, len);
        return;
    }
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, data, len);
    tree_send_up(t, TREE_FOLLOW, &b);
}

void tree_follow(struct tree *t, const struct buf *follow)
{
    tree_pass_follow(t, t->config.rank, follow->data, follow->len);
}

void tree_pass_here(struct tree *t, uint32_t rank)
{
    _buf_ struct buf b = {0};

    if (tree_is_lead(t)) {
        t->ops.on_here(t->config.ctx, rank);
        return;
    }
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, NULL, 0);
    tree_send_up(t, TREE_HERE, &b);
}

void tree_tell_front(struct tree *t, enum tree_type type, const struct buf *b)
{
    if (tree_is_lead(t)) {
        tree_send_up(t, type, b);
    }
}

void tree_tell_top(struct tree *t)
{
    if (t->ops.on_top) {
        t->ops.on_top(t->config.ctx, true);
    }
    for (uint32_t i = 0; t->ops.on_follow && i < t->n_below; i++) {
        const struct buf *follow = &t->below[i].follow;

        if (follow->len && !t->below[i].lost) {
            t->ops.on_follow(t->config.ctx, follow->data, follow->len);
        }
    }
}
