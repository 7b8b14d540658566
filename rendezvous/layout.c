/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/layout.h"

uint32_t tree_parent(uint32_t rank, uint32_t arity)
{
    return rank ? (rank - 1) / arity : 0;
}

size_t tree_ancestors(uint32_t rank, uint32_t arity, uint32_t *ret, size_t max)
{
    size_t n = 0;

    while (rank && n < max) {
        rank = tree_parent(rank, arity);
        ret[n++] = rank;
    }
    return n;
}

uint32_t tree_children(uint32_t rank, uint32_t arity, uint32_t n,
                       uint32_t *ret_first)
{
    uint64_t first = (uint64_t)rank * arity + 1;

    *ret_first = first < n ? (uint32_t)first : n;
    if (first >= n) {
        return 0;
    }
    return n - first < arity ? (uint32_t)(n - first) : arity;
}

uint32_t tree_depth(uint32_t n, uint32_t arity)
{
    uint32_t depth = 0;

    for (uint32_t rank = n ? n - 1 : 0; rank; depth++) {
        rank = tree_parent(rank, arity);
    }
    return depth;
}

struct layout layout_of(const uint16_t *n_procs, uint32_t n_nodes,
                        uint32_t node)
{
    struct layout l = {.node = node};

    for (uint32_t i = 0; i < n_nodes; i++) {
        if (i == node) {
            l.first_rank = l.world;
            l.n_local = n_procs[i];
            l.group = n_procs[i] ? l.n_groups : 0;
        }
        l.world += n_procs[i];
        l.n_groups += n_procs[i] > 0;
    }
    return l;
}

void layout_cross(const uint16_t *n_procs, uint32_t n_nodes, uint32_t node,
                  uint32_t local_rank, uint32_t *ret_rank, uint32_t *ret_size)
{
    *ret_rank = *ret_size = 0;
    for (uint32_t i = 0; i < n_nodes; i++) {
        if (n_procs[i] > local_rank) {
            *ret_rank += i < node;
            ++*ret_size;
        }
    }
}

uint32_t layout_node_of(const uint16_t *n_procs, uint32_t n_nodes,
                        uint32_t rank, uint32_t *ret_local_rank)
{
    uint32_t first = 0;

    for (uint32_t i = 0; i < n_nodes; i++) {
        if (rank - first < n_procs[i]) {
            *ret_local_rank = rank - first;
            return i;
        }
        first += n_procs[i];
    }
    return n_nodes;
}
