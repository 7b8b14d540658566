/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of the workers of one node, each a process; the test is their
 * agent. Under ThreadSanitizer, which sees one process only, workers are threads
 * and what needs a process to die is left out.
 */
#include <config.h>

#include "comm/ops.h"

#include "base/clock.h"
#include "comm/segment.h"
#include "tests/lib/tap.h"
#include "tests/lib/trap.h"
#include "tests/lib/values.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
enum { THREADS = 1 };
#else
enum { THREADS = 0 };
#endif

enum { N_MAX = 64 };

struct member {
    struct comm_group group;
    int arg;
    int (*body)(struct member *m, void *comm);
    int result;
    pid_t pid;
    pthread_t thread;
};

/* A node: segment, members, and what they share with the test. */
struct node {
    struct segment *seg;
    int n;
    int agent_ends[N_MAX];
    struct member members[N_MAX];
};

static uint64_t *board; /* shared by all processes: a place each */

static void node_open(struct node *node, int n)
{
    struct segment_spec spec = {
        .generation = 1, .n_nodes = 1, .world = (uint32_t)n,
        .n_local = (uint32_t)n, .max_local = (uint32_t)n,
    };

    memset(node, 0, sizeof(*node));
    node->n = n;
    if (segment_create(&spec, &node->seg, NULL) < 0) {
        bail_out("segment_create");
    }
    for (int i = 0; i < n; i++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
            bail_out("socketpair");
        }
        node->agent_ends[i] = pair[0];
        node->members[i].group = (struct comm_group){
            .rank = i, .world = n, .local_rank = i, .agent_fd = pair[1],
            .segment_fd = node->seg->fd, .event_fd = node->seg->event_fd,
        };
    }
}

static void node_close(struct node *node)
{
    for (int i = 0; i < node->n; i++) {
        if (node->agent_ends[i] >= 0) {
            close(node->agent_ends[i]);
        }
        close(node->members[i].group.agent_fd);
    }
    segment_destroy(node->seg);
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

static void start(struct node *node, int (*body)(struct member *, void *),
                  int arg)
{
    for (int i = 0; i < node->n; i++) {
        struct member *m = &node->members[i];

        m->body = body;
        m->arg = arg;
        if (THREADS) {
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

/* The result of one member: 0, -errno, or -1000 - signal. */
static int finish(struct node *node, int i)
{
    struct member *m = &node->members[i];
    int status = 0;

    if (THREADS) {
        pthread_join(m->thread, NULL);
        return m->result;
    }
    if (waitpid(m->pid, &status, 0) < 0) {
        return -999;
    }
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -1000 - WTERMSIG(status);
}

static void finish_all(struct node *node, int want, const char *name)
{
    for (int i = 0; i < node->n; i++) {
        is_int(finish(node, i), want, "%s: worker %d of %d", name, i, node->n);
    }
}

static int one_allreduce(struct member *m, void *comm, size_t count,
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

static const size_t counts[] = {
    0, 1, 3, 17, 1023, 4096, 4097, 16385, 100001, 655361,
};

static int body_allreduce(struct member *m, void *comm)
{
    int rc = 0;

    for (size_t c = 0; rc == 0 && c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int op = MUSTER_SUM; rc == 0 && op <= MUSTER_MAX; op++) {
            rc = one_allreduce(m, comm, counts[c], (enum muster_type)m->arg,
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
    _Atomic uint64_t *places = (_Atomic uint64_t *)board;

    for (uint64_t round = 1; round <= 300; round++) {
        int rc;

        atomic_store(&places[m->group.rank], round);
        rc = comm_shm.barrier(comm, &e);
        for (int i = 0; rc == 0 && i < m->group.world; i++) {
            rc = atomic_load(&places[i]) >= round ? 0 : -EBADMSG;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Sums that depend on the order; the test compares the bits. */
static int body_bits(struct member *m, void *comm)
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
    board[m->group.rank] = hash;
    free(x);
    return rc;
}

static void clear_board(void)
{
    memset(board, 0, N_MAX * sizeof(*board));
}

static void test_values(int n)
{
    struct node node;
    char name[64];

    for (int type = MUSTER_FLOAT32; type <= MUSTER_UINT8; type++) {
        node_open(&node, n);
        start(&node, body_allreduce, type);
        snprintf(name, sizeof(name), "allreduce of type %d", type);
        finish_all(&node, 0, name);
        node_close(&node);
    }
    node_open(&node, n);
    start(&node, body_broadcast, 0);
    finish_all(&node, 0, "broadcast");
    node_close(&node);
    clear_board();
    node_open(&node, n);
    start(&node, body_barrier, 0);
    finish_all(&node, 0, "barrier");
    node_close(&node);
}

static void test_same_bits(int n)
{
    uint64_t first = 0;

    for (int round = 0; round < 2; round++) {
        struct node node;

        clear_board();
        node_open(&node, n);
        start(&node, body_bits, 0);
        finish_all(&node, 0, "bits");
        node_close(&node);
        first = round == 0 ? board[0] : first;
        for (int i = 0; i < n; i++) {
            ok(board[i] == first, "round %d, worker %d: the same bits", round,
               i);
        }
    }
}

/* Comes, calls, leaves, comes again; the others do not notice. */
static int body_rejoin(struct member *m, void *comm)
{
    struct error e = {0};
    void *again = NULL;
    int rc = one_allreduce(m, comm, 100001, MUSTER_INT32, MUSTER_SUM, false);

    if (rc == 0) {
        rc = comm_shm.init(&m->group, &again, &e);
    }
    if (rc == 0) {
        rc = one_allreduce(m, again, 5, MUSTER_INT32, MUSTER_SUM, false);
        comm_shm.destroy(again);
    }
    return rc;
}

static void test_rejoin(void)
{
    struct node node;

    node_open(&node, 3);
    start(&node, body_rejoin, 0);
    finish_all(&node, 0, "rejoin");
    node_close(&node);
}

/* Allreduces until it fails. */
static int body_forever(struct member *m, void *comm)
{
    size_t count = m->arg ? (size_t)4 << 20 : 3;
    float *x = calloc(count, sizeof(*x));
    _Atomic uint64_t *places = (_Atomic uint64_t *)board;
    struct error e = {0};
    int rc;

    do {
        rc = comm_shm.allreduce(comm, x, x, count, MUSTER_FLOAT32, MUSTER_MAX,
                                &e);
        atomic_fetch_add(&places[m->group.rank], 1);
    } while (rc == 0);
    free(x);
    return rc;
}

static void wait_board(uint64_t at_least)
{
    _Atomic uint64_t *places = (_Atomic uint64_t *)board;
    uint64_t deadline_ms = clock_mono_ms() + 120000;

    while (atomic_load(&places[0]) < at_least) {
        if (clock_mono_ms() > deadline_ms) {
            bail_out("the workers make no progress");
        }
        poll(NULL, 0, 1);
    }
}

static void test_killed(int is_big, uint64_t after)
{
    struct node node;

    clear_board();
    node_open(&node, 4);
    start(&node, body_forever, is_big);
    wait_board(after);
    kill(node.members[2].pid, SIGKILL);
    is_int(finish(&node, 2), -1000 - SIGKILL, "worker 2 killed");
    segment_abort(node.seg, SEGMENT_ABORT_LOST, "worker 2 was killed");
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            is_int(finish(&node, i), -ECONNABORTED, "worker %d returns", i);
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
    int rc = one_allreduce(m, comm, BYTES / 4, MUSTER_FLOAT32, MUSTER_SUM, true);

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
        rc = one_allreduce(m, comm, BYTES / 4, MUSTER_FLOAT32, MUSTER_MAX,
                           false);
    }
    return rc;
}

static void test_dies(void)
{
    for (size_t d = 0; d < sizeof(deaths) / sizeof(deaths[0]); d++) {
        struct node node;

        node_open(&node, 4);
        start(&node, body_dies, (int)d);
        is_int(finish(&node, 2), -1000 - SIGSEGV, "a worker dies %s",
               deaths[d].name);
        segment_abort(node.seg, SEGMENT_ABORT_LOST, "worker 2 has died");
        for (int i = 0; i < 4; i++) {
            if (i != 2) {
                is_int(finish(&node, i), -ECONNABORTED, "worker %d is told", i);
            }
        }
        node_close(&node);
    }
}

static void test_agent_gone(void)
{
    struct node node;

    clear_board();
    node_open(&node, 3);
    start(&node, body_forever, 0);
    wait_board(10);
    kill(node.members[1].pid, SIGSTOP); /* so that the others wait */
    for (int i = 0; i < 3; i++) {
        close(node.agent_ends[i]);
        node.agent_ends[i] = -1;
    }
    is_int(finish(&node, 0), -ECONNABORTED, "worker 0 notices");
    is_int(finish(&node, 2), -ECONNABORTED, "worker 2 notices");
    kill(node.members[1].pid, SIGCONT);
    is_int(finish(&node, 1), -ECONNABORTED, "so does the one that slept");
    node_close(&node);
}

/* Worker 1 ends after some calls, perhaps none; the others would make more. */
static int body_leaves(struct member *m, void *comm)
{
    struct error e = {0};
    int rc = 0;

    for (int i = 0; rc == 0 && i < (m->group.rank == 1 ? m->arg : 6); i++) {
        rc = one_allreduce(m, comm, 300000, MUSTER_INT32, MUSTER_SUM, false);
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
        start(&node, body_leaves, n_calls);
        is_int(finish(&node, 1), 0, "worker 1 ends well after %d", n_calls);
        segment_leave(node.seg, 1);
        is_int(finish(&node, 0), -ECONNABORTED, "worker 0 can not go on");
        is_int(finish(&node, 2), -ECONNABORTED, "nor can worker 2");
        node_close(&node);
    }
    node_open(&node, 3);
    start(&node, body_bits, 0);
    for (int i = 2; i >= 0; i--) {
        is_int(finish(&node, i), 0, "the last call of all ends well");
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
        start(&node, body_mismatch, (int)i);
        finish_all(&node, -EINVAL, mismatches[i].name);
        segment_aborted(node.seg, why);
        like(why, "calls differ: worker", "%s: text", mismatches[i].name);
        like(why, strstr(mismatches[i].text, "called ") + 7, "%s: theirs",
             mismatches[i].name);
        node_close(&node);
    }
}

/* More workers than any two cores can run. */
static int body_crowd(struct member *m, void *comm)
{
    struct error e = {0};
    int rc = 0;

    for (int i = 0; rc == 0 && i < 5; i++) {
        rc = one_allreduce(m, comm, 100, MUSTER_INT64, MUSTER_SUM, i % 2);
        if (rc == 0) {
            rc = one_allreduce(m, comm, 50021, MUSTER_UINT8, MUSTER_SUM, i % 2);
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
    start(&node, body_crowd, 0);
    finish_all(&node, 0, "crowd");
    node_close(&node);
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
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(600); /* so that a hang is a failure */
    test_values(1);
    test_values(2);
    test_values(THREADS ? 3 : 5);
    if (!THREADS) {
        test_values(8);
    }
    test_same_bits(4);
    test_rejoin();
    test_leaving();
    test_mismatch();
    test_crowd();
    test_wrong_group();
    if (!THREADS) {
        test_dies();
        test_killed(0, 100);
        test_killed(1, 1);
        test_killed(1, 3);
        test_agent_gone();
    }
    return tap_done();
}
