/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes a loop from another thread, as uv_async_t does, through a descriptor that
 * is known: for threads with a table of descriptors of their own (base/thread.h),
 * which have nothing of libuv's.
 */
#ifndef MUSTER_BASE_WAKER_H
#define MUSTER_BASE_WAKER_H

#include "base/error.h"

#include <stdbool.h>
#include <uv.h>

struct waker;

/* `on_wake` is called from the loop some time after one or more waker_send(). It
 * may destroy the waker. At first it keeps no loop running. */
int waker_create(uv_loop_t *loop, void (*on_wake)(void *arg), void *arg,
                 struct waker **ret, struct error *e);

/* Nothing is called any more. The loop has to turn once. NULL is allowed. */
void waker_destroy(struct waker *w);

/* Whether it keeps the loop running. */
void waker_hold_loop(struct waker *w, bool holds);

/* From any thread, until the waker is destroyed. */
void waker_send(const struct waker *w);

/* What a thread that is to send must have open. */
int waker_fd(const struct waker *w);

#endif
