/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory into which programs write checkpoints of their own (ckpt/found.h),
 * looked at again and again: which of them are whole, and from which one to start
 * again.
 *
 * Nobody says when a checkpoint is finished, and clocks of file servers are not
 * ours. So one that was found the same by two looks, one after the other, counts as
 * still; it is verified once, and again only after it has changed. What is not whole
 * while programs run may only be unfinished: it is left alone until they have ended.
 * Then, too, it is touched only where that is proven (watch_is_broken()), for the
 * directory may have other files in it, and checkpoints of programs that are not known.
 *
 * Links among the checkpoints (a `last` that points to one) are passed over.
 */
#ifndef MUSTER_CKPT_WATCH_H
#define MUSTER_CKPT_WATCH_H

#include "base/error.h"
#include "ckpt/found.h"
#include "ckpt/retain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct watch_entry {
    struct found found;
    size_t series;        /* as found_series() says, among these entries */
    struct found_set set; /* as found_sets() does */
    uint64_t mark;   /* of its names, sizes and times: another one, and it was
                        written to */
    bool is_still;   /* the last two looks found the same */
    bool is_checked; /* and what follows is of this mark */
    bool is_told;    /* for the caller; false again after a change */
    bool is_new;     /* it has come, or was written to, since the first look, or since
                        the caller has said that it is not */
    int rc;          /* of found_check() */
    struct found_facts facts;
    struct error why;
};

/* Zero-initialise, but for `io`. */
struct watch {
    struct io *io; /* borrowed: of checks */
    struct watch_entry *entries; /* owned; the newest first */
    size_t n;
    /* How many ranks write now; 0: not known. What comes after the first look is
     * theirs. Two that lack files of as many ranks show that only the others save:
     * then it is 0 again. */
    unsigned world;
    bool has_looked;
    /* Nobody starts from these for now, and they count for nothing: names in the
     * directory, a path each (ckpt/avoided.h). Borrowed; NULL for none. */
    const char *avoided;
    /* This one is read by somebody, and stays as long as it is: a name. Borrowed; NULL for
     * none. Others that are (ckpt/held.h) stay as well. */
    const char *held;
};

void watch_release(struct watch *w);
#define _watch_ __attribute__((cleanup(watch_release)))

/* What is there now. On failure everything is as it was. */
int watch_look(struct watch *w, int dir, struct error *e);

/* The newest that is still and was not checked, or NULL; none that is older than
 * `n_whole` that are whole, and say their step by their name; several files that are one
 * (found_sets()) count once, when each is whole and none is missing. */
struct watch_entry *watch_next(struct watch *w, size_t n_whole);

/* Nobody writes any more: all that was found counts as still. */
void watch_settle(struct watch *w);

/* Reads all of it. -EAGAIN, and it is not checked: it was written to meanwhile. */
int watch_check(struct watch *w, int dir, struct watch_entry *entry);

/* For when nobody writes any more: the newest that is whole and not avoided, or NULL; of
 * several files that are one the first, if all are. Then `on_passed` is called for each
 * newer one that is not whole, with its entry; where nothing but a file is missing, with a
 * copy of that of the first, which says so (and is checked where others alone tell); not
 * for files of another format that are only called like one. Looks first. */
int watch_choose(struct watch *w, int dir,
                 void (*on_passed)(void *arg, struct watch_entry *entry),
                 void *arg, struct watch_entry **ret, struct error *e);

/* Of one that was passed: whether it is proven to be broken, so that it may be set
 * aside. Its name says a step, and it is cut or has wrong bytes; or it has a number, and
 * another one with the same name but for numbers is whole, while this one is damaged, or
 * unfinished and lacks a file that the other has: which then `why` says, too. So it is with
 * one that is unfinished by what others have alone (lacks_parts), unless there is another one
 * that has as little. Never one without a number in its name, or of muster. */
bool watch_is_broken(const struct watch *w, int dir, struct watch_entry *entry);

/* Whether it is whole, or is named like one that is, but for numbers. */
bool watch_is_of_ours(const struct watch *w, const struct watch_entry *entry);

/* Whether its name is text (UTF-8): one of another name is never whole, for nobody can be
 * told of it. */
bool watch_can_say(const struct watch_entry *entry);

/* How many there are without files of another format. */
size_t watch_count(const struct watch *w);

/* Of its names, sizes and times. 0 or -errno; -ELOOP for a link. */
int watch_mark(int dir, const char *name, uint64_t *ret);

/* Which go by that rule, `pinned` (or NULL) never, nor what a program names as its last
 * (ckpt/tracker.h), nor one whose step is only inside; `best` is the metric by which one
 * is kept, or NULL: that one is whole, and is read here if it was not yet. Calls `remove`
 * for each. 0 or -errno: then for none; but -ENODATA: some go, and none has the metric by
 * which the best is to stay. */
int watch_retain(struct watch *w, int dir, const struct retain_rule *rule,
                 const char *best, const char *pinned,
                 void (*remove)(void *arg, const struct watch_entry *entry),
                 void *arg);

/* Removes one, in `dir` of that path: whoever is killed meanwhile leaves a name with
 * a dot in front, which watch_sweep() takes away: all that it can, the error is that of the
 * first that it cannot. */
int watch_remove(int dir, const char *path, const char *name, struct error *e);
int watch_sweep(int dir, const char *path, struct error *e);

/* Renames `name` to <name>.broken (or .broken-2, ...), where neither programs nor
 * found_list() take it for a checkpoint, and puts `why` in a file beside it where
 * there is room. Never over anything. */
int watch_set_aside(int dir, const char *name, const char *why,
                    char ret[FOUND_NAME_BYTES], struct error *e);

#endif
