/* SPDX-License-Identifier: Apache-2.0 */
/* What the workers of the rig do. */
#include <config.h>

#include "tests/bulk_rig/rig.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "comm/ops.h"
#include "comm/segment.h"
#include "tests/lib/trap.h"
#include "tests/lib/values.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static int allreduce(struct worker *w, size_t count, enum muster_type type,
                     enum muster_op op, bool in_place, struct error *e)
{
    size_t size = comm_type_size(type);
    _free_ char *send = malloc((count + 1) * size);
    _free_ char *other = malloc((count + 1) * size);
    char *recv = in_place ? send : other;
    size_t n_wrong, first = 0;
    int rc;

    values_fill(send, count, type, w->rank);
    rc = comm_shm.allreduce(w->comm, send, recv, count, type, op, e);
    if (rc < 0) {
        return rc;
    }
    n_wrong = values_wrong(recv, count, type, op, w->world, &first);
    return n_wrong == 0 ? 0
                        : error_text(e, EBADMSG, "type %d op %d: %zu of %zu "
                                     "elements are wrong, the first is %zu",
                                     type, op, n_wrong, count, first);
}

static const size_t counts[] = {0, 1, 17, 4097, 100001, 655361, 2500003};

static struct segment *segment_of(const struct worker *w)
{
    return *(struct segment **)w->comm; /* its first member */
}

static int broadcast(struct worker *w, size_t len, int root, struct error *e)
{
    _free_ uint8_t *data = calloc(len + 1, 1);
    int rc;

    for (size_t i = 0; w->rank == root && i < len; i++) {
        data[i] = values_byte(root, i);
    }
    rc = comm_shm.broadcast(w->comm, data, len, root, e);
    for (size_t i = 0; rc == 0 && i < len; i++) {
        if (data[i] != values_byte(root, i)) {
            rc = error_text(e, EBADMSG, "byte %zu of %zu from %d", i, len, root);
        }
    }
    return rc;
}

static int body_values(struct worker *w, struct error *e)
{
    int rc = 0;

    for (size_t c = 0; rc == 0 && c < ARRAY_SIZE(counts); c++) {
        for (int k = 0; rc == 0 && k < 15; k++) {
            if (counts[c] > 100000 && k % 4 != (int)c % 4) {
                continue;
            }
            rc = allreduce(w, counts[c], (enum muster_type)(k % 5),
                           (enum muster_op)(k / 5), k % 2, e);
        }
        for (int root = 0; rc == 0 && root < w->world; root++) {
            rc = broadcast(w, counts[c], root, e);
        }
        if (rc == 0) {
            rc = comm_shm.barrier(w->comm, e);
        }
    }
    return rc;
}

/* The text is a hash of the bits of a sum that depends on the order. */
static int body_bits(struct worker *w, struct error *e)
{
    enum { COUNT = 1000003 };
    _free_ float *x = malloc(COUNT * sizeof(*x));
    unsigned seed = (unsigned)w->rank + 1;
    uint64_t hash = 1;
    int rc;

    for (size_t i = 0; i < COUNT; i++) {
        x[i] = (float)rand_r(&seed) / (float)(1 + rand_r(&seed) % 1000);
    }
    rc = comm_shm.allreduce(w->comm, x, x, COUNT, MUSTER_FLOAT32, MUSTER_SUM, e);
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        hash = hash * 31 + bits;
    }
    if (rc == 0) {
        error_text(e, 0, "%016llx", (unsigned long long)hash);
    }
    return rc;
}

/* In what the last worker's call differs from the others': an allreduce of
 * 3000000 float32 for the maximum, or a broadcast of 3000000 bytes from worker
 * 0. */
enum difference { COUNT, TYPE, OPERATION, KIND, ROOT, LENGTH };

static int body_differs(struct worker *w, struct error *e)
{
    enum difference what = (enum difference)w->body->arg;
    bool odd = w->rank == w->world - 1;
    int rc = body_bits(w, e);

    if (rc < 0) {
        return rc;
    }
    if (odd && what == KIND) {
        return comm_shm.barrier(w->comm, e);
    }
    if (what == ROOT || what == LENGTH) {
        return broadcast(w, odd && what == LENGTH ? 2000000 : 3000000,
                         odd && what == ROOT ? w->rank : 0, e);
    }
    return allreduce(w, odd && what == COUNT ? 3000001 : 3000000,
                     odd && what == TYPE ? MUSTER_INT32 : MUSTER_FLOAT32,
                     odd && what == OPERATION ? MUSTER_MIN : MUSTER_MAX, false,
                     e);
}

static void touch(const struct worker *w, const char *name)
{
    char path[512];

    fs_path(path, sizeof(path), NULL, "%s/%s.%d", w->dir, name, w->rank);
    fs_write_replace(path, "", 0, NULL);
}

/* Where the last worker dies, in its third allreduce of 6 MiB. */
enum death { BETWEEN, COPYING, REDUCING, TAKING };

/* Chunks are of 1 MiB. What a worker copies for the others lies outside of its
 * own stripe, which it reads only to reduce it. */
static void die(struct worker *w, enum death where)
{
    enum { CHUNK = 1 << 20, N = 6 * CHUNK / 4 };
    size_t stripe = CHUNK / (size_t)w->n_local;
    size_t own = 2 * CHUNK + (size_t)w->local_rank * stripe;
    size_t at = where == COPYING ? own - stripe : own;
    float *x, *y;
    struct error e;

    if (where == BETWEEN) {
        raise(SIGKILL);
    }
    x = where == TAKING ? malloc(6 * CHUNK) : trap_alloc(6 * CHUNK, at);
    y = where == TAKING ? trap_alloc(6 * CHUNK, at) : malloc(6 * CHUNK);
    if (where == TAKING) {
        values_fill(x, N, MUSTER_FLOAT32, w->rank);
    }
    comm_shm.allreduce(w->comm, x, y, N, MUSTER_FLOAT32, MUSTER_MAX, &e);
}

/* Goes on until it fails. */
static int body_dies(struct worker *w, struct error *e)
{
    for (int round = 0;; round++) {
        int rc;

        if (round == 2 && w->rank == w->world - 1) {
            die(w, (enum death)w->body->arg);
        }
        rc = allreduce(w, 6 << 18, MUSTER_FLOAT32, MUSTER_MAX, true, e);
        if (rc < 0) {
            return rc;
        }
    }
}

/* The last worker ends after three rounds, the others would go on. */
static int body_leaves(struct worker *w, struct error *e)
{
    int rc = 0;

    for (int round = 0; rc == 0 && round < 9; round++) {
        if (round == 3 && w->rank == w->world - 1) {
            return 0;
        }
        rc = allreduce(w, 1500000, MUSTER_FLOAT32, MUSTER_MAX, true, e);
    }
    return rc;
}

/* Ends as soon as all chunks that can be are handed to the mover. */
static void *quit_under_way(void *arg)
{
    struct worker *w = arg;
    struct segment_worker *me =
        &segment_of(w)->head->workers[w->local_rank];

    while (atomic_load(&me->through[SEGMENT_RED]) < SEGMENT_DEPTH) {
        poll(NULL, 0, 1);
    }
    node_write_result(w, 0, "");
    _exit(0);
}

/* The last worker, alone on its node, ends in the middle of a call; the others
 * come to it when the node has left the group. */
static int body_quits(struct worker *w, struct error *e)
{
    pthread_t thread;
    char path[512];

    if (w->rank == w->world - 1) {
        if (pthread_create(&thread, NULL, quit_under_way, w) != 0) {
            return error_text(e, EAGAIN, "no thread");
        }
    } else {
        fs_path(path, sizeof(path), NULL, "%s/left.%d", w->dir,
                w->n_nodes - 1);
        while (access(path, F_OK) < 0) {
            poll(NULL, 0, 1);
        }
    }
    return allreduce(w, 6 << 20, MUSTER_FLOAT32, MUSTER_MAX, true, e);
}

/* Many rounds; a file says when the first is done. */
static int body_long(struct worker *w, struct error *e)
{
    int rc = 0;

    for (int round = 0; rc == 0 && round < 40; round++) {
        rc = allreduce(w, 1500000 + (size_t)round, (enum muster_type)(round % 5),
                       (enum muster_op)(round % 3), round % 2, e);
        if (rc == 0) {
            rc = broadcast(w, 2000000, round % w->world, e);
        }
        if (rc == 0) {
            rc = allreduce(w, 3, MUSTER_INT64, MUSTER_SUM, false, e);
        }
        if (round == 0) {
            touch(w, "going");
        }
    }
    return rc;
}

/* Worker 0 writes over what its mover reads, and waits for that to be noticed. */
static int body_scribble(struct worker *w, struct error *e)
{
    struct segment *s = segment_of(w);
    uint64_t one = 1;
    int rc = comm_shm.barrier(w->comm, e);

    if (rc < 0 || w->rank != 0) {
        return rc < 0 ? rc : comm_shm.barrier(w->comm, e);
    }
    for (uint64_t c = 0; c < 2 * SEGMENT_DEPTH; c++) {
        struct segment_post *post = segment_post(s, c);

        post->n_bytes = UINT32_MAX;
        post->call.kind = SEGMENT_ALLREDUCE;
        post->call.type = 0x7fffffff;
        atomic_store(&post->seq, atomic_load(&s->head->done) + 1);
    }
    fcntl(s->event_fd, F_SETFL, 0); /* a mover must not block in it */
    if (write(s->event_fd, &one, sizeof(one)) < 0) {
        return -EIO;
    }
    while (segment_aborted(s, NULL) == SEGMENT_OK) {
        poll(NULL, 0, 1);
    }
    return comm_shm.barrier(w->comm, e);
}

/* A chunk by hand, for all workers of this node; waits for its result. */
static void pass_barrier(struct segment *s, uint64_t chunk)
{
    struct segment_post *post = segment_post(s, chunk);
    uint64_t one = 1;

    post->n_bytes = 0;
    post->is_first = 1;
    post->call = (struct segment_call){.seq = chunk, .kind = SEGMENT_BARRIER};
    atomic_store(&post->seq, chunk + 1);
    if (write(s->event_fd, &one, sizeof(one)) < 0) {
        return;
    }
    while (atomic_load(&s->head->done) <= chunk) {
        poll(NULL, 0, 1);
    }
}

/* For the nodes 1,2: two workers end in the middle of things, the second one at an earlier
 * chunk, after the mover has told of the first. */
static int body_leave_twice(struct worker *w, struct error *e)
{
    struct segment *s = segment_of(w);
    int rc = 0;

    if (w->rank == 0) {
        while (rc == 0) {
            rc = comm_shm.barrier(w->comm, e);
        }
        return rc;
    }
    if (w->rank == 1) {
        atomic_store(&s->head->workers[0].through[SEGMENT_RED], 10);
        return 0;
    }
    while (!atomic_load(&s->head->workers[0].left)) {
        poll(NULL, 0, 1);
    }
    for (uint64_t c = 0; c < 3; c++) {
        pass_barrier(s, c); /* the mover has made a step since */
    }
    atomic_store(&s->head->workers[1].through[SEGMENT_RED], 3);
    return 0;
}

/* For many workers: little to compute, much to wait for. */
static int body_crowd(struct worker *w, struct error *e)
{
    int rc = 0;

    for (int round = 0; rc == 0 && round < 20; round++) {
        rc = allreduce(w, 20011, MUSTER_INT64, MUSTER_SUM, round % 2, e);
        if (rc == 0) {
            rc = comm_shm.barrier(w->comm, e);
        }
    }
    return rc;
}

static const struct body bodies[] = {
    {"values", body_values, 0},
    {"bits", body_bits, 0},
    {"count", body_differs, COUNT},
    {"type", body_differs, TYPE},
    {"operation", body_differs, OPERATION},
    {"kind", body_differs, KIND},
    {"root", body_differs, ROOT},
    {"length", body_differs, LENGTH},
    {"unborn", body_dies, BODY_UNBORN},
    {"dies", body_dies, BETWEEN},
    {"dies-copying", body_dies, COPYING},
    {"dies-reducing", body_dies, REDUCING},
    {"dies-taking", body_dies, TAKING},
    {"leaves", body_leaves, 0},
    {"quits", body_quits, BODY_QUITS},
    {"leave-twice", body_leave_twice, 0},
    {"long", body_long, 0},
    {"crowd", body_crowd, 0},
    {"scribble", body_scribble, 0},
};

const struct body *body_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        if (strcmp(bodies[i].name, name) == 0) {
            return &bodies[i];
        }
    }
    return NULL;
}
