/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_timers.h"

#include <errno.h>
#include <stdlib.h>

static void free_timer(uv_handle_t *h)
{
    free(h);
}

int snap_timers_create(uv_loop_t *loop, void *owner, uv_timer_t **ret_pace,
                       uv_timer_t **ret_watch)
{
    uv_timer_t *pace = calloc(1, sizeof(*pace));
    uv_timer_t *watch = calloc(1, sizeof(*watch));

    if (!pace || !watch) {
        free(pace);
        free(watch);
        return -ENOMEM;
    }
    uv_timer_init(loop, pace);
    uv_timer_init(loop, watch);
    pace->data = watch->data = owner;
    *ret_pace = pace;
    *ret_watch = watch;
    return 0;
}

void snap_timers_close(uv_timer_t *pace, uv_timer_t *watch)
{
    uv_close((uv_handle_t *)pace, free_timer);
    uv_close((uv_handle_t *)watch, free_timer);
}
