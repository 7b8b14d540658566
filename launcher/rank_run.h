/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of an MPI world: `muster exec` stays as the parent of the program, in its
 * process group, so that what mpirun sends to the group reaches the program as it
 * would without muster. This process takes no notice of signals; it ends as the
 * program ends, when all that came from the program has gone.
 *
 * Blocks; one thread, no loop. To be called once a process.
 */
#ifndef MUSTER_LAUNCHER_RANK_RUN_H
#define MUSTER_LAUNCHER_RANK_RUN_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/seat.h"

#include <stdbool.h>

struct rank_program {
    const struct seat_offer *offer; /* what to run */
    int out, err;     /* its output; -1: that of this process */
    bool keeps_stdin; /* else it is empty */
    int seat;         /* the stand-in; -1: there is none, and the caller has
                         left a guard (launcher/rank_sweep.h) */
};

/* Runs it to its end, and tells the stand-in. `ret_failed`: it was never run. */
int rank_run(const struct rank_program *p, struct seat_end *ret_end,
             bool *ret_failed, struct error *e);

/* Ends this process as the program ended. */
_Noreturn void rank_leave(const struct seat_end *end);

#endif
