/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dead processes left in a directory where they met: lock files (*.lock,
 * held by flock for as long as their owner lives), listening sockets, and plain
 * files that belong to them. While one lock is held or one socket is listened
 * on, somebody lives there, and nothing is touched; a listener that SIGKILL has
 * been sent to counts as dead.
 *
 * Whoever makes such a directory must be ready to make it again: it may go
 * between mkdir and the first lock or socket. A socket must listen from the
 * moment that its name is there (bind to another name, listen, rename).
 */
#ifndef MUSTER_BASE_LEFTOVER_H
#define MUSTER_BASE_LEFTOVER_H

#include "base/error.h"

/* Removes the directory with all that is in it if nobody lives there. 1 if it is
 * gone (or was), 0 if somebody lives there, -ENOTEMPTY if it has what does not
 * belong there (directories, devices), else -errno. Links are not followed. */
int leftover_remove(const char *path, struct error *e);

/* Whether somebody lives there: as above, without removing anything. */
int leftover_is_inhabited(const char *path, struct error *e);

#endif
