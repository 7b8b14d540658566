/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/worker_socket_bed.h"

#include "base/clock.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUN_MS = 60000 }; /* valgrind beside others is slow */

static void on_hello(void *arg, uint32_t local_rank, int pid)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_hellos++;
    a->hello_pid = pid;
    if (a->on_hello) {
        a->on_hello(a);
    }
}

static void on_report(void *arg, uint32_t local_rank,
                      const struct worker_report *report)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_reports++;
    a->step = report->step;
    if (report->n_metrics > 0 && !strcmp(report->metrics[0].name, "loss")) {
        a->loss = report->metrics[0].value;
    }
}

static void on_saved(void *arg, uint32_t local_rank, const char *path,
                     int64_t step)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_saved++;
    a->step = step;
    str_copy(a->path, sizeof(a->path), path);
}

static void on_disconnect(void *arg, uint32_t local_rank, bool had_joined,
                          const char *why)
{
    struct agent *a = arg;

    (void)local_rank;
    a->n_disconnects++;
    a->n_joined_gone += had_joined;
    str_copy(a->why, sizeof(a->why), why);
}

static void on_snap_begin(void *arg, uint32_t local_rank, uint64_t connection,
                          const struct worker_snap_begin *begin)
{
    struct agent *a = arg;
    struct worker_snap answer = {.bytes = begin->bytes, .step = begin->step};
    int fd = -1;

    a->n_snaps++;
    a->snap_bytes = begin->bytes;
    if (begin->step == 99) {
        answer = (struct worker_snap){.error = EBUSY};
        str_copy(answer.why, sizeof(answer.why), "two are on their way");
    } else {
        fd = memfd_create("bed", MFD_CLOEXEC);
        if (ftruncate(fd, (off_t)begin->bytes) < 0) {
            bail_out("memory");
        }
    }
    worker_socket_answer_snap(a->sockets[local_rank], connection, &answer, fd);
}

static void on_snap_fill(void *arg, uint32_t local_rank,
                         const struct worker_snap_fill *fill)
{
    struct agent *a = arg;

    (void)local_rank;
    a->fill = *fill;
}

static void on_snap_done(void *arg, uint32_t local_rank,
                         const struct worker_snap_done *done)
{
    struct agent *a = arg;
    struct worker_snap_status status = {.level = WORKER_SNAP_HELD};

    a->done = *done;
    str_copy(status.uuid, sizeof(status.uuid), done->uuid);
    worker_socket_tell_snap(a->sockets[local_rank], &status);
    status.level = WORKER_SNAP_DURABLE;
    worker_socket_tell_snap(a->sockets[local_rank], &status);
}

static void on_snap_want(void *arg, uint32_t local_rank,
                         const struct worker_snap_want *want)
{
    struct agent *a = arg;

    (void)local_rank;
    a->wanted = *want;
}

const struct worker_socket_ops bed_ops = {
    .on_hello = on_hello,
    .on_report = on_report,
    .on_checkpoint_saved = on_saved,
    .on_snap_begin = on_snap_begin,
    .on_snap_fill = on_snap_fill,
    .on_snap_done = on_snap_done,
    .on_snap_want = on_snap_want,
    .on_disconnect = on_disconnect,
};

void bed_open(struct agent *a, int n)
{
    memset(a, 0, sizeof(*a));
    a->n = n;
    str_copy(a->dir, sizeof(a->dir), "/tmp/muster-test-XXXXXX");
    if (!mkdtemp(a->dir) || uv_loop_init(&a->loop) < 0) {
        bail_out("agent");
    }
    for (int i = 0; i < n; i++) {
        struct worker_welcome who = {
            .rank = (uint32_t)i, .world = (uint32_t)n,
            .local_rank = (uint32_t)i, .local_world = (uint32_t)n,
            .n_nodes = 1, .generation = 7, .run_dir = "/runs/x",
        };
        struct error e = {0};
        char path[128];

        snprintf(path, sizeof(path), "%s/%d", a->dir, i);
        if (worker_socket_create(&a->loop, path, &who, &bed_ops, a,
                                 &a->sockets[i], &e) < 0) {
            bail_out("%s", e.text);
        }
    }
}

void bed_close(struct agent *a)
{
    for (int i = 0; i < a->n; i++) {
        worker_socket_destroy(a->sockets[i]);
    }
    uv_run(&a->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&a->loop), 0, "nothing left in the loop");
    is_int(rmdir(a->dir), 0, "nothing left in the directory");
    segment_destroy(a->segment);
}

void bed_start(struct agent *a, int (*worker)(struct agent *a, int i))
{
    for (int i = 0; i < a->n; i++) {
        a->results[i] = -1;
        a->pids[i] = fork();
        if (a->pids[i] == 0) {
            setenv("MUSTER_SOCKET", worker_socket_path(a->sockets[i]), 1);
            _exit(worker(a, i));
        }
    }
}

void bed_run_until(struct agent *a, bool (*done)(struct agent *a))
{
    uint64_t deadline_ms = clock_mono_ms() + RUN_MS;

    while (!done(a) && clock_mono_ms() < deadline_ms) {
        uv_run(&a->loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
}

bool bed_all_ended(struct agent *a)
{
    bool all = true;

    for (int i = 0; i < a->n; i++) {
        int status;

        if (a->results[i] == -1 &&
            waitpid(a->pids[i], &status, WNOHANG) == a->pids[i]) {
            a->results[i] = WIFEXITED(status) ? WEXITSTATUS(status)
                                              : -WTERMSIG(status);
        }
        all = all && a->results[i] != -1;
    }
    return all && a->n_hellos == a->n_disconnects;
}

void bed_run(struct agent *a, int (*worker)(struct agent *a, int i),
                const char *name)
{
    bed_start(a, worker);
    bed_run_until(a, bed_all_ended);
    for (int i = 0; i < a->n; i++) {
        is_int(a->results[i], 0, "%s: worker %d", name, i);
    }
}
