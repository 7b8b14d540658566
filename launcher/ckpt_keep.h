/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints `muster ckpt prune` leaves, in a directory or in a store. */
#ifndef MUSTER_LAUNCHER_CKPT_KEEP_H
#define MUSTER_LAUNCHER_CKPT_KEEP_H

#include "ckpt/metric.h"
#include "ckpt/retain.h"
#include "launcher/ckpt_report.h"

struct ckpt_keep {
    struct retain_rule rule;
    char metric[METRIC_NAME_BYTES]; /* "" for none */
};

/* 0; -ERR_USAGE: a value that is none, or no --keep. */
int ckpt_keep_take(const struct ckpt_options *o, struct ckpt_keep *ret,
                   struct error *e);

#endif
