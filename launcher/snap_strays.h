/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in a directory of checkpoints, was never finished, and is no save of which
 * the lead has heard. It may be of an agent that has just begun to write, and whose word
 * is on its way: workers that start from an older checkpoint save at steps below those
 * that are kept. Agents say every 2 s what is not settled, so it is nobody's once it has
 * lain there for so long, and nobody has spoken of it. Pure: no clock, no files. One
 * thread at a time may call.
 */
#ifndef MUSTER_LAUNCHER_SNAP_STRAYS_H
#define MUSTER_LAUNCHER_SNAP_STRAYS_H

#include "ckpt/step.h"
#include "launcher/snap_tally.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SNAP_STRAYS_MAX = 64, /* more of them wait for others to go */
    SNAP_STRAYS_MS = SNAP_TALLY_LOST_MS,
};

struct snap_stray {
    char name[STEP_NAME_BYTES]; /* "": none */
    uint64_t seen_ms; /* first */
};

/* Zeroed: none was seen. */
struct snap_strays {
    struct snap_stray all[SNAP_STRAYS_MAX];
};

/* It lies there at `now_ms`, and nobody had spoken of it at `known_ms`. True: it is
 * nobody's, and is forgotten, for it goes. */
bool snap_strays_take(struct snap_strays *s, const char *name, uint64_t now_ms,
                      uint64_t known_ms);

#endif
