/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to step*.c.
 *
 *   step.c         finding, opening and verifying
 *   step_save.c    saving
 *   step_remove.c  removing
 */
#ifndef MUSTER_CKPT_STEP_PRIV_H
#define MUSTER_CKPT_STEP_PRIV_H

#include "ckpt/io.h"

/* Names inside a checkpoint's directory. */
#define STEP_COMMIT "COMMIT"
#define STEP_COMMIT_NEW ".COMMIT.new" /* while it is written */
#define STEP_MANIFEST "manifest.json"

/* Takes COMMIT away, and leaves that on the disk: nothing else may go before. */
int step_uncommit(struct io *io, int dir);

#endif
