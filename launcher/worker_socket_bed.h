/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: the agent's end of worker sockets in this process, and workers in
 * children of it. A bed may have no sockets of its own.
 */
#ifndef MUSTER_LAUNCHER_WORKER_SOCKET_BED_H
#define MUSTER_LAUNCHER_WORKER_SOCKET_BED_H

#include "launcher/worker_socket.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

enum { BED_MAX = 4 };

/* What the agent saw, and what it does. */
struct agent {
    uv_loop_t loop;
    char dir[64];
    int n;
    struct worker_socket *sockets[BED_MAX];
    struct segment *segment;
    pid_t pids[BED_MAX];
    int results[BED_MAX]; /* 0, an exit code, or -signal; -1 while it runs */
    int n_hellos, n_reports, n_saved, n_disconnects, n_joined_gone;
    int hello_pid;
    int64_t step;
    double loss;
    char path[WORKER_PATH_SIZE];
    char why[1024];
    void (*on_hello)(struct agent *a);
    int n_snaps; /* asked for; one of step 99 is refused */
    uint64_t snap_bytes;
    struct worker_snap_fill fill;
    struct worker_snap_done done;
    struct worker_snap_want wanted;
    uint64_t deadline_ms;
};
extern const struct worker_socket_ops bed_ops;

void bed_open(struct agent *a, int n);
void bed_close(struct agent *a);

/* Children come to be before any connection, or they would hold those open. */
void bed_start(struct agent *a, int (*worker)(struct agent *a, int i));
/* Runs the loop until `done` says so or time is over. */
void bed_run_until(struct agent *a, bool (*done)(struct agent *a));
bool bed_all_ended(struct agent *a);
/* All of it, to their end, which has to be a good one. */
void bed_run(struct agent *a, int (*worker)(struct agent *a, int i),
             const char *name);

#endif
