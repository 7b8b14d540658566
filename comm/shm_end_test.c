/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of one node that cannot go on: who waits is told, and why. */
#include <config.h>

#include "comm/shm_bed.h"

#include "base/clock.h"
#include "tests/lib/tap.h"
#include "tests/lib/trap.h"
#include "tests/lib/values.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Allreduces until it fails. */
static int body_forever(struct member *m, void *comm)
{
    size_t count = m->arg ? (size_t)4 << 20 : 3;
    float *x = calloc(count, sizeof(*x));
    struct error e = {0};
    int rc;

    do {
        rc = comm_shm.allreduce(comm, x, x, count, MUSTER_FLOAT32, MUSTER_MAX,
                                &e);
        atomic_fetch_add(&m->board[m->group.rank], 1);
    } while (rc == 0);
    free(x);
    return rc;
}

static void wait_board(const struct node *node, uint64_t at_least)
{
    uint64_t deadline_ms = clock_mono_ms() + 120000;

    while (atomic_load(&node->board[0]) < at_least) {
        if (clock_mono_ms() > deadline_ms) {
            bail_out("the workers make no progress");
        }
        poll(NULL, 0, 1);
    }
}

static void test_killed(int is_big, uint64_t after)
{
    struct node node;

    node_open(&node, 4);
    node_start(&node, body_forever, is_big);
    wait_board(&node, after);
    kill(node.members[2].pid, SIGKILL);
    is_int(node_finish(&node, 2), -1000 - SIGKILL, "worker 2 killed");
    segment_abort(node.seg, SEGMENT_ABORT_LOST, "worker 2 was killed");
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            is_int(node_finish(&node, i), -ECONNABORTED, "worker %d returns",
                   i);
        }
    }
    node_close(&node);
}

/* Where worker 2 of 4 dies, in its second allreduce of 3 MiB. */
static const struct death {
    const char *name;
    bool is_taking; /* a result; else giving its input */
    size_t at;      /* in the third chunk of 256 KiB, stripes of 64 KiB */
} deaths[] = {
    {"copying", false, 0},
    {"reducing", false, 2 << 16},
    {"taking", true, 0},
};

static int body_dies(struct member *m, void *comm)
{
    enum { CHUNK = 1 << 18, BYTES = 12 * CHUNK };
    const struct death *d = &deaths[m->arg];
    size_t at = 2 * CHUNK + d->at;
    int rc = node_allreduce(m, comm, BYTES / 4, MUSTER_FLOAT32, MUSTER_SUM,
                            true);

    if (rc == 0 && m->group.rank == 2) {
        void *good = malloc(BYTES);
        void *bad = trap_alloc(BYTES, at);
        struct error e;

        values_fill(good, BYTES / 4, MUSTER_FLOAT32, 2);
        return comm_shm.allreduce(comm, d->is_taking ? good : bad,
                                  d->is_taking ? bad : good, BYTES / 4,
                                  MUSTER_FLOAT32, MUSTER_MAX, &e);
    }
    /* What the others complete without it must be right. */
    while (rc == 0) {
        rc = node_allreduce(m, comm, BYTES / 4, MUSTER_FLOAT32, MUSTER_MAX,
                            false);
    }
    return rc;
}

static void test_dies(void)
{
    for (size_t d = 0; d < sizeof(deaths) / sizeof(deaths[0]); d++) {
        struct node node;

        node_open(&node, 4);
        node_start(&node, body_dies, (int)d);
        is_int(node_finish(&node, 2), -1000 - SIGSEGV, "a worker dies %s",
               deaths[d].name);
        segment_abort(node.seg, SEGMENT_ABORT_LOST, "worker 2 has died");
        for (int i = 0; i < 4; i++) {
            if (i != 2) {
                is_int(node_finish(&node, i), -ECONNABORTED,
                       "worker %d is told", i);
            }
        }
        node_close(&node);
    }
}

static void test_agent_gone(void)
{
    struct node node;

    node_open(&node, 3);
    node_start(&node, body_forever, 0);
    wait_board(&node, 10);
    kill(node.members[1].pid, SIGSTOP); /* so that the others wait */
    for (int i = 0; i < 3; i++) {
        close(node.agent_ends[i]);
        node.agent_ends[i] = -1;
    }
    is_int(node_finish(&node, 0), -ECONNABORTED, "worker 0 notices");
    is_int(node_finish(&node, 2), -ECONNABORTED, "worker 2 notices");
    kill(node.members[1].pid, SIGCONT);
    is_int(node_finish(&node, 1), -ECONNABORTED, "so does the one that slept");
    node_close(&node);
}

/* Worker 1 ends after some calls, perhaps none; the others would make more. */
static int body_leaves(struct member *m, void *comm)
{
    struct error e = {0};
    int rc = 0;

    for (int i = 0; rc == 0 && i < (m->group.rank == 1 ? m->arg : 6); i++) {
        rc = node_allreduce(m, comm, 300000, MUSTER_INT32, MUSTER_SUM, false);
    }
    if (m->group.rank != 1 && rc == -ECONNABORTED &&
        comm_shm.barrier(comm, &e) == -ECONNABORTED &&
        strcmp(e.text, "worker 1 has ended, and others wait for it in a "
                       "collective") != 0) {
        rc = -EBADMSG;
    }
    return rc;
}

static void test_leaving(void)
{
    struct node node;

    for (int n_calls = 0; n_calls <= 5; n_calls += 5) {
        node_open(&node, 3);
        node_start(&node, body_leaves, n_calls);
        is_int(node_finish(&node, 1), 0, "worker 1 ends well after %d",
               n_calls);
        segment_leave(node.seg, 1);
        is_int(node_finish(&node, 0), -ECONNABORTED, "worker 0 can not go on");
        is_int(node_finish(&node, 2), -ECONNABORTED, "nor can worker 2");
        node_close(&node);
    }
    node_open(&node, 3);
    node_start(&node, node_bits, 0);
    for (int i = 2; i >= 0; i--) {
        is_int(node_finish(&node, i), 0, "the last call of all ends well");
        segment_leave(node.seg, (uint32_t)i);
    }
    node_close(&node);
}

static const struct {
    const char *name;
    const char *text; /* of worker 1's call */
} mismatches[] = {
    {"count", "worker 1 called allreduce of 11 float32 (sum)"},
    {"type", "worker 1 called allreduce of 10 int32 (sum)"},
    {"operation", "worker 1 called allreduce of 10 float32 (max)"},
    {"kind", "worker 1 called barrier"},
    {"big against small", "worker 1 called allreduce of 3000000 float32 (sum)"},
    {"broadcast", "worker 1 called broadcast of 40 bytes from 1"},
    {"root", "worker 1 called broadcast of 50000 bytes from 1"},
    {"length", "worker 1 called broadcast of 50001 bytes from 0"},
};

static int body_mismatch(struct member *m, void *comm)
{
    float *x = calloc(3000000, sizeof(*x));
    struct error e = {0};
    bool odd = m->group.rank == 1;
    int rc = comm_shm.barrier(comm, &e);

    if (rc == 0 && odd && m->arg == 3) {
        rc = comm_shm.barrier(comm, &e);
    } else if (rc == 0 && m->arg >= 6) {
        rc = comm_shm.broadcast(comm, x, odd && m->arg == 7 ? 50001 : 50000,
                                odd && m->arg == 6, &e);
    } else if (rc == 0 && odd && m->arg == 5) {
        rc = comm_shm.broadcast(comm, x, 40, 1, &e);
    } else if (rc == 0) {
        rc = comm_shm.allreduce(
            comm, x, x, odd && m->arg == 0 ? 11 : odd && m->arg == 4 ? 3000000
                                                                     : 10,
            odd && m->arg == 1 ? MUSTER_INT32 : MUSTER_FLOAT32,
            odd && m->arg == 2 ? MUSTER_MAX : MUSTER_SUM, &e);
    }
    free(x);
    if (rc == -EINVAL && !strstr(e.text, "worker 1")) {
        rc = -EBADMSG;
    }
    return rc;
}

static void test_mismatch(void)
{
    for (size_t i = 0; i < sizeof(mismatches) / sizeof(mismatches[0]); i++) {
        struct node node;
        char why[SEGMENT_WHY_SIZE];

        node_open(&node, 3);
        node_start(&node, body_mismatch, (int)i);
        node_finish_all(&node, -EINVAL, mismatches[i].name);
        segment_aborted(node.seg, why);
        like(why, "calls differ: worker", "%s: text", mismatches[i].name);
        like(why, strstr(mismatches[i].text, "called ") + 7, "%s: theirs",
             mismatches[i].name);
        node_close(&node);
    }
}

static void test_wrong_group(void)
{
    struct node node;
    struct comm_group g;
    struct error e = {0};
    void *comm = NULL;

    node_open(&node, 2);
    g = node.members[1].group;
    g.local_rank = 2;
    is_int(comm_shm.init(&g, &comm, &e), -EINVAL, "a rank that is not there");
    g.local_rank = 1;
    g.world = 3;
    is_int(comm_shm.init(&g, &comm, &e), -EINVAL, "another world");
    g.world = 2;
    g.segment_fd = 0;
    is_int(comm_shm.init(&g, &comm, &e), -EINVAL, "no segment");
    segment_abort(node.seg, SEGMENT_ABORT_LOST, "over");
    g.segment_fd = node.seg->fd;
    is_int(comm_shm.init(&g, &comm, &e), 0, "an ended group");
    is_int(comm_shm.barrier(comm, &e), -ECONNABORTED, "does nothing more");
    is_str(e.text, "over", "and says why");
    comm_shm.destroy(comm);
    node_close(&node);
    node_open(&node, 1);
    segment_abort(node.seg, SEGMENT_ABORT_LOST, "over");
    is_int(comm_shm.init(&node.members[0].group, &comm, &e), 0, "one alone");
    is_int(comm_shm.barrier(comm, &e), -ECONNABORTED, "does not go on either");
    comm_shm.destroy(comm);
    node_close(&node);
    node_open(&node, 2);
    atomic_store(&node.seg->head->workers[1].through[SEGMENT_IN], 1);
    is_int(comm_shm.init(&node.members[1].group, &comm, &e), -ECONNABORTED,
           "nobody comes back who left in the middle of a call");
    like(e.text, "had left in the middle", "and that is said");
    segment_leave(node.seg, 0);
    is_int(comm_shm.init(&node.members[0].group, &comm, &e), -ECONNABORTED,
           "nor who did not say that it had finished");
    like(e.text, "worker 0 ended without muster_finalize()", "what to do");
    node_close(&node);
}

int main(void)
{
    test_leaving();
    test_mismatch();
    test_wrong_group();
    if (!NODE_THREADS) {
        test_dies();
        test_killed(0, 100);
        test_killed(1, 1);
        test_killed(1, 3);
        test_agent_gone();
    }
    return tap_done();
}
