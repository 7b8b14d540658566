/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timer of its own memory: libuv knows of a handle until it has told of its close,
 * when its owner is gone.
 */
#ifndef MUSTER_BASE_LOOP_TIMER_H
#define MUSTER_BASE_LOOP_TIMER_H

#include <uv.h>

/* It stands still; `data` is its data. NULL: no memory. */
uv_timer_t *loop_timer_create(uv_loop_t *loop, void *data);
/* It never fires from now on, and is freed in the loop's next turn. NULL is allowed. */
void loop_timer_close(uv_timer_t *t);

#endif
