/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks are started in their order as soon as the workers post them, up to
 * DEPTH at a time, and published in their order. MPI works on the segment
 * itself: from local[] to global[].
 *
 * The first chunk of a call also compares the calls of the nodes: the maximum of
 * a hash and of its complement tell whether all are equal. Nothing of a call is
 * published before that is known; only after a difference are the calls
 * themselves exchanged, on a communicator of their own, because members may be
 * at different chunks by then. A failure that only one node has seen, while
 * nobody is dead, is told to the others in a message.
 */
#include <config.h>

#include "comm/mpi/bulk.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "comm/segment.h"
#include "muster.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/uio.h>

enum {
    BUSY_NS = 200000, /* polled all the time for so long without a result */
    WAIT_MIN_US = 50,
    WAIT_MAX_US = 1000,
    NOTICE_TAG = 1,
};

/* For notices of a group that was left; members that do not take theirs by then
 * are dead. */
static const uint64_t tell_ns = UINT64_C(10000000000);

/* A chunk between nodes. */
struct op {
    uint64_t chunk;
    uint32_t n_bytes;
    bool is_first;
    struct segment_call call;
    MPI_Request check;
    MPI_Request data;
    uint64_t mine[2]; /* hash of the call, and its complement */
    uint64_t most[2]; /* maximum over nodes */
};

/* What members must know of each other. */
struct peer {
    uint64_t done;
    uint64_t chunk_bytes;
    uint64_t n_nodes;
    uint64_t node;
    uint64_t world;
    uint64_t first_rank;
    uint64_t n_local;
    uint64_t generation;
};

/* Why the group can not go on, from a chunk on. */
struct notice {
    uint64_t chunk;
    uint32_t code;
    char why[SEGMENT_WHY_SIZE];
};

struct group {
    struct group *next;
    uint32_t tag;
    bool failed; /* aborted: nothing more is started */
    bool has_told;
    int n;
    int me;
    MPI_Comm data;
    MPI_Comm control; /* checks and details */
    struct segment *seg;
    struct peer *peers;
    uint64_t started; /* chunks */
    uint64_t done;
    struct op ops[SEGMENT_DEPTH]; /* by chunk */
    MPI_Request details; /* of a difference */
    struct segment_call call;
    struct segment_call *calls; /* of all members */
    struct notice said;
    struct notice heard; /* being received */
    struct notice first; /* the one with the lowest chunk so far, if any */
    bool has_heard;
    MPI_Request hear;
    MPI_Request *say; /* to all members */
    uint64_t left_ns; /* when it was abandoned */
};

struct bulk {
    MPI_Comm world;
    int me;
    int world_size;
    int tag_max;
    struct group *groups;
    struct group *abandoned;
    bool is_new; /* a group may hold posts whose event is long past */
    uint64_t progress_ns; /* when something last happened */
};

static const MPI_Datatype types[] = {
    [MUSTER_FLOAT32] = MPI_FLOAT, [MUSTER_FLOAT64] = MPI_DOUBLE,
    [MUSTER_INT32] = MPI_INT32_T, [MUSTER_INT64] = MPI_INT64_T,
    [MUSTER_UINT8] = MPI_UINT8_T,
};

static const uint32_t type_sizes[] = {
    [MUSTER_FLOAT32] = 4, [MUSTER_FLOAT64] = 8, [MUSTER_INT32] = 4,
    [MUSTER_INT64] = 8,   [MUSTER_UINT8] = 1,
};

static MPI_Op mpi_op(uint32_t op)
{
    return op == MUSTER_SUM ? MPI_SUM : op == MUSTER_MIN ? MPI_MIN : MPI_MAX;
}

static int mpi_failed(int code, const char *what, struct error *e)
{
    char text[MPI_MAX_ERROR_STRING] = "?";
    int len;

    MPI_Error_string(code, text, &len);
    return error_text(e, EIO, "%s: %s", what, text);
}

/* Ends the group's collectives on this node. */
static void fail(struct group *g, enum segment_abort_code code,
                 const char *why)
{
    g->failed = true;
    segment_abort(g->seg, code, why);
}

static void fail_mpi(struct group *g, int code, const char *what)
{
    struct error e;

    mpi_failed(code, what, &e);
    fail(g, SEGMENT_ABORT_BULK, e.text);
}

int bulk_create(MPI_Comm world, struct bulk **ret, struct error *e)
{
    _free_ struct bulk *b = calloc(1, sizeof(*b));
    int *tag_max = NULL;
    int flag = 0;
    int rc;

    if (!b) {
        return error_set(e, ENOMEM, "bulk");
    }
    b->world = world;
    rc = MPI_Comm_rank(world, &b->me);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_size(world, &b->world_size);
    }
    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_get_attr(world, MPI_TAG_UB, &tag_max, &flag);
    }
    if (rc != MPI_SUCCESS) {
        return mpi_failed(rc, "MPI world", e);
    }
    b->tag_max = flag ? *tag_max : 32767;
    *ret = take_ptr(&b);
    return 0;
}

static void init_requests(struct group *g)
{
    for (size_t i = 0; i < ARRAY_SIZE(g->ops); i++) {
        g->ops[i].check = MPI_REQUEST_NULL;
        g->ops[i].data = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < g->n; i++) {
        g->say[i] = MPI_REQUEST_NULL;
    }
    g->hear = MPI_REQUEST_NULL;
    g->details = MPI_REQUEST_NULL;
    g->data = MPI_COMM_NULL;
    g->control = MPI_COMM_NULL;
}

/* Makes no MPI call: nothing of it is in flight by now. */
static void group_destroy(struct group *g)
{
    if (!g) {
        return;
    }
    segment_destroy(g->seg);
    free(g->peers);
    free(g->calls);
    free(g->say);
    free(g);
}

DEFINE_CLEANUP(group);

static bool request_is_done(struct group *g, MPI_Request *r)
{
    int done = 1;
    int rc;

    if (*r == MPI_REQUEST_NULL) {
        return true;
    }
    rc = MPI_Test(r, &done, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) {
        *r = MPI_REQUEST_NULL;
        fail_mpi(g, rc, "a collective between nodes");
        return true;
    }
    return done;
}

static bool is_quiet(struct group *g)
{
    bool quiet = request_is_done(g, &g->details);

    for (size_t i = 0; i < ARRAY_SIZE(g->ops); i++) {
        quiet = request_is_done(g, &g->ops[i].check) && quiet;
        quiet = request_is_done(g, &g->ops[i].data) && quiet;
    }
    for (int i = 0; i < g->n; i++) {
        quiet = request_is_done(g, &g->say[i]) && quiet;
    }
    return request_is_done(g, &g->hear) && quiet;
}

void bulk_destroy(struct bulk *b)
{
    if (!b) {
        return;
    }
    while (b->groups) {
        bulk_detach(b, b->groups->tag);
    }
    /* What is abandoned by now stays: MPI may still write to it. */
    free(b);
}

static struct group **find(struct bulk *b, uint32_t tag)
{
    struct group **at = &b->groups;

    while (*at && (*at)->tag != tag) {
        at = &(*at)->next;
    }
    return at;
}

/* ---- joining ---- */

static int check_members(const struct bulk *b, const int *members, size_t n,
                         int *ret_me, struct error *e)
{
    *ret_me = -1;
    for (size_t i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= b->world_size) {
            return error_text(e, EINVAL, "bulk group: no rank %d", members[i]);
        }
        for (size_t j = 0; j < i; j++) {
            if (members[j] == members[i]) {
                return error_text(e, EINVAL, "bulk group: rank %d twice",
                                  members[i]);
            }
        }
        if (members[i] == b->me) {
            *ret_me = (int)i;
        }
    }
    if (*ret_me < 0) {
        return error_text(e, EINVAL, "bulk group: without this process");
    }
    return 0;
}

static int make_comms(struct bulk *b, struct group *g, const int *members,
                      struct error *e)
{
    MPI_Group all, some;
    int tag = (int)(g->tag % (uint32_t)b->tag_max);
    int rc = MPI_Comm_group(b->world, &all);

    if (rc != MPI_SUCCESS) {
        return mpi_failed(rc, "MPI group", e);
    }
    rc = MPI_Group_incl(all, g->n, members, &some);
    MPI_Group_free(&all);
    if (rc != MPI_SUCCESS) {
        return mpi_failed(rc, "MPI group", e);
    }
    rc = MPI_Comm_create_group(b->world, some, tag, &g->data);
    MPI_Group_free(&some);
    if (rc == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(g->data, MPI_ERRORS_RETURN);
        rc = MPI_Comm_dup(g->data, &g->control);
    }
    if (rc != MPI_SUCCESS) {
        return mpi_failed(rc, "MPI communicator of the group", e);
    }
    MPI_Comm_set_errhandler(g->control, MPI_ERRORS_RETURN);
    return 0;
}

/* All members come to the same answer, because they look at the same. */
static int check_peers(const struct group *g, uint64_t *ret_least,
                       uint64_t *ret_most, struct error *e)
{
    const struct peer *first = &g->peers[0];
    uint64_t rank = 0;

    *ret_least = *ret_most = first->done;
    for (int i = 0; i < g->n; i++) {
        const struct peer *p = &g->peers[i];

        if (p->node != (uint64_t)i || p->n_nodes != (uint64_t)g->n ||
            p->first_rank != rank || p->world != first->world ||
            p->chunk_bytes != first->chunk_bytes ||
            p->generation != first->generation) {
            return error_text(e, EINVAL, "bulk group: node %d has a segment "
                              "of another group than node 0", i);
        }
        rank += p->n_local;
        *ret_least = p->done < *ret_least ? p->done : *ret_least;
        *ret_most = p->done > *ret_most ? p->done : *ret_most;
    }
    if (rank != first->world || *ret_most - *ret_least > SEGMENT_DEPTH) {
        return error_text(e, EINVAL, "bulk group: segments do not fit");
    }
    return 0;
}

static int exchange_peers(struct group *g, struct error *e)
{
    const struct segment_spec *spec = &g->seg->spec;
    struct peer mine = {
        .done = atomic_load(&g->seg->head->done),
        .chunk_bytes = spec->chunk_bytes,
        .n_nodes = spec->n_nodes,
        .node = spec->node,
        .world = spec->world,
        .first_rank = spec->first_rank,
        .n_local = spec->n_local,
        .generation = spec->generation,
    };
    int n = (int)(sizeof(mine) / sizeof(uint64_t));
    int rc = MPI_Allgather(&mine, n, MPI_UINT64_T, g->peers, n, MPI_UINT64_T,
                           g->control);

    return rc == MPI_SUCCESS ? 0 : mpi_failed(rc, "bulk group", e);
}

/* The first member that has the result of a chunk. */
static int who_has(const struct group *g, uint64_t chunk)
{
    int i = 0;

    while (g->peers[i].done <= chunk) {
        i++;
    }
    return i;
}

/* Members that an earlier world left behind get the results they lack. */
static int level(struct group *g, uint64_t least, uint64_t most,
                 struct error *e)
{
    uint64_t mine = g->peers[g->me].done;
    int n_bytes = (int)g->seg->spec.chunk_bytes;
    _free_ uint8_t *aside = malloc(g->seg->spec.chunk_bytes);

    if (!aside) {
        return error_set(e, ENOMEM, "bulk group");
    }
    for (uint64_t c = least; c < most; c++) {
        int source = who_has(g, c);
        bool mine_is_used = source == g->me || mine <= c;
        int rc = MPI_Bcast(mine_is_used ? segment_global(g->seg, c) : aside,
                           n_bytes, MPI_BYTE, source, g->control);

        if (rc != MPI_SUCCESS) {
            return mpi_failed(rc, "bulk group", e);
        }
    }
    g->started = g->done = most;
    atomic_store(&g->seg->head->done, most);
    segment_event_signal(&g->seg->head->mover);
    return 0;
}

static int listen_for_notice(struct group *g, struct error *e)
{
    int rc = MPI_Irecv(&g->heard, (int)sizeof(g->heard), MPI_BYTE,
                       MPI_ANY_SOURCE, NOTICE_TAG, g->control, &g->hear);

    return rc == MPI_SUCCESS ? 0 : mpi_failed(rc, "bulk group", e);
}

static int join(struct bulk *b, struct group *g, const int *members,
                struct error *e)
{
    uint64_t least = 0, most = 0;
    int rc = make_comms(b, g, members, e);

    if (rc == 0) {
        rc = exchange_peers(g, e);
    }
    if (rc == 0) {
        rc = check_peers(g, &least, &most, e);
    }
    if (rc == 0) {
        rc = level(g, least, most, e);
    }
    return rc < 0 ? rc : listen_for_notice(g, e);
}

int bulk_attach(struct bulk *b, uint32_t tag, const int *members,
                size_t n_members, int segment_fd, int event_fd,
                struct error *e)
{
    _cleanup_(group) struct group *g = calloc(1, sizeof(*g));
    size_t n_groups = 0;
    int rc;

    if (!g) {
        return error_set(e, ENOMEM, "bulk group");
    }
    for (struct group *i = b->groups; i; i = i->next) {
        n_groups++;
    }
    if (*find(b, tag) || n_groups >= BULK_GROUPS_MAX || n_members > INT32_MAX) {
        return error_text(e, EINVAL, "bulk group %u: is there already, or too "
                          "many", tag);
    }
    g->tag = tag;
    g->n = (int)n_members;
    g->peers = calloc(n_members, sizeof(*g->peers));
    g->calls = calloc(n_members, sizeof(*g->calls));
    g->say = calloc(n_members, sizeof(MPI_Request));
    if (!g->peers || !g->calls || !g->say) {
        return error_set(e, ENOMEM, "bulk group");
    }
    init_requests(g);
    rc = check_members(b, members, n_members, &g->me, e);
    if (rc == 0) {
        rc = segment_map(segment_fd, event_fd, &g->seg, e);
    }
    if (rc == 0 && n_members > 1) {
        rc = join(b, g, members, e);
    }
    if (rc < 0) {
        return rc; /* a communicator that came to be stays: others may be
                      in the middle of its making */
    }
    b->progress_ns = clock_mono_ns();
    b->is_new = true;
    g->next = b->groups;
    b->groups = take_ptr(&g);
    return 0;
}

/* Freeing is a collective call by the standard, though a local act in fact:
 * where members may have ended differently, communicators are left alone. */
static void free_comms(struct group *g)
{
    if (g->n > 1 && !g->failed &&
        segment_aborted(g->seg, NULL) == SEGMENT_OK) {
        MPI_Comm_free(&g->control);
        MPI_Comm_free(&g->data);
    }
}

static void tell_left(struct group *g);

void bulk_detach(struct bulk *b, uint32_t tag)
{
    struct group **at = find(b, tag);
    struct group *g = *at;

    if (!g) {
        return;
    }
    *at = g->next;
    if (g->n > 1 && !g->failed) {
        tell_left(g); /* the last chance to */
    }
    if (g->hear != MPI_REQUEST_NULL) {
        MPI_Cancel(&g->hear);
    }
    if (is_quiet(g)) {
        free_comms(g);
        group_destroy(g);
        return;
    }
    g->next = b->abandoned;
    g->left_ns = clock_mono_ns();
    b->abandoned = g;
}

size_t bulk_abandoned_bytes(const struct bulk *b)
{
    size_t sum = 0;

    for (const struct group *g = b->abandoned; g; g = g->next) {
        sum += g->seg->size;
    }
    return sum;
}

static void reap_abandoned(struct bulk *b)
{
    struct group **at = &b->abandoned;

    while (*at) {
        struct group *g = *at;

        if (is_quiet(g)) {
            *at = g->next;
            group_destroy(g);
        } else {
            at = &g->next;
        }
    }
}

/* ---- work ---- */

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
static bool read_post(const struct group *g, struct op *op)
{
    const struct segment_post *post = segment_post(g->seg, op->chunk);
    const struct segment_spec *spec = &g->seg->spec;

    op->n_bytes = *(volatile const uint32_t *)&post->n_bytes;
    op->is_first = *(volatile const uint32_t *)&post->is_first != 0;
    memcpy(&op->call, &post->call, sizeof(op->call));
    if (op->n_bytes > spec->chunk_bytes) {
        return false;
    }
    switch (op->call.kind) {
    case SEGMENT_ALLREDUCE:
        return op->call.type < ARRAY_SIZE(types) && op->call.op <= MUSTER_MAX &&
               op->n_bytes % type_sizes[op->call.type] == 0;
    case SEGMENT_BROADCAST:
        return op->call.root < spec->world;
    case SEGMENT_BARRIER:
        return op->n_bytes == 0;
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

static int start_data(struct group *g, struct op *op)
{
    uint8_t *local = segment_local(g->seg, op->chunk);
    uint8_t *global = segment_global(g->seg, op->chunk);
    const struct segment_call *c = &op->call;
    int root;

    if (op->n_bytes == 0) {
        return MPI_SUCCESS;
    }
    if (c->kind == SEGMENT_ALLREDUCE) {
        return MPI_Iallreduce(local, global,
                              (int)(op->n_bytes / type_sizes[c->type]),
                              types[c->type], mpi_op(c->op), g->data,
                              &op->data);
    }
    root = node_of(g, c->root);
    if (root == g->me) {
        memcpy(global, local, op->n_bytes);
    }
    return MPI_Ibcast(global, (int)op->n_bytes, MPI_BYTE, root, g->data,
                      &op->data);
}

static int start_check(struct group *g, struct op *op)
{
    op->mine[0] = hash_call(&op->call, op->chunk);
    op->mine[1] = ~op->mine[0];
    return MPI_Iallreduce(op->mine, op->most, 2, MPI_UINT64_T, MPI_MAX,
                          g->control, &op->check);
}

/* Tells all members what is in g->said, which must stay as it is from now on. */
static void tell(struct group *g)
{
    g->has_told = true;
    for (int i = 0; i < g->n; i++) {
        if (i != g->me) {
            MPI_Isend(&g->said, (int)sizeof(g->said), MPI_BYTE, i, NOTICE_TAG,
                      g->control, &g->say[i]);
        }
    }
}

/* Tells why this node's part of the group came to an end. */
static void tell_abort(struct group *g)
{
    if (g->has_told) {
        return;
    }
    g->said.chunk = 0;
    g->said.code = segment_aborted(g->seg, g->said.why);
    tell(g);
}

/* Tells of workers that have ended, and of the first chunk without them. */
static void tell_left(struct group *g)
{
    const struct segment_spec *spec = &g->seg->spec;
    bool any = false;

    for (uint32_t i = 0; i < spec->n_local && !g->has_told; i++) {
        struct segment_worker *w = &g->seg->head->workers[i];
        uint64_t chunk = atomic_load(&w->through[SEGMENT_RED]);

        if (atomic_load(&w->left) && (!any || chunk < g->said.chunk)) {
            any = true;
            g->said.code = SEGMENT_ABORT_LOST;
            g->said.chunk = chunk;
            snprintf(g->said.why, sizeof(g->said.why),
                     "worker %u has ended, and others wait for it in a "
                     "collective", spec->first_rank + i);
        }
    }
    if (any) {
        tell(g);
    }
}

/* Takes a notice that has come, and listens for another one. */
static void take_notice(struct group *g)
{
    struct error e;

    if (g->hear == MPI_REQUEST_NULL || !request_is_done(g, &g->hear) ||
        g->failed) {
        return;
    }
    if (!g->has_heard || g->heard.chunk < g->first.chunk) {
        g->first = g->heard;
        g->first.why[SEGMENT_WHY_SIZE - 1] = '\0';
    }
    g->has_heard = true;
    if (listen_for_notice(g, &e) < 0) {
        fail(g, SEGMENT_ABORT_BULK, e.text);
    }
}

/* Ends the group here where another member has told so, and that chunk has come:
 * older ones complete. */
static void hear(struct group *g)
{
    const struct notice *n = &g->first;

    take_notice(g);
    if (g->failed || !g->has_heard || g->done < n->chunk) {
        return;
    }
    fail(g, n->code == SEGMENT_ABORT_MISMATCH ? SEGMENT_ABORT_MISMATCH
            : n->code == SEGMENT_ABORT_LOST   ? SEGMENT_ABORT_LOST
                                              : SEGMENT_ABORT_BULK, n->why);
}

/* Starts what has been posted. Returns how many chunks. */
static int start_posted(struct group *g)
{
    int n = 0;

    while (!g->failed && g->started < g->done + SEGMENT_DEPTH) {
        uint64_t c = g->started;
        struct op *op = &g->ops[c % SEGMENT_DEPTH];
        int rc = MPI_SUCCESS;

        if (atomic_load_explicit(&segment_post(g->seg, c)->seq,
                                 memory_order_acquire) != c + 1) {
            break;
        }
        op->chunk = c;
        if (!read_post(g, op)) {
            fail(g, SEGMENT_ABORT_BULK,
                 "a worker wrote over memory of the collectives");
            tell_abort(g);
            break;
        }
        if (op->is_first) {
            rc = start_check(g, op);
        }
        if (rc == MPI_SUCCESS) {
            rc = start_data(g, op);
        }
        if (rc != MPI_SUCCESS) {
            fail_mpi(g, rc, "a collective between nodes");
            break;
        }
        g->started++;
        n++;
    }
    return n;
}

/* Asks all members for their calls, after a difference. */
static void ask_details(struct group *g, const struct op *op)
{
    int n = (int)sizeof(g->call);
    int rc;

    g->failed = true;
    g->call = op->call;
    rc = MPI_Iallgather(&g->call, n, MPI_BYTE, g->calls, n, MPI_BYTE,
                        g->control, &g->details);
    if (rc != MPI_SUCCESS) {
        fail(g, SEGMENT_ABORT_MISMATCH, "calls differ between nodes");
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
    fail(g, SEGMENT_ABORT_MISMATCH, why);
}

static void publish(struct group *g)
{
    g->done++;
    atomic_store(&g->seg->head->done, g->done);
    segment_event_signal(&g->seg->head->mover);
}

/* Publishes what is complete, in order. Returns how many chunks. */
static int complete(struct group *g)
{
    int n = 0;

    if (g->details != MPI_REQUEST_NULL && request_is_done(g, &g->details)) {
        tell_difference(g);
        return 1;
    }
    while (!g->failed && g->done < g->started) {
        struct op *op = &g->ops[g->done % SEGMENT_DEPTH];

        if (!request_is_done(g, &op->check)) {
            break;
        }
        if (op->is_first && !g->failed && op->most[0] != ~op->most[1]) {
            ask_details(g, op);
            return 1;
        }
        if (!request_is_done(g, &op->data) || g->failed) {
            break;
        }
        publish(g);
        n++;
    }
    return n;
}

/* A worker may have made the descriptor, which it shares, a blocking one. */
static void drain(int event_fd)
{
    uint64_t count;
    struct iovec iov = {&count, sizeof(count)};
    ssize_t n = preadv2(event_fd, &iov, 1, -1, RWF_NOWAIT);

    (void)n;
}

/* Notices on their way: the connection to a member that nothing was sent to
 * before is made only while MPI is being polled. */
static bool is_telling(const struct group *g)
{
    bool telling = false;

    for (int i = 0; g->has_told && i < g->n; i++) {
        telling = telling || g->say[i] != MPI_REQUEST_NULL;
    }
    return telling;
}

static void send_notices(struct group *g)
{
    for (int i = 0; g->has_told && i < g->n; i++) {
        request_is_done(g, &g->say[i]);
    }
}

static bool is_active(const struct group *g)
{
    return g->details != MPI_REQUEST_NULL || is_telling(g) ||
           (!g->failed && g->done < g->started);
}

/* The agent or a worker may have aborted. Where calls differ, others know
 * nothing of it; of a death they learn elsewhere, and MPI is not asked to send
 * in such times. */
static void notice_abort(struct group *g)
{
    enum segment_abort_code code = segment_aborted(g->seg, NULL);

    if (g->failed || code == SEGMENT_OK) {
        return;
    }
    g->failed = true;
    if (code == SEGMENT_ABORT_MISMATCH) {
        tell_abort(g);
    }
}

int bulk_step(struct bulk *b)
{
    int n = 0;

    b->is_new = false;
    for (struct group *g = b->groups; g; g = g->next) {
        if (g->n < 2) {
            continue;
        }
        drain(g->seg->event_fd);
        notice_abort(g);
        n += start_posted(g);
        n += complete(g);
        tell_left(g);
        send_notices(g);
        if (is_active(g)) {
            hear(g);
        }
    }
    reap_abandoned(b);
    if (n > 0) {
        b->progress_ns = clock_mono_ns();
    } else {
        sched_yield(); /* workers may share this core */
    }
    return n;
}

size_t bulk_poll_fds(const struct bulk *b, struct pollfd *fds, size_t max)
{
    size_t n = 0;

    for (const struct group *g = b->groups; g && n < max; g = g->next) {
        fds[n++] = (struct pollfd){.fd = g->seg->event_fd, .events = POLLIN};
    }
    return n;
}

int64_t bulk_wait_us(const struct bulk *b)
{
    bool active = false;
    uint64_t idle_ns;
    int64_t wait_us;

    if (b->is_new) {
        return 0;
    }
    for (const struct group *g = b->groups; g; g = g->next) {
        active = active || is_active(g);
    }
    for (const struct group *g = b->abandoned; g; g = g->next) {
        active = active || (is_telling(g) &&
                            clock_mono_ns() - g->left_ns < tell_ns);
    }
    if (!active) {
        return -1;
    }
    idle_ns = clock_mono_ns() - b->progress_ns;
    if (idle_ns < BUSY_NS) {
        return 0;
    }
    wait_us = (int64_t)(idle_ns / 16000);
    return wait_us < WAIT_MIN_US   ? WAIT_MIN_US
           : wait_us > WAIT_MAX_US ? WAIT_MAX_US
                                   : wait_us;
}
