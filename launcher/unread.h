/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input that nobody will read: workers have /dev/null, whatever the command that
 * starts the run has been given.
 */
#ifndef MUSTER_LAUNCHER_UNREAD_H
#define MUSTER_LAUNCHER_UNREAD_H

#include <stdbool.h>

/* Whether a file, pipe or socket has bytes that are there now and not read. A
 * terminal has none: what is typed there may be for the next command. */
bool unread_is_there(int fd);

/* Says what becomes of standard input, if there is any. */
void unread_note(bool is_mpi);

#endif
