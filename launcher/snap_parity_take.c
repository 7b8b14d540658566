/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's end of a link: pieces of one of the others are added to the parity that is
 * kept here, and noted down by their digests. Who goes away in the middle spoils it.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_TIMES = 12 }; /* as long for the others of a set as for one */

/* --- the end of it --- */

void parity_in_end(struct parity_in *in, const struct error *e)
{
    struct snap_parity *c = in->parity;
    struct parity_in **at = &c->ins;

    if (e) {
        copy_refuse(in->link, e);
    }
    while (*at != in) {
        at = &(*at)->next;
    }
    *at = in->next;
    link_close(in->link);
    free(in);
}

/* A part of a sum is in it, and the rest will not come. */
static void spoil(struct parity_in *in, const struct error *e)
{
    const struct error why = *e; /* it may be the link's, which goes */

    parity_kept_free(in->parity, in->kept, &why);
}

/* --- what comes --- */

/* One more is there: perhaps that was all. */
static void look_if_whole(struct snap_parity *c, struct parity_kept *k)
{
    for (unsigned i = 0; i < k->group.shape.n; i++) {
        if (i != k->me && k->group.ranks[i] != PARITY_NO_RANK &&
            k->coming[i] != PARITY_THERE) {
            return;
        }
    }
    k->is_whole = true;
    for (struct parity_in *in = c->ins, *next; in; in = next) {
        next = in->next;
        if (in->kept == k) {
            link_send(in->link, SNAP_PARITY_DONE, NULL, 0);
            parity_in_end(in, NULL);
        }
    }
    parity_kept_tell(c, k); /* last: it may be settled by that */
}

/* Its pieces are of our parities in order, but for those that it keeps as well. */
static bool is_of(const struct parity_in *in, unsigned k)
{
    const struct parity *shape = &in->kept->group.shape;

    return parity_kept(shape, parity_stripe(shape, in->kept->me, k), in->from) < 0;
}

static uint64_t piece_bytes(const struct parity_in *in, unsigned k)
{
    const struct parity *shape = &in->kept->group.shape;
    uint64_t at, len;

    parity_piece(shape, parity_stripe(shape, in->kept->me, k), in->from,
                 parity_image_bytes(&in->kept->heads[in->from]), &at, &len);
    return len;
}

/* To the next piece that has bytes which are not here yet. */
static bool find_place(struct parity_in *in)
{
    while (in->k < in->kept->group.shape.m &&
           (!is_of(in, in->k) || in->at == piece_bytes(in, in->k))) {
        if (is_of(in, in->k)) {
            in->kept->sums[in->from][in->k] = in->sum;
        }
        in->k++;
        in->at = in->sum = 0;
    }
    return in->k < in->kept->group.shape.m;
}

static void fail(struct parity_in *in, int code, const char *text)
{
    struct error e = {0};

    error_text(&e, code, "%s", text);
    spoil(in, &e);
}

static void take_data(struct parity_in *in, const struct channel_frame *f)
{
    struct parity_kept *k = in->kept;

    if (!find_place(in) || f->len == 0 || /* as behind the end */
        f->len > piece_bytes(in, in->k) - in->at) {
        fail(in, EPROTO, "more came than was offered");
        return;
    }
    parity_add(k->memory[in->k].at + in->at, f->data, f->len,
               parity_factor(&k->group.shape, in->k, in->from));
    in->sum = parity_sum(in->sum, f->data, f->len);
    in->at += f->len;
    in->moved_ms = uv_now(in->parity->config.loop);
}

static bool are_same_sums(const struct parity_in *in, const struct parity_sums *said)
{
    struct parity_sums s;

    in->kept->coming[in->from] = PARITY_THERE;
    parity_kept_sums(in->kept, in->from, &s);
    return s.n == said->n && memcmp(s.sums, said->sums, s.n * sizeof(s.sums[0])) == 0;
}

static void take_end(struct parity_in *in, const struct channel_frame *f)
{
    struct parity_sums said;

    if (in->is_over || find_place(in) || !parity_sums_decode(f, &said) ||
        !are_same_sums(in, &said)) {
        fail(in, ERR_FORMAT, "what came differs from what was sent");
        return;
    }
    in->is_over = true;
    in->moved_ms = uv_now(in->parity->config.loop);
    look_if_whole(in->parity, in->kept);
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    (void)l;
    if (f->type == SNAP_PARITY_DATA) {
        take_data(ctx, f);
    } else if (f->type == SNAP_PARITY_END) {
        take_end(ctx, f);
    } else {
        fail(ctx, EPROTO, "what came was not asked for");
    }
}

static void on_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct parity_in *in = ctx;

    (void)l;
    (void)closed;
    if (in->is_over) {
        parity_in_end(in, NULL); /* what it had to give is here */
    } else {
        spoil(in, why);
    }
}

static const struct link_ops in_ops = {.on_frame = on_frame, .on_down = on_down};

/* --- offers --- */

static bool is_same_group(const struct parity_group *a, const struct parity_group *b)
{
    size_t bytes = a->shape.n * sizeof(a->agents[0]);

    return a->shape.n == b->shape.n && a->shape.m == b->shape.m &&
           a->index == b->index && memcmp(a->agents, b->agents, bytes) == 0 &&
           memcmp(a->ranks, b->ranks, bytes) == 0;
}

/* Memory for all of its pieces. */
static int get_room(struct parity_in *in, struct error *e)
{
    for (unsigned k = 0; k < in->kept->group.shape.m; k++) {
        if (is_of(in, k) &&
            parity_kept_grow(in->parity, &in->kept->memory[k], piece_bytes(in, k),
                             e) < 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int take_offer(struct parity_in *in, const struct channel_frame *first,
                      struct error *e)
{
    struct snap_parity *c = in->parity;
    struct parity_group g;
    struct snap_head head;
    uint32_t from;

    if (!parity_offer_decode(first, &g, &head, &from) || from == c->config.agent ||
        parity_member(&g, c->config.agent) == PARITY_MAX_MEMBERS) {
        return error_text(e, EPROTO, "an offer of pieces that makes no sense");
    }
    in->from = parity_member(&g, from);
    in->kept = parity_kept_find(c, head.uuid, head.rank);
    if (!in->kept) {
        in->kept = parity_kept_add(c, &g, &head);
    }
    if (!in->kept) {
        return error_set(e, ENOMEM, "keep parity");
    }
    if (!is_same_group(&in->kept->group, &g) ||
        in->kept->coming[in->from] != PARITY_NONE) {
        return error_text(e, EPROTO, "pieces of that rank have come already, or "
                          "others see another group");
    }
    in->kept->coming[in->from] = PARITY_COMING;
    in->kept->heads[in->from] = head;
    return get_room(in, e);
}

void parity_offered(struct snap_parity *c, struct link *l,
                    const struct channel_frame *first)
{
    struct parity_in *in = calloc(1, sizeof(*in));
    struct error e = {0};

    if (!in) {
        error_set(&e, ENOMEM, "keep parity");
        copy_refuse(l, &e);
        link_close(l);
        return;
    }
    in->parity = c;
    in->link = l;
    in->moved_ms = uv_now(c->config.loop);
    in->next = c->ins;
    c->ins = in;
    link_adopt(l, &in_ops, in);
    if (take_offer(in, first, &e) == 0) {
        link_send(l, SNAP_PARITY_READY, NULL, 0);
    } else if (in->kept && e.code == ENOMEM) {
        spoil(in, &e); /* without this one it is nothing */
    } else {
        parity_in_end(in, &e);
    }
}

void parity_ins_watch(struct snap_parity *c, const struct error *late)
{
    struct parity_in *in = c->ins;

    while (in && !parity_is_stuck(c, in->moved_ms, in->is_over ? WAIT_TIMES : 1)) {
        in = in->next;
    }
    if (in) {
        spoil(in, late); /* others that are late: in a second */
    }
}
