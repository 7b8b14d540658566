/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.alarm: a generation that runs for too long without a checkpoint,
 * whoever makes them. Private to agent*.c; on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_LATE_H
#define MUSTER_LAUNCHER_AGENT_LATE_H

#include "launcher/agent.h"
#include "launcher/agent_record.h"
#include "rendezvous/lead.h"

struct lead_late;

/* *ret is NULL where nobody asks for it. `on_stop` is called where the job says that
 * the run is to end; not from inside these calls. */
int lead_late_create(struct agent *a, struct record *record,
                     void (*on_stop)(void *arg, const char *text), void *arg,
                     struct lead_late **ret, struct error *e);
void lead_late_destroy(struct lead_late *l);

/* What the lead notes: generations come and go, checkpoints come. */
void lead_late_note(struct lead_late *l, enum lead_note_type type);

/* A checkpoint has come, of which the lead makes no note. */
void lead_late_saved(struct lead_late *l);

#endif
