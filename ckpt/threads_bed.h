/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many threads were started beside, and have been waited for: in a test program that is
 * linked with --wrap=thread_start_beside and --wrap=pthread_join.
 */
#ifndef MUSTER_CKPT_THREADS_BED_H
#define MUSTER_CKPT_THREADS_BED_H

#include <stdatomic.h>

/* The program's, as it wants it at first. */
extern struct threads_bed {
    atomic_uint n_started, n_joined;
    unsigned n_granted; /* so many are to be had, and none after them: EAGAIN */
} threads_bed;

/* None of either, so far. */
void threads_bed_reset(void);

#endif
