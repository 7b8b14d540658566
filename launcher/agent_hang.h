/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead's watch over hangs (launcher/hang.h), with what it asks of the other
 * agents. Where the job has no hang.timeout there is none, and all of this does
 * nothing.
 */
#ifndef MUSTER_LAUNCHER_AGENT_HANG_H
#define MUSTER_LAUNCHER_AGENT_HANG_H

#include "launcher/agent.h"
#include "launcher/agent_record.h"

struct lead_hang;

/* *ret is NULL where nothing is to be watched. */
int lead_hang_create(struct agent *a, struct record *record,
                     struct lead_hang **ret, struct error *e);
void lead_hang_destroy(struct lead_hang *l);

/* A generation was ordered to run; all of it does; it does not any more. */
void lead_hang_ordered(struct lead_hang *l, const struct order *run);
void lead_hang_running(struct lead_hang *l);
void lead_hang_over(struct lead_hang *l);

/* A fact of a node. True if it was for the watch alone. */
bool lead_hang_fact(struct lead_hang *l, uint32_t node, const char *kind,
                    const json_t *fact);

#endif
