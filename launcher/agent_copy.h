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

struct lead_copy_ops {
    /* The answer to lead_copy_finish(). */
    void (*on_finished)(void *arg);
    /* That is read from now on, and is not to be removed; "": nothing is. */
    void (*on_reading)(void *arg, const char *path);
};

/* *ret is NULL where the job has no copies; all else takes NULL. `ops` and `arg` are
 * borrowed. */
int lead_copy_create(struct agent *a, struct record *record,
                     const struct lead_copy_ops *ops, void *arg, struct lead_copy **ret,
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
