/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two clocks. Everything that measures or waits uses the monotonic one, which
 * no administrator can set; the wall clock is for records that people read. A third
 * one, of the time since boot, goes on while the machine sleeps: for rights that end.
 */
#ifndef MUSTER_BASE_CLOCK_H
#define MUSTER_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

uint64_t clock_mono_ns(void);
uint64_t clock_mono_ms(void);
uint64_t clock_boot_ms(void);
uint64_t clock_wall_ns(void);

/* Writes e.g. 2026-11-21T03:34:00.123Z, in UTC; size at least 32. */
void clock_format(uint64_t wall_ns, char *to, size_t size);

/* Writes e.g. "12s", "3m04s", "2h05m", "5d03h"; size at least 16. */
void clock_format_span(uint64_t span_ms, char *to, size_t size);

#endif
