/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By how much steps are slower while a save is on its way to a level: what that costs the
 * program beyond the time for which it is held up. A step counts for a level if that was
 * busy all the time that the step took, and as a quiet one if none was; one in which
 * something began or ended counts for nothing, for it has the saving itself in it. Of
 * several levels the highest counts: what goes to the disk goes to the partner, too.
 *
 * The newest SLOWDOWN_WINDOW count, by their median: a step that evaluates, or compiles,
 * is no slowdown. Pure: times come in.
 */
#ifndef MUSTER_CKPT_SLOWDOWN_H
#define MUSTER_CKPT_SLOWDOWN_H

#include "ckpt/interval_levels.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SLOWDOWN_WINDOW = 32,
    SLOWDOWN_ENOUGH = 8, /* steps of a kind, to say anything of it */
};

struct slowdown_steps {
    unsigned n, next;
    double seconds[SLOWDOWN_WINDOW];
};

/* All zero is a new one. */
struct slowdown {
    bool is_busy[INTERVAL_N_LEVELS];
    uint64_t since_ms[INTERVAL_N_LEVELS]; /* it is so, or is not */
    struct slowdown_steps quiet, busy[INTERVAL_N_LEVELS];
};

/* Something is on its way to that level from now on, or nothing is any more. */
void slowdown_turn(struct slowdown *s, enum interval_level_id level, bool is_busy,
                   uint64_t now_ms);
/* Other workers, whose steps may take another time. */
void slowdown_restart(struct slowdown *s);
/* Steps of `seconds` each have come to an end now, in `span_s` all of them together. What
 * is no time is ignored. */
void slowdown_step(struct slowdown *s, double seconds, double span_s, uint64_t now_ms);
/* Steps take so much longer meanwhile, 0.04 for 4 percent, never less than 0. False: too
 * few of either kind were seen. */
bool slowdown_of(const struct slowdown *s, enum interval_level_id level, double *ret);

#endif
