/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.json of a run directory, replaced whole; also on a disk that has no
 * room left. For that day two spare files lie beside it, as large as a state
 * without its lists. A status that finds no room is written over one of them,
 * which takes none, and changes places with status.json.
 *
 * Everything here blocks as long as the filesystem does. One writer at a time.
 */
#ifndef MUSTER_LAUNCHER_STATUS_FILE_H
#define MUSTER_LAUNCHER_STATUS_FILE_H

#include "base/error.h"
#include "launcher/status.h"

enum { STATUS_SPARE_BYTES = 16 * 1024 };

/* Writes `s` as <dir>/status.json; durably once the run is over. 0, or a negative
 * code; with *ret_reduced set the file is written all the same, as far as there
 * was room, with `trouble` saying so to its readers. */
int status_file_write(const char *dir, const struct run_status *s,
                      bool *ret_reduced, struct error *e);

/* Makes the spare files, where they are not there already. */
int status_file_reserve(const char *dir, struct error *e);

/* Removes them: the last status is written. */
void status_file_unreserve(const char *dir);

#endif
