/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks are started in their order as soon as the workers post them, up to
 * DEPTH at a time, and published in their order. MPI works on the segment
 * itself: from local[] to global[].
 *
 * The first chunk of a call also compares the calls of the nodes: the maximum of
 * a hash and of its complement tell whether all are equal. Nothing of a call is
 * published before that is known; only after a difference are the calls
 * themselves exchanged, on the communicator for control, because members may be
 * at different chunks by then.
 */
#include <config.h>

#include "comm/mpi/transfer.h"

#include "base/cleanup.h"
#include "muster.h"

#include <stdio.h>
#include <string.h>

static const MPI_Datatype types[] = {
    [MUSTER_FLOAT32] = MPI_FLOAT, [MUSTER_FLOAT64] = MPI_DOUBLE,
    [MUSTER_INT32] = MPI_INT32_T, [MUSTER_INT64] = MPI_INT64_T,
    [MUSTER_UINT8] = MPI_UINT8_T,
};

static const uint32_t type_sizes[] = {
    [MUSTER_FLOAT32] = 4, [MUSTER_FLOAT64] = 8, [MUSTER_INT32] = 4,
    [MUSTER_INT64] = 8,   [MUSTER_UINT8] = 1,
};

/* MPI_SUM of bytes wraps around in some libraries, and stops at 255 in others
 * (Open MPI where it has AVX). */
static void add_bytes(void *from, void *to, int *n, MPI_Datatype *type)
{
    const uint8_t *a = from;
    uint8_t *sum = to;

    (void)type;
    for (int i = 0; i < *n; i++) {
        sum[i] = (uint8_t)(sum[i] + a[i]);
    }
}

int transfer_make_sum(MPI_Op *ret)
{
    return MPI_Op_create(add_bytes, 1, ret);
}

static MPI_Op mpi_op(const struct group *g, uint32_t op, uint32_t type)
{
    if (op == MUSTER_SUM && type == MUSTER_UINT8) {
        return g->sum_bytes;
    }
    return op == MUSTER_SUM ? MPI_SUM : op == MUSTER_MIN ? MPI_MIN : MPI_MAX;
}

static uint64_t hash_call(const struct segment_call *c, uint64_t chunk)
{
    const uint64_t words[] = {
        c->seq, c->count, c->kind, c->type, c->op, c->root, chunk,
    };
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        h = (h ^ words[i]) * UINT64_C(0x100000001b3);
        h ^= h >> 29;
    }
    return h;
}

/* Copies a post out of the segment and checks it. */
static bool read_post(const struct group *g, struct transfer *t)
{
    const struct segment_post *post = segment_post(g->seg, t->chunk);
    const struct segment_spec *spec = &g->seg->spec;

    t->n_bytes = *(volatile const uint32_t *)&post->n_bytes;
    t->is_first = *(volatile const uint32_t *)&post->is_first != 0;
    memcpy(&t->call, &post->call, sizeof(t->call));
    if (t->n_bytes > spec->chunk_bytes) {
        return false;
    }
    switch (t->call.kind) {
    case SEGMENT_ALLREDUCE:
        return t->call.type < ARRAY_SIZE(types) && t->call.op <= MUSTER_MAX &&
               t->n_bytes % type_sizes[t->call.type] == 0;
    case SEGMENT_BROADCAST:
        return t->call.root < spec->world;
    case SEGMENT_BARRIER:
        return t->n_bytes == 0;
    default:
        return false;
    }
}

static int node_of(const struct group *g, uint32_t rank)
{
    int i = 0;

    while (i + 1 < g->n && g->peers[i + 1].first_rank <= rank) {
        i++;
    }
    return i;
}

static int start_data(struct group *g, struct transfer *t)
{
    uint8_t *local = segment_local(g->seg, t->chunk);
    uint8_t *global = segment_global(g->seg, t->chunk);
    const struct segment_call *c = &t->call;
    int root;

    if (t->n_bytes == 0) {
        return MPI_SUCCESS;
    }
    if (c->kind == SEGMENT_ALLREDUCE) {
        return MPI_Iallreduce(local, global,
                              (int)(t->n_bytes / type_sizes[c->type]),
                              types[c->type], mpi_op(g, c->op, c->type), g->data,
                              &t->data);
    }
    root = node_of(g, c->root);
    if (root == g->me) {
        memcpy(global, local, t->n_bytes);
    }
    return MPI_Ibcast(global, (int)t->n_bytes, MPI_BYTE, root, g->data,
                      &t->data);
}

static int start_check(struct group *g, struct transfer *t)
{
    t->mine[0] = hash_call(&t->call, t->chunk);
    t->mine[1] = ~t->mine[0];
    return MPI_Iallreduce(t->mine, t->most, 2, MPI_UINT64_T, MPI_MAX,
                          g->control, &t->check);
}

int transfer_start(struct group *g)
{
    int n = 0;

    while (!g->failed && g->started < g->done + SEGMENT_DEPTH) {
        uint64_t c = g->started;
        struct transfer *t = &g->transfers[c % SEGMENT_DEPTH];
        int rc = MPI_SUCCESS;

        if (atomic_load_explicit(&segment_post(g->seg, c)->seq,
                                 memory_order_acquire) != c + 1) {
            break;
        }
        t->chunk = c;
        if (!read_post(g, t)) {
            group_fail(g, SEGMENT_ABORT_BULK,
                       "a worker wrote over memory of the collectives");
            break;
        }
        if (t->is_first) {
            rc = start_check(g, t);
        }
        if (rc == MPI_SUCCESS) {
            rc = start_data(g, t);
        }
        if (rc != MPI_SUCCESS) {
            group_fail_mpi(g, rc, "a collective between nodes");
            break;
        }
        g->started++;
        n++;
    }
    return n;
}

/* Asks all members for their calls, after a difference. */
static void ask_details(struct group *g, const struct transfer *t)
{
    int n = (int)sizeof(g->call);
    int rc;

    g->failed = true;
    g->call = t->call;
    rc = MPI_Iallgather(&g->call, n, MPI_BYTE, g->calls, n, MPI_BYTE,
                        g->control, &g->details);
    if (rc != MPI_SUCCESS) {
        group_fail(g, SEGMENT_ABORT_MISMATCH, "calls differ between nodes");
    }
}

static void tell_difference(struct group *g)
{
    char why[SEGMENT_WHY_SIZE], a[96], b[96];
    int i = 1;

    while (i + 1 < g->n && segment_call_equal(&g->calls[0], &g->calls[i])) {
        i++;
    }
    segment_call_text(&g->calls[0], a, sizeof(a));
    segment_call_text(&g->calls[i], b, sizeof(b));
    snprintf(why, sizeof(why),
             "calls differ: worker %u called %s, worker %u %s",
             (unsigned)g->peers[0].first_rank, a,
             (unsigned)g->peers[i].first_rank, b);
    group_end(g, SEGMENT_ABORT_MISMATCH, why);
}

static void publish(struct group *g)
{
    g->done++;
    atomic_store(&g->seg->head->done, g->done);
    segment_event_signal(&g->seg->head->mover);
}

int transfer_complete(struct group *g)
{
    int n = 0;

    if (g->details != MPI_REQUEST_NULL &&
        group_request_is_done(g, &g->details)) {
        tell_difference(g);
        return 1;
    }
    while (!g->failed && g->done < g->started) {
        struct transfer *t = &g->transfers[g->done % SEGMENT_DEPTH];

        if (!group_request_is_done(g, &t->check)) {
            break;
        }
        if (t->is_first && !g->failed && t->most[0] != ~t->most[1]) {
            ask_details(g, t);
            return 1;
        }
        if (!group_request_is_done(g, &t->data) || g->failed) {
            break;
        }
        publish(g);
        n++;
    }
    return n;
}

bool transfer_is_active(const struct group *g)
{
    bool asks = g->details != MPI_REQUEST_NULL &&
                segment_aborted(g->seg, NULL) == SEGMENT_OK;

    return asks || (!g->failed && g->done < g->started);
}
