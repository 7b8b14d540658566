/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: an agent that could lead a run of three nodes, to whom nobody is
 * connected, with a run directory of its own. It has no member: what that would
 * get stays in `soon`, until agent_member_stop().
 */
#ifndef MUSTER_LAUNCHER_LEAD_BED_H
#define MUSTER_LAUNCHER_LEAD_BED_H

#include "launcher/agent.h"

enum { BED_NODES = 3, BED_PROCS = 2 };

/* Zeroed before. The run directory is made here; the caller removes it. */
void lead_bed_make(struct agent *a);
void lead_bed_release(struct agent *a);

/* Whether the thread that asks has a table of descriptors of its own (base/thread.h), or can
 * have none here. */
bool lead_bed_is_apart(void);

/* Nodes 0 and 2 run that generation. Borrows `n_procs`, which it fills. */
struct order lead_bed_run(uint32_t generation, uint16_t n_procs[BED_NODES]);

#endif
