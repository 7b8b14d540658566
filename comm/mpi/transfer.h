/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks of a group: what workers post is combined over the nodes and
 * published to them. */
#ifndef MUSTER_COMM_MPI_TRANSFER_H
#define MUSTER_COMM_MPI_TRANSFER_H

#include "comm/mpi/group.h"

/* The sum of bytes, for g->sum_bytes. Returns what MPI does. */
int transfer_make_sum(MPI_Op *ret);

/* Starts what has been posted. Returns how many chunks. */
int transfer_start(struct group *g);

/* Publishes what is complete, in order, or the reason why it never will be.
 * Returns how many chunks. */
int transfer_complete(struct group *g);

/* True while MPI has to be polled for chunks. */
bool transfer_is_active(const struct group *g);

#endif
