/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/keep.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/avoided.h"
#include "ckpt/held.h"
#include "ckpt/saver.h"
#include "ckpt/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int keep_take_best(struct ckpt_keep *keep, const char *text)
{
    bool is_highest = str_ends(text, ":max");
    size_t len = strlen(text) - (is_highest || str_ends(text, ":min") ? 4 : 0);

    if (len == 0 || len >= sizeof(keep->metric)) {
        return -EINVAL;
    }
    memcpy(keep->metric, text, len);
    keep->metric[len] = '\0';
    keep->rule.is_highest = is_highest;
    return 0;
}

/* Whether it is one, and how good. */
static void look(struct io *io, int root, const struct ckpt_keep *keep,
                 const char *name, struct retain_item *item)
{
    struct step s = {0};

    item->is_whole = step_open(io, root, name, &s, NULL) == 0;
    item->has_metric = item->is_whole && keep->metric[0] &&
                       metric_of_state(s.manifest.state, keep->metric, &item->metric);
    step_close(&s);
}

/* One that is not whole goes only where its program was killed in the middle of it. */
static int remove_one(struct io *io, int root, const char *name, const struct retain_item *item,
                      struct error *e)
{
    int rc = 0;

    if (item->is_removed && !held_is(root, name)) {
        rc = step_remove(io, root, name, e);
    } else if (!item->is_whole && !item->is_apart) {
        rc = saver_remove(io, root, name, e);
    }
    return rc < 0 ? rc : 0;
}

int keep_apply(struct io *io, int root, const struct ckpt_keep *keep, const char *saved,
               const char *avoided, bool *ret_lacks_best, struct error *e)
{
    _free_ struct step_entry *entries = NULL;
    _free_ struct retain_item *items = NULL;
    size_t n = 0;
    int rc = step_list(io, root, &entries, &n, e), first = rc;
    bool has_broken = false, lacks_best = false;

    if (rc < 0) {
        return rc;
    }
    items = calloc(n + 1, sizeof(*items));
    if (!items) {
        return error_set(e, ENOMEM, "look at checkpoints");
    }
    for (size_t i = 0; i < n; i++) {
        struct retain_item *at = &items[i];

        at->step = entries[i].step;
        at->has_step = true;
        at->is_apart = avoided_has_name(avoided, entries[i].name);
        if (!at->is_apart) {
            look(io, root, keep, entries[i].name, at);
        }
        at->is_pinned = !at->is_whole || (saved && strcmp(entries[i].name, saved) == 0);
    }
    retain_mark(&keep->rule, items, n);
    lacks_best = keep->metric[0] && retain_lacks_best(&keep->rule, items, n);
    for (size_t i = n; i-- > 0;) {
        rc = remove_one(io, root, entries[i].name, &items[i], first ? NULL : e);
        first = first ? first : rc;
        has_broken = has_broken || !items[i].is_whole;
    }
    if (has_broken) {
        (void)step_sweep(io, root, NULL);
    }
    if (ret_lacks_best) {
        *ret_lacks_best = lacks_best;
    }
    return first;
}
