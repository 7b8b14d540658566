/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers that tests of collectives combine, and what must come of them. A
 * number depends on its worker and its place, so that neither can be mistaken,
 * and goes to what sets its type apart: negative ones, those of more than 32
 * bits, fractions. All sums of up to 64 workers are exact.
 */
#ifndef MUSTER_TESTS_LIB_VALUES_H
#define MUSTER_TESTS_LIB_VALUES_H

#include "muster.h"

#include <stddef.h>
#include <stdint.h>

/* Fills an array with the numbers of one worker. */
void values_fill(void *to, size_t n, enum muster_type type, int worker);

/* How many elements are not what n_workers' numbers combine to; the place of
 * the first of them in *ret_first, if any. */
size_t values_wrong(const void *a, size_t n, enum muster_type type,
                    enum muster_op op, int n_workers, size_t *ret_first);

/* One byte of a worker's numbers, for broadcasts. */
uint8_t values_byte(int worker, size_t i);

#endif
