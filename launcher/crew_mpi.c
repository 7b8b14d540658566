/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI world of a generation: an mpirun that starts `muster exec` for each
 * worker. It is a child of the agent that has rank 0, and each generation has its
 * own. How the program fares is heard from the workers, never from mpirun, whose
 * exit status means little; but where it ends and workers are left to which no
 * process came, it is the failure of rank 0, in mpirun's words.
 *
 * What it prints goes to logs/<generation>/mpirun in the run directory.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/mpi_world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ABANDONED_MS = 3000, /* for workers to tell what mpirun ended for */
    TERM_MS = 5000,      /* for mpirun to end when its workers are gone */
    TAIL_LINES = 20,
};

struct crew_mpi {
    struct crew *crew;
    pid_t pid; /* -1 once it has ended */
    struct child_exit how;
    struct output_stream *out;
    uv_timer_t *timer;
    bool is_waited_for; /* workers are gone, and this is all that is left */
};

/* --- it ends --- */

static void accuse(struct crew_mpi *w)
{
    struct crew *c = w->crew;
    struct failure f = {0};
    struct member_event event = {.type = MEMBER_EXITED,
                                 .generation = c->generation, .failure = &f};
    _buf_ struct buf tail = {0};

    crew_identify(c, 0, &f);
    f.kind = w->how.signal ? FAILURE_SIGNAL : FAILURE_EXIT;
    f.grade = FAILURE_OWN;
    f.signal = (uint8_t)w->how.signal;
    f.exit_code = (uint8_t)(w->how.signal ? 0 : w->how.code ? w->how.code : 1);
    f.wall_ns = clock_wall_ns();
    output_tail(w->out, TAIL_LINES, &tail);
    str_copy(f.program, sizeof(f.program), "mpirun");
    str_copy(f.what, sizeof(f.what), "mpirun ended, and left workers without "
             "their process");
    str_copy(f.text, sizeof(f.text), buf_str(&tail));
    agent_member_step(c->agent, &event);
}

static void on_timer(uv_timer_t *t)
{
    struct crew_mpi *w = t->data;
    struct crew *c = w->crew;

    if (w->pid > 0) {
        child_kill_group(c->agent->children, w->pid, SIGKILL);
    } else if (!c->stopping && crew_alive(c->agent)) {
        accuse(w);
    }
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct crew_mpi *w = arg;

    w->pid = -1;
    w->how = *how;
    if (!w->crew) {
        free(w);
    } else if (w->is_waited_for) {
        crew_finish(w->crew);
    } else {
        uv_timer_start(w->timer, on_timer, ABANDONED_MS, 0);
    }
}

bool crew_mpi_is_gone(struct crew *c)
{
    struct crew_mpi *w = c->mpi;

    if (!w || w->pid < 0) {
        return true;
    }
    if (!w->is_waited_for) {
        w->is_waited_for = true;
        child_kill(c->agent->children, w->pid, SIGTERM);
        uv_timer_start(w->timer, on_timer, TERM_MS, 0);
    }
    return false;
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

void crew_mpi_destroy(struct crew *c)
{
    struct crew_mpi *w = c->mpi;

    if (!w) {
        return;
    }
    c->mpi = NULL;
    if (w->out) {
        output_close(w->out, NULL, NULL);
    }
    if (w->timer) {
        uv_close((uv_handle_t *)w->timer, free_timer);
    }
    if (w->pid > 0) {
        child_kill_group(c->agent->children, w->pid, SIGKILL);
        w->crew = NULL;
        return;
    }
    free(w);
}

/* --- it starts --- */

static int open_output(struct crew_mpi *w, int *ret_far, struct error *e)
{
    const struct agent *a = w->crew->agent;
    struct output_source from = {.rank = OUTPUT_NO_RANK,
                                 .which = OUTPUT_STDERR};
    bool keeps = a->config.job->logs.files != JOB_FILES_NONE;
    char path[PATH_MAX];
    int ends[2], rc;

    rc = fs_path(path, sizeof(path), e, "%s/logs/%u/mpirun", a->run.dir,
                 w->crew->generation);
    if (rc < 0) {
        return rc;
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe for mpirun");
    }
    rc = output_open(a->output, ends[0], &from, keeps ? path : NULL, &w->out,
                     e);
    if (rc < 0) {
        close(ends[1]);
        return rc;
    }
    *ret_far = ends[1];
    return 0;
}

static int spawn(struct crew_mpi *w, const struct order *order,
                 struct error *e)
{
    struct agent *a = w->crew->agent;
    _close_ int hosts = -1, far = -1;
    _strlist_ struct strlist argv = {0}, env = {0};
    struct mpi_world world = {
        .config = &a->config, .roster = &a->roster, .n_procs = order->n_procs,
        .n_nodes = order->n_nodes, .run_id = a->run.id,
        .generation = order->generation,
    };
    struct child_spec spec = {.cwd = "/", .new_session = true};
    int rc = mpi_world_hosts(&world, &hosts, e);

    rc = rc < 0 ? rc : mpi_world_argv(&world, hosts, &argv, e);
    rc = rc < 0 ? rc : mpi_world_env(&world, &env, e);
    rc = rc < 0 ? rc : open_output(w, &far, e);
    if (rc < 0) {
        return rc;
    }
    spec.path = argv.items[0];
    spec.argv = argv.items;
    spec.envp = env.items;
    spec.stdio[0] = -1;
    spec.stdio[1] = spec.stdio[2] = far;
    spec.pass = &hosts;
    spec.n_pass = hosts >= 0;
    return child_spawn(a->children, &spec, on_exit_, w, &w->pid, e);
}

int crew_mpi_start(struct crew *c, const struct order *order,
                     struct error *e)
{
    struct crew_mpi *w;

    if (c->agent->config.job->program != JOB_MPI ||
        c->layout.first_rank != 0 || c->layout.n_local == 0) {
        return 0;
    }
    w = c->mpi = calloc(1, sizeof(*w));
    if (!w || !(w->timer = calloc(1, sizeof(*w->timer)))) {
        return error_set(e, ENOMEM, "start mpirun");
    }
    w->crew = c;
    w->pid = -1;
    uv_timer_init(&c->agent->loop, w->timer);
    w->timer->data = w;
    return spawn(w, order, e);
}
