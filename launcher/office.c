/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/office.h"

#include "base/clock.h"

void office_begin(struct office *o)
{
    o->good_ms = UINT64_MAX;
    atomic_init(&o->until_ms, UINT64_MAX);
}

/* The same word again gets no more time by a clock that has gone on asleep. The clock
 * that counts is read first: whatever comes between the two makes it less. */
void office_set(struct office *o, uint64_t good_ms)
{
    uint64_t boot_ms = clock_boot_ms(), mono_ms = clock_mono_ms();
    uint64_t left_ms = good_ms > mono_ms ? good_ms - mono_ms : 0;

    if (good_ms == o->good_ms) {
        return;
    }
    o->good_ms = good_ms;
    atomic_store(&o->until_ms, good_ms == UINT64_MAX ? UINT64_MAX
                                                     : boot_ms + left_ms);
}

bool office_holds(const struct office *o)
{
    uint64_t until_ms = atomic_load(&o->until_ms);

    return until_ms == UINT64_MAX || clock_boot_ms() < until_ms;
}
