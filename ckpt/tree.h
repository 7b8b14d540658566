/* SPDX-License-Identifier: Apache-2.0 */
/* Files below a directory by their paths, where no part may be a link. */
#ifndef MUSTER_CKPT_TREE_H
#define MUSTER_CKPT_TREE_H

#include "base/error.h"
#include "ckpt/digest.h"
#include "ckpt/io.h"

#include <stdbool.h>
#include <stdint.h>

/* For reading; or for writing, made if missing with the directories before it. A
 * descriptor, or -errno (-ELOOP for a link). */
int tree_open(int dir, const char *path);
int tree_create_file(int dir, const char *path);
/* 0, -errno; one that is not there is no error. */
int tree_unlink(int dir, const char *path);
/* What has been made on the way is on the disk: each directory of the path. */
int tree_sync(int dir, const char *path);

/* digest_of_blocks() of a file's first `bytes` bytes. 0, -ENODATA where it is
 * shorter, and others. */
int tree_digest(struct io *io, int fd, uint64_t bytes, struct digest *ret);

/* Calls `each` for every file below, with its path and size. -ENOTSUP names what is
 * neither file nor directory. */
typedef int tree_f(void *arg, const char *path, uint64_t bytes, struct error *e);
int tree_walk(int dir, tree_f *each, void *arg, struct error *e);

/* Removes all below and the directory `name` itself. 0, -errno; a missing one is
 * no error. */
int tree_remove(int dir, const char *name);

#endif
