/* SPDX-License-Identifier: Apache-2.0 */
/* A node of the rig: its segment, its workers, and what an agent does for them. */
#include <config.h>

#include "tests/bulk_rig/rig.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "comm/ops.h"
#include "comm/segment.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

void node_write_result(const struct worker *w, int rc, const char *text)
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
    int rc;

    if (body->arg == BODY_UNBORN && w->rank == w->world - 1) {
        raise(SIGKILL);
    }
    rc = comm_shm.init(group, &w->comm, &e);
    if (rc == 0) {
        rc = body->run(w, &e);
        comm_shm.destroy(w->comm);
    }
    node_write_result(w, rc, e.text);
    return rc < 0;
}

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
                .local_rank = i,
                .n_local = n->n_workers,
                .n_nodes = (int)spec->n_nodes,
                .body = body,
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

int node_main(const char *dir, int node, const char *layout,
                     const struct body *body)
{
    struct segment_spec spec;
    struct node n = {.dir = dir};
    char abort_path[512];
    bool has_asked = false;
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
        if (body->arg == BODY_QUITS && !has_asked && n.n_movers > 0 &&
            !reap(&n)) {
            has_asked = write(n.movers[0], "", 1) == 1;
        }
    }
    segment_destroy(n.seg);
    return 0;
}
