/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of nodes that keep parity of each other's snapshots (ckpt/parity.h): each
 * node of a group is of another failure domain. Whoever has the same nodes comes to
 * the same groups. Arithmetic only.
 */
#ifndef MUSTER_LAUNCHER_PARTNER_GROUPS_H
#define MUSTER_LAUNCHER_PARTNER_GROUPS_H

#include "launcher/partners.h"

/* Groups of about `size` nodes, which differ by one at most; smaller ones where many
 * nodes are of one domain, as there is no group with two of it. `nodes` are in the
 * order of their places. Leaves in `ret`, for each of them, the number of its group,
 * from 0. How many groups, or -ENOMEM. No group has more than 3/2 of `size` nodes, so
 * that none of a job (checkpoint.partnerGroup) has more than PARITY_MAX_MEMBERS. */
int partner_groups(const struct partners_node *nodes, uint32_t n, unsigned size,
                   uint32_t *ret);

#endif
