/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs that are swept: they save, commit, prune, copy, convert and pull checkpoints,
 * and whoever looks afterwards finds the newest that they were told of, or a newer one,
 * with all of its bytes.
 */
#ifndef MUSTER_CKPT_SWEEP_CASES_BED_H
#define MUSTER_CKPT_SWEEP_CASES_BED_H

#include "ckpt/io.h"
#include "ckpt/sweep_bed.h"

#include <stddef.h>

const struct sweep_case *sweep_cases(size_t *ret_n);

/* What the first of them plays, by calls of `io`. */
void sweep_play_steps(struct io *io, const char *path, unsigned run,
                      struct sweep_told *told);

#endif
