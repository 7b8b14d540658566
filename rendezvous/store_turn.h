/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a server answers that many ask at once. Not as soon as it has read what
 * there was: other requests are on their way then, and a client that is answered
 * before those are read gets a turn ahead of the late ones. Who waits for what a
 * late one sets then waits for a turn more, and those are the slowest answers. So
 * it looks once more, without waiting, and then answers all.
 *
 * A few requests are answered at once.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_TURN_H
#define MUSTER_RENDEZVOUS_STORE_TURN_H

#include <stdbool.h>
#include <uv.h>

enum {
    STORE_TURN_MANY = 8,    /* requests, to look once more */
    STORE_TURN_HANDLES = 2, /* that store_turn_close() closes */
};

struct store_turn {
    uv_check_t check;
    uv_idle_t again; /* runs while answers are held back */
    unsigned n_read; /* requests, since the loop last looked */
    void (*answer)(void *ctx);
    void *ctx;
};

/* Calls answer(ctx) in each turn of the loop but those after which it looks once
 * more. Keeps no loop alive. */
void store_turn_init(struct store_turn *t, uv_loop_t *loop,
                     void (*answer)(void *ctx), void *ctx);

/* A client was read from. */
void store_turn_read(struct store_turn *t);

/* Calls on_closed for each of the handles; their data is ctx. */
void store_turn_close(struct store_turn *t, uv_close_cb on_closed);

#endif
