/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a run's events.jsonl (doc/formats.md), for commands. The file may be
 * long, cut short or damaged: only its end is read, and lines that do not parse
 * are passed over. Blocks on the filesystem.
 */
#ifndef MUSTER_LAUNCHER_RUN_EVENTS_H
#define MUSTER_LAUNCHER_RUN_EVENTS_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

enum { RUN_EVENTS_MAX_BYTES = 1 << 20 };

/* The newest `max` events that lie in the last RUN_EVENTS_MAX_BYTES of the file,
 * oldest first, as an array of objects that each have a number `t` and a string
 * `event`. A missing file has none. The caller decrefs *ret. */
int run_events_read(const char *path, size_t max, json_t **ret,
                    struct error *e);

#endif
