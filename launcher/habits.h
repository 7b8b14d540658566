/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of mpirun, srun, deepspeed and others by which users of those ask for
 * what muster has under another name: for the error that tells them.
 */
#ifndef MUSTER_LAUNCHER_HABITS_H
#define MUSTER_LAUNCHER_HABITS_H

struct habit {
    const char *name;   /* without its dashes, - for _ */
    const char *option; /* of muster: the name alone */
    const char *here;   /* how that is written */
};

/* NULL: nothing is known of that name. */
const struct habit *habit_find(const char *name);

#endif
