/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pruning a directory: muster ckpt prune, and that of copies. Those that stay because
 * they are the newest, or the best, were verified to the last byte before any other one
 * goes, by the first of the two here, and by the second when they were copied. Only what
 * is whole is removed, as somebody may be writing the rest: but for saves whose program is known to
 * have ended, or to which nobody has written for as long as was said (ckpt_unfinished.h).
 */
#include <config.h>

#include "launcher/ckpt_verbs.h"

#include "base/cleanup.h"
#include "ckpt/dirlock.h"
#include "ckpt/found.h"
#include "ckpt/held.h"
#include "ckpt/step.h"
#include "ckpt/tracker.h"
#include "ckpt/watch.h"
#include "launcher/ckpt_keep.h"
#include "launcher/ckpt_progress.h"
#include "launcher/ckpt_stop.h"
#include "launcher/ckpt_unfinished.h"
#include "launcher/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct prune {
    const char *path;
    int dir;                    /* borrowed */
    struct ckpt_keep keep;
    const char *copied;         /* just now, by this process; NULL: all is read here */
    size_t n;
    struct found *all;          /* newest first */
    struct retain_item *items;
    size_t *series;             /* of each (found_series()) */
    struct found_set *sets;     /* likewise */
    bool *is_read;              /* and found to be right */
    bool *goes_unfinished;
    struct ckpt_unfinished unfinished;
    struct strlist named;       /* by the programs (ckpt/tracker.h) */
};

static void prune_release(struct prune *p)
{
    free(p->all);
    free(p->items);
    free(p->series);
    free(p->sets);
    free(p->is_read);
    free(p->goes_unfinished);
    strlist_release(&p->named);
}

/* Nobody prunes what a run looks after, nor what is copied into just now. */
static int lock(const struct prune *p, struct error *e)
{
    char suffix[DIRLOCK_SUFFIX_BYTES];
    int rc = dirlock_take(p->dir, suffix);

    return rc == -EBUSY ? error_text(e, EBUSY, "a run watches %s, or somebody prunes it or "
                                     "copies into it just now: nothing is removed", p->path)
           : rc < 0     ? error_set(e, -rc, "lock %s", p->path)
                        : 0;
}

static int check(struct prune *p, size_t i, bool is_deep)
{
    struct ckpt_progress progress;
    struct found_facts facts;
    struct error why = {0};
    int rc = found_check(io_system(), p->dir, &p->all[i], false, &facts, &why);

    if (rc == 0 && is_deep) {
        rc = found_check(ckpt_progress_start(&progress, "reading", p->all[i].name,
                                             facts.bytes), p->dir, &p->all[i], true, &facts, &why);
        ckpt_progress_end(&progress);
    }
    p->is_read[i] = rc == 0 && is_deep;
    p->items[i].is_whole = rc == 0;
    p->items[i].is_pinned |= rc != 0 || tracker_has(&p->named, p->all[i].name) ||
                             (p->copied && strcmp(p->copied, p->all[i].name) == 0);
    if (rc < 0) {
        p->items[i].has_metric = false;
        p->items[i].n_files = 0;
    } else if (facts.is_counted) {
        p->items[i].n_files = 1; /* whatever others have, it lacks nothing */
    }
    if (rc == -ENOENT && !p->copied && p->all[i].kind == FOUND_MUSTER) {
        p->goes_unfinished[i] = ckpt_unfinished_may_go(&p->unfinished, p->all[i].name, &why);
    } else if (rc < 0 && !p->copied) {
        bool is_unknown = ckpt_is_unknown(p->dir, p->all[i].name, rc, &facts);

        ckpt_tell("left alone", ckpt_state_name(rc, is_unknown), &why);
    }
    return rc;
}

/* What the newest are, by all of their bytes; of the others the structure is enough. */
static void look(struct prune *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct retain_item *at = &p->items[i];

        at->step = p->all[i].step;
        at->has_step = p->all[i].has_step;
        at->series = p->series[i];
        at->set = p->sets[i].first;
        at->n_files = p->sets[i].n_files;
        at->is_short = p->sets[i].is_short;
        at->is_apart = at->series == FOUND_NO_SERIES;
        if (at->is_apart) {
            if (at->has_step && !p->all[i].is_inside && !p->copied) {
                ckpt_keep_leave(p->all[i].name, p->all[i].is_part);
            }
            continue;
        }
        if (check(p, i, !p->copied && retain_n_newer(p->items, p->n, i, p->keep.rule.keep) <
                                          p->keep.rule.keep) < 0) {
            continue;
        }
        if (p->keep.metric[0]) {
            struct error why = {0};

            ckpt_keep_judge(at, found_metric(io_system(), p->dir, &p->all[i], p->keep.metric,
                                             &at->metric, &why), &why);
        }
    }
}

/* One that is damaged is the best of nothing. */
static void settle_best(struct prune *p)
{
    size_t best = retain_best(&p->keep.rule, p->items, p->n);

    while (best < p->n && !p->is_read[best] && check(p, best, true) < 0) {
        best = retain_best(&p->keep.rule, p->items, p->n);
    }
}

/* Nor is it of those with most files. */
static void settle_largest(struct prune *p, size_t series)
{
    size_t largest = retain_largest(p->items, p->n, series), i = largest;

    while (i < p->n && p->items[i].step == p->items[largest].step) {
        const struct retain_item *at = &p->items[i];
        bool is_of_it = i == largest || (at->set && at->set == p->items[largest].set);

        if (is_of_it && !p->copied && !p->is_read[i] && check(p, i, true) < 0) {
            i = largest = retain_largest(p->items, p->n, series);
        } else {
            i++;
        }
    }
}

/* Of those that would go, what somebody copies stays; whether there is one. */
static bool pin_held(struct prune *p)
{
    bool is_one = false;

    for (size_t i = 0; i < p->n; i++) {
        struct error why = {0};

        if (p->items[i].is_removed && held_is(p->dir, p->all[i].name)) {
            p->items[i].is_pinned = is_one = true;
            error_text(&why, EBUSY, "%s: somebody copies it", p->all[i].name);
            ckpt_tell("left alone", "in use", &why);
        }
    }
    return is_one;
}

static int remove_one(const struct prune *p, size_t i, struct error *e)
{
    int rc;

    if (p->all[i].kind != FOUND_MUSTER) {
        return watch_remove(p->dir, p->path, p->all[i].name, e);
    }
    rc = p->goes_unfinished[i]
             ? ckpt_unfinished_remove(&p->unfinished, p->all[i].name, e)
             : step_remove_all(io_system(), p->dir, p->all[i].name, e);
    return rc < 0 ? error_wrap(e, "%s", p->path) : 0;
}

/* The error is that of the first that could not be removed; others are told at once. */
static void take_failure(const struct error *why, int *rc, struct error *e)
{
    if (*rc < 0) {
        ckpt_tell("left", "not removed", why);
        return;
    }
    *e = *why;
    *rc = -why->code;
}

static bool goes(const struct prune *p, size_t i)
{
    return p->items[i].is_removed || p->goes_unfinished[i];
}

/* The oldest goes first, and one that cannot be removed keeps no other one. A signal waits
 * until one is gone: what is left of it would be nobody's. */
static int remove_all(const struct prune *p, bool is_dry, struct error *e)
{
    struct ckpt_line line = {0};
    size_t n = 0, of = 0;
    int rc = 0;

    for (size_t i = 0; i < p->n; i++) {
        of += goes(p, i);
    }
    for (size_t i = p->n; i-- > 0 && !ckpt_stop_came();) {
        struct error why = {0};
        int one;

        if (!goes(p, i)) {
            continue;
        }
        if (!is_dry && !p->copied) {
            ckpt_line_count(&line, "removing checkpoints", n++, of);
        }
        one = is_dry ? 0 : remove_one(p, i, &why);
        ckpt_line_hide(&line);
        if (one < 0) {
            take_failure(&why, &rc, e);
        } else if (!p->copied) {
            ckpt_print_name(p->path, p->all[i].name);
        }
    }
    ckpt_line_end(&line);
    return rc;
}

/* What is left of others that were begun to be removed, now or before; `rc` is what came of
 * it now. */
static int sweep(const struct prune *p, int rc, struct error *e)
{
    int begun = watch_sweep(p->dir, p->path, rc < 0 ? NULL : e);

    rc = rc < 0 ? rc : begun;
    begun = step_sweep(io_system(), p->dir, rc < 0 ? NULL : e);
    return rc < 0 ? rc : begun < 0 ? error_wrap(e, "%s", p->path) : 0;
}

static int run(struct prune *p, bool is_dry, struct error *e)
{
    int rc = is_dry ? 0 : lock(p, e);

    rc = rc < 0 ? rc : found_list(io_system(), p->dir, &p->all, &p->n, e);
    if (rc < 0) {
        return rc;
    }
    rc = tracker_read(p->dir, &p->named);
    if (rc < 0) {
        return error_set(e, -rc, "look at %s", p->path);
    }
    p->items = calloc(p->n + 1, sizeof(*p->items));
    p->series = found_series(p->all, sizeof(*p->all), p->n);
    p->sets = p->series ? found_sets_in(io_system(), p->dir, p->all, p->n, p->series) : NULL;
    p->is_read = calloc(p->n + 1, sizeof(*p->is_read));
    p->goes_unfinished = calloc(p->n + 1, sizeof(*p->goes_unfinished));
    if (!p->items || !p->sets || !p->is_read || !p->goes_unfinished) {
        return error_set(e, ENOMEM, "look at %s", p->path);
    }
    rc = ckpt_unfinished_begin(&p->unfinished, e);
    if (rc < 0) {
        return error_wrap(e, "%s", p->path);
    }
    look(p);
    settle_best(p);
    for (size_t i = 0; i < p->n && p->keep.rule.keep > 0; i++) {
        if (p->items[i].series == i) {
            settle_largest(p, i);
        }
    }
    rc = ckpt_keep_check(&p->keep, p->items, p->n, p->path, e);
    if (rc < 0) {
        return rc;
    }
    retain_mark(&p->keep.rule, p->items, p->n);
    if (pin_held(p)) {
        retain_mark(&p->keep.rule, p->items, p->n);
    }
    ckpt_stop_begin();
    rc = remove_all(p, is_dry, e);
    rc = is_dry ? rc : sweep(p, rc, e);
    ckpt_stop_end();
    ckpt_unfinished_hint(&p->unfinished);
    return rc;
}

/* What is in a checkpoint are its parts, whatever they are called. */
static int open_place(const char *path, struct error *e)
{
    struct found f;
    _close_ int above = -1;
    int rc = ckpt_place_itself(path, &above, &f, e), dir;

    if (rc > 0) {
        return error_text(e, EINVAL, "%s is a checkpoint itself: expected the directory that "
                          "it is in", path);
    }
    dir = rc < 0 ? rc : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return rc == 0 && dir < 0 ? error_set(e, errno, "open %s", path) : dir;
}

int ckpt_verb_prune(const struct ckpt_options *o, const char *path)
{
    __attribute__((cleanup(prune_release))) struct prune p = {.path = path};
    _close_ int dir = -1;
    struct error e = {0};
    int rc = ckpt_keep_take(o, &p.keep, &e);

    if (rc < 0) {
        error_wrap(&e, "ckpt prune");
        return command_fail(&e);
    }
    dir = open_place(path, &e);
    if (dir < 0) {
        return command_fail(&e);
    }
    p.dir = dir;
    p.unfinished = (struct ckpt_unfinished){.dir = dir, .still_ms = o->unfinished_ms,
                                            .is_dry = o->is_dry};
    return run(&p, o->is_dry, &e) < 0 ? command_fail(&e) : EXIT_OK;
}

int ckpt_prune_copies(int dir, const char *path, uint64_t keep, const char *copied,
                      struct error *e)
{
    __attribute__((cleanup(prune_release))) struct prune p = {
        .path = path, .dir = dir, .keep.rule.keep = keep, .copied = copied,
        .unfinished.dir = dir};

    return run(&p, false, e);
}
