/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a program puts things on the disk in the right order, told from its system
 * calls (tests/lib/tracer.h). A tracer cannot take the power away; but what would be
 * lost then can be seen by the order:
 *
 * - A file or directory gets a name by rename() only when all that was written in it,
 *   and for a file in its directory, is synced, with its names.
 * - At a promise (the caller says when) every rename before it is synced, too.
 * - What an earlier program has left (the caller says where) is taken for unsynced, bytes
 *   and names, and is all synced at the end.
 * - A file `last` (that makes the others count) is gone from the disk, or has another
 *   name there, before any other file of its directory is removed. Or the directory has
 *   got a name with a dot in front, which counts for nothing: then that is on the disk
 *   before.
 */
#ifndef MUSTER_TESTS_LIB_SYNC_ORDER_H
#define MUSTER_TESTS_LIB_SYNC_ORDER_H

#include "tests/lib/tracer.h"

struct sync_order;

/* `root` is the absolute path of what is looked at, all else is passed over; files
 * whose names end in what `except` has, as ".part .tmp", may be unsynced, NULL for none; `last`
 * as above, or NULL. */
struct sync_order *sync_order_create(const char *root, const char *except,
                                     const char *last);
void sync_order_destroy(struct sync_order *o);

/* Before the first call: what is in the directory `path`, and was perhaps never synced. */
void sync_order_left(struct sync_order *o, const char *path);
/* A call, of which both ends are to be given. */
void sync_order_call(struct sync_order *o, const struct tracer_call *call);
/* The program was told now that what it did is durable. */
void sync_order_promise(struct sync_order *o);

/* The program has come to its end, and its last promise was for all of it. */
void sync_order_end(struct sync_order *o);

/* How many faults there were, and the first one in words. */
unsigned sync_order_faults(const struct sync_order *o, const char **ret_first);
/* How many renames were looked at. */
unsigned sync_order_renames(const struct sync_order *o);

#endif
