/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A warm interpreter: the Python of a job's command with modules imported, and
 * processes forked from it that wait to become workers ("blanks").
 *
 * Life: warm_create() starts the command through muster-exec, at first with an
 * empty program, to see that it is Python and that our sitecustomize is what it
 * runs (nobody may run the program by mistake); then with its own one, which does
 * not begin. There the modules are imported. warm_fill() has blanks forked;
 * warm_start() makes a worker of one, at once: a blank has been our child for
 * long, so nothing of a start is ever on its way.
 *
 * An interpreter that ends is made anew, a few times; blanks that it has left
 * behind are as good as before. Where it cannot be had, or cannot be forked, it
 * is over: on_told says why, once, and warm_start() has nothing. Main thread
 * only. Callbacks come from the loop.
 */
#ifndef MUSTER_LAUNCHER_WARM_H
#define MUSTER_LAUNCHER_WARM_H

#include "base/child.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct warm;

struct warm_config {
    uv_loop_t *loop;
    struct child_table *children; /* of a subreaper */
    const char *exec_path;        /* of muster-exec */
    const char *hook_dir;         /* with our sitecustomize.py */
    char *const *argv;            /* of a worker, as its environment is */
    char *const *envp;
    const char *cwd;              /* or NULL */
    const struct strlist *modules;
    int oom_score_adj;
    const char *core;             /* see exec.h */
    unsigned import_ms;           /* 0: 5 minutes */
    /* For people; of several lines all but the first are a traceback. The
     * second kind means that it is over. It may be destroyed from inside. */
    void (*on_told)(void *arg, const char *text, bool is_over);
    void *arg;
};

/* Everything but loop, children and arg is copied. */
int warm_create(const struct warm_config *config, struct warm **ret,
                struct error *e);

/* Kills interpreter and blanks. The memory goes with the next turns of the loop,
 * before the table of children does. NULL is allowed. */
void warm_destroy(struct warm *w);

/* So many blanks are to be there, as soon as they can be. */
void warm_fill(struct warm *w, unsigned n);

/* How many of them wait. */
unsigned warm_waiting(const struct warm *w);

/* What a worker would be given that it cannot be given here: what the modules
 * have looked at while they were imported, or might have. */
enum warm_fit {
    WARM_FITS,
    WARM_OLD,   /* another interpreter, started with this, would do */
    WARM_NEVER, /* workers differ among each other */
};
enum warm_fit warm_check(const struct warm *w, char *const *argv,
                         char *const *envp, struct error *why);

/* A worker. Descriptors are as muster-exec takes them, and stay the caller's. */
struct warm_job {
    uint32_t id;
    char *const *argv;
    char *const *envp;
    const char *cwd;  /* NULL: stay */
    int out_fd, err_fd, status_fd, gate_fd;
};

/* Makes one of a blank; `on_exit` as of child_spawn(). -EAGAIN where there is no
 * blank. */
int warm_start(struct warm *w, const struct warm_job *job,
               child_exit_f *on_exit, void *arg, pid_t *ret_pid,
               struct error *e);

#endif
