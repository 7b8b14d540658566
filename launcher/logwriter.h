/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends to logs (log_store.h) from one thread, so that its owner never waits for a
 * filesystem. Data is copied in and never refused; the owner looks at
 * logwriter_is_full() and stops producing. What cannot be written is counted.
 *
 * Threads: all calls are the owner's; `wake` is called on the writer's thread,
 * with a lock held, and may only signal (waker_send()). That thread has a table of
 * descriptors of its own (base/thread.h).
 */
#ifndef MUSTER_LAUNCHER_LOGWRITER_H
#define MUSTER_LAUNCHER_LOGWRITER_H

#include "base/error.h"
#include "launcher/log_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct logwriter;
struct logfile;

struct logwriter_config {
    size_t high_bytes; /* of the queue: the high-water mark */
    struct log_limits limits;
    /* The directory (absolute, or NULL) that files are in. Where it is there when
     * writing starts it is never made again: it may be removed while others go on,
     * and all that would go into new files in it is lost then, and the writer
     * failing to its end. */
    const char *root;
    /* Called when a full writer has room again, when writing begins or ceases to
     * fail, and when it has finished. */
    void (*wake)(void *arg);
    void *arg;
    int wake_fd; /* that it needs; 0: none */
};

int logwriter_create(const struct logwriter_config *config,
                     struct logwriter **ret, struct error *e);

/* A file to append to; it and its directories are made when the first byte is
 * written. The writer owns it. NULL without memory. */
struct logfile *logwriter_open(struct logwriter *w, const char *path);

/* The same file for one more user: it is to be closed once more. */
struct logfile *logwriter_share(struct logwriter *w, struct logfile *f);

const char *logwriter_path(const struct logfile *f);

void logwriter_write(struct logwriter *w, struct logfile *f, const void *data,
                     size_t len);

/* After what is queued, by the last of its users. The file must not be used again. */
void logwriter_close(struct logwriter *w, struct logfile *f);

/* Over the high-water mark: true until the queue is down to a quarter of it. */
bool logwriter_is_full(struct logwriter *w);

struct logwriter_state {
    uint64_t lost_bytes;
    bool failing;       /* some file could not be written to last time */
    char reason[512];   /* the first such file and why */
    uint64_t stuck_ms;  /* how long the writer has been in one call */
    bool finished;
};
void logwriter_look(struct logwriter *w, struct logwriter_state *ret);

/* To write what is queued, close all, and end. */
void logwriter_finish(struct logwriter *w);

/* Gives it up: at once if it has finished; if not, the thread goes on by itself
 * and frees the rest when it ends. It does not call `wake` again. NULL is
 * allowed. */
void logwriter_release(struct logwriter *w);

#endif
