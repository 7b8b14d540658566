/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live line of `muster run`, and printing that does not tear it. The
 * renderers are pure; `struct progress` adds the terminal: on one, the line is
 * redrawn in place; elsewhere a plain line is printed when what matters changed
 * and every 10 s. All output of the front end goes through one `struct progress`.
 *
 * One thread. Writes block as the descriptor does, but for progress_set_sink();
 * after a failed write (a
 * closed pipe) nothing more is written.
 */
#ifndef MUSTER_LAUNCHER_PROGRESS_H
#define MUSTER_LAUNCHER_PROGRESS_H

#include "base/buf.h"
#include "launcher/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the line says. Strings are borrowed during the call. */
struct progress_view {
    const char *name;  /* of the job */
    const char *state; /* status_run_name() */
    int generation;
    int n_alive, n_workers;
    int n_nodes;
    int restarts, max_restarts;
    int64_t step;      /* -1: none yet */
    bool has_loss;
    double loss;
    uint64_t elapsed_ms;
};

struct progress_view progress_view(const struct run_status *s,
                                   uint64_t elapsed_ms);

/* One line without newline or control characters, at most `width` columns: what
 * matters least is left out first. */
void progress_line(const struct progress_view *v, size_t width, struct buf *to);

struct progress;

/* Writes to the descriptors (borrowed); stdout and stderr of the front end. The
 * live line is on `err_fd` where that is a terminal. NULL without memory. */
struct progress *progress_create(int out_fd, int err_fd);
/* Hands over all bytes instead of writing them: the sink may keep the memory, and
 * leaves the buffer empty. */
void progress_set_sink(struct progress *p,
                       void (*sink)(void *arg, int fd, struct buf *data),
                       void *arg);
/* Takes the live line away. NULL is allowed. */
void progress_destroy(struct progress *p);
DEFINE_CLEANUP(progress);

/* Shows `v`; `now_ms` is the monotonic clock. */
void progress_update(struct progress *p, const struct progress_view *v,
                     uint64_t now_ms);

struct progress_source {
    uint32_t generation;
    unsigned stream; /* any number that names rank and stream */
    bool is_err;     /* picks the descriptor */
};

/* Output of a worker: whole lines, each printed behind `label` (may be ""). A
 * part without newline is held back until its rest comes, or the stream of
 * another generation comes, or progress_flush(). */
void progress_output(struct progress *p, const struct progress_source *from,
                     const char *label, const char *data, size_t len);
void progress_flush(struct progress *p);

/* Why nothing more is written to out_fd: 0, or an errno value (EPIPE: nobody
 * reads any more). */
int progress_error(const struct progress *p);

/* A message of muster itself, one line, on err_fd. */
void progress_note(struct progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
