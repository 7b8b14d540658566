/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Until when this agent leads, for threads that act for it. A lead that was stopped, or
 * whose machine was, finds out only when its loop goes on; by then another one may
 * lead, and its threads may go on before the loop does. So they ask here right before
 * whatever others would see. By CLOCK_BOOTTIME: it goes on while a machine sleeps.
 *
 * One thread sets it, any may ask.
 */
#ifndef MUSTER_LAUNCHER_OFFICE_H
#define MUSTER_LAUNCHER_OFFICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct office {
    _Atomic uint64_t until_ms; /* by that clock; UINT64_MAX: for ever */
    uint64_t good_ms;          /* as it was set last */
};

void office_begin(struct office *o);
/* Its word is good until then, by the monotonic clock; UINT64_MAX: for ever. */
void office_set(struct office *o, uint64_t good_ms);
bool office_holds(const struct office *o);

#endif
