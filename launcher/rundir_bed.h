/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of run directories: a place for them, and for their index. */
#ifndef MUSTER_LAUNCHER_RUNDIR_BED_H
#define MUSTER_LAUNCHER_RUNDIR_BED_H

#include "launcher/rundir.h"

#include <stdbool.h>
#include <sys/stat.h>

/* First and last of all; the current directory in between is a new one. */
void bed_up(void);
void bed_down(void);

bool bed_has_mode(const char *path, mode_t mode);
/* The caller destroys it. */
struct rundir *bed_create(const struct rundir_params *p);
void bed_write(const char *path, const char *text);

#endif
