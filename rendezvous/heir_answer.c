/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a claim: the view that won it tells where this agent belongs. */
#include <config.h>

#include "rendezvous/heir_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdio.h>

static void take_end(struct heir *h, const struct view *found,
                     struct heir_actions *ret)
{
    (void)view_copy(&h->view, found); /* only the verdict matters now */
    heir_learn_end(h, found->status, found->reason);
    if (!h->member_has_end) {
        h->told = (struct order){
            .serial = ((uint64_t)found->number << ORDER_SERIAL_BITS) + 1,
            .generation = h->known.generation, .step = ORDER_END,
            .stop = ORDER_STOP_FORCE, .status = found->status,
            .view = h->view, /* borrowed */
        };
        str_copy(h->told.reason, sizeof(h->told.reason), found->reason);
        ret->order = &h->told;
        h->member_has_end = true;
    }
    str_copy(h->why, sizeof(h->why), "the run has ended");
    heir_leave(h, ret);
}

/* Those below have promised nothing of this view yet. The lead of it may be gone: then
 * this agent is their top again, and counts who is free of it. */
static void tell_below(struct heir *h, struct heir_actions *ret)
{
    h->told = (struct order){
        .serial = (uint64_t)h->view.number << ORDER_SERIAL_BITS,
        .step = ORDER_VIEW, .view = h->view /* borrowed */
    };
    if (!MUTANT(128)) {
        ret->order = &h->told;
    }
}

/* The view that this agent wanted is another's. */
static int on_found(struct heir *h, const struct view *found,
                    struct heir_actions *ret)
{
    if (!found || found->number <= h->view.number) {
        return -EPROTO;
    }
    if (heir_make_room_for(h, found) < 0) {
        return -ENOMEM;
    }
    if (found->has_verdict) {
        take_end(h, found, ret);
        return 0;
    }
    if (!view_has(found, h->config.rank)) {
        snprintf(h->why, sizeof(h->why), "the others go on without this node "
                 "(view %u, led by node %u)", found->number, found->lead);
        heir_leave(h, ret);
        return 0;
    }
    h->has_heard = true;
    h->heard_ms = h->now_ms; /* its lead may be heard of by others */
    if (heir_bind_unheard(h, found, ret) < 0) {
        return -ENOMEM;
    }
    ret->seek = found->lead;
    tell_below(h, ret);
    return 0;
}

int heir_on_claimed(struct heir *h, const struct heir_event *event,
                    struct heir_actions *ret)
{
    if (!h->claiming) {
        return 0;
    }
    h->claiming = false;
    switch (event->outcome) {
    case HEIR_WON:
        heir_win(h, ret);
        return 0;
    case HEIR_LOST:
        if (MUTANT(114)) {
            heir_win(h, ret);
            return 0;
        }
        return on_found(h, event->found, ret);
    case HEIR_UNKNOWN:
        if (MUTANT(115)) {
            heir_win(h, ret);
            return 0;
        }
        h->claiming = true; /* it may be ours: the same again */
        ret->claim = &h->claim;
        return 0;
    }
    return -EPROTO;
}

int heir_on_deposed(struct heir *h, const struct view *found,
                    struct heir_actions *ret)
{
    if (h->state != HEIR_LEAD) {
        return 0;
    }
    ret->quit = true;
    h->state = HEIR_BOUND;
    return on_found(h, found, ret);
}
