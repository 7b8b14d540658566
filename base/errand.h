/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that stays, and does one thing at a time for who made it: what is to begin at
 * once, and often, does not wait for a thread to be made.
 *
 * One thread at a time may call. In a child that was forked since there is no
 * such thread.
 */
#ifndef MUSTER_BASE_ERRAND_H
#define MUSTER_BASE_ERRAND_H

#include "base/cleanup.h"

#include <stdbool.h>

struct errand;

/* NULL: there is no memory, or no thread. It takes no signals (base/thread.h). */
struct errand *errand_create(void);
/* Has `body` called there; what was sent before has been waited for. */
void errand_send(struct errand *e, void (*body)(void *arg), void *arg);
/* Until that has returned. */
void errand_await(struct errand *e);
/* False in a child that was forked: only errand_destroy() may be called there. */
bool errand_is_here(const struct errand *e);
/* NULL is allowed. Waits for what was sent. */
void errand_destroy(struct errand *e);
DEFINE_CLEANUP(errand);

#endif
