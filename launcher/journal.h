/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer of a run's records: events.jsonl and metrics.jsonl (appended to,
 * one line a fact) and status.json (replaced whole, the newest wins, at most one
 * every `status_interval_ms`, but for the first of a generation and the last of
 * all, which are written at once). A thread of its own does all of it, opening
 * included, so that the caller never waits for a filesystem that hangs.
 *
 * The queue is bounded: while the disk is stuck or full, metrics are left out
 * first (past half of the queue), then events; how many is written as an event
 * `lines_dropped` once there is room. A failed write is tried again every
 * second, and never leaves two facts on one line.
 *
 * Threads: one caller thread at a time; `on_error` is called on the writer
 * thread, once for each time that writing stops working, and `on_generation` for
 * the first status of a generation that is on disk. Both must only pass the word
 * on (waker_send()): calling the journal from them would deadlock. That thread has a
 * table of descriptors of its own (base/thread.h).
 */
#ifndef MUSTER_LAUNCHER_JOURNAL_H
#define MUSTER_LAUNCHER_JOURNAL_H

#include "base/buf.h"
#include "base/error.h"
#include "launcher/jsonw.h"
#include "launcher/status.h"

#include <stddef.h>
#include <stdint.h>

struct journal;

enum journal_file {
    JOURNAL_EVENTS,
    JOURNAL_METRICS,
    JOURNAL_N_FILES,
};

/* Both may be NULL in the config. `text` is valid during the call. */
typedef void journal_error_f(void *arg, const char *text);
typedef void journal_generation_f(void *arg, int generation);

struct journal_config {
    const char *run_dir;         /* copied */
    size_t max_queue_bytes;      /* 0: 8 MiB */
    unsigned status_interval_ms; /* 0: 200 */
    journal_error_f *on_error;
    journal_generation_f *on_generation;
    void *arg;
    int wake_fd; /* that they need; 0: none */
};

/* Starts the thread; touches no file itself. The caller owns *ret. */
int journal_create(const struct journal_config *config, struct journal **ret,
                   struct error *e);

/* Queues a line; a newline is added. Copies. Longer than 64 KiB is dropped. */
void journal_line(struct journal *j, enum journal_file file, const char *line,
                  size_t len);

/* Builds an event: begin, then any jsonw_ calls, then end, which queues it and
 * releases the buffer. `line` is the caller's, empty. */
struct jsonw journal_event_begin(struct buf *line, uint64_t wall_ns,
                                 const char *event, int generation);
void journal_event_end(struct journal *j, struct jsonw *w);

/* Queues one metric. */
void journal_metric(struct journal *j, uint64_t wall_ns, int generation,
                    int rank, int64_t step, const char *name, double value);

/* Hands over what status.json shall say next; the journal owns `s` from here,
 * NULL is allowed (and does nothing). */
void journal_status(struct journal *j, struct run_status *s);

/* Nothing is written from `until_ns` on (clock_mono_ns()), when another process may
 * write in the place of this one, until a later time is given; UINT64_MAX, as at
 * first: no end. What waits is lost where the journal is closed meanwhile. */
void journal_may_write(struct journal *j, uint64_t until_ns);

/* Writes what is queued, syncs, and ends the thread. -ETIMEDOUT when that took
 * longer than `timeout_ms`: the thread is then left to itself and ends when the
 * filesystem answers; otherwise the first failure that still stands. The journal
 * is gone in every case. NULL is allowed. */
int journal_close(struct journal *j, unsigned timeout_ms, struct error *e);

#endif
