/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question to Slurm at a time: a command of it (squeue, scontrol) that is
 * run, and what it said. It may hang with its controller, and is killed then.
 */
#ifndef MUSTER_LAUNCHER_SLURM_ASK_H
#define MUSTER_LAUNCHER_SLURM_ASK_H

#include "base/child.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <uv.h>

enum { SLURM_ANSWER_BYTES = 512 };

/* Lies where it outlives the table of children. */
struct slurm_ask {
    struct child_table *children;
    uv_timer_t *timer; /* owned while a question is open */
    pid_t pid;         /* of the command, or 0 */
    int out;           /* what it prints */
    bool is_late;
    void (*on_answer)(void *arg, bool ok, const char *text);
    void *arg;
};

/* Runs `words`, the first one looked for in PATH of `env`, where what Slurm reads
 * as options of squeue does not count. `on_answer` is called once, from the loop:
 * with the last line that was printed, and whether all was well. Not while a
 * question is open. */
int slurm_ask(struct slurm_ask *q, uv_loop_t *loop,
              struct child_table *children, const char *const *words,
              const struct strlist *env,
              void (*on_answer)(void *arg, bool ok, const char *text),
              void *arg, struct error *e);

/* There will be no answer any more. */
void slurm_ask_forget(struct slurm_ask *q);

#endif
