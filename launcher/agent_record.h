/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead writes down and tells: status.json, events.jsonl, metrics.jsonl
 * through the journal's thread, and the same to the front end. Private to
 * agent*.c. On the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_RECORD_H
#define MUSTER_LAUNCHER_AGENT_RECORD_H

#include "launcher/agent.h"
#include "launcher/status.h"
#include "rendezvous/lead.h"

#include <jansson.h>
#include <stdarg.h>

struct record;

int record_create(struct agent *a, struct record **ret, struct error *e);

/* Writes all that is queued, at most `timeout_ms` long. NULL is allowed. */
void record_destroy(struct record *r, unsigned timeout_ms);

/* The newest state, for the caller to change; call record_touch() then. */
struct run_status *record_status(struct record *r);
void record_touch(struct record *r);
/* Tells the front end the state now, not soon. */
void record_flush(struct record *r);

/* An event for the journal and for the front end. `epoch`: of the MPI world that
 * it is about, or 0. */
void record_event(struct record *r, const char *event, uint32_t generation,
                  const char *text, const struct failure *failure,
                  int64_t epoch);
/* The same of a text that is made, about no failure and no world. `generation` 0: the
 * newest. */
void record_eventv(struct record *r, const char *event, uint32_t generation,
                   const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));

/* The front end of another lead is to come here: events wait for it, until it is
 * there. The latter says whether one was waited for. */
void record_expect_front(struct record *r);
bool record_meet_front(struct record *r);

/* Nothing is told or written from then on, on the loop's clock, before a later time
 * is given: another one may lead. At first there is no end: UINT64_MAX.
 * NULL is allowed. */
void record_may_tell(struct record *r, uint64_t until_ms);

/* When the batch system ends the job, on the loop's clock; 0: not known. */
void record_set_limit(struct record *r, uint64_t at_ms);

/* The roster has news, of nodes that wait for the next generation. */
void record_newcomers(struct record *r, const struct lead *core);

/* Something is on its way to that level of checkpoints from now on, or nothing is. */
void record_busy(struct record *r, enum interval_level_id level, bool is_busy);
/* That one is on its way to a store or another directory, or waited for at the end of the
 * run; "": none is. */
void record_storing(struct record *r, const char *path);

/* Asks all workers to save, for `who`, who waits for it by that id where it is not NULL.
 * -EAGAIN: none run (agent_scale.c). */
int record_ask_checkpoint(struct record *r, struct agent *a,
                          const struct lead *core, const char *who,
                          const char *id, struct error *e);
/* For them: a save that went by agents is a checkpoint, or, by the name of its directory,
 * will be none. */
void record_saved(struct record *r, const char *path, int64_t step);
void record_save_failed(struct record *r, const char *name, const char *why);

/* How many nodes the job may have, and how many are wanted (agent_scale.c). */
void record_size(struct record *r, const struct lead *core);
/* Whether a command may have the nodes that it wants, and how many these are; a
 * refusal is told to the journal, too. */
int record_scale(struct record *r, const struct agent *a,
                 const struct lead *core, const json_t *body, const char *who,
                 uint32_t *ret_n, struct error *e);

/* What the lead notes, and its verdict, once it has one. A run that was suspended
 * is that if it ends resumable. */
void record_note(struct record *r, const struct lead *core,
                 const struct lead_note *n);
void record_verdict(struct record *r, const struct lead *core);

/* Calls `f` once the generation that record_started() was told of last is on disk,
 * so that whoever starts the run again gives its number to no other one; or after
 * `timeout_ms`, for a disk that hangs. Not from inside this call. A new one takes
 * the place of one that still waits; `f` NULL: nobody waits any more. */
typedef void record_written_f(void *arg, bool is_written);
void record_when_written(struct record *r, unsigned timeout_ms,
                         record_written_f *f, void *arg);

/* What nodes tell: that an order to run went out, and facts of each. */
void record_started(struct record *r, const struct order *run);
void record_fact(struct record *r, uint32_t node, const char *kind,
                 const json_t *fact);

#endif
