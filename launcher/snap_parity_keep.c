/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's end: pieces of others are added up. Of each set the newest two saves
 * stay: the one before is whole while the next one comes.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    KEPT_OF_A_SET = 2,
    WAIT_TIMES = 12, /* as long for the others of a set as for one */
};

/* --- memory --- */

static void memory_free(struct snap_parity *c, struct parity_memory *m)
{
    if (m->at) {
        munmap(m->at, m->room);
        c->bytes -= m->room;
    }
    *m = (struct parity_memory){0};
}

/* What is new of it is zero. */
static int memory_grow(struct snap_parity *c, struct parity_memory *m, uint64_t bytes,
                       struct error *e)
{
    uint64_t room = (bytes + SNAP_PAGE_BYTES - 1) / SNAP_PAGE_BYTES * SNAP_PAGE_BYTES;
    void *at;

    if (room <= m->room) {
        return 0;
    }
    if (snap_hold_beside(c->config.copies, c->bytes - m->room + room, e) < 0) {
        return -ENOMEM;
    }
    at = m->at ? mremap(m->at, m->room, room, MREMAP_MAYMOVE)
               : mmap(NULL, room, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        snap_hold_beside(c->config.copies, c->bytes, NULL);
        return error_set(e, errno, "get %llu MiB for parity",
                         (unsigned long long)(room >> 20));
    }
    c->bytes += room - m->room;
    m->at = at;
    m->room = room;
    return 0;
}

/* --- what is kept --- */

struct parity_kept *parity_kept_find(const struct snap_parity *c, const char *uuid,
                                     uint32_t rank)
{
    for (struct parity_kept *k = c->kept; k; k = k->next) {
        if (strcmp(k->uuid, uuid) == 0 &&
            parity_member_of_rank(&k->group, rank) < PARITY_MAX_MEMBERS) {
            return k;
        }
    }
    return NULL;
}

void parity_kept_sums(const struct parity_kept *k, unsigned member,
                      struct parity_sums *ret)
{
    const struct parity *shape = &k->group.shape;

    ret->n = 0;
    for (unsigned i = 0; i < shape->m; i++) {
        unsigned stripe = parity_stripe(shape, k->me, i);

        if (k->coming[member] == PARITY_THERE &&
            parity_kept(shape, stripe, member) < 0) {
            ret->stripes[ret->n] = stripe;
            ret->sums[ret->n++] = k->sums[member][i];
        }
    }
}

static void in_end(struct parity_in *in, const struct error *e)
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

void parity_kept_free(struct snap_parity *c, struct parity_kept *k,
                      const struct error *e)
{
    struct parity_kept **at = &c->kept;

    for (struct parity_in *in = c->ins, *next; in; in = next) {
        next = in->next;
        if (in->kept == k) {
            in_end(in, e);
        }
    }
    while (*at != k) {
        at = &(*at)->next;
    }
    *at = k->next;
    for (unsigned i = 0; i < PARITY_MAX; i++) {
        memory_free(c, &k->memory[i]);
    }
    snap_hold_beside(c->config.copies, c->bytes, NULL);
    free(k->heads);
    free(k);
}

/* A part of a sum is in it, and the rest will not come. */
static void spoil(struct parity_in *in, const struct error *e)
{
    const struct error why = *e; /* it may be the link's, which goes */

    parity_kept_free(in->parity, in->kept, &why);
}

void snap_parity_drop(struct snap_parity *c)
{
    struct error e = {0};

    error_text(&e, ENOMEM, "its memory is needed for snapshots of the node itself");
    while (c->kept) {
        parity_kept_free(c, c->kept, &e);
    }
}

/* What is on the disk goes first, and then what will not be whole: who saves again has
 * given that up. */
static bool is_before(const struct parity_kept *a, const struct parity_kept *b)
{
    return a->is_settled != b->is_settled ? a->is_settled
           : a->is_whole != b->is_whole   ? !a->is_whole
                                          : a->step < b->step;
}

/* Memory of the oldest of the set is that of the new one. */
static void make_way(struct snap_parity *c, struct parity_kept *k)
{
    struct parity_kept *oldest = NULL;
    struct error e = {0};
    unsigned n = 0;

    for (struct parity_kept *o = c->kept; o; o = o->next) {
        if (o->group.index == k->group.index) {
            n++;
            oldest = !oldest || is_before(o, oldest) ? o : oldest;
        }
    }
    if (n < KEPT_OF_A_SET) {
        return;
    }
    error_text(&e, ECANCELED, "a later save has come");
    for (unsigned i = 0; i < k->group.shape.m; i++) {
        k->memory[i] = oldest->memory[i];
        oldest->memory[i] = (struct parity_memory){0};
        if (k->memory[i].at) {
            memset(k->memory[i].at, 0, k->memory[i].room);
        }
    }
    parity_kept_free(c, oldest, &e);
}

static struct parity_kept *add_kept(struct snap_parity *c, const struct parity_group *g,
                                    const struct snap_head *h)
{
    struct parity_kept *k = calloc(1, sizeof(*k));

    if (k) {
        k->heads = calloc(g->shape.n, sizeof(*k->heads));
    }
    if (!k || !k->heads) {
        free(k);
        return NULL;
    }
    k->group = *g;
    k->me = parity_member(g, c->config.agent);
    k->step = h->step;
    k->generation = h->generation;
    str_copy(k->uuid, sizeof(k->uuid), h->uuid);
    make_way(c, k);
    k->next = c->kept;
    c->kept = k;
    return k;
}

static bool is_same_group(const struct parity_group *a, const struct parity_group *b)
{
    size_t bytes = a->shape.n * sizeof(a->agents[0]);

    return a->shape.n == b->shape.n && a->shape.m == b->shape.m &&
           a->index == b->index && memcmp(a->agents, b->agents, bytes) == 0 &&
           memcmp(a->ranks, b->ranks, bytes) == 0;
}

/* --- what comes --- */

static void tell_whole(struct snap_parity *c, const struct parity_kept *k)
{
    unsigned i = 0;

    while (k->coming[i] != PARITY_THERE) {
        i++;
    }
    c->config.on_whole(c->config.arg, &k->heads[i], &k->group);
}

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
            in_end(in, NULL);
        }
    }
    tell_whole(c, k); /* last: it may be settled by that */
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

    if (in->is_over || !find_place(in) || f->len == 0 ||
        f->len > piece_bytes(in, in->k) - in->at) {
        fail(in, EPROTO, "more came than was offered");
        return;
    }
    parity_add(k->memory[in->k].at + in->at, f->data, f->len,
               parity_factor(&k->group.shape, in->k, in->from));
    in->sum = copy_sum(in->sum, f->data, f->len);
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
        in_end(in, NULL); /* what it had to give is here */
    } else {
        spoil(in, why);
    }
}

static const struct link_ops in_ops = {.on_frame = on_frame, .on_down = on_down};

/* --- offers --- */

/* Memory for all of its pieces. */
static int get_room(struct parity_in *in, struct error *e)
{
    for (unsigned k = 0; k < in->kept->group.shape.m; k++) {
        if (is_of(in, k) &&
            memory_grow(in->parity, &in->kept->memory[k], piece_bytes(in, k), e) < 0) {
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
        in->kept = add_kept(c, &g, &head);
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
        in_end(in, &e);
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

/* --- what becomes of saves --- */

void snap_parity_tell(struct snap_parity *c)
{
    /* Where this agent leads it may be settled on the way. */
    for (unsigned i = 0, at; ; i++) {
        const struct parity_kept *k = c->kept;

        for (at = 0; k && at < i; at++) {
            k = k->next;
        }
        if (!k) {
            return;
        }
        if (k->is_whole && !k->is_settled) {
            tell_whole(c, k);
        }
    }
}

/* Of workers that have gone: nobody adds to it, or replaces it. */
static void drop_older(struct snap_parity *c, uint32_t generation)
{
    struct error e = {0};

    error_text(&e, ECANCELED, "later workers have saved");
    for (struct parity_kept *k = c->kept, *next; k; k = next) {
        next = k->next;
        if (k->generation < generation) {
            parity_kept_free(c, k, &e);
        }
    }
}

void snap_parity_settle(struct snap_parity *c, const char *uuid, bool is_kept)
{
    uint32_t generation = 0;
    struct error e = {0};

    error_text(&e, ECANCELED, "the save came to nothing");
    for (struct parity_kept *k = c->kept, *next; k; k = next) {
        next = k->next;
        if (strcmp(k->uuid, uuid) != 0) {
            continue;
        }
        if (is_kept) {
            k->is_settled = true;
            generation = k->generation;
        } else {
            parity_kept_free(c, k, &e);
        }
    }
    drop_older(c, generation);
}
