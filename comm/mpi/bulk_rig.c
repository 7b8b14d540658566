/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a run that collectives between nodes need, for tests/t30??-*.t:
 *
 *   bulk_rig node DIR NODE WORKERS,... BODY   stands for an agent: makes the
 *       segment of node NODE, runs its workers, hands the segment to movers that
 *       connect to DIR/NODE.sock, aborts when DIR/abort comes to be or a worker
 *       dies. Worker results go to DIR/result.RANK as "CODE text".
 *   mpirun ... bulk_rig mover DIR TAG         stands for muster-mpi, one a node
 */
#include <config.h>

#include "comm/mpi/bulk.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "comm/ops.h"
#include "comm/segment.h"
#include "tests/lib/values.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { NODES_MAX = 16, WORKERS_MAX = 16, LIFE_S = 180, ATTACH_S = 20 };

struct worker {
    int rank;
    int world;
    int node;
    const char *dir;
    void *comm;
};

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

/* The last worker calls something else. */
static int body_mismatch(struct worker *w, struct error *e)
{
    int rc = body_bits(w, e);

    if (rc == 0) {
        rc = allreduce(w, w->rank == w->world - 1 ? 500001 : 500000,
                       MUSTER_FLOAT32, MUSTER_MAX, false, e);
    }
    return rc;
}

static int body_kinds(struct worker *w, struct error *e)
{
    if (w->rank == w->world - 1) {
        return comm_shm.barrier(w->comm, e);
    }
    return allreduce(w, 3000000, MUSTER_FLOAT32, MUSTER_MAX, false, e);
}

static void touch(const struct worker *w, const char *name)
{
    char path[512];

    fs_path(path, sizeof(path), NULL, "%s/%s.%d", w->dir, name, w->rank);
    fs_write_replace(path, "", 0, NULL);
}

/* Goes on until it fails; at the start of round 3 the last worker dies. */
static int body_dies(struct worker *w, struct error *e)
{
    for (int round = 0;; round++) {
        int rc = allreduce(w, 1500000, MUSTER_FLOAT32, MUSTER_MAX, true, e);

        if (rc < 0) {
            return rc;
        }
        if (round == 3 && w->rank == w->world - 1) {
            raise(SIGKILL);
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
    struct segment *s = *(struct segment **)w->comm; /* its first member */
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

static const struct body {
    const char *name;
    int (*run)(struct worker *w, struct error *e);
} bodies[] = {
    {"values", body_values},     {"bits", body_bits},
    {"mismatch", body_mismatch}, {"kinds", body_kinds},
    {"dies", body_dies},         {"leaves", body_leaves},
    {"long", body_long},         {"scribble", body_scribble},
};

static void write_result(const struct worker *w, int rc, const char *text)
{
    char path[512], line[1100];

    fs_path(path, sizeof(path), NULL, "%s/result.%d", w->dir, w->rank);
    snprintf(line, sizeof(line), "%d %s\n", rc, text);
    fs_write_replace(path, line, strlen(line), NULL);
}

static int worker_main(struct worker *w, const struct comm_group *group,
                       const struct body *body)
{
    struct error e = {0};
    int rc = comm_shm.init(group, &w->comm, &e);

    if (rc == 0) {
        rc = body->run(w, &e);
        comm_shm.destroy(w->comm);
    }
    write_result(w, rc, e.text);
    return rc < 0;
}

/* ---- node ---- */

struct node {
    const char *dir;
    struct segment *seg;
    int listener;
    int n_workers;
    int n_movers;
    int movers[NODES_MAX];
    pid_t pids[WORKERS_MAX];
};

static int parse_layout(const char *text, int node, struct segment_spec *spec)
{
    int n = 0;

    memset(spec, 0, sizeof(*spec));
    spec->node = (uint32_t)node;
    spec->generation = 1;
    for (const char *at = text; *at && n < NODES_MAX; n++) {
        char *end;
        uint32_t k = (uint32_t)strtoul(at, &end, 10);

        if (n < node) {
            spec->first_rank += k;
        } else if (n == node) {
            spec->n_local = k;
        }
        spec->max_local = k > spec->max_local ? k : spec->max_local;
        spec->world += k;
        at = *end == ',' ? end + 1 : end;
    }
    spec->n_nodes = (uint32_t)n;
    return spec->n_local <= WORKERS_MAX ? 0 : -EINVAL;
}

static int listen_at(const char *dir, int node)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    fs_path(addr.sun_path, sizeof(addr.sun_path), NULL, "%s/%d.sock", dir,
            node);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        listen(fd, 4) < 0) {
        perror(addr.sun_path);
        exit(1);
    }
    return fd;
}

static void send_fds(int to, const struct segment *s)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    int fds[2] = {s->fd, s->event_fd};
    int n_nodes = (int)s->spec.n_nodes;
    struct iovec iov = {&n_nodes, sizeof(n_nodes)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof(control),
    };
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(h), fds, sizeof(fds));
    if (sendmsg(to, &msg, MSG_NOSIGNAL) < 0) {
        perror("sendmsg");
    }
}

static void start_workers(struct node *n, const struct body *body)
{
    const struct segment_spec *spec = &n->seg->spec;

    for (int i = 0; i < n->n_workers; i++) {
        n->pids[i] = fork();
        if (n->pids[i] == 0) {
            struct worker w = {
                .rank = (int)spec->first_rank + i,
                .world = (int)spec->world,
                .node = (int)spec->node,
                .dir = n->dir,
            };
            struct comm_group group = {
                .rank = w.rank, .world = w.world, .local_rank = i,
                .segment_fd = n->seg->fd, .event_fd = n->seg->event_fd,
                .agent_fd = -1,
            };

            close(n->listener);
            _exit(worker_main(&w, &group, body));
        }
    }
}

/* True while a worker runs; aborts for one that was killed. */
static bool reap(struct node *n)
{
    bool any = false;

    for (int i = 0; i < n->n_workers; i++) {
        int status;

        if (n->pids[i] > 0 && waitpid(n->pids[i], &status, WNOHANG) > 0) {
            n->pids[i] = 0;
            if (WIFSIGNALED(status)) {
                char path[512];

                segment_abort(n->seg, SEGMENT_ABORT_LOST, "a worker died");
                fs_path(path, sizeof(path), NULL, "%s/abort", n->dir);
                fs_write_replace(path, "", 0, NULL);
            }
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
                segment_leave(n->seg, (uint32_t)i);
            }
        }
        any = any || n->pids[i] > 0;
    }
    return any;
}

/* True when the workers of all nodes have ended: until then a mover is needed. */
static bool all_ended(const struct node *n)
{
    char path[512];
    bool all = true;

    for (uint32_t i = 0; all && i < n->seg->spec.world; i++) {
        fs_path(path, sizeof(path), NULL, "%s/result.%u", n->dir, i);
        all = access(path, F_OK) == 0;
    }
    fs_path(path, sizeof(path), NULL, "%s/abort", n->dir);
    return all || access(path, F_OK) == 0;
}

static int node_main(const char *dir, int node, const char *layout,
                     const struct body *body)
{
    struct segment_spec spec;
    struct node n = {.dir = dir};
    char abort_path[512];
    struct error e;

    if (parse_layout(layout, node, &spec) < 0 ||
        segment_create(&spec, &n.seg, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    fs_path(abort_path, sizeof(abort_path), NULL, "%s/abort", dir);
    n.n_workers = (int)spec.n_local;
    n.listener = listen_at(dir, node);
    start_workers(&n, body);
    while (reap(&n) || n.n_movers == 0 || !all_ended(&n)) {
        struct pollfd p = {.fd = n.listener, .events = POLLIN};

        if (poll(&p, 1, 10) > 0 && n.n_movers < NODES_MAX) {
            int fd = accept4(n.listener, NULL, NULL, SOCK_CLOEXEC);

            send_fds(fd, n.seg);
            n.movers[n.n_movers++] = fd; /* open until this process ends */
        }
        if (access(abort_path, F_OK) == 0) {
            segment_abort(n.seg, SEGMENT_ABORT_LOST, "another node said so");
        }
    }
    segment_destroy(n.seg);
    return 0;
}

/* ---- mover ---- */

static int get_fds(const char *dir, int node, int fds[2], int *ret_n_nodes)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct iovec iov = {ret_n_nodes, sizeof(*ret_n_nodes)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof(control),
    };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    fs_path(addr.sun_path, sizeof(addr.sun_path), NULL, "%s/%d.sock", dir,
            node);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) != sizeof(int) ||
        !CMSG_FIRSTHDR(&msg)) {
        perror(addr.sun_path);
        exit(1);
    }
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), 2 * sizeof(int));
    return fd;
}

/* Moves until the node has ended. */
static void move(struct bulk *b, int node_fd)
{
    for (;;) {
        struct pollfd fds[BULK_GROUPS_MAX + 1];
        size_t n = bulk_poll_fds(b, fds, BULK_GROUPS_MAX);
        int64_t wait_us = bulk_wait_us(b);
        struct timespec wait = {.tv_nsec = (long)(wait_us * 1000)};

        fds[n] = (struct pollfd){.fd = node_fd, .events = POLLIN};
        ppoll(fds, n + 1, wait_us < 0 ? NULL : &wait, NULL);
        if (fds[n].revents) {
            return;
        }
        bulk_step(b);
    }
}

static int mover_main(const char *dir, uint32_t tag)
{
    int members[NODES_MAX];
    int fds[2], rank, node_fd, n_nodes = 0;
    struct bulk *b = NULL;
    struct error e = {0};

    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    node_fd = get_fds(dir, rank, fds, &n_nodes);
    for (int i = 0; i < n_nodes && i < NODES_MAX; i++) {
        members[i] = i;
    }
    alarm(ATTACH_S);
    if (bulk_create(MPI_COMM_WORLD, &b, &e) < 0 ||
        bulk_attach(b, tag, members, (size_t)n_nodes, fds[0], fds[1], &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    alarm(LIFE_S);
    move(b, node_fd);
    bulk_detach(b, tag);
    printf("mover %d: %zu bytes abandoned\n", rank, bulk_abandoned_bytes(b));
    fflush(stdout);
    bulk_destroy(b);
    alarm(5);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    alarm(LIFE_S);
    if (argc == 4 && strcmp(argv[1], "mover") == 0) {
        return mover_main(argv[2], (uint32_t)atoi(argv[3]));
    }
    for (size_t i = 0; argc == 6 && i < ARRAY_SIZE(bodies); i++) {
        if (strcmp(argv[1], "node") == 0 &&
            strcmp(argv[5], bodies[i].name) == 0) {
            return node_main(argv[2], atoi(argv[3]), argv[4], &bodies[i]);
        }
    }
    fprintf(stderr, "usage: bulk_rig node DIR NODE WORKERS,... BODY\n"
                    "       bulk_rig mover DIR TAG\n");
    return 2;
}
