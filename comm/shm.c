/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives over the segment (comm/segment.h). A worker drives its own chunks
 * through the three stages: it does whatever can be done now, results first, and
 * sleeps only when nothing can, on what its oldest chunk waits for. Since a
 * stage of a chunk waits only for earlier stages and older chunks, the oldest
 * chunk of all can always go on, and so there is no deadlock.
 */
#include <config.h>

#include "comm/shm_priv.h"

#include "base/cleanup.h"
#include "comm/ops.h"
#include "comm/reduce.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    SMALL_BYTES = 16384,
    PIECE_MIN = 32768, /* chunks are not made smaller than this */
};

static void shm_destroy(void *comm)
{
    struct shm *s = comm;

    if (!s) {
        return;
    }
    segment_destroy(s->seg);
    free(s->from);
    free(s);
}

DEFINE_CLEANUP(shm);

/* Spinning helps where the other side runs at the same time. */
static int spins_for(uint32_t n_workers)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0) {
        return SHM_SPINS; /* more CPUs than a cpu_set_t holds */
    }
    if (CPU_COUNT(&cpus) == 1) {
        return SHM_SPINS; /* bound: the others have theirs */
    }
    return (uint32_t)CPU_COUNT(&cpus) >= n_workers ? SHM_SPINS : 0;
}

static int shm_init(const struct comm_group *group, void **ret, struct error *e)
{
    _cleanup_(shm) struct shm *s = calloc(1, sizeof(*s));
    struct segment_worker *self;
    int rc;

    if (!s) {
        return error_set(e, ENOMEM, "collectives");
    }
    rc = segment_map(group->segment_fd, group->event_fd, &s->seg, e);
    if (rc < 0) {
        return rc;
    }
    if (group->local_rank < 0 ||
        (uint32_t)group->local_rank >= s->seg->spec.n_local ||
        s->seg->spec.world != (uint32_t)group->world ||
        (uint32_t)group->rank !=
            s->seg->spec.first_rank + (uint32_t)group->local_rank) {
        return error_text(e, EINVAL, "the segment is another group's");
    }
    s->n = s->seg->spec.n_local;
    s->me = (uint32_t)group->local_rank;
    s->from = calloc(s->n, sizeof(*s->from));
    if (!s->from) {
        return error_set(e, ENOMEM, "collectives");
    }
    s->workers = s->seg->head->workers;
    s->agent_fd = group->agent_fd;
    s->spins = spins_for(s->n);
    self = &s->workers[s->me];
    if (atomic_load(&self->left)) {
        return error_text(e, ECONNABORTED, "collectives cannot go on: the "
                          "program before this one in worker %u ended without "
                          "muster_finalize()", (unsigned)group->rank);
    }
    /* Not zero for who had finished and comes back. */
    s->chunk = atomic_load(&self->through[SEGMENT_OUT]);
    s->calls = atomic_load(&self->entered);
    if (atomic_load(&self->through[SEGMENT_IN]) != s->chunk) {
        return error_text(e, ECONNABORTED,
                          "this worker had left in the middle of a collective");
    }
    *ret = take_ptr(&s);
    return 0;
}

static void shm_finish(void *comm)
{
    struct shm *s = comm;

    segment_finish(s->seg, s->me);
}

static void shm_abort(void *comm, const char *why)
{
    struct shm *s = comm;

    segment_abort(s->seg, SEGMENT_ABORT_LOST, why);
}

/* Makes the call known, so that others can compare it with theirs. They keep at
 * most one call apart, because none ends before all have entered it. */
static void enter_call(struct shm *s, struct pass *p)
{
    struct segment_worker *w = &s->workers[s->me];

    w->calls[p->call.seq % 2] = p->call;
    s->calls++;
    atomic_store(&w->entered, s->calls);
    segment_event_signal(&w->event);
}

static int mismatch(const struct shm *s, const struct pass *p, uint32_t peer,
                    const struct segment_call *theirs, struct error *e)
{
    char why[SEGMENT_WHY_SIZE], a[96], b[96];

    segment_call_text(&p->call, a, sizeof(a));
    segment_call_text(theirs, b, sizeof(b));
    snprintf(why, sizeof(why),
             "calls differ: worker %u called %s, worker %u %s",
             s->seg->spec.first_rank + s->me, a, s->seg->spec.first_rank + peer,
             b);
    segment_abort(s->seg, SEGMENT_ABORT_MISMATCH, why);
    return shm_check_abort(s, e);
}

/* Waits for all to have entered, and compares. */
static int verify_call(struct shm *s, struct pass *p, struct error *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct segment_worker *w = &s->workers[i];
        struct segment_call theirs;
        int rc = shm_wait_counter(s, w, &w->entered, p->call.seq + 1, e);

        if (rc < 0) {
            return rc;
        }
        theirs = w->calls[p->call.seq % 2];
        if (!segment_call_equal(&p->call, &theirs)) {
            return mismatch(s, p, i, &theirs, e);
        }
    }
    p->is_verified = true;
    return 0;
}

static bool can_in(const struct shm *s, const struct pass *p)
{
    uint64_t c = p->at[SEGMENT_IN];

    return c < p->end &&
           (c < SEGMENT_DEPTH ||
            shm_who_lags(s, SEGMENT_OUT, c + 1 - SEGMENT_DEPTH) == s->n);
}

static bool can_red(const struct shm *s, const struct pass *p)
{
    uint64_t c = p->at[SEGMENT_RED];

    return p->is_verified && c < p->at[SEGMENT_IN] &&
           (p->is_small || shm_who_lags(s, SEGMENT_IN, c + 1) == s->n);
}

static bool can_out(const struct shm *s, const struct pass *p)
{
    uint64_t c = p->at[SEGMENT_OUT];

    if (c >= p->at[SEGMENT_RED]) {
        return false;
    }
    if (s->seg->spec.n_nodes > 1) {
        return atomic_load_explicit(&s->seg->head->done,
                                    memory_order_acquire) > c;
    }
    return shm_who_lags(s, p->is_small ? SEGMENT_IN : SEGMENT_RED,
                        c + 1) == s->n;
}

/* Sleeps for what the oldest chunk needs. */
static int wait_oldest(struct shm *s, struct pass *p, struct error *e)
{
    uint64_t c = p->at[SEGMENT_OUT];

    if (c < p->at[SEGMENT_RED] && s->seg->spec.n_nodes > 1) {
        return shm_wait_counter(s, NULL, &s->seg->head->done, c + 1, e);
    }
    if (c < p->at[SEGMENT_RED]) {
        return shm_wait_workers(s, p->is_small ? SEGMENT_IN : SEGMENT_RED,
                                c + 1, e);
    }
    if (c < p->at[SEGMENT_IN] && !p->is_verified) {
        return verify_call(s, p, e);
    }
    if (c < p->at[SEGMENT_IN]) {
        return shm_wait_workers(s, SEGMENT_IN, c + 1, e);
    }
    return shm_wait_workers(s, SEGMENT_OUT, c + 1 - SEGMENT_DEPTH, e);
}

static int run(struct shm *s, struct pass *p, struct error *e)
{
    int rc = shm_check_abort(s, e);

    if (rc < 0) {
        return rc;
    }
    enter_call(s, p);
    while (p->at[SEGMENT_OUT] < p->end) {
        if (can_out(s, p)) {
            shm_do_out(s, p);
        } else if (can_red(s, p)) {
            shm_do_red(s, p);
        } else if (can_in(s, p)) {
            shm_do_in(s, p);
        } else {
            rc = wait_oldest(s, p, e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    s->chunk = p->end;
    return 0;
}

/* Cuts the call into chunks: as many as the pipeline is deep where that leaves
 * them big enough, and at least one, which is what makes an empty call wait. */
static void cut(const struct shm *s, struct pass *p)
{
    size_t most = s->seg->spec.chunk_bytes;
    size_t piece = (p->n_bytes / SEGMENT_DEPTH + 4095) & ~(size_t)4095;
    size_t n;

    piece = piece < PIECE_MIN ? PIECE_MIN : piece;
    p->piece = piece < most ? piece : most;
    n = p->n_bytes / p->piece + (p->n_bytes % p->piece != 0);
    p->first = s->chunk;
    p->end = p->first + (n > 0 ? n : 1);
    for (int i = 0; i < 3; i++) {
        p->at[i] = p->first;
    }
}

static int shm_allreduce(void *comm, const void *send, void *recv,
                         size_t count, enum muster_type type,
                         enum muster_op op, struct error *e)
{
    struct shm *s = comm;
    struct pass p = {
        .call = {.seq = s->calls, .count = count, .kind = SEGMENT_ALLREDUCE,
                 .type = (uint32_t)type, .op = (uint32_t)op},
        .send = send,
        .recv = recv,
        .elem = comm_type_size(type),
    };

    p.n_bytes = count * p.elem;
    p.is_small = s->seg->spec.n_nodes == 1 && p.n_bytes <= SMALL_BYTES;
    cut(s, &p);
    return run(s, &p, e);
}

static int shm_broadcast(void *comm, void *data, size_t len, int root,
                         struct error *e)
{
    struct shm *s = comm;
    struct pass p = {
        .call = {.seq = s->calls, .count = len, .kind = SEGMENT_BROADCAST,
                 .root = (uint32_t)root},
        .send = data,
        .recv = data,
        .elem = 1,
        .n_bytes = len,
    };

    cut(s, &p);
    return run(s, &p, e);
}

static int shm_barrier(void *comm, struct error *e)
{
    struct shm *s = comm;
    struct pass p = {
        .call = {.seq = s->calls, .kind = SEGMENT_BARRIER},
        .elem = 1,
        .is_small = s->seg->spec.n_nodes == 1,
    };

    cut(s, &p);
    return run(s, &p, e);
}

const struct comm_ops comm_shm = {
    .name = "shm",
    .init = shm_init,
    .allreduce = shm_allreduce,
    .broadcast = shm_broadcast,
    .barrier = shm_barrier,
    .finish = shm_finish,
    .abort = shm_abort,
    .destroy = shm_destroy,
};
