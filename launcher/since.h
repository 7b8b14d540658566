/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A time in the past, as people give it. Pure but for the time zone.
 */
#ifndef MUSTER_LAUNCHER_SINCE_H
#define MUSTER_LAUNCHER_SINCE_H

#include "base/error.h"

#include <stdint.h>

/* "90s" or "1h" before `now_ns`; "2026-11-22", "2026-11-22T08:00" or
 * "2026-11-22T08:00:00", local time or, with a Z behind it, UTC; or seconds since
 * 1970 with @ before them. 0, or -ERR_USAGE. */
int since_parse(const char *text, uint64_t now_ns, uint64_t *ret,
                struct error *e);

#endif
