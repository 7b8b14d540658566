/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing what is not to be kept. A checkpoint is renamed first, so that nobody takes
 * what is left of it, at any moment, for one that is broken.
 */
#include <config.h>

#include "ckpt/watch.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/avoided.h"
#include "ckpt/held.h"
#include "ckpt/tracker.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char old[] = ".muster-old-";

static bool is_whole(const struct watch_entry *entry)
{
    return entry->is_checked && entry->rc == 0;
}

/* Those that may be the best: not those that are known to be broken, nor those that are
 * written to, for the best of the others would go. Where that cannot be read it may be any,
 * and stays. */
static void take_metric(const struct watch *w, int dir, const struct watch_entry *entry,
                        const char *best, struct retain_item *to)
{
    int rc = best && entry->is_still && (!entry->is_checked || entry->rc == 0)
                 ? found_metric(w->io, dir, &entry->found, best, &to->metric, NULL) : 0;

    to->has_metric = rc > 0;
    to->is_pinned |= rc < 0;
}

/* Nothing stays as the best that is not whole. What was there when this run began was
 * looked at by nobody: it is read now. */
static void settle_best(struct watch *w, int dir, const struct retain_rule *rule,
                        struct retain_item *items)
{
    size_t best = retain_best(rule, items, w->n);

    while (best < w->n && !w->entries[best].is_checked) {
        (void)watch_check(w, dir, &w->entries[best]);
        items[best].is_whole = items[best].has_metric = is_whole(&w->entries[best]);
        items[best].is_pinned |= !w->entries[best].is_still;
        best = retain_best(rule, items, w->n);
    }
}

/* Likewise of those with most files, each of which is read. */
static void settle_largest(struct watch *w, int dir, struct retain_item *items, size_t series)
{
    size_t largest = retain_largest(items, w->n, series), i = largest;

    while (i < w->n && items[i].step == items[largest].step) {
        struct watch_entry *entry = &w->entries[i];
        bool is_of_it = i == largest || (items[i].set && items[i].set == items[largest].set);

        if (is_of_it && !entry->is_checked && watch_check(w, dir, entry) < 0) {
            items[i].n_files = 0;
            i = largest = retain_largest(items, w->n, series);
        } else {
            items[i].is_whole |= is_of_it;
            i++;
        }
    }
}

/* To be held against others; 0: it is not whole. */
static size_t n_files(const struct watch_entry *entry)
{
    return !entry->is_still || (entry->is_checked && entry->rc < 0) ? 0
           : entry->facts.is_counted                                ? 1
                                                                    : entry->set.n_files;
}

int watch_retain(struct watch *w, int dir, const struct retain_rule *rule,
                 const char *best, const char *pinned,
                 void (*remove)(void *arg, const struct watch_entry *entry),
                 void *arg)
{
    _free_ struct retain_item *items = calloc(w->n + 1, sizeof(*items));
    _strlist_ struct strlist named = {0};
    int rc = items ? tracker_read(dir, &named) : -ENOMEM;
    bool lacks_best;
    size_t n_removed = 0;

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < w->n; i++) {
        const struct watch_entry *entry = &w->entries[i];

        items[i] = (struct retain_item){
            .step = entry->found.step,
            .has_step = entry->found.has_step,
            .is_whole = is_whole(entry),
            .series = entry->series,
            .set = entry->set.first,
            .n_files = n_files(entry),
            .is_short = entry->set.is_short,
            .is_apart = entry->series == FOUND_NO_SERIES ||
                        avoided_has_name(w->avoided, entry->found.name),
            .is_pinned = !entry->is_still || entry->found.kind == FOUND_MUSTER ||
                         !watch_is_of_ours(w, entry) ||
                         tracker_has(&named, entry->found.name) ||
                         (w->held && strcmp(w->held, entry->found.name) == 0) ||
                         held_is(dir, entry->found.name) ||
                         (pinned && strcmp(pinned, entry->found.name) == 0),
        };
        take_metric(w, dir, entry, best, &items[i]);
    }
    settle_best(w, dir, rule, items);
    for (size_t i = 0; i < w->n; i++) {
        if (items[i].series == i) {
            settle_largest(w, dir, items, i);
        }
    }
    retain_mark(rule, items, w->n);
    lacks_best = best && retain_best(rule, items, w->n) == w->n;
    for (size_t i = 0; i < w->n; i++) {
        if (items[i].is_removed) {
            remove(arg, &w->entries[i]);
            n_removed++;
        }
    }
    return lacks_best && n_removed > 0 ? -ENODATA : 0;
}

int watch_remove(int dir, const char *path, const char *name, struct error *e)
{
    char to[NAME_MAX + 1], whole[PATH_MAX];
    int rc;

    /* Of a long name its beginning: what is left of another one goes first. */
    snprintf(to, sizeof(to), "%s%.*s", old, (int)(NAME_MAX + 1 - sizeof(old)), name);
    rc = fs_path(whole, sizeof(whole), e, "%s/%s", path, to);
    rc = rc < 0 ? rc : fs_remove_tree(whole, e);
    /* Its name has gone from the disk before any of its files has. */
    if (rc == 0 && (renameat(dir, name, dir, to) < 0 || fsync(dir) < 0)) {
        rc = errno == ENOENT ? -ENOENT : error_set(e, errno, "remove %s/%s", path, name);
    }
    return rc == -ENOENT ? 0 : rc < 0 ? rc : fs_remove_tree(whole, e);
}

struct sweep {
    char path[PATH_MAX];
    int rc; /* of the first that could not be removed */
    struct error *e;
};

static int sweep_one(void *arg, const char *name)
{
    struct sweep *s = arg;
    char whole[PATH_MAX];
    int rc;

    if (!str_starts(name, old)) {
        return 0;
    }
    rc = fs_path(whole, sizeof(whole), s->rc ? NULL : s->e, "%s/%s", s->path, name);
    rc = rc < 0 ? rc : fs_remove_tree(whole, s->rc ? NULL : s->e);
    s->rc = s->rc ? s->rc : rc;
    return 0;
}

int watch_sweep(int dir, const char *path, struct error *e)
{
    struct sweep s = {.e = e};
    int rc;

    str_copy(s.path, sizeof(s.path), path);
    rc = io_system()->ops->list(io_system(), dir, sweep_one, &s);
    return s.rc < 0 ? s.rc : rc < 0 ? error_set(e, -rc, "list %s", path) : 0;
}
