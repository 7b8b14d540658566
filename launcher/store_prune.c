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

struct prune {
    const struct store *st;
    const struct store_prune *how;
    size_t n;
    struct store_entry *all;
    struct retain_item *items;
    size_t *series;         /* of each (found_series()) */
    struct found_set *sets; /* likewise */
};

static void prune_release(struct prune *p)
{
    free(p->all);
    free(p->items);
    free(p->series);
    free(p->sets);
}

/* --- what stays --- */

static bool is_pushed(const struct prune *p, size_t i)
{
    return p->how->pushed && strcmp(p->all[i].name, p->how->pushed->name) == 0;
}

/* What is to be pushed is as it lies here. */
static int read_metric(const struct prune *p, size_t i, double *ret, struct error *e)
{
    const char *metric = p->how->keep->metric;

    return p->st->is_dry && is_pushed(p, i)
               ? found_metric(io_system(), p->how->dir, &p->how->pushed->found, metric, ret, e)
               : store_metric(p->st, &p->all[i], metric, ret, e);
}

/* What could not be looked at stays, whatever it is. */
static void take_metric(struct prune *p, size_t i)
{
    const struct store_entry *entry = &p->all[i];
    struct retain_item *to = &p->items[i];
    struct error why = {0};

    if (!store_is_known(entry->rc)) {
        to->is_pinned = true;
        ckpt_tell("left alone", found_state_name(entry->rc), &entry->why);
    } else if (p->how->keep->metric[0] && to->is_whole) {
        ckpt_keep_judge(to, read_metric(p, i, &to->metric, &why), &why);
    }
}

/* Whatever is newer than those that stay, and not whole, may be on its way. Of which
 * series one is its name says, as in a directory. */
static void mark(struct prune *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct found *f = &p->all[i].found;
        bool is_whole = p->all[i].rc == 0;

        p->items[i] = (struct retain_item){
            .step = f->step, .series = p->series[i], .has_step = f->has_step,
            .set = p->sets[i].first, .is_short = p->sets[i].is_short,
            .n_files = is_whole ? p->sets[i].n_files : 0,
            .is_whole = is_whole && f->has_step,
            .is_pinned = is_pushed(p, i),
            .is_apart = p->series[i] == FOUND_NO_SERIES};
        if (!p->items[i].is_apart || !store_is_known(p->all[i].rc)) {
            take_metric(p, i);
        } else if (f->has_step && !f->is_inside) {
            ckpt_keep_leave(p->all[i].name, f->is_part);
        }
    }
    retain_mark(&p->how->keep->rule, p->items, p->n);
}

/* --- what is there --- */

/* As if it had been pushed. */
static int add_pushed(struct prune *p, struct error *e)
{
    const struct parcel *from = p->how->pushed;
    struct store_entry *more = NULL, *to;
    size_t i = 0;

    while (i < p->n && !is_pushed(p, i)) {
        i++;
    }
    if (i == p->n) {
        more = realloc(p->all, (p->n + 2) * sizeof(*more));
        if (!more) {
            return error_set(e, ENOMEM, "look at a store");
        }
        p->all = more;
        p->n++;
    }
    to = &p->all[i];
    *to = (struct store_entry){.has_seal = true, .found = from->found,
                               .bytes = from->bytes, .n_files = from->n};
    str_copy(to->name, sizeof(to->name), from->name);
    qsort(p->all, p->n, sizeof(*p->all), store_newest_first);
    return 0;
}

static int list(struct prune *p, struct error *e)
{
    int rc = store_list(p->st, false, &p->all, &p->n, e);

    store_progress_end();
    rc = rc == 0 && p->st->is_dry && p->how->pushed ? add_pushed(p, e) : rc;
    if (rc < 0) {
        return rc;
    }
    p->items = calloc(p->n + 1, sizeof(*p->items));
    p->series = found_series(&p->all->found, sizeof(*p->all), p->n);
    p->sets = p->series ? found_sets(&p->all->found, sizeof(*p->all), p->n, p->series) : NULL;
    return p->items && p->sets ? 0 : error_set(e, ENOMEM, "look at a store");
}

int store_prune(const struct store *st, const struct store_prune *how, struct error *e)
{
    __attribute__((cleanup(prune_release))) struct prune p = {.st = st, .how = how};
    int rc = list(&p, e);

    if (rc < 0) {
        return rc;
    }
    mark(&p);
    rc = ckpt_keep_check(how->keep, p.items, p.n, "the store", e);
    for (size_t i = 0; i < p.n && rc == 0; i++) {
        if (!p.items[i].is_removed) {
            continue;
        }
        rc = st->is_dry ? 0 : store_remove(st, p.all[i].name, e);
        store_progress_end();
        if (rc < 0) {
            return error_wrap(e, "remove %s", p.all[i].name);
        }
        how->on_removed(how->arg, p.all[i].name);
    }
    return rc;
}

/* --- the verb --- */

static void on_removed(void *arg, const char *name)
{
    ckpt_print_name(arg, name);
}

int store_verb_prune(const struct ckpt_options *o, const char *uri)
{
    _store_place_ struct store_place place = {0};
    _free_ char *copy = strdup(uri);
    struct ckpt_keep keep;
    const struct store_prune how = {.keep = &keep, .on_removed = on_removed, .arg = copy};
    struct error e = {0};
    int rc = o->unfinished_ms
                 ? error_text(&e, ERR_USAGE, "--unfinished: expected a directory, found '%s'", uri)
                 : ckpt_keep_take(o, &keep, &e);

    if (rc < 0) {
        error_wrap(&e, "ckpt prune");
        return store_fail(&e);
    }
    rc = copy ? store_place_open(o, uri, &place, &e)
              : error_set(&e, ENOMEM, "prune");
    rc = rc < 0 ? rc : store_prune(&place.store, &how, &e);
    return rc < 0 ? store_fail(&e) : EXIT_OK;
}
