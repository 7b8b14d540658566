/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.copy: every so often the newest whole checkpoint of the program is
 * copied to another directory, or to a store, by a child: `muster ckpt-copy`, or
 * `muster ckpt push` for what begins with a scheme (s3://). One copy at a time.
 * Private to agent*.c; on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_COPY_H
#define MUSTER_LAUNCHER_AGENT_COPY_H

#include "launcher/agent.h"
#include "launcher/agent_record.h"

struct lead_copy;

/* *ret is NULL where the job has no copies. */
int lead_copy_create(struct agent *a, struct record *record,
                     struct lead_copy **ret, struct error *e);
void lead_copy_destroy(struct lead_copy *c);

/* That one is whole. */
void lead_copy_saved(struct lead_copy *c, const char *path);

#endif
