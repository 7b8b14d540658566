/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/loop_timer.h"

#include <stdlib.h>

uv_timer_t *loop_timer_create(uv_loop_t *loop, void *data)
{
    uv_timer_t *t = calloc(1, sizeof(*t));

    if (t) {
        uv_timer_init(loop, t);
        t->data = data;
    }
    return t;
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

void loop_timer_close(uv_timer_t *t)
{
    if (t) {
        uv_close((uv_handle_t *)t, free_timer);
    }
}
