/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives over the segment (comm/segment.h). A worker drives its own chunks
 * through the three stages: it does whatever can be done now, results first, and
 * sleeps only when nothing can, on what its oldest chunk waits for. Since a
 * stage of a chunk waits only for earlier stages and older chunks, the oldest
 * chunk of all can always go on, and so there is no deadlock.
 *
 * Each worker reduces one stripe of each chunk, in the order of local ranks, so
 * a sum does not depend on timing. Small calls on a single node skip the second
 * stage: everybody reduces everything.
 *
 * Every wait ends when the segment is aborted, or when the agent hangs up.
 */
#include <config.h>

#include "comm/ops.h"

#include "base/cleanup.h"
#include "comm/reduce.h"
#include "comm/segment.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    SMALL_BYTES = 16384,
    PIECE_MIN = 32768, /* chunks are not made smaller than this */
    SPINS = 200,
    YIELDS = 50,
    SLEEP_MS = 100, /* longest, between looks at the agent's socket */
};

struct shm {
    struct segment *seg;
    struct segment_worker *workers; /* shared */
    uint32_t n;
    uint32_t me;
    int agent_fd;
    int spins;
    uint64_t chunk; /* the next one */
    uint64_t calls; /* made so far */
    const void **from; /* room for n pointers */
};

/* One call on its way. Counters are absolute chunk numbers. */
struct pass {
    struct segment_call call;
    const uint8_t *send;
    uint8_t *recv;
    size_t n_bytes;
    size_t elem;  /* bytes of an element */
    size_t piece; /* bytes of a chunk of this call */
    bool is_small;
    bool is_verified; /* all called the same */
    uint64_t first;
    uint64_t end;
    uint64_t at[3]; /* the next chunk, by stage */
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
        return SPINS; /* more CPUs than a cpu_set_t holds */
    }
    if (CPU_COUNT(&cpus) == 1) {
        return SPINS; /* bound: the others have theirs */
    }
    return (uint32_t)CPU_COUNT(&cpus) >= n_workers ? SPINS : 0;
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

/* 0 while the group is whole. */
static int check_abort(const struct shm *s, struct error *e)
{
    char why[SEGMENT_WHY_SIZE];
    enum segment_abort_code code = segment_aborted(s->seg, NULL);

    if (code == SEGMENT_OK) {
        return 0;
    }
    segment_aborted(s->seg, why);
    return error_text(e, code == SEGMENT_ABORT_MISMATCH ? EINVAL : ECONNABORTED,
                      "%s", why);
}

static int check_agent(const struct shm *s, struct error *e)
{
    struct pollfd p = {.fd = s->agent_fd, .events = POLLRDHUP};

    if (s->agent_fd < 0 || poll(&p, 1, 0) <= 0 ||
        !(p.revents & (POLLHUP | POLLRDHUP | POLLERR))) {
        return 0;
    }
    segment_abort(s->seg, SEGMENT_ABORT_LOST, "the agent of this node is gone");
    return check_abort(s, e);
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Nobody gets any further if one that is waited for has ended. */
static int abort_left(const struct shm *s, const struct segment_worker *w,
                      struct error *e)
{
    char why[SEGMENT_WHY_SIZE];

    snprintf(why, sizeof(why),
             "worker %u has ended, and others wait for it in a collective",
             s->seg->spec.first_rank + (uint32_t)(w - s->workers));
    segment_abort(s->seg, SEGMENT_ABORT_LOST, why);
    return check_abort(s, e);
}

/* Waits until *counter, one of worker w's, or of the bulk mover where w is NULL,
 * is at least `target`. */
static int wait_counter(const struct shm *s, struct segment_worker *w,
                        const _Atomic uint64_t *counter, uint64_t target,
                        struct error *e)
{
    struct segment_event *ev = w ? &w->event : &s->seg->head->mover;

    for (int i = 0; i < s->spins + YIELDS; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= target) {
            return 0;
        }
        if (i < s->spins) {
            pause_cpu();
        } else {
            sched_yield();
        }
    }
    for (;;) {
        uint32_t seen = atomic_load(&ev->word);
        bool has_left = w && atomic_load(&w->left);
        int rc;

        if (atomic_load(counter) >= target) {
            return 0;
        }
        rc = check_abort(s, e);
        if (rc == 0) {
            rc = has_left ? abort_left(s, w, e) : check_agent(s, e);
        }
        if (rc < 0) {
            return rc;
        }
        segment_event_sleep(ev, seen, SLEEP_MS);
    }
}

/* The first worker that is not through with `target` chunks, or n. */
static uint32_t who_lags(const struct shm *s, enum segment_stage stage,
                         uint64_t target)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (atomic_load_explicit(&s->workers[i].through[stage],
                                 memory_order_acquire) < target) {
            return i;
        }
    }
    return s->n;
}

static int wait_workers(const struct shm *s, enum segment_stage stage,
                        uint64_t target, struct error *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct segment_worker *w = &s->workers[i];
        int rc = wait_counter(s, w, &w->through[stage], target, e);

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static void count_through(struct shm *s, struct pass *p,
                          enum segment_stage stage)
{
    struct segment_worker *w = &s->workers[s->me];

    p->at[stage]++;
    atomic_store(&w->through[stage], p->at[stage]);
    segment_event_signal(&w->event);
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
    return check_abort(s, e);
}

/* Waits for all to have entered, and compares. */
static int verify_call(struct shm *s, struct pass *p, struct error *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct segment_worker *w = &s->workers[i];
        struct segment_call theirs;
        int rc = wait_counter(s, w, &w->entered, p->call.seq + 1, e);

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

static void do_in(struct shm *s, struct pass *p)
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

static void do_red(struct shm *s, struct pass *p)
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

static void do_out(struct shm *s, struct pass *p)
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

static bool can_in(const struct shm *s, const struct pass *p)
{
    uint64_t c = p->at[SEGMENT_IN];

    return c < p->end &&
           (c < SEGMENT_DEPTH ||
            who_lags(s, SEGMENT_OUT, c + 1 - SEGMENT_DEPTH) == s->n);
}

static bool can_red(const struct shm *s, const struct pass *p)
{
    uint64_t c = p->at[SEGMENT_RED];

    return p->is_verified && c < p->at[SEGMENT_IN] &&
           (p->is_small || who_lags(s, SEGMENT_IN, c + 1) == s->n);
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
    return who_lags(s, p->is_small ? SEGMENT_IN : SEGMENT_RED, c + 1) == s->n;
}

/* Sleeps for what the oldest chunk needs. */
static int wait_oldest(struct shm *s, struct pass *p, struct error *e)
{
    uint64_t c = p->at[SEGMENT_OUT];

    if (c < p->at[SEGMENT_RED] && s->seg->spec.n_nodes > 1) {
        return wait_counter(s, NULL, &s->seg->head->done, c + 1, e);
    }
    if (c < p->at[SEGMENT_RED]) {
        return wait_workers(s, p->is_small ? SEGMENT_IN : SEGMENT_RED, c + 1,
                            e);
    }
    if (c < p->at[SEGMENT_IN] && !p->is_verified) {
        return verify_call(s, p, e);
    }
    if (c < p->at[SEGMENT_IN]) {
        return wait_workers(s, SEGMENT_IN, c + 1, e);
    }
    return wait_workers(s, SEGMENT_OUT, c + 1 - SEGMENT_DEPTH, e);
}

static int run(struct shm *s, struct pass *p, struct error *e)
{
    int rc = check_abort(s, e);

    if (rc < 0) {
        return rc;
    }
    enter_call(s, p);
    while (p->at[SEGMENT_OUT] < p->end) {
        if (can_out(s, p)) {
            do_out(s, p);
        } else if (can_red(s, p)) {
            do_red(s, p);
        } else if (can_in(s, p)) {
            do_in(s, p);
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
