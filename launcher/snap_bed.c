/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_bed.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/link_priv.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 60000 };

void snap_bed_open(const char *name, uv_loop_t *loop, char top[64])
{
    snprintf(top, 64, "/tmp/%s.XXXXXX", name);
    if (!mkdtemp(top) || uv_loop_init(loop) < 0) {
        bail_out("no directory %s", top);
    }
}

void snap_bed_close(uv_loop_t *loop, const char *top)
{
    uv_run(loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(loop), 0, "nothing is left in the loop");
    fs_remove_tree(top, NULL);
}

bool snap_bed_run_until(uv_loop_t *loop, const int *count, int n)
{
    uint64_t end = clock_mono_ms() + PATIENCE_MS;

    while (*count < n && clock_mono_ms() < end) {
        uv_run(loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    return *count >= n;
}

void snap_bed_run_for(uv_loop_t *loop, unsigned ms)
{
    uint64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end) {
        uv_run(loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
}

void snap_bed_turn(uv_loop_t *loop, uint64_t began_ms)
{
    if (clock_mono_ms() - began_ms > PATIENCE_MS) {
        bail_out("what was waited for has not come");
    }
    uv_run(loop, UV_RUN_NOWAIT);
}

/* --- holds --- */

static int finish(const void *part, size_t len, const uint64_t *blocks,
                  size_t n_blocks, struct buf *ret, struct error *e)
{
    (void)blocks, (void)n_blocks, (void)e;
    buf_append(ret, part, len);
    return 0;
}

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct snap_said *said = arg;

    (void)question;
    said->n_begun++;
    said->snap = (struct snap *)s;
    said->error = *e;
}

static void on_written(void *arg, const struct snap_head *head,
                       const struct error *e)
{
    struct snap_said *said = arg;

    (void)head;
    said->n_written += e->code == 0;
    said->n_failed += e->code != 0;
    said->error = *e;
}

static uint64_t left(void *arg)
{
    const struct snap_said *said = arg;

    return said->left;
}

struct snap_hold_config snap_bed_config(uv_loop_t *loop, const char *dir,
                                        struct snap_said *said)
{
    said->left = UINT64_MAX;
    return (struct snap_hold_config){
        .loop = loop, .dir = dir, .budget = UINT64_C(1) << 30,
        .budget_why = "all that this test has", .left = left, .io = io_system(),
        .finish = finish, .on_begun = on_begun, .on_written = on_written,
        .arg = said,
    };
}

struct snap_hold *snap_bed_hold(const struct snap_hold_config *config)
{
    struct snap_hold *h = NULL;
    struct error e;

    if (snap_hold_create(config, &h, &e) < 0) {
        bail_out("%s", e.text);
    }
    return h;
}

void snap_bed_begin(uv_loop_t *loop, struct snap_hold *h, struct snap_said *said,
                    uint32_t rank, const char *uuid, uint64_t step,
                    const char *root, uint64_t bytes)
{
    const struct snap_rank who = {.rank = rank, .n_ranks = 16, .generation = 2,
                                  .token = 5};
    struct error e = {0};
    int n = said->n_begun;

    if (snap_hold_begin(h, &who, step, uuid, root, bytes, 0, &e) < 0 ||
        !snap_bed_run_until(loop, &said->n_begun, n + 1) || !said->snap) {
        bail_out("no snapshot: %s", e.text);
    }
}

/* --- threads that come no further --- */

static void wait_go(uv_work_t *work)
{
    struct snap_jam *j = work->data;

    uv_sem_wait(&j->go);
}

static void after_go(uv_work_t *work, int status)
{
    (void)work, (void)status;
}

void snap_jam_begin(struct snap_jam *j, uv_loop_t *loop)
{
    uv_sem_init(&j->go, 0);
    for (int i = 0; i < SNAP_JAM_WORKS; i++) {
        j->works[i].data = j;
        uv_queue_work(loop, &j->works[i], wait_go, after_go);
    }
}

void snap_jam_end(struct snap_jam *j)
{
    for (int i = 0; i < SNAP_JAM_WORKS; i++) {
        uv_sem_post(&j->go);
    }
}

void snap_bed_narrow(struct link *l, int option)
{
    int bytes = 64 * 1024;
    uv_os_fd_t fd;

    if (uv_fileno(&l->conn->handle, &fd) < 0 ||
        setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof(bytes)) < 0) {
        bail_out("a socket");
    }
}
