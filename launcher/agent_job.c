/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job, once it has come down the tree: where the output of its processes goes, and
 * member and lead that take over.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/agent_files.h"
#include "launcher/agent_snap.h"
#include "launcher/agent_steps.h"
#include "launcher/jsonw.h"
#include "launcher/oom.h"
#include "launcher/session.h"
#include "launcher/slurm.h"
#include "launcher/stacks.h"
#include "rendezvous/restart.h"
#include "spec/rank_set.h"
#include "spec/stream_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- output --- */

static void on_output(void *arg, uint32_t rank, enum output_which which,
                      enum output_piece piece, const char *data, size_t len)
{
    struct agent *a = arg;
    const struct job_logs *logs = &a->config.job->logs;
    struct tree_output o = {
        .node = a->rank,
        .generation = a->generation,
        .rank = rank,
        .which = which == OUTPUT_STDERR,
        .piece = (uint8_t)piece,
        .data = data,
        .len = len,
    };

    if (rank == OUTPUT_NO_RANK || !rank_set_has(logs->show, rank) ||
        !(stream_set_of(logs->streams, rank - a->first_rank) &
          (unsigned)which)) {
        return;
    }
    if (!tree_output(a->tree, &o)) {
        output_pause(a->output);
    }
}

static void on_output_trouble(void *arg, enum output_trouble what,
                              uint64_t lost_bytes, const char *text)
{
    struct agent *a = arg;

    if (what == OUTPUT_RECOVERED) {
        agent_note(a, "log files on %s are written again (%llu bytes were "
                   "lost)", a->host, (unsigned long long)lost_bytes);
    } else {
        agent_note(a, "log files on %s: %s", a->host, text);
    }
}

void agent_writable(struct agent *a)
{
    if (a->output) {
        output_resume(a->output);
    }
}

/* --- the job --- */

/* Without it, stacks are less telling. */
static void find_python_dir(struct agent *a)
{
    struct error e = {0};

    if (a->config.job->hang_timeout_ms != JOB_OFF &&
        stacks_python_dir(a->python_dir, sizeof(a->python_dir), &e) < 0) {
        a->python_dir[0] = '\0';
        agent_note(a, "Python will not tell where it hangs: %s", e.text);
    }
}

static void tell_silent(void *agent, const struct proc *p)
{
    struct agent *a = agent;
    char text[256];

    proc_env_word(p, text, sizeof(text));
    agent_note(a, "%s, on %s", text, a->host);
}

static int begin_work(struct agent *a, struct error *e)
{
    struct output_config config = {.sink = on_output,
                                   .on_trouble = on_output_trouble, .arg = a,
                                   .root = a->run.dir};
    const struct job_logs *logs = &a->config.job->logs;
    int rc;

    agent_files_tell_run(a);
    config.limits.max_bytes = logs->max_bytes;
    config.limits.keep = logs->keep;
    rc = output_create(&a->loop, &config, &a->output, e);
    if (rc < 0) {
        return rc;
    }
    a->workers_host.loop = &a->loop;
    a->workers_host.children = a->children;
    a->workers_host.output = a->output;
    a->workers_host.node = a->host;
    a->workers_host.env.on_silent = tell_silent;
    a->workers_host.env.arg = a;
    rc = fs_helper("muster-exec", a->workers_host.exec_path,
                   sizeof(a->workers_host.exec_path), e);
    agent_steps_start(a);
    rc = rc < 0 ? rc : agent_heir_start(a, e);
    rc = rc < 0 || !agent_leads(a) ? rc : agent_lead_start(a, NULL, e);
    if (rc == 0) {
        agent_procs_begin(a);
    }
    rc = rc < 0 ? rc : agent_member_start(a, e);
    if (rc == 0) {
        agent_heir_begin(a);
    }
    return rc;
}

void agent_tell_pid(struct agent *a)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "agent");

    jsonw_int(&w, "pid", getpid());
    agent_fact_send(a, &w);
}

/* What an earlier life of this run may have died of, all at once: only the kernel
 * can tell. */
static void tell_group_kill(struct agent *a)
{
    int64_t n = a->config.first_generation > 1 ? oom_group_kills(NULL, NULL)
                                               : 0;

    if (n > 0) {
        agent_note(a, "%s: the kernel has killed all processes of this cgroup "
                   "for lack of memory %lld time%s before this start; it may "
                   "be what the run before this one ended of: give the job "
                   "more memory, or start fewer or smaller processes", a->host,
                   (long long)n, n == 1 ? "" : "s");
    }
}

/* The node that leads is often the one that the user is logged in on, the next
 * one was reached by ssh: all others are as one of them. */
static void tell_session(struct agent *a)
{
    const char *user = strlist_getenv(&a->config.env, "USER");
    char text[512];

    session_look("", user ? user : "",
                 strlist_getenv(&a->config.env, "SLURM_JOB_ID"), text,
                 sizeof(text));
    if (text[0] && a->rank <= 1) {
        agent_note(a, "%s: %s", a->host, text);
    }
}

void agent_config(struct agent *a, uint64_t age_ms, const void *data, size_t len)
{
    struct error e = {0};

    if (a->has_config || a->leaving) {
        return;
    }
    if (run_config_decode(data, len, &a->config, &e) < 0) {
        agent_note(a, "%s", e.text);
        agent_leave(a, RUN_FAILED, e.text);
        return;
    }
    a->has_config = true;
    a->began_ns = clock_wall_ns() - age_ms * 1000000u;
    a->began_ms = uv_now(&a->loop) - age_ms;
    slurm_take_own(&a->config.env);
    tree_set_lease(a->tree, a->config.job->heartbeat_timeout_ms);
    find_python_dir(a);
    umask((mode_t)a->config.umask);
    uv_timer_stop(&a->start_timer);
    agent_snap_recall(a);
    if (begin_work(a, &e) < 0) {
        agent_note(a, "%s", e.text);
        agent_leave(a, RUN_FAILED, e.text);
        return;
    }
    agent_tell_pid(a);
    tell_session(a);
    agent_look_tmpdir(a);
    tell_group_kill(a);
    agent_ask_late(a);
}
