/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of workers: the processes of one generation on one agent.
 *
 * Life: workers_start() starts all of them through muster-exec. They wait at a
 * gate until each exists, then all are released (`hold` leaves that to
 * workers_release()). They run until each has ended by itself or
 * workers_stop(). A set is *gone* when every worker and every process that came
 * from one (also one that left the session or lost its parent) is gone and their
 * pipes have been read to the end; only then may it be destroyed. What the sink
 * has not taken yet stays with the output and holds nothing up.
 *
 * What a worker leaves behind gets linger_ms after the last worker's end to go
 * by itself (a `tee` that writes the last lines, say), then SIGKILL. A forced
 * stop kills it at once.
 *
 * Callbacks come from the loop, never from inside a call. on_gone is the last;
 * on_exit comes before it for every worker; on_started comes before the on_exit of
 * the last one, where all ran. They may call workers_stop(), and on_gone may
 * destroy its own set or start another one. Main thread only. Descriptors 0, 1 and
 * 2 of the agent must be open (on /dev/null).
 *
 * MUSTER_SET in a worker's environment is the set's own mark, by which it finds
 * what left the session.
 */
#ifndef MUSTER_LAUNCHER_WORKERS_H
#define MUSTER_LAUNCHER_WORKERS_H

#include "base/child.h"
#include "base/error.h"
#include "base/proc_env.h"
#include "launcher/blanks.h"
#include "launcher/output.h"
#include "launcher/warm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct workers;

#define WORKERS_MARK "MUSTER_SET"

/* What the sets of one agent share; the caller keeps it until all are gone. The
 * agent must be a subreaper (child_become_subreaper). */
struct workers_host {
    uv_loop_t *loop;
    struct child_table *children;
    struct output *output;
    char exec_path[4096]; /* of muster-exec: fs_helper() */
    const char *node;     /* name of this host, for texts */
    struct proc_env env;  /* who asks processes whose they are; the caller sets
                             on_silent, and releases it */
    struct workers *sets; /* internal: start with NULL */
    uint64_t serial;      /* internal: start with 0 */
};

struct worker_spec {
    char *const *argv; /* argv[0] is searched for in PATH of envp */
    char *const *envp; /* all of it: contract_env() */
    const char *starts; /* the program that argv[0] will start: it is missed as
                           early as that, and named; or NULL */
    const char *cpus;  /* "0-3,8" or NULL */
    uint32_t rank;     /* global */
};

struct workers_config {
    const struct worker_spec *workers; /* by local rank */
    unsigned n;
    const char *cwd;      /* NULL: the agent's */
    const char *logs_dir; /* <dir>/<rank>/{stdout,stderr}; NULL: no such files */
    const char *log_file; /* one for all, with labelled lines; NULL: none */
    int oom_score_adj;
    const char *core;     /* core size limit, see exec.h; NULL: leave */
    unsigned linger_ms;   /* 0: 1 s */
    struct warm *warm;    /* workers are made of what it has, as far as that goes;
                             it must fit (warm_check); NULL: none is */
    struct blanks *blanks; /* likewise; NULL: none is made of one */
    bool hold;            /* do not release before workers_release() */
};

/* How a worker ended. Borrowed for the call. */
struct worker_end {
    unsigned local_rank;
    uint32_t rank;
    struct child_exit how;
    uint64_t at_mono_ns;
    uint64_t at_wall_ns;
    bool stopped;     /* ended after workers_stop(): no failure of its own */
    bool exec_failed; /* never ran; text says why, code is 126 or 127 */
    int status;       /* as a shell: code, or 128 + signal */
    const char *text; /* one line: "worker 3 on node2 was killed by SIGSEGV" */
    const char *tail; /* its last lines (stderr, else stdout), at most 4 KiB;
                         "" if none */
};

/* A process that SIGKILL does not end (state D, most often). */
struct worker_survivor {
    pid_t pid;
    char state;
    bool is_silent; /* nobody knows whose it is, so it was not killed */
    char name[16];
};

struct workers_events {
    /* All have been executed (or ended at once). Not called if one could not be,
     * or if the set was stopped before. */
    void (*on_started)(void *arg);
    /* Once a worker, in order of ending. Failed (not stopped, status != 0) ones:
     * the first is the set's cause. */
    void (*on_exit)(void *arg, const struct worker_end *end);
    /* Some did not go within 5 s of SIGKILL; again every 5 s as long as there are
     * some. The set goes on waiting. NULL: not wanted. */
    void (*on_stuck)(void *arg, const struct worker_survivor *who, size_t n);
    void (*on_gone)(void *arg);
    void *arg;
};

/* Starts; everything in the config is borrowed for the call. On failure nothing
 * runs and nothing is called. */
int workers_start(struct workers_host *host,
                  const struct workers_config *config,
                  const struct workers_events *events, struct workers **ret,
                  struct error *e);

/* Lets held workers go. Nothing otherwise. */
void workers_release(struct workers *w);

/* Ends all: SIGTERM (and SIGCONT, for those that are stopped), after `grace_ms`
 * SIGKILL; grace 0 is SIGKILL at once. May be called again: a shorter grace
 * takes effect, a longer one does not. */
void workers_stop(struct workers *w, unsigned grace_ms);

/* The pid of a worker, or -1 once it has ended. */
pid_t worker_pid(const struct workers *w, unsigned local_rank);
/* When it last printed something (clock_mono_ms); 0 if never. */
uint64_t worker_printed_ms(const struct workers *w, unsigned local_rank);
/* Which worker a process belongs to, by its session or by an ancestor, as a local
 * rank; -1 where neither tells, as of one that has left both, or has ended. */
int workers_whose(const struct workers *w, pid_t pid);
unsigned workers_count(const struct workers *w);
unsigned workers_alive(const struct workers *w);

/* The last lines of a worker, alive or not, as in worker_end.tail; appended. */
void worker_tail(struct workers *w, unsigned local_rank, struct buf *b);

/* The set must be gone. NULL is allowed. */
void workers_destroy(struct workers *w);

#endif
