/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints whose every byte is known from their step, for tests. */
#ifndef MUSTER_CKPT_STEP_BED_H
#define MUSTER_CKPT_STEP_BED_H

#include "ckpt/step.h"

enum { BED_FILES = 2, BED_FILE_BYTES = 1500 };

/* Saves and commits one of two files and an index; aborted where it fails. */
int bed_save(struct io *io, int root, uint64_t step, uint64_t token,
             struct error *e);

/* Whether a checkpoint has the bytes of its step. */
bool bed_is_right(struct step *s);

/* The directory's name. */
void bed_name(uint64_t step, uint64_t token, char to[STEP_NAME_BYTES]);

#endif
