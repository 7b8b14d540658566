/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many processes this agent runs, and what becomes of one on a node that the job does
 * not fit: no GPU where it wants them, or another number than all others count. At the
 * start the run fails. An agent that came later is excluded, and looks again now and then:
 * a host that has just booted may only lack its driver. Its number it has for life, so
 * when that is another one it leaves, and the front end starts an agent in its place.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"
#include "launcher/node_facts.h"
#include "launcher/outfit.h"
#include "launcher/slots.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 10000 };

/* By the list of hosts; 0: it counts for itself. False: it is not in the list. */
static bool find_slots(const struct agent *a, uint32_t *ret)
{
    struct slots_self self = {.host = a->host, .addrs = &a->addrs,
                              .slurm_name = getenv("SLURMD_NODENAME")};

    *ret = 0;
    for (uint32_t i = 0; i < a->rank; i++) {
        self.place += a->roster.entries[i].host_index == 0;
    }
    if (!a->config.slots.n || a->run.agent_is_node) {
        return true;
    }
    return slots_find(&a->config.slots, &self, ret);
}

static void tell_unknown(struct agent *a)
{
    uint32_t slots;

    if (!find_slots(a, &slots)) {
        agent_note(a, "%s is in the list of hosts by another name: its slots are "
                   "not known, and it counts its CPUs or GPUs", a->host);
    }
}

/* The node's number, divided evenly among the agents on it. One that came in the place of
 * another has its number. */
static int count(const struct agent *a, uint16_t *ret, struct error *e)
{
    uint32_t n_here = 0;
    struct procs_node node;
    int rc;

    node_facts(&a->config.env, &node);
    (void)find_slots(a, &node.slots);
    for (uint32_t i = 0; i < a->roster.n; i++) {
        const struct roster_entry *entry = &a->roster.entries[i];

        if (strcmp(entry->host, a->host) == 0 &&
            entry->host_index >= n_here) {
            n_here = entry->host_index + 1;
        }
    }
    if (a->run.agent_is_node) {
        n_here = 1;
    }
    rc = outfit_procs(a->config.job, &node, n_here,
                      a->roster.entries[a->rank].host_index, ret, e);
    return rc < 0 ? error_wrap(e, "%s", a->host) : 0;
}

/* What follows is by the lead's word. Until that comes, this node counts as one with a
 * process. */
static void tell_misfit(struct agent *a, const char *why)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "misfit");

    agent_log(a, "%s", why);
    jsonw_str(&w, "text", why);
    agent_fact_send(a, &w);
    a->is_misfit = true;
    a->n_procs = 1;
}

/* By the newest order that has come here: marks name the first agent of a node. */
static bool is_left_out(const struct agent *a)
{
    const struct order *order = a->member ? member_order(a->member) : NULL;

    for (uint32_t i = 0; order && i < order->past.n_marks; i++) {
        const struct past_mark *m = &order->past.marks[i];

        if (m->excluded == EXCLUSION_MISFIT && m->rank < a->roster.n &&
            (m->rank == a->rank ||
             (!a->run.agent_is_node &&
              strcmp(a->roster.entries[m->rank].host, a->host) == 0))) {
            return true;
        }
    }
    return false;
}

/* Only a front end starts another agent; the lead has more to do than to make room. */
static bool may_leave(const struct agent *a)
{
    return !a->lead && !a->config.by_hand;
}

/* The lead may not have known this agent yet when it was told. */
static void on_again(uv_timer_t *t)
{
    struct agent *a = t->data;
    struct member_event leave = {.type = MEMBER_LEAVE,
                                 .text = "its node has changed, and may fit the job: "
                                         "another agent is to take its place"};
    struct error e = {0};
    uint16_t n = 0;
    bool is_out = is_left_out(a);
    int rc = is_out || a->is_misfit ? count(a, &n, &e) : 0;

    if (rc < 0 && !is_out) {
        tell_misfit(a, e.text);
    } else if (rc == 0 && is_out && may_leave(a) && (a->is_misfit || n != a->n_procs)) {
        agent_member_step(a, &leave);
    }
}

void agent_procs_begin(struct agent *a)
{
    struct error e = {0};
    bool is_whole = !agent_leads(a) || agent_fit_check(a, &e) == 0;

    if (is_whole) {
        tell_unknown(a);
    }
    if (!is_whole || count(a, &a->n_procs, &e) < 0) {
        tell_misfit(a, e.text);
    }
    if (a->config.job->procs.mode != JOB_PROCS_FIXED) {
        uv_timer_start(&a->procs_timer, on_again, AGAIN_MS, AGAIN_MS);
    }
}
