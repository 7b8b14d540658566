/* SPDX-License-Identifier: Apache-2.0 */
/* qsort(), for what is often sorted already: that costs one look at each. */
#ifndef MUSTER_BASE_SORT_H
#define MUSTER_BASE_SORT_H

#include <stddef.h>

/* `items` may be NULL where there are none. Of those that are equal the order is open. */
void sort_items(void *items, size_t n, size_t size,
                int (*compare)(const void *, const void *));

#endif
