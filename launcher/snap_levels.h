/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which saves go on from memory of their nodes, to the partner and to the disk, where
 * not each one is to, and which of those that have stayed is of no use any more. Pure:
 * no clock, no input or output; levels are bits, 1 << enum interval_level_id.
 */
#ifndef MUSTER_LAUNCHER_SNAP_LEVELS_H
#define MUSTER_LAUNCHER_SNAP_LEVELS_H

#include "ckpt/interval_levels.h"
#include "ckpt/snap.h"

#include <stdbool.h>
#include <stdint.h>

/* When the last save began that went there, or is on its way. */
struct snap_levels {
    bool has[INTERVAL_N_LEVELS];
    uint64_t last_ms[INTERVAL_N_LEVELS];
};

/* One that began then goes to these: where nothing has gone yet, or the last one is
 * `every_ms` back. What goes to the disk goes to the partner, too: it is to outlive its
 * node meanwhile. */
unsigned snap_levels_choose(const struct snap_levels *l, uint64_t began_ms,
                            const uint64_t every_ms[INTERVAL_N_LEVELS]);
void snap_levels_note(struct snap_levels *l, unsigned levels, uint64_t began_ms);
/* One that was to go there has not got there: the next one does. */
void snap_levels_forget(struct snap_levels *l, unsigned levels);

/* How far a save is that nobody has failed of. */
struct snap_standing {
    struct snap_age age;
    bool is_whole;   /* all ranks have handed it over */
    bool is_copied;  /* all of it */
    bool is_on_disk;
};

/* Whoever could start from `earlier` can as well from `later`, whatever is lost: a
 * copy is only replaced by a copy. */
bool snap_levels_replaces(const struct snap_standing *later,
                          const struct snap_standing *earlier);

#endif
