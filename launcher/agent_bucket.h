/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.store: the newest checkpoint of the run is taken to an object store, by
 * children (`muster ckpt push`) one after the other: what becomes a checkpoint while
 * one goes on waits, and only the newest of those that wait goes. The run never waits
 * for it but at its end, for a bounded time; and at its start a newer one than the
 * directory has is fetched, and again where workers have saved nothing before they
 * failed: what is in the directory may be damaged. What a push leaves that is killed is
 * no checkpoint, and the next one goes on with it, so that a lead that is lost leaves
 * nothing to be cleaned. Private to agent*.c; on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_BUCKET_H
#define MUSTER_LAUNCHER_AGENT_BUCKET_H

#include "launcher/agent.h"
#include "launcher/agent_record.h"

struct lead_bucket;

struct lead_bucket_ops {
    /* The answer to lead_bucket_fetch(): what came, "" for nothing. */
    void (*on_fetched)(void *arg, const char *path, int64_t step);
    /* That path is in the store, or (`error`) will not be; the save that it is of, if
     * the push knows: "". */
    void (*on_stored)(void *arg, const char *path, const char *uuid, int error,
                      const char *why);
    /* The answer to lead_bucket_finish(). */
    void (*on_finished)(void *arg);
};

/* *ret is NULL where the job has no store; all else takes NULL. */
int lead_bucket_create(struct agent *a, struct record *record,
                       const struct lead_bucket_ops *ops, void *arg,
                       struct lead_bucket **ret, struct error *e);
void lead_bucket_destroy(struct lead_bucket *b);

/* That one is the newest of the run now; `is_new`: it was made just now, and may have
 * the name of one that is in the store. */
void lead_bucket_saved(struct lead_bucket *b, const char *path, bool is_new);

/* Of a lead that takes over: the one before may have had no time to tell of its last one.
 * Where nothing is saved from then on that is looked for when the run ends, beside the
 * newest that is known, if there is one. */
void lead_bucket_doubt(struct lead_bucket *b, bool is_in_doubt);

/* Before the first workers start, and where that is in doubt others. True: on_fetched()
 * comes, not from inside this call. */
bool lead_bucket_fetch(struct lead_bucket *b, bool is_in_doubt);
/* It was found damaged by the last fetch. */
bool lead_bucket_is_damaged(const struct lead_bucket *b, const char *path);
/* The run is over but for this. True: on_finished() comes, not from inside this call:
 * when the newest is there, or cannot be, or `limit_ms` have passed. */
bool lead_bucket_finish(struct lead_bucket *b, uint64_t limit_ms);
/* Nobody waits for an answer any more. True: the end of the run did; what was under
 * way for it is given up. */
bool lead_bucket_forget(struct lead_bucket *b);
bool lead_bucket_is_awaited(const struct lead_bucket *b);

/* What is being read now, and should not be removed; or "". */
const char *lead_bucket_under_way(const struct lead_bucket *b);

#endif
