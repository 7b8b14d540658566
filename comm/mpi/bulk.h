/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of muster-mpi: runs the part of collectives that goes between
 * nodes, for each generation (or trial) whose segment it was handed.
 *
 * One thread, nonblocking: the caller polls the descriptors of
 * bulk_poll_fds() for bulk_wait_us() at most, then calls bulk_step(). MPI is
 * polled only while something is in flight, less and less often when nothing
 * comes of it for long.
 *
 * The segment is memory of user processes: everything read from it is checked,
 * and nothing written to it can lead the engine astray. What MPI does is in the
 * order of chunk numbers, the same on all members.
 */
#ifndef MUSTER_COMM_MPI_BULK_H
#define MUSTER_COMM_MPI_BULK_H

#include "base/error.h"

#include <mpi.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>

enum { BULK_GROUPS_MAX = 64 };

struct bulk;

/* `world` is borrowed; its error handler should be MPI_ERRORS_RETURN. */
int bulk_create(MPI_Comm world, struct bulk **ret, struct error *e);

/* Detaches all groups. NULL is allowed. */
void bulk_destroy(struct bulk *b);

/* Joins a group: `members` are ranks of `world` in the order of their nodes,
 * this process among them, and all of them call this. `tag` names the group, the
 * same number for all members and no other group in use (the generation). Both
 * descriptors are duplicated.
 *
 * Blocks until all members are there, for ever if one is dead: call it under
 * alarm() and die of it. A group of one is nothing to wait for. Where an earlier
 * MPI world was lost in the middle of a collective, members first level their
 * progress. The next bulk_step() is due at once. -EINVAL: not a segment, or
 * not the same group on all members; -EIO: MPI failed. */
int bulk_attach(struct bulk *b, uint32_t tag, const int *members,
                size_t n_members, int segment_fd, int event_fd,
                struct error *e);

/* Leaves a group, alone. Collectives in flight go on for the others' sake while
 * bulk_step() is called; memory that MPI may still write to stays until they
 * complete. Unknown tags are ignored. */
void bulk_detach(struct bulk *b, uint32_t tag);

/* Bytes kept for abandoned collectives. Where this grows over what is
 * tolerable, end this process: a new one is made. */
size_t bulk_abandoned_bytes(const struct bulk *b);

/* Fills in what to poll for POLLIN; returns how many (at most `max`). */
size_t bulk_poll_fds(const struct bulk *b, struct pollfd *fds, size_t max);

/* How long the caller may sleep in poll: 0 now, -1 for ever. */
int64_t bulk_wait_us(const struct bulk *b);

/* Does what can be done now, never blocks. Returns how many chunks it started
 * or completed. A group whose MPI calls fail is aborted (its workers get
 * -ECONNABORTED); it stays attached until bulk_detach(). */
int bulk_step(struct bulk *b);

#endif
