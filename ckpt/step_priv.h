/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to step*.c.
 *
 *   step.c         finding, opening and verifying
 *   step_save.c    saving
 *   step_remove.c  removing
 *   step_blame.c   what is damaged
 */
#ifndef MUSTER_CKPT_STEP_PRIV_H
#define MUSTER_CKPT_STEP_PRIV_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names inside a checkpoint's directory. */
#define STEP_COMMIT "COMMIT"
#define STEP_COMMIT_NEW ".COMMIT.new" /* while it is written */
#define STEP_COMMIT_OLD ".COMMIT.old" /* while the rest is removed */
#define STEP_MANIFEST "manifest.json"
#define STEP_INDEX "tensors.index"
#define STEP_SAVER ".saver" /* until it has a COMMIT (ckpt/saver.h) */

/* 1: there is a file of that name in the directory; 0: there is none; else nobody can tell. */
int step_look_for(struct io *io, int dir, const char *name);

/* Its manifest is there, which is before COMMIT is; or nobody can tell. */
bool step_is_sealed(struct io *io, int dir);

/* Takes COMMIT away, and leaves that on the disk: nothing else may go before. */
int step_uncommit(struct io *io, int dir);

#endif
