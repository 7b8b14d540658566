/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts at which mpirun hangs, or fails: the front end finds out (front_hung.c), the
 * lead excludes their nodes (agent_lead_hung.c). The status tells what for, and so the
 * next front end knows it.
 */
#ifndef MUSTER_LAUNCHER_HUNG_H
#define MUSTER_LAUNCHER_HUNG_H

#include "launcher/status.h"
#include "rendezvous/exclusion.h"

static inline bool hung_is_why(const struct status_node *n)
{
    return n->state != STATUS_NODE_LOST && n->state != STATUS_NODE_LEFT &&
           exclusion_is_of_mpi(n->excluded);
}

#endif
