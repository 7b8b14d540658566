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
#include "base/loop_timer.h"
#include "launcher/mpi_world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ABANDONED_MS = 3000, /* for workers to tell what mpirun ended for */
    END_MS = 3000,       /* for mpirun to end by itself after its ranks */
    TERM_MS = 5000,      /* and after SIGTERM */
    TAIL_LINES = 20,
};

struct crew_mpi {
    struct agent *agent;
    struct crew *crew; /* NULL: it has outlived that */
    pid_t pid;         /* -1 once it has ended */
    struct child_exit how;
    struct output_stream *out;
    uv_timer_t *timer;
    bool is_waited_for; /* the workers here are gone, and this is left */
    bool is_stopped;    /* all workers are to end */
    bool is_termed;
    uint64_t leave_ms;  /* since when the agent waits for it */
};

static void release(struct crew_mpi *w)
{
    if (w->out) {
        output_close(w->out, NULL, NULL);
    }
    loop_timer_close(w->timer);
    free(w);
}

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
    agent_member_step(w->agent, &event);
}

/* SIGTERM, then SIGKILL. */
static void end_by_force(struct crew_mpi *w)
{
    child_kill_group(w->agent->children, w->pid,
                     w->is_termed ? SIGKILL : SIGTERM);
    w->is_termed = true;
}

static void on_timer(uv_timer_t *t)
{
    struct crew_mpi *w = t->data;

    if (w->pid > 0) {
        end_by_force(w);
        uv_timer_start(t, on_timer, TERM_MS, 0);
    } else if (w->crew && !w->crew->stopping && crew_alive(w->agent)) {
        accuse(w);
    }
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct crew_mpi *w = arg;

    w->pid = -1;
    w->how = *how;
    if (!w->crew) {
        if (w->agent->mpi == w) {
            w->agent->mpi = NULL;
        }
        release(w);
    } else if (w->is_waited_for) {
        crew_finish(w->crew);
    } else {
        uv_timer_start(w->timer, on_timer, ABANDONED_MS, 0);
    }
}

static void start_end(struct crew_mpi *w)
{
    if (w->pid > 0 && w->is_waited_for &&
        !uv_is_active((uv_handle_t *)w->timer)) {
        uv_timer_start(w->timer, on_timer, END_MS, 0);
    }
}

void crew_mpi_stop(struct crew *c)
{
    if (c->mpi) {
        c->mpi->is_stopped = true;
        start_end(c->mpi);
    }
}

bool crew_mpi_is_gone(struct crew *c)
{
    struct crew_mpi *w = c->mpi;

    if (!w || w->pid < 0) {
        return true;
    }
    if (c->layout.n_groups > 1 && !w->is_stopped) {
        w->crew = NULL;
        w->agent->mpi = take_ptr(&c->mpi);
        return true;
    }
    w->is_waited_for = true;
    start_end(w);
    return false;
}

/* What is left of an mpirun goes when its end is heard of; an agent that leaves
 * waits for that. */
static void kill_now(struct crew_mpi *w)
{
    w->crew = NULL;
    if (w->pid > 0) {
        child_kill_group(w->agent->children, w->pid, SIGKILL);
        w->agent->mpi = w->agent->mpi ? w->agent->mpi : w;
    } else {
        release(w);
    }
}

void crew_mpi_destroy(struct crew *c)
{
    struct crew_mpi *w = take_ptr(&c->mpi);

    if (w) {
        kill_now(w);
    }
}

void crew_mpi_leave(struct agent *a)
{
    struct crew_mpi *w = a->mpi;

    if (w) {
        w->leave_ms = uv_now(&a->loop);
        output_close(w->out, NULL, NULL);
        w->out = NULL;
    }
}

bool crew_mpi_outlives(struct agent *a)
{
    struct crew_mpi *w = a->mpi;
    uint64_t waited = w ? uv_now(&a->loop) - w->leave_ms : 0;

    if (w && waited > END_MS && !w->is_termed) {
        end_by_force(w);
    }
    return w && waited < END_MS + TERM_MS;
}

void crew_mpi_forget(struct agent *a)
{
    struct crew_mpi *w = take_ptr(&a->mpi);

    if (w) {
        release(w);
    }
}

/* --- it starts --- */

static int open_output(struct crew_mpi *w, int *ret_far, struct error *e)
{
    const struct agent *a = w->agent;
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
    struct agent *a = w->agent;
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

    if (c->agent->mpi) {
        kill_now(take_ptr(&c->agent->mpi)); /* nobody is left of its ranks */
    }
    if (c->agent->config.job->program != JOB_MPI ||
        c->layout.first_rank != 0 || c->layout.n_local == 0) {
        return 0;
    }
    w = c->mpi = calloc(1, sizeof(*w));
    if (!w || !(w->timer = loop_timer_create(&c->agent->loop, w))) {
        return error_set(e, ENOMEM, "start mpirun");
    }
    w->agent = c->agent;
    w->crew = c;
    w->pid = -1;
    return spawn(w, order, e);
}
