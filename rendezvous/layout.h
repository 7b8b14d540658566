/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each agent stands in the control tree, and each worker in the numbering
 * of workers. Arithmetic only.
 */
#ifndef MUSTER_RENDEZVOUS_LAYOUT_H
#define MUSTER_RENDEZVOUS_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* The k-ary tree over ranks 0 .. n-1 with rank 0 at the top; arity at least 1.
 * The parent of rank 0 is itself. */
uint32_t tree_parent(uint32_t rank, uint32_t arity);

/* The ranks above `rank`, nearest first, up to and with 0: where a member looks
 * for a new parent when its own is lost. Returns how many it wrote, at most
 * `max`. */
size_t tree_ancestors(uint32_t rank, uint32_t arity, uint32_t *ret, size_t max);

/* Children of `rank` are first .. first + return - 1. */
uint32_t tree_children(uint32_t rank, uint32_t arity, uint32_t n,
                       uint32_t *ret_first);

/* How many levels there are above the deepest of n ranks; 0 for n <= 1. */
uint32_t tree_depth(uint32_t n, uint32_t arity);

/* Where a node stands in a generation, from the processes of each node. Worker
 * ranks are dense, in order of nodes; a node without processes is no group. */
struct layout {
    uint32_t first_rank; /* global rank of local rank 0 */
    uint32_t n_local;
    uint32_t world;
    uint32_t node;    /* which of all nodes */
    uint32_t group;   /* GROUP_RANK; 0 where n_local is 0 */
    uint32_t n_groups;
};
struct layout layout_of(const uint16_t *n_procs, uint32_t n_nodes,
                        uint32_t node);

/* Among the workers that have that local rank: which one, and of how many. */
void layout_cross(const uint16_t *n_procs, uint32_t n_nodes, uint32_t node,
                  uint32_t local_rank, uint32_t *ret_rank, uint32_t *ret_size);

/* The node of a global rank, or n_nodes if there is no such rank. */
uint32_t layout_node_of(const uint16_t *n_procs, uint32_t n_nodes,
                        uint32_t rank, uint32_t *ret_local_rank);

#endif
