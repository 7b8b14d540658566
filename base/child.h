/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children: the one place that starts processes and the one that reaps them.
 *
 * A table belongs to a loop. It takes SIGCHLD and reaps everything that ends,
 * including processes that it did not start (a subreaper inherits the orphans
 * of its descendants); those go to the watchers. Nothing else in the process
 * may wait for children, and libuv's own uv_spawn() must not be used.
 *
 * An exit is reported while the process is still a zombie: until the callback
 * returns, its pid and its process group cannot belong to anybody else, so the
 * callback may signal the group. The callback may start children. It must not
 * destroy the table.
 *
 * Threads: everything here runs on the thread of the loop, and that must be the
 * main thread (the parent-death signal fires when the *thread* that spawned
 * ends).
 */
#ifndef MUSTER_BASE_CHILD_H
#define MUSTER_BASE_CHILD_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct child_table;

struct child_exit {
    pid_t pid;
    int code;         /* exit status, or -1 if a signal ended it */
    int signal;       /* or 0 */
    bool core;        /* a core file was written */
    uint64_t cpu_ms;  /* user + system, with waited-for children */
    uint64_t rss_kib; /* the largest resident size */
};

typedef void child_exit_f(void *arg, const struct child_exit *how);

int child_table_create(uv_loop_t *loop, struct child_table **ret,
                       struct error *e);

/* Stops reaping; children that live are left alone. The memory goes when the
 * loop has turned once more: run it before uv_loop_close(). NULL is allowed. */
void child_table_destroy(struct child_table *t);

/* Told of every reaped process that child_spawn() did not start. The caller owns
 * the watch and keeps it until child_watch_remove(); a watcher may remove
 * itself, and only itself, while it is called. */
struct child_watch {
    child_exit_f *on_orphan;
    void *arg;
    struct child_watch *next; /* of the table */
};
void child_watch_add(struct child_table *t, struct child_watch *w);
void child_watch_remove(struct child_table *t, struct child_watch *w);

/* What to run. Everything is borrowed for the call only. The child starts with
 * default signal dispositions and no signal blocked. Of our descriptors it gets
 * `stdio` and `pass`, the latter under the same numbers; all others must be
 * close-on-exec from birth. */
struct child_spec {
    const char *path; /* no search in PATH */
    char *const *argv;
    char *const *envp;
    const char *cwd;  /* or NULL */
    int stdio[3];     /* -1: /dev/null; may be 0, 1, 2 for our own */
    const int *pass;  /* > 2 */
    size_t n_pass;
    bool new_session; /* setsid(): the pid is then also the group's */
};

/* Starts it; `on_exit` is called once, from the loop, never from inside this
 * call. 0 means that the program at `path` was executed. */
int child_spawn(struct child_table *t, const struct child_spec *spec,
                child_exit_f *on_exit, void *arg, pid_t *ret_pid,
                struct error *e);

/* Takes over a process that somebody else started and that has come to us as an
 * orphan: from now on it is as one of child_spawn(). -ECHILD unless it is a child
 * of ours that has not been reaped, -EEXIST for one that is known. */
int child_adopt(struct child_table *t, pid_t pid, child_exit_f *on_exit,
                void *arg, struct error *e);

/* From now on somebody else is told of its end. Nothing if it is not known. */
void child_hand_over(struct child_table *t, pid_t pid, child_exit_f *on_exit,
                     void *arg);

/* Reaps now what has ended, instead of in the next turn of the loop: for those
 * who must know of a death before they act on something else. Callbacks are
 * called from inside. */
void child_table_reap(struct child_table *t);

/* True while a child of child_spawn() or child_adopt() has not been reaped. */
bool child_is_known(const struct child_table *t, pid_t pid);
size_t child_count(const struct child_table *t);

/* Signals a child of ours, or the process group that it leads. -ESRCH unless
 * child_is_known(): nobody else is ever hit. */
int child_kill(struct child_table *t, pid_t pid, int sig);
int child_kill_group(struct child_table *t, pid_t pid, int sig);

/* Makes the process the one to which orphans among its descendants go. */
int child_become_subreaper(struct error *e);

/* "SIGKILL" etc.; "signal 40" for others; valid until the next call in this
 * thread. */
const char *child_signal_name(int sig);

/* The exit status as a shell tells it: the code, or 128 + signal. */
int child_shell_status(const struct child_exit *how);

#endif
