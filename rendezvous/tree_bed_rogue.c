/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_bed_rogue.h"

#include "base/cleanup.h"
#include "base/wire.h"

static void rogue_output(struct rogue *r, const struct channel_frame *f)
{
    struct tree_output o = {0};
    struct wire_reader n;

    if (tree_output_decode(f->data, f->len, &o) < 0 || o.node >= BED_NODES) {
        r->in_order = false;
        return;
    }
    n = wire_reader(o.data, o.len);
    r->in_order = r->in_order && wire_get_u32(&n) == r->n_pieces[o.node];
    r->n_pieces[o.node]++;
    r->n_output += f->len;
    r->owed += f->len;
}

static void rogue_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    struct rogue *r = ctx;
    struct wire_reader age = wire_reader(f->data, f->len);

    (void)l;
    r->welcome |= f->type == TREE_WELCOME;
    r->is_asked_again |= f->type == TREE_AGAIN;
    if (f->type == TREE_BEAT && r->n_beats < 3) {
        r->stamp = wire_get_u64(&age);
        r->ages[r->n_beats++] = wire_get_u64(&age); /* from a parent */
    } else if (f->type == TREE_OUTPUT) {
        rogue_output(r, f);
    }
}

void rogue_on_down(struct link *l, bool closed, const struct error *why,
                   void *ctx)
{
    (void)l;
    (void)closed;
    (void)why;
    ((struct rogue *)ctx)->down = true;
}

static void rogue_up(struct link *l, void *ctx)
{
    (void)l;
    (void)ctx;
}

static const struct link_ops rogue_ops = {
    .on_up = rogue_up, .on_frame = rogue_frame, .on_down = rogue_on_down,
};

void rogue_beat(struct rogue *r, uint64_t stamp)
{
    static const struct tree_seen nothing = {.n = 1};
    _buf_ struct buf b = {0};

    wire_put_u64(&b, stamp);
    tree_seen_put(&b, &nothing);
    link_send_buf(r->link, TREE_BEAT, &b);
}

void rogue_word(struct link *l, uint64_t stamp, uint64_t age_ms)
{
    _buf_ struct buf b = {0};

    wire_put_u64(&b, stamp);
    wire_put_u64(&b, age_ms);
    wire_put_u32(&b, 0);
    wire_put_u64(&b, 0);
    link_send_buf(l, TREE_BEAT, &b);
}

bool rogue_is_down(struct world *w)
{
    return w->rogue->down;
}

static bool rogue_settled(struct world *w)
{
    return w->rogue->down || w->rogue->welcome;
}

void rogue_say(struct world *w, struct rogue *r, uint32_t to,
               enum tree_type type, const struct tree_hello *h)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {
        .addrs = addrs, .port = link_listener_port(w->nodes[to].listener),
        .timeout_ms = 3000};
    _buf_ struct buf b = {0};

    *r = (struct rogue){0};
    w->rogue = r;
    link_connect(&w->loop, &target, bed_key, &rogue_ops, r, &r->link, NULL);
    tree_hello_encode(h, &b);
    link_send_buf(r->link, (uint16_t)type, &b);
    bed_run_until(w, rogue_settled);
}

void rogue_join(struct world *w, struct rogue *r, uint32_t to, uint32_t rank)
{
    struct tree_hello h = {.rank = rank, .run_id = "run", .version = "v"};

    rogue_say(w, r, to, TREE_HELLO, &h);
}

void rogue_leave(struct rogue *r)
{
    link_close(r->link);
}

void rogue_accept(struct link *l, const struct channel_frame *first,
                  void *ctx)
{
    struct rogue *r = ctx;
    _buf_ struct buf b = {0};

    (void)first;
    wire_put_u32(&b, 0);
    link_close(r->link);
    r->link = l;
    r->welcome = true;
    link_adopt(l, &rogue_ops, r);
    link_send_buf(l, TREE_WELCOME, &b);
}

bool rogue_lead_has_front(struct world *w)
{
    return tree_has_uplink(w->nodes[0].tree);
}

struct link_listener *rogue_be_front(struct world *w, struct rogue *r)
{
    struct link_listener *front = NULL;

    link_listen(&w->loop, true, &front, NULL);
    link_listener_open(front, bed_key, rogue_accept, r);
    w->front_port = link_listener_port(front);
    bed_join(w, 0, "run");
    w->front_port = 0;
    return front;
}
