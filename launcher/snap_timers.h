/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two timers of who moves snapshots between agents: `pace` brings on its next turn
 * of the loop, `watch` looks for who comes no further.
 */
#ifndef MUSTER_LAUNCHER_SNAP_TIMERS_H
#define MUSTER_LAUNCHER_SNAP_TIMERS_H

#include <uv.h>

/* Both stand still; `owner` is the data of each. 0 or -ENOMEM, with neither of them. */
int snap_timers_create(uv_loop_t *loop, void *owner, uv_timer_t **ret_pace,
                       uv_timer_t **ret_watch);
/* They are freed in the loop's next turn, and never fire before. */
void snap_timers_close(uv_timer_t *pace, uv_timer_t *watch);

#endif
