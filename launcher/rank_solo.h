/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of an MPI launch that no agent supervises: what its program is run with,
 * by its place in the launch alone. The same launch gives all its ranks the same
 * run id and ports; two launches hardly ever the same ones.
 */
#ifndef MUSTER_LAUNCHER_RANK_SOLO_H
#define MUSTER_LAUNCHER_RANK_SOLO_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/rank_env.h"
#include "launcher/seat.h"

/* Fills in environment and mark; `own` is the environment of this process, where
 * the user's MASTER_ADDR and MASTER_PORT count. */
int rank_solo_offer(const struct strlist *own, const struct rank_place *place,
                    struct seat_offer *ret, struct error *e);

#endif
