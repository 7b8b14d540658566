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
unsigned char *parity_build_target(const struct parity_build *b)
{
    struct snap *s = snap_hold_fill(b->parity->config.copies, b->head.rank,
                                    b->head.uuid);

    return s && s->room >= parity_image_bytes(&b->head)
               ? (unsigned char *)s->map + SNAP_PAGE_BYTES
               : NULL;
}

/* --- with those that are not gone --- */

void parity_build_sums(struct parity_build *b, const struct parity_sums *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        b->has_sum |= PARITY_BIT(s->stripes[i]);
        b->sums[s->stripes[i]] = s->sums[i];
    }
}

/* From nothing, with those that are not gone. */
static int start(struct parity_build *b, struct error *e)
{
    const struct parity_kept *k = parity_kept_find(b->parity, b->head.uuid,
                                                   b->head.rank);
    unsigned char *to = parity_build_target(b);
    struct parity_sums here;
    int rc;

    forget_asks(b);
    if (!to || !k || !k->is_whole) {
        return error_text(e, ECANCELED, "its parity, or the memory for it, is gone");
    }
    memset(to, 0, parity_image_bytes(&b->head));
    parity_kept_sums(k, b->member, &here);
    parity_build_sums(b, &here);
    rc = parity_plan(b, k, e);
    for (struct parity_ask *a = b->asks; a && rc == 0; a = a->next) {
        if (a->member != k->me) {
            rc = parity_ask_connect(a, k, e);
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
void parity_build_without(struct parity_ask *a, const struct error *e)
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

/* --- whether it is right --- */

static uint64_t sum_of(const unsigned char *at, uint64_t len)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < len; i += PARITY_CHUNK_BYTES) {
        sum = parity_sum(sum, at + i, len - i < PARITY_CHUNK_BYTES ? (size_t)(len - i)
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

void parity_build_look(struct parity_build *b)
{
    const struct snap_head *h = &b->head;
    const struct parity_kept *k = parity_kept_find(b->parity, h->uuid, h->rank);
    const unsigned char *image = parity_build_target(b);
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
        parity_ask_here(a);
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
        parity_build_without(a, late);
    }
}
