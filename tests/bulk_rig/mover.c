/* SPDX-License-Identifier: Apache-2.0 */
/* A mover of the rig: the engine, as muster-mpi runs it, for one node. */
#include <config.h>

#include "tests/bulk_rig/rig.h"

#include "base/fs.h"
#include "comm/mpi/bulk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

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

/* Leaves the group early, as its node asks, and lets the workers know. */
static void leave(struct bulk *b, const char *dir, int rank, uint32_t tag)
{
    char path[512];

    bulk_detach(b, tag);
    fs_path(path, sizeof(path), NULL, "%s/left.%d", dir, rank);
    fs_write_replace(path, "", 0, NULL);
}

/* Moves until the node has ended. */
static void move(struct bulk *b, int node_fd, const char *dir, int rank,
                 uint32_t tag)
{
    char word;

    for (;;) {
        struct pollfd fds[BULK_GROUPS_MAX + 1];
        size_t n = bulk_poll_fds(b, fds, BULK_GROUPS_MAX);
        int64_t wait_us = bulk_wait_us(b);
        struct timespec wait = {.tv_nsec = (long)(wait_us * 1000)};

        fds[n] = (struct pollfd){.fd = node_fd, .events = POLLIN};
        ppoll(fds, n + 1, wait_us < 0 ? NULL : &wait, NULL);
        if (fds[n].revents) {
            if (read(node_fd, &word, 1) != 1) {
                return;
            }
            leave(b, dir, rank, tag);
        }
        bulk_step(b);
    }
}

/* One group, from joining it to the end of its node. */
static int serve(struct bulk *b, const char *dir, uint32_t tag, int rank)
{
    int members[NODES_MAX];
    int fds[2], n_nodes = 0;
    int node_fd = get_fds(dir, rank, fds, &n_nodes);
    struct error e = {0};

    for (int i = 0; i < n_nodes && i < NODES_MAX; i++) {
        members[i] = i;
    }
    alarm(ATTACH_S);
    if (bulk_attach(b, tag, members, (size_t)n_nodes, fds[0], fds[1], &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return -1;
    }
    alarm(LIFE_S);
    fault_arm(rank);
    move(b, node_fd, dir, rank, tag);
    bulk_detach(b, tag);
    close(fds[0]);
    close(fds[1]);
    close(node_fd);
    return 0;
}

int mover_main(char **dirs, uint32_t tag)
{
    struct bulk *b = NULL;
    struct error e = {0};
    int rank;

    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (bulk_create(MPI_COMM_WORLD, &b, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    for (size_t i = 0; dirs[i]; i++) {
        if (serve(b, dirs[i], tag + (uint32_t)i, rank) < 0) {
            return 1;
        }
    }
    printf("mover %d: %zu bytes abandoned\n", rank, bulk_abandoned_bytes(b));
    fflush(stdout);
    bulk_destroy(b);
    alarm(5);
    MPI_Finalize();
    return 0;
}
