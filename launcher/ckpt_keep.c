/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints stay, as --keep, --every and --best say it: the same in a directory
 * and in a store. */
#include <config.h>

#include "launcher/ckpt_keep.h"

#include <errno.h>
#include <string.h>

int ckpt_keep_take(const struct ckpt_options *o, struct ckpt_keep *ret, struct error *e)
{
    *ret = (struct ckpt_keep){0};
    if (o->keep < 1 && o->unfinished_ms == 0) {
        return error_text(e, ERR_USAGE, "--keep N is needed, and at least 1");
    }
    if (o->every < 0) {
        return error_text(e, ERR_USAGE, "option --every: expected 1 or more");
    }
    ret->rule.keep = (uint64_t)o->keep;
    ret->rule.every = (uint64_t)o->every;
    /* loss:mni is nobody's metric. */
    if (o->best && (keep_take_best(ret, o->best) < 0 ||
                    (strchr(o->best, ':') && strcmp(ret->metric, o->best) == 0))) {
        return error_text(e, ERR_USAGE, "option --best: expected METRIC, METRIC:min or "
                          "METRIC:max");
    }
    return 0;
}

void ckpt_keep_leave(const char *name, bool is_part)
{
    struct error why = {0};

    error_text(&why, EINVAL, is_part ? "%s: it belongs to a checkpoint, and is none by itself"
                                     : "%s: others are called by their step, and its number "
                                       "need not be one", name);
    ckpt_tell("left alone", is_part ? "a part" : "no step", &why);
}

void ckpt_keep_judge(struct retain_item *item, int rc, const struct error *why)
{
    item->has_metric = rc > 0;
    if (rc < 0) {
        item->is_pinned = true;
        ckpt_tell("left alone", "unreadable", why);
    }
}

int ckpt_keep_check(const struct ckpt_keep *keep, const struct retain_item *items,
                    size_t n, const char *place, struct error *e)
{
    if (!keep->metric[0] || n == 0 || retain_best(&keep->rule, items, n) < n) {
        return 0;
    }
    return error_text(e, ENODATA, "none in %s has a metric '%s': nothing is removed",
                      place, keep->metric);
}
