/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_commit.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "ckpt/avoided.h"
#include "ckpt/held.h"
#include "ckpt/metric.h"
#include "ckpt/step.h"
#include "launcher/office_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* 1: it is a checkpoint; 0: it is none. Else nobody can tell, or it is damaged, or another
 * one's: then nothing of it is touched. */
static int is_committed(struct io *io, int root, const char *name, const char *uuid,
                        struct error *e)
{
    _step_ struct step found = {0};
    struct error why = {0};
    int rc = step_open(io, root, name, &found, &why);

    if (rc == -ENOENT) {
        return 0;
    }
    if (rc == 0 && strcmp(found.commit.uuid, uuid) != 0) {
        return error_text(e, EEXIST, "%s is of another save", name);
    }
    return rc == 0 ? 1 : error_text(e, why.code, "%s", why.text);
}

/* 0: it is one now; 1: it was one already. */
static int commit(const struct snap_commit *c, struct io *io, int root,
                  const char *name, struct error *e)
{
    _cleanup_(step_save) struct step_save *save = NULL;
    int rc = step_save_join(io, root, name, &save, e), is;

    rc = rc < 0 ? rc : gather_commit(save, &c->gather, e);
    if (rc == 0) {
        return 0;
    }
    is = is_committed(io, root, name, c->gather.uuid, NULL);
    if (is > 0) { /* by one that leads no more, just now */
        if (e) {
            *e = (struct error){0};
        }
        return 1;
    }
    if (is == 0 && save) {
        step_save_abort(save);
    }
    if (is == 0) {
        step_remove(io, root, name, NULL);
    }
    if (c->n_written < c->gather.n_ranks) {
        return error_text(e, ECONNABORTED, "%u of %u ranks have said that it is "
                          "written, and no other one will", c->n_written,
                          c->gather.n_ranks);
    }
    return rc;
}

static bool is_it(const char *name, const char *other)
{
    return other && strcmp(name, other) == 0;
}

/* Whether it is one, and how good. */
static int look(const struct snap_commit *c, struct io *io, int root, const char *name,
                struct retain_item *item)
{
    struct step found = {0};
    int rc = step_open(io, root, name, &found, NULL);

    item->is_whole = rc == 0;
    item->has_metric = rc == 0 && c->best &&
                       metric_of_state(found.manifest.state, c->best, &item->metric);
    step_close(&found);
    return rc;
}

/* Of a step below all that are on their way, but it may be one that began just now. */
static bool is_stray(const struct snap_commit *c, const char *name)
{
    return !c->strays ||
           snap_strays_take(c->strays, name, clock_mono_ms(), c->known_ms);
}

/* Whether no other run saves there: asked before each thing that could be its. */
static bool may_remove(const struct snap_commit *c, struct io *io, int root)
{
    return !c->lease || snap_lease_hold(c->lease, io, root, NULL) == 0;
}

/* What was never finished goes once all that are newest are of later steps: it would
 * not stay if it were a checkpoint. What is damaged is nobody's to remove. */
static bool is_pinned(const struct snap_commit *c, int rc, const char *name,
                      const char *saved, uint64_t step, uint64_t oldest)
{
    if (rc == 0) {
        return is_it(name, saved) || is_it(name, c->pinned) ||
               is_it(name, c->copied) || is_it(name, c->source) ||
               is_it(name, c->checking);
    }
    return rc != -ENOENT || step >= oldest || step >= c->busy_from || !is_stray(c, name);
}

/* It stays as one that is right, or as nobody knows of any. */
static bool is_proof(const struct snap_commit *c, const struct retain_item *item,
                     const char *name)
{
    return item->is_whole && (is_it(name, c->verified) || (c->verified && !c->verified[0]));
}

/* What goes by the rule; whether more would if one that is kept were proven right. */
static bool mark(const struct snap_commit *c, const struct step_entry *entries,
                 struct retain_item *items, size_t n)
{
    _free_ struct retain_item *later = calloc(n + 1, sizeof(*later));
    bool awaits;

    if (later) {
        memcpy(later, items, n * sizeof(*later));
        retain_mark(&c->rule, later, n);
    }
    for (size_t i = 0; i < n; i++) {
        items[i].is_pinned |= is_proof(c, &items[i], entries[i].name);
    }
    retain_mark(&c->rule, items, n);
    awaits = false;
    for (size_t i = 0; later && i < n; i++) {
        awaits |= later[i].is_removed && !items[i].is_removed;
    }
    return awaits;
}

/* The newest stay, as many as are to be kept, and what the rule wants besides; and the
 * newest that was read again: one of which nobody knows that it is right does not take
 * the place of one that is. */
static void tidy(const struct snap_commit *c, struct io *io, int root,
                 const char *saved)
{
    _free_ struct step_entry *entries = NULL;
    _free_ struct retain_item *items = NULL;
    size_t n = 0;
    uint64_t n_whole = 0, oldest = 0; /* of those that stay as the newest */
    bool is_due = c->verified != NULL, awaits;

    if (c->rule.keep == 0 || !may_remove(c, io, root) ||
        step_list(io, root, &entries, &n, NULL) < 0 ||
        !(items = calloc(n + 1, sizeof(*items)))) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct step_entry *at = &entries[i];
        int rc;

        items[i] = (struct retain_item){.step = at->step, .has_step = true};
        items[i].is_apart = avoided_has_name(c->avoided, at->name);
        if (items[i].is_apart) {
            items[i].is_pinned = true;
            continue;
        }
        rc = look(c, io, root, at->name, &items[i]);
        if (rc == 0 && ++n_whole == c->rule.keep) {
            oldest = at->step;
        }
        if (rc == 0 && n_whole <= c->rule.keep) {
            is_due = is_due && !is_it(at->name, c->verified);
        }
        items[i].is_pinned = is_pinned(c, rc, at->name, saved, at->step, oldest);
    }
    awaits = mark(c, entries, items, n);
    if (c->ret_lacks_best) {
        *c->ret_lacks_best = c->best && retain_lacks_best(&c->rule, items, n);
    }
    for (size_t i = 0; i < n; i++) {
        if ((items[i].is_removed || (!items[i].is_whole && !items[i].is_pinned)) &&
            !held_is(root, entries[i].name) && may_remove(c, io, root)) {
            step_remove(io, root, entries[i].name, NULL);
        }
    }
    if (c->ret_is_due) {
        *c->ret_is_due = is_due;
    }
    if (c->ret_awaits) {
        *c->ret_awaits = awaits;
    }
}

/* Of this checkpoint, if it is one (launcher/agent_snap_check.c tidies up after none). */
static void drop_parts(const struct snap_commit *c, struct io *io, int root, const char *name)
{
    _cleanup_(step_save) struct step_save *save = NULL;

    if (step_save_join(io, root, name, &save, NULL) == 0) {
        gather_tidy(save, c->gather.n_ranks);
    }
}

static void tidy_all(const struct snap_commit *c, struct io *io)
{
    _close_ int root = open(c->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[STEP_NAME_BYTES];

    step_name(c->gather.step, c->gather.uuid, name);
    if (root >= 0) {
        drop_parts(c, io, root, name);
        tidy(c, io, root, name);
    }
}

void snap_tidy(const struct snap_commit *c, struct io *io)
{
    struct office_io guarded;

    if (c->office) {
        office_io_begin(&guarded, io, c->office);
        io = &guarded.io;
    }
    tidy_all(c, io);
}

bool snap_is_short(const struct snap_commit *c, struct io *io, unsigned n)
{
    _close_ int root = open(c->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _step_ struct step found = {0};
    char name[STEP_NAME_BYTES];
    struct statvfs fs;
    uint64_t left;

    step_name(c->gather.step, c->gather.uuid, name);
    if (root < 0 || fstatvfs(root, &fs) < 0 || step_open(io, root, name, &found, NULL) < 0) {
        return true;
    }
    left = (uint64_t)(geteuid() == 0 ? fs.f_bfree : fs.f_bavail) * fs.f_frsize;
    return fs.f_blocks > 0 && left / n < found.commit.total_bytes;
}

/* One that another run is in the way of is none, as those on a full disk. */
static int commit_alone(const struct snap_commit *c, struct io *io, int root,
                        const char *name, struct error *e)
{
    int rc = c->lease ? snap_lease_hold(c->lease, io, root, e) : 0;

    if (rc < 0 && rc != -ECANCELED) { /* else whoever leads next commits it */
        step_remove(io, root, name, NULL);
    }
    return rc < 0 ? rc : commit(c, io, root, name, e);
}

/* One that was made by a lead before need not be: others of its step may have come since. */
static bool is_last(struct io *io, int root, uint64_t step, const char *name)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    if (step_list(io, root, &entries, &n, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        struct step s = {0};

        if (entries[i].step == step && step_open(io, root, entries[i].name, &s, NULL) == 0) {
            step_close(&s);
            return strcmp(entries[i].name, name) == 0;
        }
    }
    return false;
}

static int commit_or_remove(const struct snap_commit *c, struct io *io,
                            const struct error *why, struct error *e)
{
    _close_ int root = open(c->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[STEP_NAME_BYTES];
    int rc;

    if (root < 0) {
        return why ? error_text(e, why->code, "%s", why->text)
                   : error_set(e, errno, "open %s", c->root);
    }
    step_name(c->gather.step, c->gather.uuid, name);
    /* Also of one that was thought to be cut: those who have heard from the lead
     * before this one do not tell again. */
    rc = is_committed(io, root, name, c->gather.uuid, e);
    if (rc == 0 && why) {
        step_remove(io, root, name, NULL);
        return error_text(e, why->code, "%s", why->text);
    }
    rc = rc == 0 ? commit_alone(c, io, root, name, e) : rc;
    if (c->ret_was_there) {
        *c->ret_was_there = rc > 0;
    }
    if (c->ret_is_last) {
        *c->ret_is_last = rc >= 0 && is_last(io, root, c->gather.step, name);
    }
    return rc < 0 ? rc : 0;
}

int snap_commit(const struct snap_commit *c, struct io *io,
                const struct error *why, struct error *e)
{
    struct office_io guarded;
    int rc;

    if (!c->office) {
        return commit_or_remove(c, io, why, e);
    }
    office_io_begin(&guarded, io, c->office);
    rc = commit_or_remove(c, &guarded.io, why, e);
    if (rc == 0) {
        if (e) {
            *e = (struct error){0}; /* what was in the way of making it one */
        }
        return 0;
    }
    if (guarded.was_over || !office_holds(c->office)) {
        return error_text(e, ESTALE, "this agent may lead no more: another one may have "
                          "begun to");
    }
    if (rc == -ESTALE) { /* a server's word, not ours */
        rc = -EIO;
        if (e) {
            e->code = EIO;
        }
    }
    return rc;
}
