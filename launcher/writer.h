/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes to descriptors that may block for ever (a pager, a terminal that was
 * stopped with Ctrl-S) without holding up the loop: a thread of its own writes
 * what it is given, in order. Whoever gives looks at writer_pending() and stops
 * for a while when it grows.
 *
 * All functions are for the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_WRITER_H
#define MUSTER_LAUNCHER_WRITER_H

#include "base/buf.h"
#include "base/error.h"

#include <stddef.h>
#include <uv.h>

struct writer;

/* `on_room` is called on the loop when everything was written that writer_pending() has
 * told of; it does not keep the loop alive. */
int writer_create(uv_loop_t *loop, void (*on_room)(void *arg), void *arg,
                  struct writer **ret, struct error *e);

/* Ends the thread. What is not written yet is dropped; where the thread cannot
 * be had back, because it is blocked, it is left to the end of the process. The
 * loop has to run once more. NULL is allowed. */
void writer_destroy(struct writer *w);

/* Takes the bytes out of `b`, for `fd` (0 to 2); `b` is empty then, and may have
 * other memory. After a write to `fd` has failed nothing more is written there. */
void writer_take(struct writer *w, int fd, struct buf *b);

/* Bytes that were put and not written yet. */
size_t writer_pending(struct writer *w);

/* Why nothing more is written to `fd`: 0, or an errno value. */
int writer_error(struct writer *w, int fd);

#endif
