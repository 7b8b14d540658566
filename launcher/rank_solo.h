/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of an MPI launch that no agent supervises: what its program is run with,
 * by its place in the launch. The same launch gives all its ranks the same run id
 * and ports; two launches hardly ever the same ones.
 */
#ifndef MUSTER_LAUNCHER_RANK_SOLO_H
#define MUSTER_LAUNCHER_RANK_SOLO_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/rank_env.h"
#include "launcher/seat.h"

#include <stdbool.h>
#include <stdint.h>

struct rank_solo {
    const struct strlist *own; /* the environment of this process, where the
                                  user's MASTER_ADDR and MASTER_PORT count */
    const char *network;       /* that is to be used between nodes; NULL: any */
    uint64_t timeout_ms;       /* for ranks on other nodes to come */
};

/* Fills in environment and mark, and says in `place` where this rank is: on
 * several nodes of an mpirun it meets the others for that. Leaves a guard. */
int rank_solo_offer(const struct rank_solo *s, struct rank_place *place,
                    struct seat_offer *ret, struct error *e);

/* The program has ended, well or not. */
void rank_solo_end(const struct rank_solo *s, const struct rank_place *place,
                   bool well);

#endif
