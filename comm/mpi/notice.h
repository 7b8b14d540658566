/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with which a member tells the others of its group that it can not go
 * on, and from which chunk: of what only its node has seen, while nobody is
 * dead. A death is told by the agents, faster and without MPI. A member tells
 * again only what concerns an earlier chunk; all listen all the time.
 */
#ifndef MUSTER_COMM_MPI_NOTICE_H
#define MUSTER_COMM_MPI_NOTICE_H

#include "base/error.h"
#include "comm/mpi/group.h"

#include <stdbool.h>

/* Makes ready for a notice from any member. */
int notice_listen(struct group *g, struct error *e);

/* Tells what there is to tell: why this node's part of the group came to an end
 * (g->must_tell), or of workers that have ended, and the first chunk without
 * them. */
void notice_push(struct group *g);

/* True while something told is not through. MPI has to be polled as long: the
 * connection to a member that nothing was sent to before is made only then. */
bool notice_is_on_way(const struct group *g);

/* Ends the group here where another member has told so, and that chunk has come:
 * older ones complete. */
void notice_hear(struct group *g);

#endif
