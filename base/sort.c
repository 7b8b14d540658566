/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/sort.h"

#include <stdlib.h>

void sort_items(void *items, size_t n, size_t size,
                int (*compare)(const void *, const void *))
{
    for (size_t i = 1; i < n; i++) {
        const char *at = (const char *)items + i * size;

        if (compare(at - size, at) > 0) {
            qsort(items, n, size, compare);
            return;
        }
    }
}
