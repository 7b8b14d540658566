/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of GPUs that outlives its process. A driver may take seconds to free what
 * a killed process had, and a new one that comes meanwhile fails for lack of memory.
 * So on a node with GPUs the workers of a set in which one was killed are gone only
 * when no GPU names a killed one any more, or at the deadline: `muster gpus-free`
 * looks, in a process that can be left behind should the driver hang.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    FREE_MS = 7000, /* less than what the lead waits for a node to stop */
    LATE_MS = 8000, /* the driver hangs */
};

struct crew_gpus {
    struct crew *crew; /* NULL: does not wait any more */
    struct agent *agent;
    uv_timer_t timer;
    bool is_closed;    /* the timer */
    pid_t pid;         /* -1 when it has ended */
    int answer;
};

static void release(struct crew_gpus *g)
{
    if (g->is_closed && g->pid < 0) {
        close_fd(&g->answer);
        free(g);
    }
}

static void on_closed(uv_handle_t *h)
{
    struct crew_gpus *g = h->data;

    g->is_closed = true;
    release(g);
}

static void say_answer(const struct crew_gpus *g)
{
    char text[256] = "";

    if (pread(g->answer, text, sizeof(text) - 1, 0) > 0) {
        text[strcspn(text, "\n")] = '\0';
        agent_note(g->agent, "%s on %s: the workers start without waiting longer",
                   text, g->agent->host);
    }
}

/* Nobody waits from here on. */
static void finish(struct crew_gpus *g)
{
    struct crew *c = g->crew;

    g->crew = NULL;
    uv_close((uv_handle_t *)&g->timer, on_closed);
    if (c) {
        c->gpus = NULL;
        crew_finish(c);
    }
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct crew_gpus *g = arg;

    (void)how;
    g->pid = -1;
    if (g->crew) {
        say_answer(g);
        finish(g);
    } else {
        release(g);
    }
}

static void on_late(uv_timer_t *t)
{
    struct crew_gpus *g = t->data;

    agent_note(g->agent, "the GPU driver of %s does not say whether memory of "
               "killed workers is free: they start without it", g->agent->host);
    child_kill(g->agent->children, g->pid, SIGKILL);
    finish(g);
}

static int spawn(struct crew_gpus *g, const struct strlist *pids,
                 struct error *e)
{
    char path[PATH_MAX];
    _strlist_ struct strlist argv = {0};
    struct child_spec spec = {.path = path, .envp = environ,
                              .stdio = {-1, -1, -1}, .new_session = true};
    int rc = fs_program(path, sizeof(path), e);

    if (rc < 0) {
        return rc;
    }
    g->answer = memfd_create("muster-gpus", MFD_CLOEXEC);
    if (g->answer < 0) {
        return error_set(e, errno, "make a memory file");
    }
    strlist_add(&argv, "muster");
    strlist_add(&argv, "gpus-free");
    strlist_addf(&argv, "--timeout-ms=%d", FREE_MS);
    strlist_add_all(&argv, pids->items);
    if (argv.failed) {
        return error_set(e, ENOMEM, "ask for GPU memory");
    }
    spec.argv = argv.items;
    spec.stdio[1] = g->answer;
    return child_spawn(g->agent->children, &spec, on_exit_, g, &g->pid, e);
}

static void start(struct crew *c)
{
    struct crew_gpus *g = calloc(1, sizeof(*g));
    struct error e = {0};

    if (!g) {
        return;
    }
    g->agent = c->agent;
    g->answer = g->pid = -1;
    uv_timer_init(&c->agent->loop, &g->timer);
    g->timer.data = g;
    if (spawn(g, &c->killed, &e) < 0) {
        agent_log(c->agent, "memory of GPUs is not looked at: %s", e.text);
        finish(g);
        return;
    }
    g->crew = c;
    c->gpus = g;
    uv_timer_start(&g->timer, on_late, LATE_MS, 0);
}

void crew_gpus_killed(struct crew *c, pid_t pid)
{
    if (c->n_gpus) {
        strlist_addf(&c->killed, "%ld", (long)pid);
    }
}

bool crew_gpus_are_free(struct crew *c)
{
    if (!c->has_asked_gpus && c->killed.n && !c->killed.failed) {
        c->has_asked_gpus = true;
        start(c);
    }
    return !c->gpus;
}
