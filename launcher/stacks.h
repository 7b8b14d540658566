/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a worker is: muster-stacks (stacks.sh) is run for its processes, and what
 * it prints is read. The worker is not ended by it, and a worker or a debugger
 * that hangs holds up nobody: the program is killed when its time is over, and
 * what it had printed by then counts.
 *
 * Main thread only, callbacks from the loop.
 */
#ifndef MUSTER_LAUNCHER_STACKS_H
#define MUSTER_LAUNCHER_STACKS_H

#include "base/child.h"
#include "base/error.h"
#include "launcher/hang.h"

#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

enum {
    STACKS_MAX_PIDS = 16,
    STACKS_MS = 20000, /* less than HANG_DUMP_MS */
};

struct stacks;

/* `text` is what was printed, "" for nothing; valid during the call. */
typedef void stacks_done_f(void *arg, const char *text);

struct stacks_config {
    uv_loop_t *loop;
    struct child_table *children;
    const char *prefix; /* MUSTER_STACKS of the worker: PREFIX.PID, and
                           PREFIX.out for what is printed, on the node's own
                           disk; all of these are removed at the end */
    const pid_t *pids;
    size_t n_pids;      /* 1 .. STACKS_MAX_PIDS; later ones are left out */
    stacks_done_f *done;
    void *arg;
};

int stacks_start(const struct stacks_config *config, struct stacks **ret,
                 struct error *e);
/* `done` is not called any more. NULL is allowed. */
void stacks_cancel(struct stacks *s);
/* Removes what worker and helper left at a prefix. */
void stacks_remove(const char *prefix);

/* The directory that PYTHONPATH has to begin with for Python to answer. -ENOENT:
 * muster is not installed whole. */
int stacks_python_dir(char *to, size_t size, struct error *e);

/* --- stacks_text.c: pure --- */

/* By the innermost frame of the first thread: does it wait for other ranks? */
enum hang_wait stacks_wait(const char *text);
/* The first thread's stack, Python's where there is one; "" for none. */
void stacks_excerpt(const char *text, char *to, size_t size);

#endif
