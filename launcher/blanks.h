/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blanks: processes of muster-exec that were started ahead, and wait to be told what
 * they are to be. A restart that has them does without the first half of the start of
 * its workers, of which most is the start of muster-exec.
 *
 * Life: blanks_fill() has as many started as are wanted, one after the other, after a
 * while. blanks_start() makes a worker of one; then blanks_settle() must come before
 * the loop turns. A worker that was a blank is in nothing different from one that was
 * started plainly: a blank has only what the agent gives to all (its session is its
 * own, as theirs), and all else is set up once it knows for whom.
 *
 * A blank that ends while it waits is not replaced before the next blanks_fill().
 * Nobody is told of anything: where there is none, start plainly. Main thread only.
 */
#ifndef MUSTER_LAUNCHER_BLANKS_H
#define MUSTER_LAUNCHER_BLANKS_H

#include "base/child.h"
#include "base/error.h"
#include "launcher/exec.h"

#include <sys/types.h>
#include <uv.h>

enum { BLANKS_MAX = 64 };

struct blanks;

struct blanks_config {
    uv_loop_t *loop;
    struct child_table *children;
    const char *exec_path; /* of muster-exec */
    char *const *envp;     /* while they wait: by what they are found if somebody has
                              to look for them, and no more */
    unsigned first_ms;     /* after blanks_fill(); 0: 200 ms */
    unsigned pace_ms;      /* between two of them; 0: 10 ms */
};

/* All but loop and children is copied. */
int blanks_create(const struct blanks_config *config, struct blanks **ret,
                  struct error *e);

/* Kills those that wait. The memory goes with the next turn of the loop, before the
 * table of children does. NULL is allowed. */
void blanks_destroy(struct blanks *b);

/* So many, at most BLANKS_MAX, are to wait: soon, or at once where there are more. */
void blanks_fill(struct blanks *b, unsigned n);

/* There is something more urgent: none is started before the next blanks_fill(). */
void blanks_rest(struct blanks *b);

/* How many there are. */
unsigned blanks_waiting(const struct blanks *b);

/* A worker; borrowed. The descriptors for its report and the gate are those of the
 * options, and both are needed; none is kept beside them. */
struct blank_job {
    const struct exec_options *o;
    char *const *argv;
    char *const *envp;
    int out_fd, err_fd;
};

/* Tells one what it is to be; `on_exit` as of child_spawn(). -EAGAIN where there is no
 * blank. Descriptors stay the caller's. */
int blanks_start(struct blanks *b, const struct blank_job *job,
                 child_exit_f *on_exit, void *arg, pid_t *ret_pid,
                 struct error *e);

/* Waits until all that have been told have understood, for a quarter of a second at
 * most. Those that have not are killed, or have been: `ret_lost` gets the `arg` of
 * each, whose on_exit is not called. They may take a byte of the gate along. Returns
 * how many those are. */
unsigned blanks_settle(struct blanks *b, void *ret_lost[BLANKS_MAX]);

#endif
