/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who keeps copies of whose snapshots: nodes in pairs, of two failure domains, and
 * three in a circle where one is over. A node finds its partner among the nearest
 * places of the run first, halves of the range of places within halves, so that one
 * that is lost, or comes, changes pairs near its own place only. Whoever has the same
 * nodes comes to the same pairs. Arithmetic only.
 */
#ifndef MUSTER_LAUNCHER_PARTNERS_H
#define MUSTER_LAUNCHER_PARTNERS_H

#include <stddef.h>
#include <stdint.h>

#define PARTNERS_NONE UINT32_MAX

struct partners_node {
    uint32_t place;  /* in the run; no two have the same */
    uint32_t domain; /* what fails together has the same one */
};

/* `nodes` are in the order of their places. Leaves in `ret`, for each of them, which
 * one (from 0) keeps its copies, or PARTNERS_NONE where all have one domain. 0, or
 * -ENOMEM. */
int partners_find(const struct partners_node *nodes, uint32_t n, uint32_t *ret);

#endif
