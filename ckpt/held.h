/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint that somebody reads or saves, and that is not to be removed meanwhile: whoever
 * copies one, and each rank that writes one itself, has a shared lock on it, on its directory
 * or its file, which goes with his process.
 * It says nothing to programs, and of who is at it on another host, or where there are no
 * such locks (ckpt/dirlock.h), nobody knows.
 */
#ifndef MUSTER_CKPT_HELD_H
#define MUSTER_CKPT_HELD_H

#include <stdbool.h>

/* What to close once it may go; -1: it cannot be held. */
int held_take(int dir, const char *name);

/* Gives it back, and closes it: children that were forked meanwhile have the lock as well, and
 * would keep it for as long as they live. */
void held_give(int fd);

/* All of it, for who removes it: what to close then; -EBUSY: somebody holds it; other negative
 * codes: nobody can tell. */
int held_take_all(int dir, const char *name);

/* Whether somebody else holds it now. */
bool held_is(int dir, const char *name);

#endif
