/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints stay in a store (ckpt/retain.h), and removing the others. */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"
#include "ckpt/retain.h"
#include "launcher/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What could not be looked at stays, whatever it is. */
static void take_metric(const struct store *st, const struct store_entry *entry,
                        const char *metric, struct retain_item *to)
{
    struct error why = {0};

    if (!store_is_known(entry->rc)) {
        to->is_pinned = true;
        ckpt_tell("left alone", found_state_name(entry->rc), &entry->why);
    } else if (metric[0] && to->is_whole) {
        ckpt_keep_judge(to, store_metric(st, entry, metric, &to->metric, &why), &why);
    }
}

/* Whatever is newer than those that stay, and not whole, may be on its way. Of which
 * series one is its name says, as in a directory. */
static void mark(const struct store *st, const struct store_entry *all, size_t n,
                 const size_t *series, const struct found_set *sets,
                 const struct ckpt_keep *keep, const char *pinned,
                 struct retain_item *items)
{
    for (size_t i = 0; i < n; i++) {
        const struct found *f = &all[i].found;

        items[i] = (struct retain_item){
            .step = f->step, .series = series[i], .has_step = f->has_step,
            .set = sets[i].first, .is_short = sets[i].is_short,
            .n_files = all[i].rc == 0 ? sets[i].n_files : 0,
            .is_whole = all[i].rc == 0 && f->has_step,
            .is_pinned = strcmp(all[i].name, pinned) == 0,
            .is_apart = series[i] == FOUND_NO_SERIES};
        if (items[i].is_apart) {
            if (f->has_step && !f->is_inside) {
                ckpt_keep_leave(all[i].name, f->is_part);
            }
            continue;
        }
        take_metric(st, &all[i], keep->metric, &items[i]);
    }
    retain_mark(&keep->rule, items, n);
}

int store_prune(const struct store *st, const struct ckpt_keep *keep,
                const char *pinned,
                void (*on_removed)(void *arg, const char *name), void *arg,
                struct error *e)
{
    _free_ struct store_entry *all = NULL;
    _free_ struct retain_item *items = NULL;
    _free_ size_t *series = NULL;
    _free_ struct found_set *sets = NULL;
    size_t n = 0;
    int rc = store_list(st, false, &all, &n, e);

    if (rc < 0) {
        return rc;
    }
    items = calloc(n + 1, sizeof(*items));
    series = found_series(&all->found, sizeof(*all), n);
    sets = series ? found_sets(&all->found, sizeof(*all), n, series) : NULL;
    if (!items || !sets) {
        return error_set(e, ENOMEM, "look at a store");
    }
    mark(st, all, n, series, sets, keep, pinned, items);
    rc = ckpt_keep_check(keep, items, n, "the store", e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (!items[i].is_removed) {
            continue;
        }
        if (!st->is_dry && store_remove(st, all[i].name, e) < 0) {
            return error_wrap(e, "remove %s", all[i].name);
        }
        on_removed(arg, all[i].name);
    }
    return rc;
}

static void on_removed(void *arg, const char *name)
{
    ckpt_print_name(arg, name);
}

int store_verb_prune(const struct ckpt_options *o, const char *uri)
{
    _store_place_ struct store_place place = {0};
    _free_ char *copy = strdup(uri);
    struct ckpt_keep keep;
    struct error e = {0};
    int rc = ckpt_keep_take(o, &keep, &e);

    if (rc < 0) {
        error_wrap(&e, "ckpt prune");
        return store_fail(&e);
    }
    rc = copy ? store_place_open(o, uri, &place, &e)
              : error_set(&e, ENOMEM, "prune");
    rc = rc < 0 ? rc : store_prune(&place.store, &keep, "", on_removed, copy, &e);
    return rc < 0 ? store_fail(&e) : EXIT_OK;
}
