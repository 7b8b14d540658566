/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log of what member, heir and lead of this agent were told and said
 * (rendezvous/steps.h), where MUSTER_STEPS_DIR of the run names a directory:
 * ID.START-RANK.steps in it, 0600, at most 64 MiB. It is written by a thread of its
 * own; what that does not keep up with ends the log, and never holds up the agent.
 */
#ifndef MUSTER_LAUNCHER_AGENT_STEPS_H
#define MUSTER_LAUNCHER_AGENT_STEPS_H

#include "rendezvous/heir.h"
#include "rendezvous/lead.h"
#include "rendezvous/member.h"

struct agent;
struct agent_steps;

/* Before heir, lead and member; once the config is there. */
void agent_steps_start(struct agent *a);
/* Waits for the disk, but not for long. */
void agent_steps_stop(struct agent *a);

/* After each call of the core, before what it said is carried out; nothing where there
 * is no log. */
void agent_steps_member_begins(struct agent *a, const struct member_config *c,
                               uint64_t now_ms);
void agent_steps_heir_begins(struct agent *a, const struct heir_config *c,
                             uint64_t now_ms);
void agent_steps_lead_begins(struct agent *a, const struct lead_config *c,
                             uint64_t now_ms);
void agent_steps_heir_grows(struct agent *a, uint32_t n, const uint32_t *node_of);
void agent_steps_lead_grows(struct agent *a, uint32_t n, const char *const *names,
                            const uint32_t *node_of);
void agent_steps_member(struct agent *a, const struct member_event *event, int rc,
                        const struct member_actions *do_);
void agent_steps_heir(struct agent *a, const struct heir *h,
                      const struct heir_event *event, int rc,
                      const struct heir_actions *do_);
void agent_steps_lead(struct agent *a, const struct lead *l,
                      const struct lead_event *event, int rc,
                      const struct lead_actions *do_);

#endif
