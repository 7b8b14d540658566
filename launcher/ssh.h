/* SPDX-License-Identifier: Apache-2.0 */
/* The remote shell that muster and mpirun are to use. */
#ifndef MUSTER_LAUNCHER_SSH_H
#define MUSTER_LAUNCHER_SSH_H

#include "base/str.h"

/* The option's value, else $MUSTER_SSH, else what Open MPI was told to use; NULL
 * where nobody says: ssh. Borrowed from the environment. */
const char *ssh_command(const char *option);

/* Its words, or ssh that asks nobody and gives up early. */
void ssh_argv(const char *option, struct strlist *to);

#endif
