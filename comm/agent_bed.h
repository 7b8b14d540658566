/* SPDX-License-Identifier: Apache-2.0 */
/* A socket in a directory of its own, where tests play an agent to a client. */
#ifndef MUSTER_COMM_AGENT_BED_H
#define MUSTER_COMM_AGENT_BED_H

struct agent_bed {
    char dir[32];
    char path[64]; /* of the socket */
};

/* It listens for one at a time: the descriptor. Bails out where that cannot be. */
int agent_bed_open(struct agent_bed *p);
void agent_bed_remove(const struct agent_bed *p);

#endif
