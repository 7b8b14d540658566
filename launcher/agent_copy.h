/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.copy: every so often, and at the end of the run, the newest whole
 * checkpoint of the program is copied to another directory, or to a store, by a child:
 * `muster ckpt-copy`, or `muster ckpt push` for what begins with a scheme (s3://). One
 * copy at a time. Private to agent*.c; on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_COPY_H
#define MUSTER_LAUNCHER_AGENT_COPY_H

#include "launcher/agent.h"
#include "launcher/agent_record.h"

struct lead_copy;

/* *ret is NULL where the job has no copies; all else takes NULL. `on_finished` is the
 * answer to lead_copy_finish(). */
int lead_copy_create(struct agent *a, struct record *record,
                     void (*on_finished)(void *arg), void *arg, struct lead_copy **ret,
                     struct error *e);
void lead_copy_destroy(struct lead_copy *c);

/* That one is whole. */
void lead_copy_saved(struct lead_copy *c, const char *path);

/* The run is over but for this. True: on_finished() comes, not from inside this call:
 * when the newest is copied, or cannot be, or `limit_ms` have passed. */
bool lead_copy_finish(struct lead_copy *c, uint64_t limit_ms);
/* Nobody waits any more. True: somebody did; what was under way is given up. */
bool lead_copy_forget(struct lead_copy *c);
bool lead_copy_is_awaited(const struct lead_copy *c);

/* What is being read now, and should not be removed; or "". */
const char *lead_copy_under_way(const struct lead_copy *c);

#endif
