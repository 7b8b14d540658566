/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/str.h"
#include "base/wire.h"
#include "rendezvous/order.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tree_remove_child(struct child *gone)
{
    struct tree *t = gone->tree;
    struct child **at = &t->children;

    while (*at != gone) {
        at = &(*at)->next;
    }
    *at = gone->next;
    link_close(gone->link);
    free(gone);
    tree_look_if_drained(t);
}

void tree_drop_elders(struct tree *t)
{
    struct child *next;

    for (struct child *c = t->children; c; c = next) {
        next = c->next;
        if (c->rank < t->config.rank) {
            tree_child_lost(t, c, t->config.lease_ms, "the lead has changed");
            tree_remove_child(c);
        }
    }
}

void tree_ask_again(struct tree *t)
{
    for (struct child *c = t->children; c; c = c->next) {
        if (c->is_ahead) {
            c->is_ahead = false;
            link_send(c->link, TREE_AGAIN, NULL, 0);
        }
    }
}

static bool is_rank(const struct tree *t, uint32_t rank)
{
    return rank < t->n_below;
}

/* A world that this agent is not in has newcomers that a child may know: what it tells of
 * them waits there until this one knows them, too; what is told once does so here. */
static void take_early(struct child *c, bool is_event, uint32_t rank, uint64_t number,
                       const void *data, size_t len)
{
    c->is_ahead = true;
    if (is_event) {
        tree_pass_event(c, rank, number, data, len);
    }
}

/* REPORT, FOLLOW, EVENT, LOST and HERE: a rank and a blob. Parents are of lower
 * ranks, so that what comes through a child is about that one, or about a higher
 * one. A parent of before, which is a child of the lead that this one is now, may speak of
 * this one, too: events that wait there are told, and of the rest this one knows better.
 * False if it makes no sense. */
static bool take_ranked(struct child *c, const struct channel_frame *f)
{
    struct tree *t = c->tree;
    struct wire_reader r = wire_reader(f->data, f->len);
    uint32_t rank = wire_get_u32(&r);
    bool is_event = f->type == TREE_EVENT;
    uint64_t number = is_event ? wire_get_u64(&r) : 0;
    size_t len;
    const void *data = wire_get_bytes(&r, CHANNEL_MAX_FRAME, &len);
    struct tree_loss loss;

    if (!wire_done(&r) || rank >= ORDER_MAX_NODES || rank < c->rank ||
        (f->type == TREE_LOST && tree_loss_decode(data, len, &loss) < 0)) {
        return false;
    }
    if (!is_rank(t, rank)) {
        take_early(c, is_event, rank, number, data, len);
        return true;
    }
    if (rank == t->config.rank && !is_event) {
        return true;
    }
    if (f->type == TREE_REPORT) {
        tree_heard(t, rank, c->rank);
        tree_pass_report(t, rank, data, len);
    } else if (f->type == TREE_FOLLOW) {
        tree_heard(t, rank, c->rank);
        tree_pass_follow(t, rank, data, len);
    } else if (is_event) {
        tree_pass_event(c, rank, number, data, len);
    } else if (f->type == TREE_HERE) {
        tree_heard(t, rank, c->rank);
        tree_pass_here(t, rank);
    } else {
        tree_pass_lost(t, rank, c->rank, &loss);
    }
    return true;
}

static void on_child_frame(struct link *l, const struct channel_frame *f,
                           void *ctx)
{
    struct child *c = ctx;
    bool good = true;

    (void)l;
    switch (f->type) {
    case TREE_REPORT:
    case TREE_FOLLOW:
    case TREE_EVENT:
    case TREE_LOST:
    case TREE_HERE:
        good = take_ranked(c, f);
        break;
    case TREE_OUTPUT:
        good = tree_take_output(c, f);
        break;
    case TREE_BEAT:
        good = tree_take_beat(c, f);
        break;
    default: /* newer types are none of ours */
        break;
    }
    if (!good) {
        tree_child_lost(c->tree, c, c->tree->config.lease_ms,
                        "it sent what makes no sense");
        tree_remove_child(c);
    }
}

static void on_child_down(struct link *l, bool closed,
                          const struct error *why, void *ctx)
{
    struct child *c = ctx;
    struct tree *t = c->tree;
    uint32_t rank = c->rank;
    struct error e = *why;
    char address[ADDR_MAX];

    str_copy(address, sizeof(address), link_peer(l));
    tree_child_lost(t, c, t->config.lease_ms, e.text);
    tree_remove_child(c);
    if (closed) {
        tree_look(t, rank, address);
    }
}

static const struct link_ops child_ops = {
    .on_frame = on_child_frame,
    .on_down = on_child_down,
};

static void refuse(struct link *l, const char *why)
{
    _buf_ struct buf b = {0};

    wire_put_str(&b, why);
    link_send_buf(l, TREE_REFUSED, &b);
    link_close(l);
}

/* NULL, or words: fixed ones, or in `text`. */
static const char *why_not(const struct tree *t, const struct tree_hello *h,
                           char text[2 * TREE_ID_BYTES + 64])
{
    if (strcmp(h->run_id, t->run_id) != 0) {
        return "another run";
    }
    if (!is_rank(t, h->rank) || h->rank == t->config.rank) {
        return "this rank is not in the run";
    }
    if (h->rank < t->config.rank && !tree_is_lead(t)) {
        return "this rank belongs to another part of the tree";
    }
    if (strcmp(h->version, t->version) != 0) {
        snprintf(text, 2 * TREE_ID_BYTES + 64, "it is of muster %s, and the "
                 "node above it of muster %s", h->version, t->version);
        return text;
    }
    return NULL;
}

static void welcome(struct tree *t, struct link *l)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, t->config.rank);
    wire_put_u32(&b, t->view);
    link_send_buf(l, TREE_WELCOME, &b);
    if (t->config_data.len) {
        tree_send_config(t, l);
    }
    if (t->order.len) {
        link_send_buf(l, TREE_ORDER, &t->order);
    }
}

void tree_on_peer(struct link *l, const struct channel_frame *first,
                  void *ctx)
{
    struct tree *t = ctx;
    struct tree_hello h;
    struct child *c, *old;
    char text[2 * TREE_ID_BYTES + 64];
    const char *why;

    if (first->type != TREE_HELLO && t->ops.on_stranger) {
        t->ops.on_stranger(t->config.ctx, l, first);
        return;
    }
    if (first->type != TREE_HELLO ||
        tree_hello_decode(first->data, first->len, &h, NULL) < 0) {
        link_close(l);
        return;
    }
    why = why_not(t, &h, text);
    c = why ? NULL : calloc(1, sizeof(*c));
    if (!c) {
        refuse(l, why ? why : "out of memory");
        return;
    }
    old = tree_child_of(t, h.rank);
    if (old) {
        tree_remove_child(old); /* it has come back before we saw it go */
    }
    tree_heard(t, h.rank, h.rank);
    tree_pass_here(t, h.rank); /* before it can have a word of the lead */
    *c = (struct child){.tree = t, .link = l, .rank = h.rank,
                        .id = ++t->n_links, .next = t->children};
    t->children = c;
    c->word_ms = tree_now_ms(t);
    link_adopt(l, &child_ops, c);
    welcome(t, l);
}
