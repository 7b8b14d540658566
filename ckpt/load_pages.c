/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/load_priv.h"

#include "base/pages.h"
#include "ckpt/dtype.h"

#include <stdint.h>
#include <stdlib.h>

enum {
    NEAR_BYTES = 4096,     /* what lies closer to each other has no page between it */
    MANY_BYTES = 64 << 10, /* to ask for fewer costs more than it saves */
};

void load_pages_release(struct load_pages *p)
{
    free(p->ends);
    free(p->begins);
    *p = (struct load_pages){0};
}

static uint64_t bytes_of(const struct load_job *job, const struct plan_want *w)
{
    struct index_tensor t = index_tensor(job->load->index, w->tensor);
    uint64_t n = 0, bytes = 0;

    return box_volume_of(t.n_dims, w->len, &n) && dtype_bytes(t.dtype, n, &bytes) ? bytes
                                                                                  : 0;
}

/* Tensors that follow one another in memory are one range, for each of them. */
static void join(struct load_pages *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        bool is_next = p->begins[i] >= p->ends[i - 1] &&
                       p->begins[i] - p->ends[i - 1] < NEAR_BYTES;

        p->begins[i] = is_next ? p->begins[i - 1] : p->begins[i];
    }
    for (size_t i = n; i-- > 1;) {
        p->ends[i - 1] = p->begins[i - 1] == p->begins[i] ? p->ends[i] : p->ends[i - 1];
    }
}

void load_pages_list(const struct load_job *job, struct load_pages *ret)
{
    size_t sum = 0;

    ret->begins = reallocarray(NULL, job->n + 1, sizeof(*ret->begins));
    ret->ends = reallocarray(NULL, job->n + 1, sizeof(*ret->ends));
    if (!ret->begins || !ret->ends) {
        ret->huge.is_over = true;
        return;
    }
    for (size_t i = 0; i < job->n; i++) {
        uint64_t bytes = bytes_of(job, &job->wants[i]);

        ret->begins[i] = (uintptr_t)job->to[i];
        ret->ends[i] = ret->begins[i] + bytes;
        sum += bytes;
    }
    hugepages_look(&ret->huge, sum);
    if (!ret->huge.is_over) {
        join(ret, job->n);
    }
}

/* Of those that lie in the range from `low` to `high`, which is filled as a whole. */
static void make(struct load_pages *p, uintptr_t begin, uintptr_t end, uintptr_t low,
                 uintptr_t high, uintptr_t *last)
{
    uintptr_t huge = p->huge.bytes;

    for (uintptr_t at = begin - begin % huge; at < end && !p->huge.is_over; at += huge) {
        char *page = (char *)at;

        if (at < low || at + huge > high || at == *last) {
            continue;
        }
        *last = at;
        if (pages_are_sparse(page, huge)) {
            hugepages_make(&p->huge, page);
        }
    }
}

static void take(uintptr_t begin, uintptr_t end)
{
    if (end - begin >= MANY_BYTES && pages_are_sparse((void *)begin, end - begin)) {
        pages_take((void *)begin, end - begin);
    }
}

static void take_all(const struct load_job *job, const struct plan_span *s)
{
    uintptr_t begin = 0, end = 0; /* of what follows one another so far */

    for (size_t i = s->first; i < s->first + s->n; i++) {
        const struct plan_piece *piece = &job->plan.pieces[i];
        uintptr_t at = (uintptr_t)job->to[piece->want] + piece->to;

        if (piece->to == PLAN_APART) {
            continue;
        }
        if (at < end || at - end >= NEAR_BYTES) {
            take(begin, end);
            begin = at;
        }
        end = at + (piece->end - piece->begin);
    }
    take(begin, end);
}

void load_pages_make(struct load_pages *p, const struct load_job *job,
                     const struct plan_span *s)
{
    uintptr_t last = 0;

    for (size_t i = s->first; i < s->first + s->n && !p->huge.is_over; i++) {
        const struct plan_piece *piece = &job->plan.pieces[i];
        uintptr_t begin = (uintptr_t)job->to[piece->want] + piece->to;

        if (piece->to != PLAN_APART) {
            make(p, begin, begin + (piece->end - piece->begin), p->begins[piece->want],
                 p->ends[piece->want], &last);
        }
    }
    take_all(job, s);
}
