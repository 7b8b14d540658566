/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims views (launcher/view_file.h) from threads of their own, as the run
 * directory may hang: each request has one, and a deadline, after which it counts as
 * not answered. An answer that comes later is told all the same, for what was claimed
 * may have come to be: once, however often the view was claimed, and only of the one
 * that was claimed last.
 *
 * On the loop's thread; the callback may ask again, but not destroy.
 */
#ifndef MUSTER_LAUNCHER_ARBITER_H
#define MUSTER_LAUNCHER_ARBITER_H

#include "launcher/view_file.h"

#include <uv.h>

enum arbiter_answer {
    ARBITER_WON,     /* the claim stands */
    ARBITER_LOST,    /* another one does: `view` */
    ARBITER_SHARED,  /* the run directory has the nonce that it should have */
    ARBITER_OTHER,   /* or not: it is another one */
    ARBITER_UNKNOWN, /* an error, worded in `text`, or no answer in time */
};

/* `number` of the view that was claimed, 0 for none. `view` and `text` are valid
 * for the call. */
typedef void arbiter_f(void *arg, enum arbiter_answer answer, uint32_t number,
                       const struct view *view, const char *text);

struct arbiter;

/* `at` is copied; it has a nonce. */
int arbiter_create(uv_loop_t *loop, const struct view_place *at,
                   uint64_t timeout_ms, arbiter_f *on_answer, void *arg,
                   struct arbiter **ret, struct error *e);

/* Calls back no more. A thread that hangs is left to itself. NULL is allowed. */
void arbiter_destroy(struct arbiter *a);

/* 0, or why nothing was asked: -EBUSY with too many that hang. `v` is copied. */
int arbiter_claim(struct arbiter *a, const struct view *v, struct error *e);
/* Whether the directory is the one with the nonce: rundir_check_nonce(). */
int arbiter_check(struct arbiter *a, struct error *e);

#endif
