/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the companions of one MPI world tell each other at its start: who is
 * there, and (without a front end) which run this is. Collective over
 * MPI_COMM_WORLD, and therefore for ever if a rank is dead: call under alarm().
 */
#ifndef MUSTER_COMM_MPI_GATHER_H
#define MUSTER_COMM_MPI_GATHER_H

#include "base/buf.h"
#include "base/error.h"
#include "rendezvous/roster.h"

/* Every rank's INFO (comm/companion.h) into one roster, the same everywhere:
 * agents that were in the run keep their places, new ones follow, all new ones
 * are sorted by host. */
int gather_roster(const struct buf *mine, struct roster *ret,
                  uint32_t *ret_n_known, struct error *e);

/* The same for a world of one. */
int gather_alone(const struct buf *mine, struct roster *ret,
                 uint32_t *ret_n_known, struct error *e);

/* Rank 0's bytes to all. `b` is empty on the others. */
int gather_from_first(struct buf *b, size_t max, struct error *e);

/* -ERR_VERSION, on each rank whose MPI library is another than that of rank 0:
 * of Open MPI each release speaks to itself only. */
int gather_same_mpi(struct error *e);

/* 0 if `rc` is 0 on all ranks. Else all fail: with `rc` where it is not 0, and
 * with -ERR_LOST and the lowest such rank where the fault is of others. */
int gather_agree(int rc, struct error *e);

#endif
