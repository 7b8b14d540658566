/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints stay. */
#ifndef MUSTER_CKPT_KEEP_H
#define MUSTER_CKPT_KEEP_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stddef.h>

/* Removes all but the `keep` newest that are checkpoints; `saved`, the name of one that
 * was just saved, is among those that stay, whatever its step. Those that are `avoided`
 * (ckpt/avoided.h; or NULL) stay, too, and are not counted. What is no checkpoint is left
 * alone: somebody may be writing it. Goes on over failures, and returns the first: 0 or a
 * negative code. */
int keep_newest(struct io *io, int root, size_t keep, const char *saved,
                const char *avoided, struct error *e);

#endif
