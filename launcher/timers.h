/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers that programs ask for, as clients of torch.distributed.elastic.timer do:
 * each line is a JSON object that sets or releases one, by the process that asks
 * and a name of its own for what it is in the middle of. Pure: bytes and times in,
 * timers that are over out. Both are bounded, and so is what is kept of them.
 */
#ifndef MUSTER_LAUNCHER_TIMERS_H
#define MUSTER_LAUNCHER_TIMERS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    TIMERS_MAX = 4096,        /* that run at a time */
    TIMERS_LINE_BYTES = 4096, /* what a pipe takes in one piece */
};

struct timer {
    pid_t pid;      /* of the process that asked */
    uint64_t start; /* of it, which with the pid is an identity (base/proc.h) */
    int signal;     /* that is to end it; 0 or less: none is */
    uint64_t due_ms; /* clock_mono_ms() */
    char *scope;
};
void timer_release(struct timer *t);
#define _timer_ __attribute__((cleanup(timer_release)))

struct timers;

/* NULL without memory. */
struct timers *timers_create(void);
void timers_destroy(struct timers *t);

/* When that process began; false where there is none. */
typedef bool timers_start_f(pid_t pid, uint64_t *ret);

/* Times of requests are of the wall clock; of that clock only how far away they
 * are now is believed. */
struct timers_now {
    uint64_t wall_ms, mono_ms;
};

/* Takes bytes as they come. What is no request is left out, and what there is no
 * room for: returns how many those were, the last with why in `e`. */
unsigned timers_feed(struct timers *t, const void *data, size_t len,
                     struct timers_now now, timers_start_f *start,
                     struct error *e);

/* When the next one is over, by the monotonic clock; false where none runs. */
bool timers_next(const struct timers *t, uint64_t *ret_ms);

/* Takes out all timers of one process that has one which is over; gives the first of
 * those that are and have a signal, else the first. False where none is over. The
 * caller releases it. */
bool timers_expire(struct timers *t, uint64_t mono_ms, struct timer *ret);

size_t timers_count(const struct timers *t);

#endif
