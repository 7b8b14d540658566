/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model for tests of saving and loading: tensors of many types and shapes, each
 * element of which is known from its tensor, its place and the step; and ways to cut
 * them over ranks, drawn from a seed: boxes, flat ranges, replicas, memory with gaps
 * or transposed.
 */
#ifndef MUSTER_CKPT_MODEL_BED_H
#define MUSTER_CKPT_MODEL_BED_H

#include "muster_ckpt.h"

#include <stdbool.h>
#include <stdint.h>

struct model; /* one rank's part */

/* That of `rank` of `world`, registered with `ck`; exits where that fails. */
struct model *model_create(struct muster_ckpt *ck, uint32_t rank,
                           uint32_t world, uint64_t seed);
void model_destroy(struct model *m);

/* Sets all that this rank has to what it is at that step. */
void model_set(struct model *m, int64_t step);
/* How many bytes are not those of that step; gaps must be untouched. */
uint64_t model_wrong(const struct model *m, int64_t step);

#endif
