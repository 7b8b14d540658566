/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_levels.h"

static bool is_due(const struct snap_levels *l, size_t level, uint64_t began_ms,
                   uint64_t every_ms)
{
    return !l->has[level] || every_ms == 0 ||
           (began_ms > l->last_ms[level] && began_ms - l->last_ms[level] >= every_ms);
}

unsigned snap_levels_choose(const struct snap_levels *l, uint64_t began_ms,
                            const uint64_t every_ms[INTERVAL_N_LEVELS])
{
    bool disk = is_due(l, INTERVAL_DISK, began_ms, every_ms[INTERVAL_DISK]);
    bool partner = is_due(l, INTERVAL_PARTNER, began_ms, every_ms[INTERVAL_PARTNER]);

    return (disk ? 1u << INTERVAL_DISK : 0) |
           (disk || partner ? 1u << INTERVAL_PARTNER : 0);
}

void snap_levels_note(struct snap_levels *l, unsigned levels, uint64_t began_ms)
{
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        if (levels & 1u << i && (!l->has[i] || began_ms > l->last_ms[i])) {
            l->has[i] = true;
            l->last_ms[i] = began_ms;
        }
    }
}

void snap_levels_forget(struct snap_levels *l, unsigned levels)
{
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        l->has[i] = l->has[i] && !(levels & 1u << i);
    }
}

bool snap_levels_replaces(const struct snap_standing *later,
                          const struct snap_standing *earlier)
{
    bool is_later = snap_is_later(later->age, earlier->age);

    return is_later && (later->is_on_disk ||
                        (later->is_whole && (later->is_copied || !earlier->is_copied)));
}
