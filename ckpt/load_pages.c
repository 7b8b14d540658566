/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/load_priv.h"

#include "base/pages.h"
#include "base/thread.h"
#include "ckpt/dtype.h"

#include <stdlib.h>

enum {
    NEAR_BYTES = 4096,        /* what lies closer to each other has no page between it */
    MANY_BYTES = 64 << 10,    /* to ask for fewer costs more than it saves */
    UNIT_BYTES = 2 << 20,     /* as huge pages have */
    AHEAD_BYTES = 16 << 20,   /* to get less ahead is not worth a thread */
};

/* Memory, all of which is filled, and which of the units its first one is. */
struct load_range {
    uintptr_t begin, end; /* not empty */
    size_t first;
};

void load_pages_planned(struct load_pages *p)
{
    p->is_planned = true;
}

void load_pages_end(struct load_pages *p)
{
    p->is_over = true;
    if (p->has_first) {
        pthread_join(p->first, NULL);
        p->has_first = false;
    }
    while (p->n_others > 0) {
        pthread_join(p->others[--p->n_others], NULL);
    }
}

void load_pages_release(struct load_pages *p)
{
    load_pages_end(p);
    free(p->ranges);
    free(p->range_of);
    free(p->is_made);
    *p = (struct load_pages){0};
}

static uint64_t bytes_of(const struct load_want *w)
{
    uint64_t n = 0, bytes = 0;

    return box_volume_of(w->n_dims, w->len, &n) && dtype_bytes(w->dtype, n, &bytes) ? bytes
                                                                                    : 0;
}

/* --- what is filled --- */

/* Tensors that follow one another in memory are one range. */
static void add(struct load_pages *p, uintptr_t begin, uintptr_t end)
{
    struct load_range *last = p->n > 0 ? &p->ranges[p->n - 1] : NULL;

    if (last && begin >= last->end && begin - last->end < NEAR_BYTES) {
        last->end = end;
    } else {
        p->ranges[p->n++] = (struct load_range){begin, end, 0};
    }
}

/* Units begin at multiples of their size. A last range, without any, says how many there
 * are. */
static void count_units(struct load_pages *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct load_range *r = &p->ranges[i];

        r->first = p->n_units;
        p->n_units += (r->end - 1) / UNIT_BYTES - r->begin / UNIT_BYTES + 1;
    }
    p->ranges[p->n].first = p->n_units;
}

static bool is_worth_it(uintptr_t begin, uintptr_t end)
{
    return end - begin >= MANY_BYTES && pages_are_sparse((void *)begin, end - begin);
}

/* As it is before anything is loaded: who loads touches what another one is to get. */
static void leave_what_is_there(struct load_pages *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct load_range *r = &p->ranges[i];
        uintptr_t begin = r->begin, end;

        for (size_t k = r->first; k < r[1].first; k++, begin = end) {
            end = begin - begin % UNIT_BYTES + UNIT_BYTES;
            end = end < r->end ? end : r->end;
            p->is_made[k] = !is_worth_it(begin, end);
        }
    }
}

static void list(struct load_pages *p)
{
    size_t n = p->n_wants;
    uint64_t sum = 0;

    p->ranges = calloc(n + 1, sizeof(*p->ranges));
    p->range_of = n < UINT32_MAX ? calloc(n + 1, sizeof(*p->range_of)) : NULL;
    for (size_t i = 0; i < n && p->ranges && p->range_of; i++) {
        uint64_t bytes = bytes_of(&p->wants[i]);

        if (bytes > 0) {
            add(p, (uintptr_t)p->to[i], (uintptr_t)p->to[i] + bytes);
            p->range_of[i] = (uint32_t)(p->n - 1);
            sum += bytes;
        }
    }
    if (p->n > 0) {
        count_units(p);
        p->is_made = calloc(p->n_units, sizeof(*p->is_made));
        p->n_units = p->is_made ? p->n_units : 0;
    }
    if (p->n_units > 0) {
        leave_what_is_there(p);
        hugepages_look(&p->huge, sum);
    }
}

/* --- getting it --- */

/* The unit of the range which has this address. False: somebody else does it, or did. */
static bool take_on(struct load_pages *p, const struct load_range *r, uintptr_t at,
                    uintptr_t *ret_begin, uintptr_t *ret_end)
{
    uintptr_t begin = at - at % UNIT_BYTES, end = begin + UNIT_BYTES;
    size_t number = r->first + at / UNIT_BYTES - r->begin / UNIT_BYTES;

    *ret_begin = begin > r->begin ? begin : r->begin;
    *ret_end = end < r->end ? end : r->end;
    return !atomic_exchange(&p->is_made[number], true);
}

/* A huge page, where that is all of one. */
static bool take_huge(struct load_pages *p, uintptr_t begin, uintptr_t end)
{
    return end - begin == UNIT_BYTES && p->huge.bytes == UNIT_BYTES &&
           hugepages_take(&p->huge, (char *)begin);
}

static void make(struct load_pages *p, const struct load_range *r, uintptr_t at)
{
    uintptr_t begin, end;

    if (take_on(p, r, at, &begin, &end) && !take_huge(p, begin, end)) {
        pages_take((void *)begin, end - begin);
    }
}

void load_pages_get(struct load_pages *p, size_t want, size_t at, size_t len)
{
    uintptr_t from = (uintptr_t)p->to[want] + at, end = from + len;

    while (p->n_units > 0 && from < end) {
        make(p, &p->ranges[p->range_of[want]], from);
        from += UNIT_BYTES - from % UNIT_BYTES;
    }
}

void load_pages_make(struct load_pages *p, const struct load_job *job,
                     const struct plan_span *s)
{
    for (size_t i = s->first; i < s->first + s->n && p->n_units > 0; i++) {
        const struct plan_piece *piece = &job->plan.pieces[i];

        if (piece->to != PLAN_APART) {
            load_pages_get(p, piece->want, piece->to, piece->end - piece->begin);
        }
    }
}

/* --- ahead --- */

/* Of a unit's number and a range. */
static int compare(const void *number, const void *range)
{
    const struct load_range *r = range;
    size_t n = *(const size_t *)number;

    return n < r->first ? -1 : n >= r[1].first;
}

/* Page by page: who plans maps memory of its own, which the kernel lets wait for up to 4 ms
 * where another thread is hardly ever outside such a call. Nothing is touched, as what lies
 * between two tensors is not the program's to touch. Later, all that is left at once, which
 * takes half as long. */
static void take_by_and_by(const struct load_pages *p, uintptr_t begin, uintptr_t end)
{
    size_t page = pages_bytes(), n;

    for (uintptr_t at = begin; at < end; at += n) {
        n = p->is_planned || end - at < page ? end - at : page;
        pages_take((void *)at, n);
    }
}

static void *get_ahead(void *arg)
{
    struct load_pages *p = arg;
    uintptr_t begin, end;
    size_t number;

    while (!p->is_over && (number = atomic_fetch_add(&p->next, 1)) < p->n_units) {
        const struct load_range *r = bsearch(&number, p->ranges, p->n, sizeof(*r), compare);
        uintptr_t at = (r->begin / UNIT_BYTES + (number - r->first)) * UNIT_BYTES;

        if (take_on(p, r, at > r->begin ? at : r->begin, &begin, &end) &&
            !take_huge(p, begin, end)) {
            take_by_and_by(p, begin, end);
        }
    }
    return NULL;
}

static void *list_and_get(void *arg)
{
    struct load_pages *p = arg;

    list(p);
    while (p->n_others < p->max_others &&
           thread_start_beside(&p->others[p->n_others], get_ahead, p) == 0) {
        p->n_others++;
    }
    return get_ahead(p);
}

static bool is_much(const struct load_pages *p)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < p->n_wants && sum < AHEAD_BYTES; i++) {
        sum += bytes_of(&p->wants[i]);
    }
    return sum >= AHEAD_BYTES;
}

void load_pages_begin(struct load_pages *p, const struct load_want *wants, char *const *to,
                      size_t n, unsigned n_threads)
{
    unsigned most = n_threads < LOAD_PAGES_THREADS ? n_threads : LOAD_PAGES_THREADS;

    *p = (struct load_pages){.wants = wants, .to = to, .n_wants = n};
    p->max_others = most < 2 ? 0 : most - 2; /* the caller is one, too */
    p->has_first = most >= 2 && is_much(p) &&
                   thread_start_beside(&p->first, list_and_get, p) == 0;
    if (!p->has_first) {
        list(p);
    }
}
