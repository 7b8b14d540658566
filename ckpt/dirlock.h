/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One writer at a time in a directory, whose temporary names the next one knows, and
 * takes away when that writer was killed. Not every filesystem locks directories (NFS
 * does not, nor does Lustre everywhere): there each writer has temporary names of its
 * own, and those of whoever was killed stay.
 */
#ifndef MUSTER_CKPT_DIRLOCK_H
#define MUSTER_CKPT_DIRLOCK_H

enum { DIRLOCK_SUFFIX_BYTES = 10 };

/* Locks `dir` until it is closed. The suffix is for temporary names: "" where it is
 * locked, else what nobody else has. 0; -EBUSY: somebody else has it; -errno. */
int dirlock_take(int dir, char ret_suffix[DIRLOCK_SUFFIX_BYTES]);

#endif
