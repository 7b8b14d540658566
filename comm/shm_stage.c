/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each worker reduces one stripe of each chunk, in the order of local ranks, so
 * a sum does not depend on timing. Small calls on a single node skip the second
 * stage: everybody reduces everything.
 */
#include <config.h>

#include "comm/shm_priv.h"

#include "comm/ops.h"
#include "comm/reduce.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void count_through(struct shm *s, struct pass *p,
                          enum segment_stage stage)
{
    struct segment_worker *w = &s->workers[s->me];

    p->at[stage]++;
    atomic_store(&w->through[stage], p->at[stage]);
    segment_event_signal(&w->event);
}

static size_t offset_of(const struct pass *p, uint64_t chunk)
{
    return (size_t)(chunk - p->first) * p->piece;
}

static size_t bytes_of(const struct pass *p, uint64_t chunk)
{
    size_t left = p->n_bytes - offset_of(p, chunk);

    return left < p->piece ? left : p->piece;
}

/* Worker i's stripe of a chunk: whole cache lines, the last one shorter. */
static void stripe_of(const struct shm *s, const struct pass *p, uint64_t chunk,
                      uint32_t i, size_t *ret_start, size_t *ret_len)
{
    size_t n_bytes = bytes_of(p, chunk);
    size_t each = ((n_bytes + s->n - 1) / s->n + 63) & ~(size_t)63;
    size_t start = i * each < n_bytes ? i * each : n_bytes;

    *ret_start = start;
    *ret_len = n_bytes - start < each ? n_bytes - start : each;
}

static bool is_root(const struct shm *s, const struct pass *p)
{
    return p->call.kind == SEGMENT_BROADCAST &&
           p->call.root == s->seg->spec.first_rank + s->me;
}

/* What others reduce is copied, and my own stripe only if they do that too. */
static void copy_input(struct shm *s, const struct pass *p, uint64_t c)
{
    uint8_t *to = segment_in(s->seg, s->me, c);
    const uint8_t *from = p->send + offset_of(p, c);
    size_t start = 0, len = 0, end = bytes_of(p, c);

    if (!p->is_small) {
        stripe_of(s, p, c, s->me, &start, &len);
    }
    memcpy(to, from, start);
    memcpy(to + start + len, from + start + len, end - start - len);
}

void shm_do_in(struct shm *s, struct pass *p)
{
    if (p->call.kind == SEGMENT_ALLREDUCE && p->n_bytes > 0) {
        copy_input(s, p, p->at[SEGMENT_IN]);
    }
    count_through(s, p, SEGMENT_IN);
}

/* Hands a chunk to the bulk mover; called by the last one to reduce it. */
static void post(struct shm *s, const struct pass *p, uint64_t c)
{
    struct segment_post *post = segment_post(s->seg, c);
    uint64_t one = 1;
    ssize_t n;

    atomic_store(&post->n_reduced, 0);
    post->n_bytes = (uint32_t)bytes_of(p, c);
    post->is_first = c == p->first;
    post->call = p->call;
    atomic_store(&post->seq, c + 1);
    do {
        n = write(s->seg->event_fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
}

static void reduce_stripe(struct shm *s, const struct pass *p, uint64_t c)
{
    size_t start, len;

    stripe_of(s, p, c, s->me, &start, &len);
    for (uint32_t i = 0; i < s->n; i++) {
        s->from[i] = i == s->me ? p->send + offset_of(p, c) + start
                                : segment_in(s->seg, i, c) + start;
    }
    reduce_arrays(segment_local(s->seg, c) + start, s->from, s->n,
                  len / p->elem, (enum muster_type)p->call.type,
                  (enum muster_op)p->call.op);
}

static void reduce(struct shm *s, const struct pass *p, uint64_t c)
{
    if (p->call.kind == SEGMENT_ALLREDUCE) {
        reduce_stripe(s, p, c);
    } else if (is_root(s, p)) {
        memcpy(segment_local(s->seg, c), p->send + offset_of(p, c),
               bytes_of(p, c));
    }
}

void shm_do_red(struct shm *s, struct pass *p)
{
    uint64_t c = p->at[SEGMENT_RED];

    if (p->n_bytes > 0 && !p->is_small) {
        reduce(s, p, c);
    }
    if (s->seg->spec.n_nodes > 1 &&
        atomic_fetch_add(&segment_post(s->seg, c)->n_reduced, 1) ==
            s->n - 1) {
        post(s, p, c);
    }
    count_through(s, p, SEGMENT_RED);
}

static void reduce_all(struct shm *s, const struct pass *p, uint64_t c)
{
    for (uint32_t i = 0; i < s->n; i++) {
        s->from[i] = segment_in(s->seg, i, c);
    }
    reduce_arrays(p->recv + offset_of(p, c), s->from, s->n,
                  bytes_of(p, c) / p->elem, (enum muster_type)p->call.type,
                  (enum muster_op)p->call.op);
}

void shm_do_out(struct shm *s, struct pass *p)
{
    uint64_t c = p->at[SEGMENT_OUT];

    if (p->n_bytes > 0 && p->is_small) {
        reduce_all(s, p, c);
    } else if (p->n_bytes > 0 && !is_root(s, p)) {
        const uint8_t *from = s->seg->spec.n_nodes > 1
                                  ? segment_global(s->seg, c)
                                  : segment_local(s->seg, c);

        memcpy(p->recv + offset_of(p, c), from, bytes_of(p, c));
    }
    count_through(s, p, SEGMENT_OUT);
}
