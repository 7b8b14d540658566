/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a batch system ends its job, and when a run in it has to stop for that.
 * Pure: no clock, no processes.
 *
 * Slurm tells how much time is left, reckoned with the wall clock of the host
 * that asks. What counts here is a clock that does not jump: of two answers the
 * first one sets the wall clock right, so that the second one is corrected by
 * what it has moved since. What is left of that correction is what really has
 * changed: the limit (scontrol update), or time that the job was suspended.
 */
#ifndef MUSTER_LAUNCHER_TIME_LIMIT_H
#define MUSTER_LAUNCHER_TIME_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define TIME_LIMIT_NEVER UINT64_MAX

struct time_limit {
    uint64_t before_ms; /* the run stops so long before the end */
    bool is_set;        /* there was an answer */
    uint64_t end_ms;    /* of the job, on the steady clock; or TIME_LIMIT_NEVER */
    int64_t wall_offset_ms; /* of the wall clock, at the first answer */
};

/* `before_ms`: for workers to save, and for the run to end. */
struct time_limit time_limit_start(uint64_t before_ms);

/* What `squeue -o %L` prints: "1-02:03:04", "4:05", "UNLIMITED". Milliseconds,
 * or TIME_LIMIT_NEVER. False for anything else. */
bool time_limit_parse(const char *text, uint64_t *ret_left_ms);

/* The same of SLURM_JOB_END_TIME, in seconds since 1970: false as well for a time
 * that is over, or that is none. */
bool time_limit_parse_end(const char *text, uint64_t now_s,
                          uint64_t *ret_left_ms);

/* An answer. Where the first one leaves less than twice `before_ms`, the run gets
 * half of what there is. */
void time_limit_take(struct time_limit *t, uint64_t left_ms, uint64_t mono_ms,
                     uint64_t wall_ms);

/* When to stop, on the steady clock; TIME_LIMIT_NEVER where that is not known. */
uint64_t time_limit_stop_ms(const struct time_limit *t);

/* When to ask again: more often the nearer it is, and once more when it is time
 * to stop. */
uint64_t time_limit_ask_ms(const struct time_limit *t, uint64_t now_ms);

#endif
