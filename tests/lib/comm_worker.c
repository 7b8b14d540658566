/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that does nothing but collectives, and checks every value of them:
 *
 *   comm_worker STOP [FAULT@RANK...]
 *
 * Rounds go on until the file STOP is there. Each worker prints "rank R: right",
 * or the first error as "rank R: CODE TEXT", and ends with 0 or 1. In generation
 * 1 worker RANK does in its third round what FAULT says (see faults[]). One that was
 * told to hold ends after an error once the file STOP is there.
 */
#include <config.h>

#include "muster.h"
#include "tests/lib/values.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 100003 };

struct worker {
    struct muster *m;
    const char *stop;
    int rank;
    int world;
    bool holds;
    float *send;
    float *recv;
    uint8_t *bytes;
};

static int sum(struct worker *w)
{
    size_t first;
    int rc;

    values_fill(w->send, N, MUSTER_FLOAT32, w->rank);
    rc = muster_allreduce(w->m, w->send, w->recv, N, MUSTER_FLOAT32, MUSTER_SUM);
    if (rc == 0 && values_wrong(w->recv, N, MUSTER_FLOAT32, MUSTER_SUM, w->world,
                                &first) > 0) {
        return -EBADMSG;
    }
    return rc;
}

static int broadcast(struct worker *w, int root)
{
    int rc;

    for (size_t i = 0; i < N; i++) {
        w->bytes[i] = w->rank == root ? values_byte(root, i) : 0;
    }
    rc = muster_broadcast(w->m, w->bytes, N, root);
    for (size_t i = 0; rc == 0 && i < N; i++) {
        rc = w->bytes[i] == values_byte(root, i) ? 0 : -EBADMSG;
    }
    return rc;
}

/* 1 if all are to stop. */
static int agree(struct worker *w)
{
    int32_t stop = w->rank == 0 && access(w->stop, F_OK) == 0;
    int rc = muster_allreduce(w->m, &stop, &stop, 1, MUSTER_INT32, MUSTER_MAX);

    return rc < 0 ? rc : stop;
}

static int one_round(struct worker *w, int round)
{
    int rc = sum(w);

    if (rc == 0) {
        rc = broadcast(w, round % w->world);
    }
    if (rc == 0) {
        rc = muster_barrier(w->m);
    }
    if (rc == 0 && w->rank == 0) {
        rc = muster_report(w->m, round, NULL, 0);
    }
    return rc < 0 ? rc : agree(w);
}

static int call_count(struct worker *w)
{
    return muster_allreduce(w->m, w->send, w->recv, N - 1, MUSTER_FLOAT32,
                            MUSTER_SUM);
}

static int call_type(struct worker *w)
{
    return muster_allreduce(w->m, w->send, w->recv, N, MUSTER_INT32, MUSTER_SUM);
}

static int call_operation(struct worker *w)
{
    return muster_allreduce(w->m, w->send, w->recv, N, MUSTER_FLOAT32,
                            MUSTER_MIN);
}

static int call_kind(struct worker *w)
{
    return muster_broadcast(w->m, w->bytes, N, 0);
}

/* Is refused before the others hear of it. */
static int call_huge(struct worker *w)
{
    return muster_allreduce(w->m, w->send, w->recv, SIZE_MAX / 4,
                            MUSTER_FLOAT32, MUSTER_SUM);
}

static int leave(struct worker *w)
{
    (void)w;
    exit(0);
}

/* Goes on when it is told to end. */
static int pause_here(struct worker *w)
{
    (void)w;
    raise(SIGSTOP);
    return 0;
}

static int hold(struct worker *w)
{
    w->holds = true;
    return 0;
}

static int fail(struct worker *w)
{
    (void)w;
    exit(3);
}

static const struct {
    const char *name;
    int (*run)(struct worker *w);
} faults[] = {
    {"count", call_count}, {"type", call_type}, {"operation", call_operation},
    {"kind", call_kind},   {"huge", call_huge}, {"leave", leave},
    {"fail", fail},        {"pause", pause_here},     {"hold", hold},
};

/* The fault, if it is this worker's. */
static int commit_fault(struct worker *w, const char *text)
{
    char name[32];
    int rank;

    if (sscanf(text, "%31[a-z]@%d", name, &rank) != 2 ||
        rank != w->rank || muster_generation(w->m) != 1) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (strcmp(faults[i].name, name) == 0) {
            return faults[i].run(w);
        }
    }
    return -ENOSYS;
}

int main(int argc, char **argv)
{
    struct worker w = {.stop = argc > 1 ? argv[1] : ""};
    int rc = argc > 1 ? muster_init(&w.m) : -EINVAL;

    if (rc < 0) {
        fprintf(stderr, "comm_worker STOP [FAULT@RANK...]: %s\n", strerror(-rc));
        return 2;
    }
    signal(SIGTERM, SIG_IGN); /* what a collective says is to be seen */
    w.rank = muster_rank(w.m);
    w.world = muster_world(w.m);
    w.send = malloc(N * sizeof(*w.send));
    w.recv = malloc(N * sizeof(*w.recv));
    w.bytes = malloc(N);
    for (int round = 0; rc == 0; round++) {
        for (char **fault = argv + 2; round == 2 && rc == 0 && *fault; fault++) {
            rc = commit_fault(&w, *fault);
        }
        if (rc == 0) {
            rc = one_round(&w, round);
        }
    }
    if (rc < 0) {
        printf("rank %d: %d %s\n", w.rank, rc, muster_error_text(w.m));
    } else {
        printf("rank %d: right\n", w.rank);
    }
    fflush(stdout); /* before a leak checker has a look at the process, which a
                       SIGCONT can stop for good */
    while (rc < 0 && w.holds && access(w.stop, F_OK) < 0) {
        usleep(10000);
    }
    muster_finalize(w.m);
    free(w.send);
    free(w.recv);
    free(w.bytes);
    return rc < 0;
}
