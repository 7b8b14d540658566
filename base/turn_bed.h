/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that wait for something of a loop. */
#ifndef MUSTER_BASE_TURN_BED_H
#define MUSTER_BASE_TURN_BED_H

#include <stdbool.h>
#include <uv.h>

/* Turns the loop until *n reaches `want`; false after a minute. */
bool turn_until(uv_loop_t *loop, const int *n, int want);

#endif
