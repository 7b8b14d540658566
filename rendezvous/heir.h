/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who leads: every agent has an heir beside its member, the lead's too. It says
 * whose orders count, when this agent is free of its lead, whom it follows then,
 * and when it takes the lead itself. A pure state machine: no clock, no
 * descriptors, no threads.
 *
 *   BOUND    to the lead of its view, as long as the lease lasts; before the first
 *            order to nobody
 *   FREE     the lease is over, or the lead is known to be dead. This agent has
 *            promised to obey no order of its view any more: only a newer view
 *            binds it again. It tells that upward (a follow) to whoever stands at
 *            the top of its camp; who stands there, and has a side that may go on
 *            (view.h), claims the next view
 *   LEAD     of its view
 *   OUT      it leaves: no view came in time, or one without it
 *
 * Rules (rendezvous/split.c checks them over random schedules):
 *  - The lead's word is only as new as what enough members have acknowledged
 *    (heir_word_age_ms()): if members that could go on by themselves fall silent, the
 *    leases of all others end when theirs do.
 *  - So whoever takes the lead waits until a lease has passed since anybody of its
 *    camp last heard of the old one, and all workers elsewhere are gone then; but not for
 *    who is out of the view that has ended and had no part in what ran in it: a RUN with
 *    it would have taken another view. That is known where the directory decides.
 *  - Nobody has gone on without a lead whose word is good (heir_is_in_office()). Who is
 *    found dead later, as by a lead that was stopped, may have done so before. Who is
 *    found dead while a claim is not answered may have gone on from the view that it
 *    has made, and come to the run's end: it counts as silent for who wins it then, so
 *    that the directory decides.
 *  - Where a majority decides a follow names no candidate: two may count the same one,
 *    and both win. Who leads is whom a majority is bound to: a RUN comes when all that
 *    are not lost have stopped for it, and so are bound, and the silent are too few for a
 *    rival; a member is bound to no view older than one that it was bound to. So of two
 *    views that run something a member was bound to both, to the older one first: the
 *    newer lead has heard from it what the older one did, and for that one all of the
 *    newer majority are silent or free, so that it runs nothing more. A lead to which
 *    somebody comes out of a newer view has not heard what that one did: it claims
 *    nothing with such a one (lead_view.c), and when it follows leads no more, but is a
 *    candidate like all others. Who is back counts as silent until it has said which
 *    views it has promised to obey. That holds as long as nobody who is bound elsewhere is
 *    left out of the silent: of the dead only who was bound to this lead when it ended
 *    (lead_may_stray()), which is known as long as no lease of those that are bound to it
 *    can be over (heir_has_hold()).
 *  - Of one view number there is one view that takes effect. So whoever claims the next
 *    counts those alone that have promised to obey none of the number before it, which
 *    are those that were bound to it; also where it has read only in the run directory
 *    who has that number. Then it tells those below (ORDER_VIEW), also who comes later:
 *    they are bound by that view as it is, find its lead or are free of it when a lease
 *    is over, and follow from there. To be told stops no worker, renews no lease of one,
 *    and changes nothing of what is known of the run.
 *  - Serials of orders begin with the number of their view, and a generation
 *    is larger than any that the camp knows of.
 *  - Who knows the end may write it down, alone: for it any one is a rival. So with the
 *    end a lead has no word until all of those have acknowledged it.
 *
 * Clocks may show any time and run at different rates, and go on while their agent is
 * stopped, within slack_ms a lease. One that leaps by more while no time passes makes
 * whoever waits for the leases of others start too early.
 */
#ifndef MUSTER_RENDEZVOUS_HEIR_H
#define MUSTER_RENDEZVOUS_HEIR_H

#include "base/cleanup.h"
#include "rendezvous/order.h"
#include "rendezvous/view.h"

#include <stdbool.h>
#include <stdint.h>

#define HEIR_NEVER UINT64_MAX
#define HEIR_NO_RANK UINT32_MAX

struct heir;

struct heir_config {
    uint32_t rank;
    uint32_t n_nodes; /* in the roster now */
    struct view_rule rule; /* node_of is borrowed; heir_grow() may change it */
    uint64_t lease_ms;  /* of members: heartbeat.timeout and a little more */
    uint64_t join_ms;   /* the same before the first order (gang timeout) */
    uint64_t slack_ms;  /* what clocks differ in a lease, and for the kill */
    uint64_t settle_ms; /* a candidate waits so long for those whose leases end a
                           little later than its own */
    uint64_t wait_ms;   /* who is free waits so long for a view that binds it */
};

/* What a free agent tells the top of its camp: TREE_FOLLOW, passed up like a
 * report; the newest of each rank counts. */
struct follow {
    uint32_t rank;
    uint64_t serial;      /* of this message, from 1, per agent */
    uint32_t view;        /* that it was bound by last */
    uint64_t heard_ago_ms; /* when it last heard a new stamp of any lead, at
                              least so long ago; HEIR_NEVER: never */
    uint64_t order_serial; /* the newest order that it has seen ... */
    uint32_t generation;
    bool has_verdict;      /* ... which was END or LEAVE */
    uint8_t status;
    char reason[ORDER_TEXT_BYTES];
    struct past past;
};

void follow_encode(const struct follow *f, struct buf *b);
int follow_decode(const void *data, size_t len, struct follow *ret,
                  struct error *e);

enum heir_event_type {
    HEIR_TICK = 0,
    HEIR_ORDER = 1,    /* order: from above, or our own lead's before anybody else
                          sees it. `obey` says whether it is for the member */
    HEIR_WORD = 2,     /* view, stamp_ms, age_ms: a beat that the lead is behind:
                          the lead's clock then, and how old its word is */
    HEIR_DEAD = 3,     /* rank: its host refuses its port: the agent has ended */
    HEIR_TOP = 4,      /* nobody before this agent is there to be its parent */
    HEIR_NOT_TOP = 5,  /* a parent was found: what is to be told upward is told
                          again */
    HEIR_FOLLOW = 6,   /* follow: from below, also where it is passed on: this agent
                          may be the top before it is told again */
    HEIR_UNFOLLOW = 7, /* rank: is below no more */
    HEIR_CLAIMED = 8,  /* outcome, and found if LOST: the answer to `claim` */
    HEIR_DEPOSED = 9,  /* found: the claim of our own lead (lead.h) was lost */
    HEIR_SEEN = 10,    /* seen: what the beats from below say; lead only */
};

enum heir_outcome {
    HEIR_WON = 0,
    HEIR_LOST = 1,    /* another has it: found */
    HEIR_UNKNOWN = 2, /* no answer in time: it may be ours, or become it. The same
                         claim is made again */
};

/* What a subtree has acknowledged of the lead's stamps, its own agent included.
 * Only beats of the same view count; who is silent counts with the last. */
struct heir_seen {
    uint64_t all_ms;    /* the oldest of all */
    uint64_t live_ms;   /* the oldest of those that are not suspect */
    uint32_t n_suspect; /* silent for long, or free (heir_is_free()), or of another
                           view */
    uint32_t n_quiet;   /* only those that are silent, and those who lost their
                           link and are not lost yet: for LEAD_QUIET */
};

/* What our lead (lead.h) knows of those that may go on without it. */
struct heir_rivals {
    uint32_t n_silent; /* lead_n_silent() */
    uint32_t size;     /* view_rival_size() */
};

/* All pointers are borrowed for the call. */
struct heir_event {
    enum heir_event_type type;
    uint64_t now_ms;
    const struct order *order;
    uint32_t rank;
    uint32_t view;
    uint64_t stamp_ms;
    uint64_t age_ms;
    const struct follow *follow;
    enum heir_outcome outcome;
    const struct view *found;
    struct heir_seen seen; /* our own included */
    struct heir_rivals rivals; /* with SEEN: lead_rivals() */
};

/* What a new lead starts from (lead.h). */
struct heritage {
    struct view view;      /* that was won; borrowed */
    uint32_t generation;   /* the newest that the camp knows of */
    struct past past;
    uint32_t n_procs_len;  /* of generation past.ran, where it is known ... */
    const uint16_t *n_procs; /* ... or NULL */
    const bool *follows;   /* n_nodes: those of the camp */
    const bool *dead;
    const bool *idle;      /* surely without workers, wherever they are */
    uint32_t n_nodes;
    uint64_t clear_ms;     /* by then all workers outside the camp are gone */
    bool has_verdict;      /* an END was seen, or proposed (struct past) ... */
    bool is_proposed;      /* ... no more than that: whether enough know it, nobody
                              can tell */
    uint8_t status;
    char reason[ORDER_TEXT_BYTES];
};

/* To be done in this order. */
struct heir_actions {
    uint32_t floor;  /* not 0: tell the member (MEMBER_PROMISE) ... */
    uint64_t heard_ms; /* ... with this, HEIR_NEVER for never */
    bool obey;       /* the order or word of this event is for the member */
    bool quit;       /* our lead leads no more: destroy it */
    const struct follow *follow; /* send upward, or NULL; valid until next step */
    uint32_t seek;   /* look for that rank first, or HEIR_NO_RANK */
    const struct order *order; /* an END, or a view, that was found: give it to the
                                  member (MEMBER_ORDER), and publish it to all
                                  below, and who comes later, if its serial is the
                                  newest; or NULL; valid until the next step */
    const struct view *claim; /* claim it, and answer CLAIMED; or NULL */
    const struct heritage *lead; /* take the lead: lead_create() with it, then
                                    give it the kept reports; or NULL */
    const char *leave; /* why the member has to leave (MEMBER_LEAVE), or NULL;
                          valid until the next step */
    uint64_t wake_ms;
};

/* 0, -EINVAL or -ENOMEM. */
int heir_create(const struct heir_config *config, uint64_t now_ms,
                struct heir **ret, struct error *e);
void heir_destroy(struct heir *h);
DEFINE_CLEANUP(heir);

/* One event; `ret` is overwritten. 0; -ENOMEM: the event counts as not received;
 * -EPROTO for what makes no sense. */
int heir_step(struct heir *h, const struct heir_event *event,
              struct heir_actions *ret);

/* There are more agents now. 0 or -ENOMEM. */
int heir_grow(struct heir *h, uint32_t n_nodes, const uint32_t *node_of);

/* The view that binds this agent, or did last. Valid until the next step. */
const struct view *heir_view(const struct heir *h);
bool heir_is_lead(const struct heir *h);
/* Counts as suspect in the beats upward, and so does `seen` with what it was. */
bool heir_is_free(const struct heir *h);
/* The newest stamp of the lead of heir_view() that was heard while bound. */
uint64_t heir_seen_ms(const struct heir *h);
/* The lead: how old its word is, for beats below and for its own member;
 * HEIR_NEVER as long as it has none. */
uint64_t heir_word_age_ms(const struct heir *h, uint64_t now_ms);
/* It leads, and nobody can have started a generation in another view yet; that view may
 * have been made. */
bool heir_is_in_office(const struct heir *h, uint64_t now_ms);
/* It leads, and of those that could go on without it enough are bound to it yet, so that
 * nobody can have been of another camp: who was bound to it and ends now ends so. */
bool heir_has_hold(const struct heir *h, uint64_t now_ms);

/* "bound", "free", "lead", "out". */
const char *heir_state_name(const struct heir *h);

/* The sum of beats: starts with what the agent itself has acknowledged, and adds
 * what a child says, which is suspect where the link is silent or the child is of
 * another view than this agent. `was` is what it said last as one of this view. */
struct heir_seen heir_seen_own(const struct heir *h);
void heir_seen_add(struct heir_seen *sum, const struct heir_seen *child);

#endif
