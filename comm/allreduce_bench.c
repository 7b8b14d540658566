/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of allreduce and barrier of N workers on this node, each a process,
 * beside the limit that memory sets: the same processes each copying the same
 * number of bytes to a buffer of their own, at the same time.
 *
 *   allreduce_bench [N [CHUNK_BYTES]]
 */
#include <config.h>

#include "base/clock.h"
#include "comm/ops.h"
#include "comm/segment.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS_MAX = 4000, BYTES_MAX = 64 << 20 };

static const size_t sizes[] = {
    0, 8, 4096, 65536, 1 << 20, 16 << 20, BYTES_MAX,
};

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int n_rounds(size_t n_bytes)
{
    return n_bytes >= (16 << 20) ? 20 : n_bytes >= (1 << 20) ? 200 : ROUNDS_MAX;
}

/* The median time of a round, and the least, in ns. `copy`: of a memcpy. */
static void measure(void *comm, float *x, float *y, size_t n_bytes, int copy,
                    uint64_t ret[2])
{
    static uint64_t times[ROUNDS_MAX];
    struct error e;
    int n = n_rounds(n_bytes);

    for (int i = -2; i < n; i++) {
        uint64_t start_ns;

        comm_shm.barrier(comm, &e);
        start_ns = clock_mono_ns();
        if (copy) {
            memcpy(y, x, n_bytes);
        } else if (n_bytes == 0) {
            comm_shm.barrier(comm, &e);
        } else if (comm_shm.allreduce(comm, x, y, n_bytes / sizeof(*x),
                                      MUSTER_FLOAT32, MUSTER_SUM, &e) < 0) {
            fprintf(stderr, "%s\n", e.text);
            _exit(1);
        }
        times[i < 0 ? 0 : i] = clock_mono_ns() - start_ns;
    }
    qsort(times, (size_t)n, sizeof(times[0]), by_time);
    ret[0] = times[n / 2];
    ret[1] = times[0];
}

static void worker(const struct comm_group *group)
{
    struct error e;
    void *comm = NULL;
    float *x = malloc(BYTES_MAX);
    float *y = malloc(BYTES_MAX);

    memset(x, 0, BYTES_MAX);
    memset(y, 0, BYTES_MAX);
    if (comm_shm.init(group, &comm, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        _exit(1);
    }
    if (group->rank == 0) {
        printf("%d workers, float32 sum, times in us\n"
               "%10s %12s %12s %12s %8s\n", group->world, "bytes", "median",
               "least", "memcpy", "GB/s");
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t reduce[2], copy[2];

        measure(comm, x, y, sizes[i], 0, reduce);
        measure(comm, x, y, sizes[i], 1, copy);
        if (group->rank == 0) {
            printf("%10zu %12.2f %12.2f %12.2f %8.2f\n", sizes[i],
                   (double)reduce[0] / 1e3, (double)reduce[1] / 1e3,
                   (double)copy[0] / 1e3, (double)sizes[i] / (double)reduce[0]);
        }
    }
    fflush(stdout);
    comm_shm.destroy(comm);
    _exit(0);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 2;
    struct segment_spec spec = {
        .generation = 1, .n_nodes = 1, .world = (uint32_t)n,
        .n_local = (uint32_t)n, .max_local = (uint32_t)n,
        .chunk_bytes = argc > 2 ? (uint32_t)atoi(argv[2]) : 0,
    };
    struct segment *seg = NULL;
    struct error e;
    int failed = 0;

    if (segment_create(&spec, &seg, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        struct comm_group group = {
            .rank = i, .world = n, .local_rank = i, .agent_fd = -1,
            .segment_fd = seg->fd, .event_fd = seg->event_fd,
        };

        if (fork() == 0) {
            worker(&group);
        }
    }
    for (int i = 0; i < n; i++) {
        int status;

        wait(&status);
        failed = failed || status != 0;
    }
    segment_destroy(seg);
    return failed;
}
