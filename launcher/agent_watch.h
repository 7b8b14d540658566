/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.watch: checkpoints that the program writes by itself. The agent that
 * leads has them looked at by a child (`muster ckpt-watch`), for the directory may
 * hang: one that is whole counts as if a worker had told of it, and before the
 * workers of a generation start the child chooses the one that they start from, and
 * sets aside what is broken. One agent decides for all nodes. Private to agent*.c;
 * on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_WATCH_H
#define MUSTER_LAUNCHER_AGENT_WATCH_H

#include "launcher/agent.h"
#include "launcher/agent_record.h"

#include <stdbool.h>
#include <stdint.h>

struct lead_watch;

struct lead_watch_ops {
    /* One that is whole; `step` is -1 where its name has none. */
    /* `is_new`: it was written since it was looked there first, and since nobody is to
     * start from what had its name. `is_again`: it was told of last, and was written to
     * since: the first of a script's own files may have been all there was. */
    void (*on_saved)(void *arg, const char *path, int64_t step, bool is_new, bool is_again);
    /* The answer to lead_watch_ask(); "" for none. */
    void (*on_chosen)(void *arg, const char *path, int64_t step);
    /* The answer to lead_watch_finish(). */
    void (*on_finished)(void *arg);
};

/* *ret is NULL where the job has nothing to watch. `ops` and `arg` are borrowed. */
int lead_watch_create(struct agent *a, struct record *record,
                      const struct lead_watch_ops *ops, void *arg,
                      struct lead_watch **ret, struct error *e);
void lead_watch_destroy(struct lead_watch *w);

/* No worker is alive: from which checkpoint does the generation of `order` start, which
 * is to run? `told`, of `step`, is the newest that is known otherwise, or "". False:
 * that one; nobody can be asked. True: on_chosen() comes, not from inside this call. */
bool lead_watch_ask(struct lead_watch *w, const struct order *order,
                    const char *told, int64_t step);

/* Whether it lies in the directory that is watched. */
bool lead_watch_has(const struct lead_watch *w, const char *path);

/* From these nobody starts from now on (ckpt/avoided.h); "" for none. */
void lead_watch_avoid(struct lead_watch *w, const char *avoided);

/* That is read by somebody: it stays, however old it is, until the next call; "" for
 * none. */
void lead_watch_hold(struct lead_watch *w, const char *path);

/* No worker is alive, nor will be: what was saved last, of which on_saved() comes if it is
 * whole. True: on_finished() comes then, or when `limit_ms` have passed, not from inside
 * this call. */
bool lead_watch_finish(struct lead_watch *w, uint64_t limit_ms);

/* Nobody waits for an answer any more. True: the end of the run did. */
bool lead_watch_forget(struct lead_watch *w);
bool lead_watch_is_finishing(const struct lead_watch *w);

#endif
