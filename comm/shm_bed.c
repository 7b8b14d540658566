/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/shm_bed.h"

#include "tests/lib/tap.h"
#include "tests/lib/values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void node_open(struct node *node, int n)
{
    struct segment_spec spec = {
        .generation = 1, .n_nodes = 1, .world = (uint32_t)n,
        .n_local = (uint32_t)n, .max_local = (uint32_t)n,
    };

    memset(node, 0, sizeof(*node));
    alarm(600); /* so that a hang is a failure */
    node->n = n;
    node->board = mmap(NULL, N_MAX * sizeof(*node->board),
                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                       0);
    if (node->board == MAP_FAILED) {
        bail_out("mmap");
    }
    if (segment_create(&spec, &node->seg, NULL) < 0) {
        bail_out("segment_create");
    }
    for (int i = 0; i < n; i++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
            bail_out("socketpair");
        }
        node->agent_ends[i] = pair[0];
        node->members[i].board = node->board;
        node->members[i].group = (struct comm_group){
            .rank = i, .world = n, .local_rank = i, .agent_fd = pair[1],
            .segment_fd = node->seg->fd, .event_fd = node->seg->event_fd,
        };
    }
}

void node_close(struct node *node)
{
    for (int i = 0; i < node->n; i++) {
        if (node->agent_ends[i] >= 0) {
            close(node->agent_ends[i]);
        }
        close(node->members[i].group.agent_fd);
    }
    segment_destroy(node->seg);
    munmap(node->board, N_MAX * sizeof(*node->board));
}

static int member_main(struct member *m)
{
    struct error e = {0};
    void *comm = NULL;
    int rc = comm_shm.init(&m->group, &comm, &e);

    if (rc == 0) {
        rc = m->body(m, comm);
        comm_shm.destroy(comm);
    }
    return rc;
}

static void *member_thread(void *arg)
{
    struct member *m = arg;

    m->result = member_main(m);
    return NULL;
}

void node_start(struct node *node, int (*body)(struct member *, void *),
                int arg)
{
    for (int i = 0; i < node->n; i++) {
        struct member *m = &node->members[i];

        m->body = body;
        m->arg = arg;
        if (NODE_THREADS) {
            pthread_create(&m->thread, NULL, member_thread, m);
            continue;
        }
        m->pid = fork();
        if (m->pid == 0) {
            for (int j = 0; j < node->n; j++) {
                close(node->agent_ends[j]);
            }
            _exit(-member_main(m));
        }
    }
}

int node_finish(struct node *node, int i)
{
    struct member *m = &node->members[i];
    int status = 0;

    if (NODE_THREADS) {
        pthread_join(m->thread, NULL);
        return m->result;
    }
    if (waitpid(m->pid, &status, 0) < 0) {
        return -999;
    }
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -1000 - WTERMSIG(status);
}

void node_finish_all(struct node *node, int want, const char *name)
{
    for (int i = 0; i < node->n; i++) {
        is_int(node_finish(node, i), want, "%s: worker %d of %d", name, i,
               node->n);
    }
}

int node_allreduce(struct member *m, void *comm, size_t count,
                   enum muster_type type, enum muster_op op,
                   bool in_place)
{
    size_t size = comm_type_size(type);
    char *send = malloc((count + 1) * size);
    char *recv = in_place ? send : malloc((count + 1) * size);
    struct error e = {0};
    size_t first;
    int rc;

    values_fill(send, count, type, m->group.rank);
    memset(recv + count * size, 0x5a, size);
    rc = comm_shm.allreduce(comm, send, recv, count, type, op, &e);
    if (rc == 0 &&
        values_wrong(recv, count, type, op, m->group.world, &first) > 0) {
        rc = -EBADMSG;
    }
    for (size_t i = 0; rc == 0 && i < size; i++) {
        rc = recv[count * size + i] == 0x5a ? 0 : -EOVERFLOW;
    }
    free(send);
    if (!in_place) {
        free(recv);
    }
    return rc;
}

int node_bits(struct member *m, void *comm)
{
    enum { COUNT = 300007 };
    float *x = malloc(COUNT * sizeof(*x));
    struct error e = {0};
    uint64_t hash = 1;
    unsigned seed = (unsigned)m->group.rank + 1;
    int rc;

    for (size_t i = 0; i < COUNT; i++) {
        x[i] = (float)rand_r(&seed) / (float)(1 + rand_r(&seed) % 1000);
    }
    rc = comm_shm.allreduce(comm, x, x, COUNT, MUSTER_FLOAT32, MUSTER_SUM, &e);
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        hash = hash * 31 + bits;
    }
    m->board[m->group.rank] = hash;
    free(x);
    return rc;
}
