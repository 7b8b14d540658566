/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity that is kept here, in memory that counts beside that of copies. Of each set the
 * newest two saves stay: the one before is whole while the next one comes.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { KEPT_OF_A_SET = 2 };

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
int parity_kept_grow(struct snap_parity *c, struct parity_memory *m, uint64_t bytes,
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

void parity_kept_free(struct snap_parity *c, struct parity_kept *k,
                      const struct error *e)
{
    struct parity_kept **at = &c->kept;

    for (struct parity_in *in = c->ins, *next; in; in = next) {
        next = in->next;
        if (in->kept == k) {
            parity_in_end(in, e);
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

struct parity_kept *parity_kept_add(struct snap_parity *c, const struct parity_group *g,
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

/* --- what becomes of saves --- */

void parity_kept_tell(struct snap_parity *c, const struct parity_kept *k)
{
    unsigned i = 0;

    while (k->coming[i] != PARITY_THERE) {
        i++;
    }
    c->config.on_whole(c->config.arg, &k->heads[i], &k->group);
}

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
            parity_kept_tell(c, k);
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
