/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_strays.h"

#include "base/str.h"

#include <string.h>

/* That one; else a place for it: an empty one, or that of who was seen first. */
static struct snap_stray *find(struct snap_strays *s, const char *name)
{
    struct snap_stray *place = &s->all[0];

    for (size_t i = 0; i < SNAP_STRAYS_MAX; i++) {
        struct snap_stray *at = &s->all[i];

        if (strcmp(at->name, name) == 0) {
            return at;
        }
        if (place->name[0] && (!at->name[0] || at->seen_ms < place->seen_ms)) {
            place = at;
        }
    }
    return place;
}

bool snap_strays_take(struct snap_strays *s, const char *name, uint64_t now_ms,
                      uint64_t known_ms)
{
    struct snap_stray *at = find(s, name);

    if (strcmp(at->name, name) != 0) {
        str_copy(at->name, sizeof(at->name), name);
        at->seen_ms = now_ms;
        return false;
    }
    if (known_ms < at->seen_ms || known_ms - at->seen_ms < SNAP_STRAYS_MS) {
        return false;
    }
    at->name[0] = '\0';
    return true;
}
