/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which machine this is, for those who speak of a process to somebody else: a pid
 * and a start time mean the same process only where the name of the machine is
 * the same.
 */
#ifndef MUSTER_BASE_MACHINE_H
#define MUSTER_BASE_MACHINE_H

#include "base/error.h"

#include <stddef.h>

enum { MACHINE_ID_BYTES = 128 };

/* This boot of the kernel. */
int machine_boot_id(char *to, size_t size, struct error *e);

/* The boot, and what tells containers of one kernel apart: the space of pids, and
 * the host's name. One word; size MACHINE_ID_BYTES. */
void machine_id(char *to, size_t size);

#endif
