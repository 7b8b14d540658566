/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot is made again, in memory for copies: what the others have of its stripes
 * is added up there as it comes, and counts when it has the digests that keepers of
 * parity have noted as they added its pieces. Who turns out to be gone, too, is left
 * out, and it begins anew, as long as the parities make up for that. One at a time.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_MS = 5000 };

static const struct link_ops ask_ops;

/* --- the end of it --- */

static void forget_asks(struct parity_build *b)
{
    while (b->asks) {
        struct parity_ask *a = b->asks;

        b->asks = a->next;
        link_close(a->link);
        free(a);
    }
}

static void forget(struct parity_build *b)
{
    struct parity_build **at = &b->parity->builds;

    while (*at != b) {
        at = &(*at)->next;
    }
    *at = b->next;
    forget_asks(b);
    free(b);
}

void parity_builds_forget(struct snap_parity *c)
{
    while (c->builds) {
        forget(c->builds);
    }
}

static void end(struct parity_build *b, const struct error *e)
{
    struct snap_parity *c = b->parity;
    const struct parity_kept *k = parity_kept_find(c, b->head.uuid, b->head.rank);
    uint32_t from = k ? k->group.agents[b->member] : 0;
    struct snap_head head = b->head;
    bool is_ordered = b->is_ordered;
    struct error why = {0};

    if (e) {
        why = *e;
    }
    forget(b);
    parity_go_on(c);
    c->config.on_built(c->config.arg, &head, from, is_ordered, &why);
}

/* The memory that it is made in, while it is; its bytes behind the page. */
static unsigned char *target_of(const struct parity_build *b)
{
    struct snap *s = snap_hold_fill(b->parity->config.copies, b->head.rank,
                                    b->head.uuid);

    return s && s->room >= parity_image_bytes(&b->head)
               ? (unsigned char *)s->map + SNAP_PAGE_BYTES
               : NULL;
}

/* --- what is asked for --- */

static uint64_t empty_of(const struct parity_kept *k)
{
    uint64_t set = 0;

    for (unsigned i = 0; i < k->group.shape.n; i++) {
        set |= k->group.ranks[i] == PARITY_NO_RANK ? PARITY_BIT(i) : 0;
    }
    return set;
}

/* Of this agent's own rank no pieces have come here. */
static uint64_t image_bytes_of(const struct parity_build *b,
                               const struct parity_kept *k, unsigned member)
{
    const struct snap *s;

    if (k->group.ranks[member] == PARITY_NO_RANK) {
        return 0;
    }
    if (member != k->me) {
        return parity_image_bytes(&k->heads[member]);
    }
    s = snap_hold_get(b->parity->config.own, k->group.ranks[member], b->head.uuid);
    return s ? parity_image_bytes(&s->head) : 0;
}

static struct parity_ask *ask_of(struct parity_build *b, unsigned member,
                                 uint32_t rank)
{
    struct parity_ask *a = b->asks;

    while (a && a->member != member) {
        a = a->next;
    }
    if (!a) {
        a = calloc(1, sizeof(*a));
        if (a) {
            a->build = b;
            a->member = member;
            a->want.rank = rank;
            a->want.lost = b->head.rank;
            str_copy(a->want.uuid, sizeof(a->want.uuid), b->head.uuid);
            a->moved_ms = uv_now(b->parity->config.loop);
            a->next = b->asks;
            b->asks = a;
        }
    }
    return a;
}

/* What that member has for the piece at `to`, of `len` bytes. */
static int want(struct parity_build *b, const struct parity_kept *k, unsigned stripe,
                unsigned member, uint8_t factor, uint64_t to, uint64_t len)
{
    struct parity_ask *a = ask_of(b, member, k->group.ranks[member]);
    int parity = parity_kept(&k->group.shape, stripe, member);
    struct parity_seg s = {.kept = (uint8_t)(parity + 1), .len = len};
    uint64_t has;

    if (!a) {
        return -ENOMEM;
    }
    if (parity < 0) {
        parity_piece(&k->group.shape, stripe, member, image_bytes_of(b, k, member),
                     &s.at, &has);
        s.len = has < len ? has : len;
    }
    if (s.len > 0) { /* beyond what it has are zeros */
        a->to[a->want.n] = to;
        a->factors[a->want.n] = factor;
        a->want.segs[a->want.n++] = s;
    }
    return 0;
}

static int plan(struct parity_build *b, const struct parity_kept *k, struct error *e)
{
    const struct parity *shape = &k->group.shape;
    uint8_t factors[PARITY_MAX_MEMBERS];
    uint64_t at, len;

    for (unsigned s = 0; s < shape->n; s++) {
        if (parity_kept(shape, s, b->member) >= 0) {
            continue;
        }
        if (parity_solve(shape, s, b->member, b->gone, empty_of(k), factors) < 0) {
            return error_text(e, ENODATA, "%d of %u nodes of the group are gone, and "
                              "parity makes up for %u",
                              __builtin_popcountll(b->gone), shape->n, shape->m);
        }
        parity_piece(shape, s, b->member, parity_image_bytes(&b->head), &at, &len);
        for (unsigned i = 0; i < shape->n; i++) {
            if (factors[i] && want(b, k, s, i, factors[i], at, len) < 0) {
                return error_set(e, ENOMEM, "make a snapshot again");
            }
        }
    }
    return 0;
}

static void note_sums(struct parity_build *b, const struct parity_sums *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        b->has_sum |= PARITY_BIT(s->stripes[i]);
        b->sums[s->stripes[i]] = s->sums[i];
    }
}

static int connect_ask(struct parity_ask *a, const struct parity_kept *k,
                       struct error *e)
{
    struct snap_parity *c = a->build->parity;
    _strlist_ struct strlist addrs = {0};
    struct link_target target = {.timeout_ms = CONNECT_MS};

    if (!c->config.find(c->config.arg, k->group.agents[a->member], &addrs,
                        &target.port) || addrs.failed) {
        return error_text(e, ENOENT, "node %u is not known",
                          k->group.agents[a->member]);
    }
    target.addrs = addrs.items;
    return link_connect(c->config.loop, &target, c->key, &ask_ops, a, &a->link, e);
}

/* From nothing, with those that are not gone. */
static int start(struct parity_build *b, struct error *e)
{
    const struct parity_kept *k = parity_kept_find(b->parity, b->head.uuid,
                                                   b->head.rank);
    unsigned char *to = target_of(b);
    struct parity_sums here;
    int rc;

    forget_asks(b);
    if (!to || !k || !k->is_whole) {
        return error_text(e, ECANCELED, "its parity, or the memory for it, is gone");
    }
    memset(to, 0, parity_image_bytes(&b->head));
    parity_kept_sums(k, b->member, &here);
    note_sums(b, &here);
    rc = plan(b, k, e);
    for (struct parity_ask *a = b->asks; a && rc == 0; a = a->next) {
        if (a->member != k->me) {
            rc = connect_ask(a, k, e);
        }
    }
    parity_go_on(b->parity);
    return rc;
}

static void start_or_end(struct parity_build *b)
{
    struct error e = {0};

    if (start(b, &e) < 0) {
        end(b, &e);
    }
}

/* Once more without that one, where it can be done: that is found out first thing. */
static void leave_out(struct parity_ask *a, const struct error *e)
{
    struct parity_build *b = a->build;
    const struct parity_kept *k = parity_kept_find(b->parity, b->head.uuid,
                                                   b->head.rank);
    struct error why = {0};

    if (!k || a->member == k->me ||
        (unsigned)__builtin_popcountll(b->gone) >= k->group.shape.m) {
        error_text(&why, e->code, "node %u: %s",
                   k ? k->group.agents[a->member] : 0, e->text);
        end(b, &why);
        return;
    }
    b->gone |= PARITY_BIT(a->member);
    start_or_end(b);
}

static void fail(struct parity_ask *a, int code, const char *text)
{
    struct error e = {0};

    error_text(&e, code, "%s", text);
    leave_out(a, &e);
}

/* --- what comes --- */

static uint64_t sum_of(const unsigned char *at, uint64_t len)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < len; i += PARITY_CHUNK_BYTES) {
        sum = copy_sum(sum, at + i, len - i < PARITY_CHUNK_BYTES ? (size_t)(len - i)
                                                                 : PARITY_CHUNK_BYTES);
    }
    return sum;
}

static bool is_right(const struct parity_build *b, const struct parity_kept *k,
                     const unsigned char *image)
{
    const struct parity *shape = &k->group.shape;
    uint64_t at, len;

    for (unsigned s = 0; s < shape->n; s++) {
        if (parity_kept(shape, s, b->member) >= 0) {
            continue;
        }
        parity_piece(shape, s, b->member, parity_image_bytes(&b->head), &at, &len);
        if (!(b->has_sum & PARITY_BIT(s)) || sum_of(image + at, len) != b->sums[s]) {
            return false;
        }
    }
    return true;
}

static void look_if_over(struct parity_build *b)
{
    const struct snap_head *h = &b->head;
    const struct parity_kept *k = parity_kept_find(b->parity, h->uuid, h->rank);
    const unsigned char *image = target_of(b);
    struct error e = {0};

    for (const struct parity_ask *a = b->asks; a; a = a->next) {
        if (!a->is_over) {
            return;
        }
    }
    if (!k || !image) {
        error_text(&e, ECANCELED, "its parity, or the memory for it, is gone");
    } else if (!is_right(b, k, image)) {
        error_text(&e, ERR_FORMAT, "what was made again of rank %u differs from what "
                   "it has saved", h->rank);
    } else {
        snap_hold_done(b->parity->config.copies, h->rank, h->uuid, h->image_bytes,
                       h->part_bytes, &e);
    }
    end(b, &e);
}

/* False: more than was asked for. */
static bool add(struct parity_ask *a, const unsigned char *bytes, size_t len)
{
    unsigned char *to = target_of(a->build);

    if (!to || a->i == a->want.n || len == 0 || len > a->want.segs[a->i].len - a->at) {
        return false;
    }
    parity_add(to + a->to[a->i] + a->at, bytes, len, a->factors[a->i]);
    a->at += len;
    if (a->at == a->want.segs[a->i].len) {
        a->i++;
        a->at = 0;
    }
    a->moved_ms = uv_now(a->build->parity->config.loop);
    return true;
}

static void on_up(struct link *l, void *ctx)
{
    struct parity_ask *a = ctx;
    struct buf b = {0};
    int rc;

    parity_want_encode(&a->want, &b);
    rc = b.failed ? -ENOMEM : link_send_buf(l, SNAP_PARITY_WANT, &b);
    buf_release(&b);
    a->moved_ms = uv_now(a->build->parity->config.loop);
    if (rc < 0) {
        fail(a, ENOMEM, "no memory to ask for it");
    }
}

static void take_end(struct parity_ask *a, const struct channel_frame *f)
{
    struct parity_build *b = a->build;
    struct parity_sums s;

    if (a->i < a->want.n || !parity_sums_decode(f, &s)) {
        fail(a, EPROTO, "less came than was asked for");
        return;
    }
    note_sums(b, &s);
    a->is_over = true;
    look_if_over(b);
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct parity_ask *a = ctx;
    struct error e = {0};

    (void)l;
    if (f->type == SNAP_COPY_REFUSED) {
        copy_refused_decode(f, &e);
        leave_out(a, &e);
    } else if (f->type == SNAP_PARITY_READY && a->i == 0 && a->at == 0) {
        a->moved_ms = uv_now(a->build->parity->config.loop);
    } else if (f->type == SNAP_PARITY_END && !a->is_over) {
        take_end(a, f);
    } else if (f->type != SNAP_PARITY_DATA || !add(a, f->data, f->len)) {
        fail(a, EPROTO, "what came was not asked for");
    }
}

static void on_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct parity_ask *a = ctx;
    const struct error e = *why; /* the link goes */

    (void)l;
    (void)closed;
    if (!a->is_over) {
        leave_out(a, &e);
    }
}

static const struct link_ops ask_ops = {
    .on_up = on_up, .on_frame = on_frame, .on_down = on_down};

/* --- what is here --- */

static const unsigned char *find_here(const struct parity_ask *a)
{
    const struct snap_parity *c = a->build->parity;
    const struct parity_seg *s = &a->want.segs[a->i];
    const struct parity_kept *k = parity_kept_find(c, a->want.uuid, a->want.lost);
    const struct snap *snap = snap_hold_get(c->config.own, a->want.rank,
                                            a->want.uuid);
    uint64_t room = !k ? 0 : k->memory[s->kept ? s->kept - 1 : 0].room;

    if (s->kept == 0) {
        return snap ? (const unsigned char *)snap_image(snap) + s->at : NULL;
    }
    return s->len <= room ? k->memory[s->kept - 1].at : NULL;
}

/* A chunk of it in each turn of the loop. */
static void add_here(struct parity_ask *a)
{
    struct snap_parity *c = a->build->parity;
    const unsigned char *from;
    uint64_t left;

    if (a->i == a->want.n) {
        a->is_over = true;
        look_if_over(a->build);
        return;
    }
    from = find_here(a);
    left = a->want.segs[a->i].len - a->at;
    if (!from || !add(a, from + a->at, left < PARITY_CHUNK_BYTES
                                           ? (size_t)left : PARITY_CHUNK_BYTES)) {
        fail(a, ECANCELED, "it is not in memory any more");
        return;
    }
    parity_go_on(c);
}

/* --- one after the other --- */

static void get_memory(struct parity_build *b)
{
    const struct snap_head *h = &b->head;
    const struct snap_rank who = {.rank = h->rank, .n_ranks = h->n_ranks,
                                  .generation = h->generation, .token = h->token};
    struct error e = {0};

    b->is_begun = true;
    if (snap_hold_get(b->parity->config.copies, h->rank, h->uuid)) {
        end(b, NULL); /* somebody has asked twice */
        return;
    }
    if (snap_hold_begin(b->parity->config.copies, &who, h->step, h->uuid, h->root,
                        parity_image_bytes(h), b->question, &e) < 0) {
        end(b, &e);
    }
}

void snap_parity_begun(struct snap_parity *c, uint64_t question, const struct snap *s,
                       const struct error *e)
{
    struct parity_build *b = c->builds;

    while (b && b->question != question) {
        b = b->next;
    }
    if (b && s) {
        b->is_ready = true;
        start_or_end(b);
    } else if (b) {
        end(b, e);
    }
}

void parity_builds_go_on(struct snap_parity *c)
{
    struct parity_build *b = c->builds;
    struct parity_ask *a;

    if (b && !b->is_begun) {
        get_memory(b);
        return;
    }
    a = b && b->is_ready ? b->asks : NULL;
    while (a && (a->link || a->is_over)) {
        a = a->next;
    }
    if (a) {
        add_here(a);
    }
}

static struct parity_build *find_build(const struct snap_parity *c, uint32_t rank,
                                       const char *uuid)
{
    struct parity_build *b = c->builds;

    while (b && (b->head.rank != rank || strcmp(b->head.uuid, uuid) != 0)) {
        b = b->next;
    }
    return b;
}

static const struct parity_kept *find_whole(const struct snap_parity *c, uint32_t rank,
                                            const char *uuid)
{
    const struct parity_kept *k = parity_kept_find(c, uuid, rank);

    return k && k->is_whole && parity_member_of_rank(&k->group, rank) != k->me ? k
                                                                               : NULL;
}

const struct parity_group *snap_parity_find(const struct snap_parity *c, uint32_t rank,
                                            const char *uuid)
{
    const struct parity_kept *k = find_whole(c, rank, uuid);

    return k ? &k->group : NULL;
}

static void append(struct snap_parity *c, struct parity_build *b)
{
    struct parity_build **at = &c->builds;

    while (*at) {
        at = &(*at)->next;
    }
    *at = b;
    parity_go_on(c);
    parity_watch(c);
}

int snap_parity_build(struct snap_parity *c, const struct snap_parity_order *order,
                      struct error *e)
{
    const struct parity_kept *k = find_whole(c, order->rank, order->uuid);
    struct parity_build *b = find_build(c, order->rank, order->uuid);

    if (b) {
        b->is_ordered = b->is_ordered || order->is_ordered;
        return 0;
    }
    if (!k) {
        return error_text(e, ENOENT, "there is no whole parity of rank %u, save %s",
                          order->rank, order->uuid);
    }
    b = calloc(1, sizeof(*b));
    if (!b) {
        return error_set(e, ENOMEM, "make a snapshot again");
    }
    b->parity = c;
    b->member = parity_member_of_rank(&k->group, order->rank);
    b->head = k->heads[b->member];
    b->gone = PARITY_BIT(b->member);
    b->is_ordered = order->is_ordered;
    b->question = SNAP_PARITY_QUESTION | ++c->n_questions;
    for (size_t i = 0; i < order->n_lost; i++) {
        unsigned m = parity_member(&k->group, order->lost[i]);

        b->gone |= m < PARITY_MAX_MEMBERS && m != k->me ? PARITY_BIT(m) : 0;
    }
    append(c, b);
    return 0;
}

void parity_builds_watch(struct snap_parity *c, const struct error *late)
{
    struct parity_build *b = c->builds;
    struct parity_ask *a = b && b->is_ready ? b->asks : NULL;

    while (a && (a->is_over || !a->link || !parity_is_stuck(c, a->moved_ms, 1))) {
        a = a->next;
    }
    if (a) {
        leave_out(a, late);
    }
}
