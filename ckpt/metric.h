/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How good a checkpoint is, as its own files say: the value of a metric by its name.
 *
 *   hf-trainer   trainer_state.json: the last line of its log that has it
 *   muster       manifest.json: a JSON value of that name that the program saved with
 *                it; or METRICS.NAME, a number in one that is an object
 *
 * Of others nothing is known.
 */
#ifndef MUSTER_CKPT_METRIC_H
#define MUSTER_CKPT_METRIC_H

#include "ckpt/found.h"

#include <stdbool.h>
#include <stddef.h>

#define METRIC_MAX_FILE_BYTES ((size_t)64 << 20)
#define METRIC_NAME_BYTES 128

/* Which of its files says it; NULL: none. */
const char *metric_file(enum found_kind kind);
/* What that file's bytes say. 1; 0: they do not; -ERR_FORMAT: they are no JSON; -ENOMEM. */
int metric_parse(enum found_kind kind, const char *data, size_t len,
                 const char *name, double *ret);
/* The same for a JSON object, or NULL, of values that were saved (struct manifest). */
bool metric_of_state(const char *state, const char *name, double *ret);
/* Says why that file says nothing. Returns rc. */
int metric_fail(int rc, const char *checkpoint, const char *file, struct error *e);

#endif
