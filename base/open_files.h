/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many files a process may have open. Programs that muster is made of wait for
 * connections, and one that nobody can accept is not refused: whoever makes it waits. So
 * each of them asks at its start whether there is enough for it to work at all; for
 * workers their agent needs more, and says so when they cannot be started.
 */
#ifndef MUSTER_BASE_OPEN_FILES_H
#define MUSTER_BASE_OPEN_FILES_H

#include "base/error.h"

enum { OPEN_FILES_MIN = 64 };

/* There may be `n`, and OPEN_FILES_MIN, or the soft limit is raised to that. -EMFILE: the
 * hard one forbids it, with numbers. */
int open_files_need(unsigned n, struct error *e);
/* As many as the hard limit allows. */
void open_files_raise(void);

#endif
