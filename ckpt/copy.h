/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint, copied into another directory: there it is whole, verified and on the
 * disk, or it is not there. Killed at any point it leaves a name with a dot in front,
 * which the next copy of that name takes away (but where directories cannot be locked:
 * ckpt/dirlock.h), or, of one of muster's own, what was never finished. Files are
 * 0600, directories 0700, whatever those were that it is copied from. Meanwhile that is held
 * (ckpt/held.h).
 */
#ifndef MUSTER_CKPT_COPY_H
#define MUSTER_CKPT_COPY_H

#include "base/error.h"
#include "ckpt/found.h"

/* Whether a copy in `to_path`, which need not be there yet, would be another one: -EINVAL
 * where that is the directory that the checkpoint lies in, or one in the checkpoint
 * itself. For who is about to make that directory. */
int copy_check_place(int from, const struct found *f, const char *to_path,
                     struct error *e);

/* Whether that path, of something that need not be there, is the directory of the checkpoint
 * or leads into it. */
bool copy_is_inside(int from, const struct found *f, const char *path);

/* Whether it is in `to` already: 1: whole, and the same, byte for byte; 0: it is not
 * there, not finished, or damaged. -EEXIST: another one is, or something that is not
 * known; errors of reading: nobody knows. */
int copy_is_there(struct io *io, int from, const struct found *f, int to,
                  const char *to_path, struct found_facts *ret, struct error *e);

/* Of one that is whole there: whether the copy lacks files of it, and is the same in all else,
 * as where it was made before a script had put its last file there. 0: it is the same;
 * -EEXIST: it is another one; errors of reading. */
int copy_has_grown(struct io *io, int from, const struct found *f, int to,
                   const char *to_path, struct error *e);

/* How many files it has, and their bytes: of others than muster's own all are copied, also
 * those that found_check() does not look at. What cannot be looked at does not count. */
void copy_count(int dir, const struct found *f, struct found_facts *facts);

/* `from` and `to` are descriptors of directories, `to_path` is that of `to`, which is
 * locked from then on until it is closed. All is read by `io`, once to be copied and once
 * to be verified; nothing is left where that fails. One that is there already is left as
 * it is where it is whole, or cannot be read, but replaced where it has grown since
 * (copy_has_grown()); a single file is replaced: whether it is the same is for
 * copy_is_there() to say. -EAGAIN: it was written to meanwhile; -EBUSY: somebody else copies
 * into that directory; -EEXIST: another one has its name there; -ENOSPC: there is no room
 * for it, and nothing was written; -ERR_FORMAT and -ENOENT as of found_check(); -EINVAL:
 * there are links in it. */
int copy_checkpoint(struct io *io, int from, const struct found *f, int to,
                    const char *to_path, struct found_facts *ret, struct error *e);

#endif
