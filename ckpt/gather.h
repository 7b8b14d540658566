/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what all ranks have put into a step's directory to a checkpoint: reads every
 * rank's part, makes tensors.index and the manifest of them, and commits. The parts go
 * afterwards: whoever is killed on the way leaves all that it takes to begin anew.
 */
#ifndef MUSTER_CKPT_GATHER_H
#define MUSTER_CKPT_GATHER_H

#include "base/error.h"
#include "ckpt/index_cache.h"
#include "ckpt/step.h"

#include <stdint.h>

struct gather {
    uint64_t step;
    const char *uuid;
    uint32_t generation;
    uint64_t token; /* at least: of saves of one step the newest has the highest */
    uint32_t n_ranks;
    struct index_cache *cache; /* of saves before this one, and then of this one; NULL: none */
};

/* All files of all ranks are in `s` and synced; what another one had made of them, who came
 * to no end, is made anew. 0; -EEXIST: there is a COMMIT; -ENODATA: the part of a rank is
 * not there; -ERR_FORMAT: one is damaged, or of another save; -EINVAL: pieces do not
 * tile their tensors; and those of step_save_commit(). The caller aborts then. */
int gather_commit(struct step_save *s, const struct gather *g,
                  struct error *e);

/* Once it is one: nobody needs the parts of its ranks any more. */
void gather_tidy(struct step_save *s, uint32_t n_ranks);

#endif
