/* SPDX-License-Identifier: Apache-2.0 */
/* What a copy between two agents cannot be faster than, for copy_bench. */
#ifndef MUSTER_LAUNCHER_COPY_BARE_H
#define MUSTER_LAUNCHER_COPY_BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two threads, each on a processor of its own where there are several, and TCP by way of
 * loopback between them, on which `chunk` bytes were sent. They do nothing but sign and
 * send, and receive and check, or with `hides` seal and open, a frame at a time, as calls
 * that wait. Returns the
 * nanoseconds until the sender has heard that all is at `to`, or 0 with errno set. */
uint64_t copy_bare_ns(const char *from, char *to, uint64_t len, size_t chunk,
                      bool hides);

#endif
