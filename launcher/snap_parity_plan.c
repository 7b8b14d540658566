/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each of the others is asked for, so that a snapshot can be made again: of each
 * stripe with a piece of it as much of the other pieces, and of as many parities, as it
 * takes (parity_solve()), and what each is to be multiplied by.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int parity_plan(struct parity_build *b, const struct parity_kept *k, struct error *e)
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
