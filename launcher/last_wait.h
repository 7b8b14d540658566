/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run stands still for something that may take long: whoever looks on is told for what
 * after two seconds, and every half a minute, and there is an end to it. On the loop's
 * thread.
 */
#ifndef MUSTER_LAUNCHER_LAST_WAIT_H
#define MUSTER_LAUNCHER_LAST_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct last_wait;

/* `span` is how long it has been; `is_late`: it was as long as it may be, and is over. */
typedef void last_wait_f(void *arg, const char *span, bool is_late);

/* NULL: no memory. */
struct last_wait *last_wait_create(uv_loop_t *loop, last_wait_f *say, void *arg);
/* NULL is allowed. */
void last_wait_close(struct last_wait *w);

void last_wait_begin(struct last_wait *w, uint64_t limit_ms);
/* From now on no longer than that. */
void last_wait_shorten(struct last_wait *w, uint64_t limit_ms);
void last_wait_end(struct last_wait *w);

#endif
