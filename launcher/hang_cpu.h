/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is CPU time progress, or housekeeping? The kernel counts it in ticks (10 ms), of
 * which some are the noise of rounding, so what a rank uses is judged over a while.
 * Pure: time is an input.
 */
#ifndef MUSTER_LAUNCHER_HANG_CPU_H
#define MUSTER_LAUNCHER_HANG_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum { HANG_CPU_WINDOW_MS = 3000 }; /* so long little use adds up, at least */

/* Since when so much counts. Zero-initialised it has seen nothing. */
struct hang_cpu {
    uint64_t ticks, since_ms;
};

/* A rank has used `ticks` until now, of which there are `hz` a second. True if what came
 * since is progress; the next counts from here then. Never at the first look. `ticks`
 * may fall: processes of the rank have ended. */
bool hang_cpu_see(struct hang_cpu *c, uint64_t ticks, uint64_t now_ms,
                  uint64_t hz);

#endif
