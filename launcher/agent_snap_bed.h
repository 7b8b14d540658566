/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of an agent's saves share: one without workers, and what it holds in memory. */
#ifndef MUSTER_LAUNCHER_AGENT_SNAP_BED_H
#define MUSTER_LAUNCHER_AGENT_SNAP_BED_H

#include "launcher/agent_snap_priv.h"
#include "launcher/crew.h"
#include "launcher/hold_bed.h"

struct agent_snap_bed {
    struct agent agent; /* that could lead, see lead_bed.h */
    struct agent_snap snap;
    struct crew crew; /* of no generation */
    struct hold_bed hold;
};

/* Nothing is saved; snap.hold is that of hold.hold, which the caller may replace in both. */
void agent_snap_bed_open(struct agent_snap_bed *b);
/* With all that snap has by then. */
void agent_snap_bed_close(struct agent_snap_bed *b);

#endif
