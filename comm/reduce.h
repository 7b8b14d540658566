/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise reduction of several arrays, in the order in which they are
 * given. Sums of integers wrap around. */
#ifndef MUSTER_COMM_REDUCE_H
#define MUSTER_COMM_REDUCE_H

#include "muster.h"

#include <stddef.h>

/* to[i] = (((from[0][i] op from[1][i]) op from[2][i]) ...), n_from >= 1. `to`
 * overlaps none of them. Type and operation are valid ones. */
void reduce_arrays(void *to, const void *const *from, size_t n_from,
                   size_t count, enum muster_type type, enum muster_op op);

#endif
