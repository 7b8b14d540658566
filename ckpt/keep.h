/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints stay in a directory, as somebody has said it. */
#ifndef MUSTER_CKPT_KEEP_H
#define MUSTER_CKPT_KEEP_H

#include "base/error.h"
#include "ckpt/io.h"
#include "ckpt/metric.h"
#include "ckpt/retain.h"

struct ckpt_keep {
    struct retain_rule rule;
    char metric[METRIC_NAME_BYTES]; /* of the best one; "" for none */
};

/* METRIC, METRIC:min or METRIC:max, into `metric` and the rule. 0; -EINVAL: it is none of
 * them, and nothing is changed. */
int keep_take_best(struct ckpt_keep *keep, const char *text);

/* Removes all that `keep` does not want, the oldest first. `saved`, the name of one that
 * was just saved (or NULL), stays, whatever its step; so do those that are `avoided`
 * (ckpt/avoided.h; or NULL), which are not counted. What is no checkpoint is left alone:
 * somebody may be writing it; but what a removal that was cut short has left goes, and a save
 * of which it is known that its program has ended (ckpt/saver.h). Goes on
 * over failures, and returns the first: 0 or a negative code. *ret_lacks_best (or NULL): some
 * go, and none has the metric by which the best is to stay. */
int keep_apply(struct io *io, int root, const struct ckpt_keep *keep, const char *saved,
               const char *avoided, bool *ret_lacks_best, struct error *e);

#endif
