/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/hang_cpu.h"

enum {
    PERCENT = 1,     /* of the time: less is housekeeping */
    NOISE_TICKS = 2, /* user and system time are rounded, each for itself */
};

bool hang_cpu_see(struct hang_cpu *c, uint64_t ticks, uint64_t now_ms,
                  uint64_t hz)
{
    uint64_t past_ms = now_ms - c->since_ms;
    uint64_t used = ticks > c->ticks ? ticks - c->ticks : 0;
    bool is_first = c->since_ms == 0;
    bool worked = !is_first && used > NOISE_TICKS &&
                  used * 1000 * 100 >= past_ms * hz * PERCENT;

    if (worked || is_first || ticks < c->ticks ||
        past_ms >= HANG_CPU_WINDOW_MS) {
        *c = (struct hang_cpu){.ticks = ticks, .since_ms = now_ms};
    }
    return worked;
}
