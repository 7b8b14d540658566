/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program itself says is its last checkpoint, in a file or by a link beside them:
 *
 *   latest_checkpointed_iteration.txt   of Megatron: N, for iter_<N>/, or "release"
 *   latest, latest_universal            of DeepSpeed: a name, as global_step<N>
 *   a link                              to one of them: last.ckpt of Lightning
 *
 * That is no proof of anything. It is written before the checkpoint has finished, or over
 * what it said before, so that it may be cut; nobody starts from a checkpoint for it. But
 * the program reads it where it is started by somebody else, so what it names stays.
 */
#ifndef MUSTER_CKPT_TRACKER_H
#define MUSTER_CKPT_TRACKER_H

#include "base/str.h"
#include "ckpt/found.h"

#include <stdbool.h>
#include <stddef.h>

/* What the bytes of a file of that name name: false for nothing, as of another file. */
bool tracker_parse(const char *file, const char *data, size_t len,
                   char ret[FOUND_NAME_BYTES]);

/* All names in the directory that are named; what they are is not looked at. 0 or
 * -errno: then it is not known. Adds to *ret, which the caller owns. */
int tracker_read(int dir, struct strlist *ret);
bool tracker_has(const struct strlist *names, const char *name);

#endif
