/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of one node that go well: every value is right. */
#include <config.h>

#include "comm/shm_bed.h"

#include "tests/lib/tap.h"
#include "tests/lib/values.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t counts[] = {
    0, 1, 3, 17, 1023, 4096, 4097, 16385, 100001, 655361,
};

static int body_allreduce(struct member *m, void *comm)
{
    int rc = 0;

    for (size_t c = 0; rc == 0 && c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int op = MUSTER_SUM; rc == 0 && op <= MUSTER_MAX; op++) {
            rc = node_allreduce(m, comm, counts[c], (enum muster_type)m->arg,
                                (enum muster_op)op, (c + (size_t)op) % 2);
        }
    }
    return rc;
}

static int body_broadcast(struct member *m, void *comm)
{
    struct error e = {0};

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        int root = (int)c % m->group.world;
        uint8_t *data = calloc(counts[c] + 1, 1);
        int rc;

        for (size_t i = 0; m->group.rank == root && i < counts[c]; i++) {
            data[i] = values_byte(root, i);
        }
        rc = comm_shm.broadcast(comm, data, counts[c], root, &e);
        for (size_t i = 0; rc == 0 && i < counts[c]; i++) {
            rc = data[i] == values_byte(root, i) ? 0 : -EBADMSG;
        }
        if (rc == 0 && data[counts[c]] != 0) {
            rc = -EOVERFLOW;
        }
        free(data);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Nobody may be through a barrier that somebody has not entered. */
static int body_barrier(struct member *m, void *comm)
{
    struct error e = {0};

    for (uint64_t round = 1; round <= 300; round++) {
        int rc;

        atomic_store(&m->board[m->group.rank], round);
        rc = comm_shm.barrier(comm, &e);
        for (int i = 0; rc == 0 && i < m->group.world; i++) {
            rc = atomic_load(&m->board[i]) >= round ? 0 : -EBADMSG;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static void test_values(int n)
{
    struct node node;
    char name[64];

    for (int type = MUSTER_FLOAT32; type <= MUSTER_UINT8; type++) {
        node_open(&node, n);
        node_start(&node, body_allreduce, type);
        snprintf(name, sizeof(name), "allreduce of type %d", type);
        node_finish_all(&node, 0, name);
        node_close(&node);
    }
    node_open(&node, n);
    node_start(&node, body_broadcast, 0);
    node_finish_all(&node, 0, "broadcast");
    node_close(&node);
    node_open(&node, n);
    node_start(&node, body_barrier, 0);
    node_finish_all(&node, 0, "barrier");
    node_close(&node);
}

static void test_same_bits(int n)
{
    uint64_t first = 0;

    for (int round = 0; round < 2; round++) {
        struct node node;

        node_open(&node, n);
        node_start(&node, node_bits, 0);
        node_finish_all(&node, 0, "bits");
        first = round == 0 ? node.board[0] : first;
        for (int i = 0; i < n; i++) {
            ok(node.board[i] == first, "round %d, worker %d: the same bits",
               round, i);
        }
        node_close(&node);
    }
}

/* Comes, calls, leaves, comes again; the others do not notice. */
static int body_rejoin(struct member *m, void *comm)
{
    struct error e = {0};
    void *again = NULL;
    int rc = node_allreduce(m, comm, 100001, MUSTER_INT32, MUSTER_SUM, false);

    if (rc == 0) {
        rc = comm_shm.init(&m->group, &again, &e);
    }
    if (rc == 0) {
        rc = node_allreduce(m, again, 5, MUSTER_INT32, MUSTER_SUM, false);
        comm_shm.destroy(again);
    }
    return rc;
}

static void test_rejoin(void)
{
    struct node node;

    node_open(&node, 3);
    node_start(&node, body_rejoin, 0);
    node_finish_all(&node, 0, "rejoin");
    node_close(&node);
}

/* More workers than any two cores can run. */
static int body_crowd(struct member *m, void *comm)
{
    struct error e = {0};
    int rc = 0;

    for (int i = 0; rc == 0 && i < 5; i++) {
        rc = node_allreduce(m, comm, 100, MUSTER_INT64, MUSTER_SUM, i % 2);
        if (rc == 0) {
            rc = node_allreduce(m, comm, 50021, MUSTER_UINT8, MUSTER_SUM,
                                i % 2);
        }
        if (rc == 0) {
            rc = comm_shm.barrier(comm, &e);
        }
    }
    return rc;
}

static void test_crowd(void)
{
    struct node node;

    node_open(&node, 40);
    node_start(&node, body_crowd, 0);
    node_finish_all(&node, 0, "crowd");
    node_close(&node);
}

int main(void)
{
    test_values(1);
    test_values(2);
    test_values(NODE_THREADS ? 3 : 5);
    if (!NODE_THREADS) {
        test_values(8);
    }
    test_same_bits(4);
    test_rejoin();
    test_crowd();
    return tap_done();
}
