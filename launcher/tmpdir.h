/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where mpirun has its own files on this machine. It fails without such a place, and
 * of the reason only its log tells.
 */
#ifndef MUSTER_LAUNCHER_TMPDIR_H
#define MUSTER_LAUNCHER_TMPDIR_H

#include "base/error.h"

/* Whether mpirun can make it, as far as can be told without making anything; a
 * filesystem that does not answer soon may do so later. 0 or -ERR_USAGE, naming the
 * variable and the directory. */
int tmpdir_check(struct error *e);

#endif
