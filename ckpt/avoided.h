/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints from which nobody starts for now, though they may be whole: their workers
 * died of them (rendezvous/avoid.h). Absolute paths, a line each, as workers have them in
 * MUSTER_AVOID_PATHS. They are not counted among those that are kept, and not removed.
 */
#ifndef MUSTER_CKPT_AVOIDED_H
#define MUSTER_CKPT_AVOIDED_H

#include <stdbool.h>

/* Whether that is one of them; `lines` may be NULL. */
bool avoided_has_path(const char *lines, const char *path);

/* Whether one of them has that name, in whatever directory: for names that are given
 * once, as those of muster's checkpoints. */
bool avoided_has_name(const char *lines, const char *name);

#endif
