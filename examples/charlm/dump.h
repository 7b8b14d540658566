/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number for each weight, as text: "<tensor> <index> <value>" a line, nine
 * digits, so that runs with different numbers of workers can be compared by
 * any tool.
 */
#ifndef CHARLM_DUMP_H
#define CHARLM_DUMP_H

#include "weights.h"

int dump_write(const char *path, struct shape s, const real *values,
               struct failure *f);

#endif
