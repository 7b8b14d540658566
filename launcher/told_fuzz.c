/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what other hosts tell a command: the answer of a muster probe over
 * ssh, which comes with whatever a login shell prints, and what the lead tells the
 * front end. The first byte says which. A terminal gets nothing but characters from
 * all but the output of workers.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/utf8.h"
#include "launcher/front_priv.h"
#include "launcher/node_view.h"
#include "launcher/probe.h"
#include "rendezvous/tree_msg.h"
#include "spec/job.h"
#include "tests/lib/fuzz.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A front end without an mpirun, whose terminal is a file. */
static struct front front;
static struct job *job;
static struct run_config run;
static struct rundir dir;
static struct front_config config = {.dir = &dir, .run = &run};
static int terminal = -1;

static void try_probe(const uint8_t *data, size_t size)
{
    struct fanout_task task = {.status = size & 1 ? 127 : 255};
    struct probe_answer *answer = calloc(1, sizeof(*answer));

    buf_append(&task.answer, data, size);
    expect(answer && !task.answer.failed);
    probe_judge(&task, answer);
    fanout_task_release(&task);
    free(answer);
}

static void try_node(const uint8_t *data, size_t size)
{
    struct fanout_task task = {.status = 255};
    struct node_view *view = calloc(1, sizeof(*view));

    buf_append(&task.answer, data, size);
    expect(view && !task.answer.failed);
    node_view_take(view, &task);
    expect(view->gpus.n <= GPUS_MAX);
    for (size_t i = 0; i < view->gpus.n; i++) {
        node_view_gpu_is_taken(&view->gpus.items[i]);
    }
    fanout_task_release(&task);
    free(view);
}

/* --- the lead --- */

static void make_front(void)
{
    /* What libFuzzer itself says still has to be read. */
    terminal = memfd_create("terminal", MFD_CLOEXEC);
    job = job_create();
    expect(terminal >= 0 && job != NULL);
    run.job = job;
    str_copy(dir.path, sizeof(dir.path), "/proc/none");
    str_copy(dir.id, sizeof(dir.id), "x");
    expect(uv_loop_init(&front.loop) == 0);
    expect(writer_create(&front.loop, front_on_room, &front, &front.writer,
                         NULL) == 0);
}

static void expect_printable(const char *s)
{
    expect(utf8_is_valid(s));
    for (uint32_t c; *s;) {
        s += utf8_next(s, &c);
        expect(c == '\n' || c == '\t' || utf8_is_printable(c));
    }
}

/* What was said since the last time. */
static void check_terminal(bool by_workers)
{
    _free_ char *text = NULL;
    off_t len = lseek(terminal, 0, SEEK_END);

    text = calloc(1, (size_t)len + 1);
    expect(text && pread(terminal, text, (size_t)len, 0) == len);
    expect(strlen(text) == (size_t)len || by_workers);
    if (!by_workers) {
        expect_printable(text);
    }
    expect(ftruncate(terminal, 0) == 0 && lseek(terminal, 0, SEEK_SET) == 0);
}

static void start_front(void)
{
    front.config = &config;
    front.phase = FRONT_RUNNING;
    front.mpirun_pid = -1;
    front.old_ender = -1;
    front.is_short = false;
    expect(screen_create(&config, front.writer, &front.screen, NULL) == 0);
}

/* The type is the next byte. */
static void try_lead(const uint8_t *data, size_t size)
{
    static const uint8_t types[] = {TREE_STATUS, TREE_EVENT, TREE_OUTPUT,
                                    TREE_ORDER};
    struct channel_frame frame = {.type = types[size ? data[0] % 4 : 0],
                                  .data = data + !!size, .len = size - !!size};
    int old[2] = {dup(1), dup(2)};

    if (!job) {
        make_front();
    }
    expect(dup2(terminal, 1) == 1 && dup2(terminal, 2) == 2);
    start_front();
    front_take_frame(&front, &frame);
    screen_progress(front.screen, 1000, 1000);
    screen_end(front.screen, 1, front.reason, 1000);
    screen_destroy(front.screen);
    while (writer_pending(front.writer)) {
        uv_run(&front.loop, UV_RUN_NOWAIT);
    }
    expect(dup2(old[0], 1) == 1 && dup2(old[1], 2) == 2);
    close(old[0]);
    close(old[1]);
    check_terminal(frame.type == TREE_OUTPUT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {
        try_probe, try_node, try_lead,
    };

    if (size > 0) {
        tries[data[0] % ARRAY_SIZE(tries)](data + 1, size - 1);
    }
    return 0;
}
