/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints `muster ckpt prune` leaves, in a directory or in a store. */
#ifndef MUSTER_LAUNCHER_CKPT_KEEP_H
#define MUSTER_LAUNCHER_CKPT_KEEP_H

#include "ckpt/keep.h"
#include "launcher/ckpt_report.h"

/* 0; -ERR_USAGE: a value that is none, or no --keep, where it is not only about what came to
 * no end: then none is removed by the rule. */
int ckpt_keep_take(const struct ckpt_options *o, struct ckpt_keep *ret,
                   struct error *e);

/* Tells that one is left alone: it has a number, and may be anything; or it is a part of
 * a checkpoint. */
void ckpt_keep_leave(const char *name, bool is_part);

/* What came of asking for its metric: 1, 0, or a negative code, and then it may be the best:
 * it stays, and that is told. */
void ckpt_keep_judge(struct retain_item *item, int rc, const struct error *why);

/* 0; -ENODATA: a best one is to stay, and none at `place` has that metric, so that any of
 * them may be it. */
int ckpt_keep_check(const struct ckpt_keep *keep, const struct retain_item *items,
                    size_t n, const char *place, struct error *e);

#endif
