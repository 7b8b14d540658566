/* SPDX-License-Identifier: Apache-2.0 */
/* A status to write, and that which is in a run directory. For tests. */
#ifndef MUSTER_LAUNCHER_STATUS_BED_H
#define MUSTER_LAUNCHER_STATUS_BED_H

#include "launcher/status.h"

/* Of a node and so many workers; the caller's, as that which is read. */
struct run_status *status_bed_make(enum status_run_state state, size_t n_workers);
struct run_status *status_bed_read(const char *run_dir);

#endif
