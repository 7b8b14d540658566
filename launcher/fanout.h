/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs many short commands side by side, up to 64 at once, and gathers what they
 * say: a look at many hosts. Bounded by one deadline for all; has a loop of its
 * own and blocks.
 */
#ifndef MUSTER_LAUNCHER_FANOUT_H
#define MUSTER_LAUNCHER_FANOUT_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise, add argv (argv[0] is searched for in PATH); release with
 * fanout_task_release(). */
struct fanout_task {
    struct strlist argv;
    struct buf answer;  /* stdout and stderr, up to 1 MiB */
    int status;         /* as a shell tells it, once it has ended by itself */
    char problem[512];  /* why there is none: not started, or too late */
};
void fanout_task_release(struct fanout_task *t);

/* Each gets `input` on its stdin, and `env`. 0 when all have ended or the time is
 * over; those that still ran were killed. */
struct fanout {
    struct fanout_task *tasks;
    size_t n;
    const struct buf *input;
    char *const *env;
    unsigned timeout_ms;
};
int fanout_run(const struct fanout *f, struct error *e);

/* The next line of the answer at or behind *at that is a JSON object, the
 * caller's, and moves *at behind it; NULL at the end. */
json_t *fanout_next(const struct fanout_task *t, size_t *at);

/* The last line of the answer that is a JSON object, for a login shell may chat
 * before; the caller's, or NULL. */
json_t *fanout_answer(const struct fanout_task *t);

/* The last line of any kind, for error texts. */
void fanout_last_line(const struct fanout_task *t, char *to, size_t size);

#endif
