/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep over one program on the real filesystem: it is killed before each of its
 * system calls, and each call fails with everything that it may (tests/lib/tracer.h).
 * After each time another process looks at what is left.
 */
#ifndef MUSTER_CKPT_SWEEP_BED_H
#define MUSTER_CKPT_SWEEP_BED_H

#include <stdbool.h>
#include <stdint.h>

/* What the program was told, in memory that is shared with whoever looks. */
struct sweep_told {
    volatile uint64_t newest; /* step that it was promised; 0: none yet */
    void (*on_tell)(uint64_t newest); /* called then, or NULL */
};

/* It was promised that step; older ones count for nothing. */
void sweep_tell(struct sweep_told *told, uint64_t step);

struct sweep_case {
    const char *name;
    /* Makes what is there before, in the empty directory `path`; may be NULL. */
    void (*prepare)(const char *path, struct sweep_told *told);
    /* The program; `run` is another number when it is started again. */
    void (*play)(const char *path, unsigned run, struct sweep_told *told);
    /* Whether all that was told is there, and all that is there is right. */
    bool (*is_kept)(const char *path, const struct sweep_told *told);
    /* Whether nothing is left of a program that was killed once another one has come to its end;
     * NULL: something may be. A loss of power may leave more: what tells need not be durable. */
    bool (*is_tidy)(const char *path);
    uint64_t newest;    /* what an undisturbed program is told in the end */
    const char *except; /* files that need no sync, by the ends of their names */
    const char *left;   /* a directory in `path`: nothing in it is known to be on the disk */
    bool is_threaded;   /* it may end where there is no memory for a thread */
};

/* Tries every `stride`th of all kills and of all that may fail. Checks in TAP; adds
 * how many points there were. */
void sweep_run(const struct sweep_case *c, unsigned stride, uint64_t *kills,
               uint64_t *errors);

/* The program's calls, undisturbed: how many faults of order there are
 * (tests/lib/sync_order.h), the first in words in *ret_first, which the caller frees;
 * less than 0 if it did not come to its end. */
int sweep_order(const struct sweep_case *c, char **ret_first);

/* Why not here, or NULL; with `is_long` also where all takes long: under valgrind and
 * sanitizers. */
const char *sweep_why_not(bool is_long);

/* What the command line or the environment's MUSTER_SWEEP_STRIDE says, or `usual`. */
unsigned sweep_stride(int argc, char **argv, unsigned usual);

#endif
