/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the members of a group find each other: communicators of their own, a look
 * at each other's segments, and the same progress for all where an earlier MPI
 * world was lost in the middle of a collective.
 */
#ifndef MUSTER_COMM_MPI_JOIN_H
#define MUSTER_COMM_MPI_JOIN_H

#include "base/error.h"
#include "comm/mpi/group.h"

/* `members` are ranks of a world of that size, each once, `me` among them:
 * *ret_place is where. -EINVAL. */
int join_check(int world_size, int me, const int *members, size_t n,
               int *ret_place, struct error *e);

/* Called by all members, blocks until all of them do. From then on notices are
 * listened for. -EINVAL: segments of different groups; -EIO: MPI failed. */
int join_members(MPI_Comm world, struct group *g, const int *members,
                 struct error *e);

#endif
