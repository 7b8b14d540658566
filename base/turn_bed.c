/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/turn_bed.h"

static void on_late(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

bool turn_until(uv_loop_t *loop, const int *n, int want)
{
    uv_timer_t timer;
    bool late = false;

    uv_timer_init(loop, &timer);
    timer.data = &late;
    uv_timer_start(&timer, on_late, 60000, 0);
    while (*n < want && !late) {
        uv_run(loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    return !late;
}
