/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in memory, and on no disk, although nobody is at work on it: of an agent of this
 * number whose life was over before the lead had made checkpoints of it, as where all of a
 * run was killed; or of a save that did not get to the disk, which was full. It is told to
 * the lead like what is saved from now on, and where it is the newest that there is the
 * next workers start from it.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/str.h"
#include "launcher/snap_budget.h"

#include <errno.h>
#include <stdlib.h>

/* The newest is told first: the lead has no use for older ones once it is whole. */
static void on_found(void *arg, const struct snap_head *head)
{
    struct agent_snap *p = arg;
    struct saved *s, **at = &p->saved;

    if (agent_snap_saved(p, head->rank, head->uuid)) {
        return; /* it is told of already */
    }
    s = calloc(1, sizeof(*s));
    if (!s) {
        agent_log(p->agent, "out of memory: what was saved at step %llu is not looked at",
                  (unsigned long long)head->step);
        return;
    }
    s->head = *head;
    s->again = p->offered;
    s->level = WORKER_SNAP_HELD;
    s->stage = head->state == SNAP_FULL ? SNAP_STAGE_HELD : SNAP_STAGE_WRITTEN;
    agent_snap_stay(s);
    agent_log(p->agent, "has rank %u of step %llu in memory, which is not on the disk",
              head->rank, (unsigned long long)head->step);
    while (*at && !snap_hold_is_newer(head, &(*at)->head)) {
        at = &(*at)->next;
    }
    s->next = *at;
    *at = s;
}

void agent_snap_recall(struct agent *a)
{
    struct error e = {0};

    if (!snap_dir_has_agent(a->run.id, a->index)) {
        return;
    }
    if (!(a->config.job->checkpoint.levels & JOB_LEVEL_MEMORY)) {
        /* Who comes later must not take it for what this life has left. */
        snap_dir_remove_agent(a->run.id, a->index);
        return;
    }
    if (agent_snap_need(a, &e) < 0) {
        agent_note(a, "what %s has in memory is not looked at: %s", a->host, e.text);
        return;
    }
    snap_hold_recall(a->snap->hold, on_found, a->snap);
    agent_snap_keep_telling(a->snap);
}

static void offer(struct agent_snap *p)
{
    snap_hold_recall(p->hold, on_found, p);
    if (p->saved) {
        agent_snap_tell(p->agent);
        agent_snap_keep_telling(p);
    }
}

/* Once: a lead that does not hear it finds out in time. */
static void on_unfilled(void *arg, const struct snap_head *head)
{
    struct agent_snap *p = arg;
    struct saved s = {.head = *head, .again = p->offered, .stage = SNAP_STAGE_FAILED,
                      .error = ECONNABORTED, .has_ended = true};

    str_copy(s.why, sizeof(s.why), "its worker ended before it had handed all of it over");
    agent_snap_tell_lead(p->agent, &s);
}

void agent_snap_offer(struct crew *c)
{
    struct agent_snap *p = c->agent->snap;

    if (p && p->offered != c->generation) {
        p->offered = c->generation;
        offer(p);
        snap_hold_unfilled(p->hold, c->generation, on_unfilled, p);
    }
}

void agent_snap_offer_late(struct agent_snap *p, uint32_t generation, uint32_t again)
{
    if (generation && generation <= p->offered && again < p->offered) {
        offer(p);
    }
}
