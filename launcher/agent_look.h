/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the checkpoint that the next workers are to start from is there. Who was
 * told of one need not have heard of the next, and programs remove what they do not
 * keep: so before an order to run goes out, the lead looks for it; where its node does
 * not see it, all nodes that take part do, and say what lies beside it
 * (launcher/look.h). Children look (`muster ckpt-look`), for the directory may hang:
 * who is silent is not waited for. Private to agent*.c; on the loop's thread.
 *
 *   agent_look.c       what a node is asked, and answers
 *   agent_look_lead.c  what the lead makes of it
 */
#ifndef MUSTER_LAUNCHER_AGENT_LOOK_H
#define MUSTER_LAUNCHER_AGENT_LOOK_H

#include "launcher/agent.h"
#include "launcher/agent_record.h"
#include "rendezvous/order.h"

#include <jansson.h>

/* --- every agent --- */

/* The lead asks: answers with a fact. */
void agent_look_asked(struct agent *a, const json_t *ask);

/* A process that ends with 0 where `path` is there, 1 where it is not. Not from inside
 * this call; it may hang. 0 or -errno. */
int agent_look_start(struct agent *a, const char *path,
                     void (*on_exit)(void *arg, const struct child_exit *how),
                     void *arg, pid_t *ret_pid);

/* --- the lead --- */

struct lead_look;

struct lead_look_ops {
    /* What the workers start from, "" for nothing; `step` is -1 where it has none. */
    void (*on_found)(void *arg, const char *path, int64_t step);
};

/* `record`, `ops` and `arg` are borrowed. */
int lead_look_create(struct agent *a, struct record *record,
                     const struct lead_look_ops *ops, void *arg,
                     struct lead_look **ret, struct error *e);
void lead_look_destroy(struct lead_look *l);

/* Is `path` there, from which the workers of `run` are to start? False: that is not
 * asked of such a one. True: on_found() comes, not from inside this call. With `avoided`
 * (ckpt/avoided.h; else NULL) they are not to start from it, but from one beside it that
 * is older, and is none of those; "" is found where there is none, or nobody can tell. */
bool lead_look_ask(struct lead_look *l, const struct order *run, const char *path,
                   int64_t step, const char *avoided);
/* Nobody waits for an answer any more. */
void lead_look_forget(struct lead_look *l);
void lead_look_fact(struct lead_look *l, uint32_t rank, const json_t *fact);

#endif
