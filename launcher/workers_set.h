/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the set of workers. Private to workers*.c.
 *
 *   workers_start.c  makes one: pipes, gate, muster-exec, and what it reports
 *   workers.c        its life and end
 *   workers_left.c   finds what belongs to it
 */
#ifndef MUSTER_LAUNCHER_WORKERS_SET_H
#define MUSTER_LAUNCHER_WORKERS_SET_H

#include "base/buf.h"
#include "launcher/exec.h"
#include "launcher/workers.h"

struct worker {
    struct workers *set;
    unsigned local_rank;
    uint32_t rank;
    pid_t pid;  /* -1 once it has ended */
    pid_t was;  /* what pid was, and its session and group still may be */
    char *program;
    struct output_stream *out, *err;
    struct exec_report report;
    bool exec_failed;
};

struct workers {
    struct workers_host *host;
    struct workers *next; /* of the host */
    struct workers_events events;
    struct worker *all;
    unsigned n, n_alive;
    unsigned n_lost; /* may have taken a byte of the gate that is another's */
    char tag[64]; /* NAME=VALUE in the environment of all */
    struct child_watch watch;
    unsigned linger_ms;

    int gate_fd;   /* -1 once released */
    int status_fd; /* -1 once all have been executed */
    struct buf status;
    uv_poll_t status_poll;
    uv_timer_t grace, look;
    unsigned n_handles;

    bool told_started, any_exec_failed;
    bool stopping, killing, gone;
    bool abandoned; /* workers_start() failed: nobody is told anything */
    bool destroyed;
    uint64_t kill_at_ms;   /* while stopping: when the grace is over */
    uint64_t killed_at_ms;
    uint64_t linger_until_ms;
    unsigned look_ms;
    uint64_t n_told_stuck;
    bool seen_empty; /* the last look found nobody */
    unsigned n_unclear;
};

/* --- workers.c --- */

void workers_close_status(struct workers *w);
/* Callbacks of the table of children: a worker has ended; somebody else has. */
void workers_on_exit(void *worker, const struct child_exit *how);
void workers_on_orphan(void *set, const struct child_exit *how);

/* --- workers_start.c --- */

/* Takes what muster-exec has said of steps that failed, or of none. */
void workers_read_status(struct workers *w);
/* Once, and not where one could not be executed or the set is being stopped. */
void workers_tell_started(struct workers *w);

/* --- workers_left.c --- */

/* Whether a descendant of the agent belongs to the set. A proc_pick_f. */
bool workers_own(void *set, const struct proc *p);

/* Whether it may belong to the set, and cannot be asked. */
bool workers_is_silent(const struct workers *w, const struct proc *p);

/* Appends the living processes that belong to the set, but for the workers
 * themselves. Returns whether there is somebody who may turn out to. */
bool workers_left(struct workers *w, struct proc_list *l);

#endif
