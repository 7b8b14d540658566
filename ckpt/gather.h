/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what all ranks have put into a step's directory to a checkpoint: reads every
 * rank's part, makes tensors.index and the manifest of them, removes the parts, and
 * commits.
 */
#ifndef MUSTER_CKPT_GATHER_H
#define MUSTER_CKPT_GATHER_H

#include "base/error.h"
#include "ckpt/step.h"

#include <stdint.h>

struct gather {
    uint64_t step;
    const char *uuid;
    uint32_t generation;
    uint64_t token; /* at least: of saves of one step the newest has the highest */
    uint32_t n_ranks;
};

/* All files of all ranks are in `s` and synced. 0; -ENODATA: the part of a rank is
 * not there; -ERR_FORMAT: one is damaged, or of another save; -EINVAL: pieces do not
 * tile their tensors; and those of step_save_commit(). The caller aborts then. */
int gather_commit(struct step_save *s, const struct gather *g,
                  struct error *e);

#endif
