/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory of checkpoints that this run has to itself (ckpt/lease.h). The thread that
 * commits asks for it; one of its own renews it, and lets go of it in the end, so that a
 * filesystem that answers nobody holds up nobody else.
 */
#ifndef MUSTER_LAUNCHER_SNAP_LEASE_H
#define MUSTER_LAUNCHER_SNAP_LEASE_H

#include "base/error.h"
#include "ckpt/io.h"
#include "ckpt/lease_note.h"
#include "launcher/office.h"

#include <stdbool.h>

struct snap_lease;

/* Takes nothing yet but what the run has there already, of a lead before this one. The
 * office is asked before each change; borrowed. */
int snap_lease_create(const char *root, const struct lease_note *own,
                      const struct office *office, struct snap_lease **ret, struct error *e);
const char *snap_lease_root(const struct snap_lease *l);
/* Whether no other agent leads the run on when this one dies. */
void snap_lease_alone(struct snap_lease *l, bool is_alone);

/* As lease_hold(), for `root` that is open. Blocks: for a thread. */
int snap_lease_hold(struct snap_lease *l, struct io *io, int root, struct error *e);

/* Whether somebody is in there, as for as long as another run may be alive. */
bool snap_lease_is_asking(const struct snap_lease *l);

/* Who waits for others to be gone waits no more. */
void snap_lease_hurry(struct snap_lease *l);
/* It is to be let go of, by the thread; it may be asked for again. */
void snap_lease_drop(struct snap_lease *l);
/* Whether that is still to be done. */
bool snap_lease_is_dropping(struct snap_lease *l);

/* Nobody asks any more. Once the thread has ended, which it does when it can: true, and
 * all is freed. */
bool snap_lease_end(struct snap_lease *l);

#endif
