/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_turn.h"

/* Its being active is all: the loop does not wait then. */
static void on_again(uv_idle_t *again)
{
    (void)again;
}

static void on_check(uv_check_t *check)
{
    struct store_turn *t = (struct store_turn *)check; /* the first in it */
    bool is_many = t->n_read >= STORE_TURN_MANY;

    t->n_read = 0;
    if (is_many && !uv_is_active((uv_handle_t *)&t->again)) {
        uv_idle_start(&t->again, on_again);
        return;
    }
    uv_idle_stop(&t->again);
    t->answer(t->ctx);
}

void store_turn_init(struct store_turn *t, uv_loop_t *loop,
                     void (*answer)(void *ctx), void *ctx)
{
    *t = (struct store_turn){.answer = answer, .ctx = ctx};
    uv_check_init(loop, &t->check);
    uv_check_start(&t->check, on_check);
    uv_unref((uv_handle_t *)&t->check);
    uv_idle_init(loop, &t->again);
    uv_unref((uv_handle_t *)&t->again);
    t->check.data = ctx;
    t->again.data = ctx;
}

void store_turn_read(struct store_turn *t)
{
    t->n_read++;
}

void store_turn_close(struct store_turn *t, uv_close_cb on_closed)
{
    uv_close((uv_handle_t *)&t->check, on_closed);
    uv_close((uv_handle_t *)&t->again, on_closed);
}
