/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is swept: it pulls muster's own checkpoints, and those of others, from a
 * store (ckpt/store_bed.h) into a directory, where there may be some of them already: of a
 * pull that was ended, at one point or another, before anything was on the disk.
 */
#ifndef MUSTER_CKPT_SWEEP_PULL_BED_H
#define MUSTER_CKPT_SWEEP_PULL_BED_H

#include "ckpt/sweep_bed.h"

enum { SWEEP_PULL_NEWEST = 50 };

void sweep_pull_prepare(const char *path, struct sweep_told *told);
/* And with what is there already, in SWEEP_PULL_TO. */
void sweep_pull_prepare_left(const char *path, struct sweep_told *told);
#define SWEEP_PULL_TO "to"
void sweep_pull_play(const char *path, unsigned run, struct sweep_told *told);
bool sweep_pull_is_kept(const char *path, const struct sweep_told *told);

#endif
