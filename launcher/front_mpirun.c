/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/machine.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MPIRUN_KILL_MS = 3000, /* between SIGTERM and SIGKILL */
    REPEAT_MS = 1000,      /* before mpirun is run again */
    LOST_WORLD_MS = 2000,  /* for an mpirun that lost a node to end by itself */
    MAX_REPEATS = 5,       /* in a row, of worlds that do not last ... */
    LASTING_MS = 60000,    /* ... so long, and before the next one then */
    LOG_TAIL_BYTES = 4096,
};

/* --- it ends --- */

void front_show_mpirun_log(struct front *f)
{
    _free_ char *text = NULL;
    size_t len;

    if (fs_read(f->log_path, 64 << 20, &text, &len, NULL) == 0 && len) {
        screen_block(f->screen, "the end of mpirun.log",
                     len > LOG_TAIL_BYTES ? text + len - LOG_TAIL_BYTES : text);
    }
}

/* "mpirun ended (status 1)"; one that a signal ended may have said nothing at all. */
static void word_end(const struct child_exit *how, char *ret, size_t size)
{
    if (how->signal) {
        snprintf(ret, size, "mpirun was ended by %s", child_signal_name(how->signal));
    } else {
        snprintf(ret, size, "mpirun ended (status %d)", how->code);
    }
}

static void on_mpirun_exit(void *arg, const struct child_exit *how)
{
    struct front *f = arg;
    char end[64], why[128];

    /* Its ssh to a host that has lost its power would wait for ever. */
    proc_end_session(f->mpirun_pid, NULL);
    f->mpirun_pid = -1;
    word_end(how, end, sizeof(end));
    if (f->phase == FRONT_RUNNING) {
        front_see_failed(f);
    }
    f->end_mpirun_at_ms = 0;
    if (f->phase == FRONT_OVER) {
        front_finish_if_done(f);
        return;
    }
    if (f->phase == FRONT_STARTING) {
        front_show_mpirun_log(f);
        snprintf(why, sizeof(why), "mpirun could not start muster on all hosts: %s", end);
        front_settle(f, EXIT_NOT_GATHERED, why);
        front_finish_if_done(f);
        return;
    }
    if (f->joined_epoch >= f->epoch &&
        front_now_ms(f) - f->mpirun_at_ms > LASTING_MS) {
        f->n_repeats = 0;
    }
    front_remake_world(f, REPEAT_MS, end);
}

void front_remake_world(struct front *f, uint64_t after_ms, const char *why)
{
    bool is_rash = f->n_repeats >= MAX_REPEATS;

    if (f->config->plan.n_agents > 1 && !agent_step_is_over(f->step)) {
        screen_note(f->screen, "%s; the workers go on, and a new MPI world is "
                    "made%s", why, is_rash ? " in a minute" : "");
        f->n_repeats += !is_rash;
        f->repeat_at_ms = front_now_ms(f) + (is_rash ? LASTING_MS : after_ms);
    }
}

/* Asked to, it ends what it has started by itself; by force that is taken along,
 * such as the real mpirun below a script, or its ssh. */
static void end_mpirun(struct front *f, int sig)
{
    if (f->mpirun_pid > 0 && sig == SIGKILL) {
        child_kill_group(f->children, f->mpirun_pid, sig);
    } else if (f->mpirun_pid > 0 && sig) {
        child_kill(f->children, f->mpirun_pid, sig);
    }
}

bool front_mpirun_is_gone(struct front *f, uint64_t waited)
{
    int sig = waited > FRONT_MPIRUN_END_MS + MPIRUN_KILL_MS ? SIGKILL
              : waited > FRONT_MPIRUN_END_MS                ? SIGTERM : 0;

    end_mpirun(f, sig);
    return front_old_is_gone(f, sig) && f->mpirun_pid <= 0;
}

/* --- it starts --- */

static int open_log(struct front *f, struct error *e)
{
    int fd = open(f->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                  0600);

    return fd < 0 ? error_set(e, errno, "open %s", f->log_path) : fd;
}

int front_address(const struct front *f, struct buf *to, struct error *e)
{
    _strlist_ struct strlist addrs = {0};
    const char *chosen = f->config->plan.interface;
    int rc = 0;

    /* A login node may be in other networks than the nodes. */
    if (f->config->loopback || !chosen ||
        addr_chosen(chosen, &addrs, NULL) < 0) {
        rc = addr_local(f->config->loopback, &addrs, e);
    }

    addr_ways_print(&addrs, link_listener_port(f->listener), to);
    return rc;
}

int front_save(const struct front *f, struct error *e)
{
    const struct front_config *c = f->config;
    const struct mpirun_plan *plan = &c->plan;
    const char *job = getenv("SLURM_JOB_ID");
    struct proc mpirun = {0};
    struct front_record r = {
        .by_hand = c->by_hand,
        .epoch = f->epoch,
        .agents_per_host = c->by_hand ? 1 : plan->agents_per_host,
        .n_agents = plan->n_agents,
        .gather_seconds = plan->gather_seconds,
        .agent_is_node = plan->agent_is_node,
        .own_step = c->own_step,
        .is_kept = f->is_kept,
        .detach_ms = c->run->detach_ms,
    };

    gethostname(r.host, sizeof(r.host) - 1);
    str_copy(r.mpirun, sizeof(r.mpirun), c->mpirun ? c->mpirun->path : "");
    str_copy(r.ssh, sizeof(r.ssh), plan->ssh ? plan->ssh : "");
    str_copy(r.key_file, sizeof(r.key_file),
             plan->key_file ? plan->key_file : "");
    str_copy(r.slurm_job, sizeof(r.slurm_job), job ? job : "");
    str_copy(r.cwd, sizeof(r.cwd), c->cwd);
    if (f->mpirun_pid > 0 && proc_read(f->mpirun_pid, &mpirun) == 0) {
        r.mpirun_pid = mpirun.pid;
        r.mpirun_start = mpirun.start;
        machine_id(r.machine, sizeof(r.machine));
    }
    if (plan->hosts) {
        r.hosts = *plan->hosts; /* borrowed */
    }
    return front_record_write(c->dir, &r, e);
}

/* A disk that is full is no reason to do without an MPI world: who takes over
 * then has the lead's word of the newest one. */
static void save_or_say(struct front *f)
{
    struct error e = {0};

    if (front_save(f, &e) < 0) {
        screen_note(f->screen, "muster attach will lack what is newest of this "
                    "run: %s", e.text);
    }
}

/* In a session of its own: Ctrl-C and the batch system's signals are for us. */
int front_start_mpirun(struct front *f, struct error *e)
{
    struct mpirun_plan plan = f->config->plan;
    _buf_ struct buf front = {0};
    _strlist_ struct strlist argv = {0};
    _close_ int log = open_log(f, e);
    struct child_spec spec = {.path = f->config->mpirun->path,
                              .envp = environ, .stdio = {-1, log, log},
                              .new_session = true};
    _strlist_ struct strlist env = {0};
    int rc = log < 0 ? log : front_address(f, &front, e);

    if (rc < 0) {
        return rc;
    }
    rc = front_plan_world(f, &plan, e);
    if (rc < 0) {
        return rc;
    }
    plan.front = buf_str(&front);
    plan.epoch = ++f->epoch;
    f->is_short = false;
    f->repeat_at_ms = 0; /* whoever asked for another world meanwhile gets this */
    f->mpirun_pid = -1;
    save_or_say(f); /* the epoch is used up now */
    plan.is_kept = f->is_kept;
    mpirun_argv(f->config->mpirun, &plan, &argv);
    if (f->config->own_step) {
        slurm_mpirun_env(environ, plan.agents_per_host, &env);
        spec.envp = env.items;
    }
    if (argv.failed || front.failed || env.failed) {
        return error_set(e, ENOMEM, "start mpirun");
    }
    spec.argv = argv.items;
    f->mpirun_at_ms = front_now_ms(f);
    front_late_begin(f);
    rc = child_spawn(f->children, &spec, on_mpirun_exit, f, &f->mpirun_pid, e);
    if (rc == 0) {
        save_or_say(f);
    }
    return rc;
}

/* --- time --- */

void front_on_mpi_lost(struct front *f, uint64_t epoch)
{
    if (epoch == f->epoch && f->mpirun_pid > 0 && !f->end_mpirun_at_ms) {
        f->end_mpirun_at_ms = front_now_ms(f) + LOST_WORLD_MS;
    }
}

/* Open MPI 4.1 does not end when one of its daemons dies, and 5.0 not at once:
 * a world that a node has lost is of no use to anybody. SIGTERM first, then
 * SIGKILL with the orteds left to find out. */
static void end_wedged_mpirun(struct front *f)
{
    uint64_t now = front_now_ms(f);

    if (f->end_mpirun_at_ms && now >= f->end_mpirun_at_ms) {
        end_mpirun(f, now < f->end_mpirun_at_ms + MPIRUN_KILL_MS ? SIGTERM
                                                                 : SIGKILL);
    }
}

void front_see_loss(struct front *f, const char *event)
{
    if (strcmp(event, "node_lost") == 0) {
        f->is_short = true;
    }
    if (!f->is_short || (strcmp(event, "generation_preparing") != 0 &&
                         strcmp(event, "generation_started") != 0)) {
        return;
    }
    f->is_short = false;
    f->n_repeats = 0; /* limits.nodeFailures bounds these */
    if (f->mpirun_pid > 0 && !f->end_mpirun_at_ms) {
        f->end_mpirun_at_ms = front_now_ms(f);
    }
}

void front_repeat_mpirun(struct front *f)
{
    struct error e = {0};

    if (front_start_mpirun(f, &e) < 0) {
        screen_note(f->screen, "mpirun cannot be run again: %s", e.text);
    }
}

void front_tick_mpirun(struct front *f)
{
    front_tick_late(f);
    end_wedged_mpirun(f);
    if (f->repeat_at_ms && front_now_ms(f) >= f->repeat_at_ms &&
        f->mpirun_pid <= 0 && !front_old_is_ending(f) && !front_awaits_exclusion(f)) {
        f->repeat_at_ms = 0;
        front_choose_hosts(f);
    }
}
