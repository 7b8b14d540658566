/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view that is led, where somebody else may take the lead (heir.h).
 *
 * A new view is claimed when the members that are silent, or have promised to obey this
 * one no more, could go on by themselves; and when somebody is here, or is to take
 * part, who is not in it, or has promised that; and while others run, without those
 * that have ended. Until the claim is answered there is no RUN. Members that are dead
 * count as silent where they could have gone on before we knew of it. An end is claimed
 * as well: it is the last view, so that nobody goes on after it. Who sees that the
 * others may go on, and it may not, stands down: stops its workers, leaves the others
 * the time to claim, and claims the end then.
 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdlib.h>

/* For the others to claim in, once their leases are over. */
#define STAND_DOWN_MS 3000

const struct view *lead_view(const struct lead *lead)
{
    return &lead->view;
}

static bool is_on(const struct lead *lead)
{
    return lead->config.rule.on && lead->view.number;
}

static struct view_rule rule_of(const struct lead *lead)
{
    struct view_rule rule = lead->config.rule;

    rule.node_of = lead->node_of;
    rule.min_nodes = lead->min_nodes;
    return rule;
}

/* Where a majority decides, who is back is silent until it has said what it has promised
 * while it was away: it may have been in a newer view (is_outdated()). */
static bool is_silent(const struct lead *lead, uint32_t rank)
{
    const struct lead_node *n = &lead->nodes[rank];

    return view_has(&lead->view, rank) && rank != lead->config.rank &&
           ((n->lost && (!n->dead || n->strayed)) ||
            (n->untold && !lead->view.shared && !MUTANT(135)));
}

/* Those, and others that may come to be in a rival's camp: who obeys no more, and
 * who is being made a member and need not know it. */
static bool may_go_astray(const struct lead *lead, uint32_t rank)
{
    return is_silent(lead, rank) ||
           (view_has(&lead->view, rank) && lead->nodes[rank].estranged);
}

uint32_t lead_n_silent(const struct lead *lead)
{
    uint32_t n = 0;

    for (uint32_t i = 0; is_on(lead) && i < lead->n_nodes; i++) {
        n += is_silent(lead, i) ||
             (lead->claiming && view_has(&lead->claim, i) &&
              !view_has(&lead->view, i));
    }
    return n;
}

/* Where a majority decides (heir.h): who ends while it is bound to this lead, or before
 * it was bound at all, is bound to no other for ever. What anybody else had promised to
 * whom nobody knows any more; nor what one has that is free of this lead, which it may
 * have had no time to say. */
bool lead_may_stray(const struct lead *lead, uint32_t rank)
{
    const struct lead_node *n = &lead->nodes[rank];
    bool is_first = lead->view.number == 1 && !n->floor;
    bool is_bound = n->floor == lead->view.number && (!lead->loose || MUTANT(139));

    return lead->adrift || (is_on(lead) && !lead->view.shared &&
                            (n->lost || (!is_bound && !is_first)));
}

static uint32_t count_astray(const struct lead *lead)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        n += may_go_astray(lead, i);
    }
    return n;
}

static void list_dead(struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        lead->dead[i] = lead->nodes[i].dead && !lead->nodes[i].strayed;
        lead->node_of[i] = lead->nodes[i].node;
    }
}

static uint32_t rival_size(struct lead *lead)
{
    struct view_rule rule = rule_of(lead);

    if (!is_on(lead)) {
        return VIEW_NO_SIDE;
    }
    if (lead->phase >= PHASE_END && rule.min_nodes) {
        rule.min_nodes = 1; /* who knows the end may write it down, alone */
    }
    list_dead(lead);
    return view_rival_size(&rule, &lead->view, lead->dead);
}

struct heir_rivals lead_rivals(struct lead *lead)
{
    return (struct heir_rivals){.n_silent = lead_n_silent(lead),
                                .size = rival_size(lead)};
}

static bool has_rivals(struct lead *lead)
{
    return rival_size(lead) != VIEW_NO_SIDE;
}

/* Looks at all nodes, and is asked at each report: but not where all is well. */
static bool are_enough(struct lead *lead, uint32_t n)
{
    return n > 0 && n >= rival_size(lead);
}

static bool others_may_go_on(struct lead *lead)
{
    return are_enough(lead, count_astray(lead));
}

bool lead_may_go_on(struct lead *lead)
{
    return lead->view.shared || !are_enough(lead, lead_n_silent(lead));
}

/* Somebody is here who obeys no more, but would obey a new view. */
static bool has_estranged(const struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        if (lead->nodes[i].estranged && lead_is_here(&lead->nodes[i])) {
            return true;
        }
    }
    return false;
}

/* Somebody is chosen who would not obey a RUN of this view, or could not claim
 * the next one. */
static bool has_strangers(const struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        const struct lead_node *n = &lead->nodes[i];

        if (n->chosen && (n->estranged || (lead->view.shared &&
                                           !view_has(&lead->view, i)))) {
            return true;
        }
    }
    return false;
}

/* Somebody waits here whom the view does not know. Only members go on when the lead is
 * lost, and it may be that no other is left of them: they need not be chosen for that. */
static bool has_outsiders(const struct lead *lead)
{
    for (uint32_t i = 0; lead->view.shared && i < lead->n_nodes; i++) {
        const struct lead_node *n = &lead->nodes[i];

        if (n->serial && !n->lost && !view_has(&lead->view, i)) {
            return true;
        }
    }
    return false;
}

/* A member has ended for good. It is no rival, but whoever has to take over waits for
 * it, not knowing that. */
static bool has_departed(const struct lead *lead)
{
    for (uint32_t i = 0; lead->view.shared && i < lead->n_nodes; i++) {
        if (lead->nodes[i].lost && lead->nodes[i].dead && view_has(&lead->view, i)) {
            return true;
        }
    }
    return false;
}

/* Members of the next view: all that are here; where a majority decides, all
 * that may be alive. */
static int set_members(struct lead *lead, struct view *v)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        lead->whole[i] = v->shared ? lead_is_here(&lead->nodes[i])
                                     : view_has(&lead->view, i);
    }
    lead->whole[lead->config.rank] = true;
    return view_set(v, lead->whole, v->shared ? lead->n_nodes
                                              : lead->view.n_nodes);
}

/* Where a majority decides: somebody is here that was bound to a newer view. What that
 * one has done it tells in a follow, when it is free of it, and then this agent leads no
 * more (heir_take_follow()). */
static bool is_outdated(const struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_nodes && !lead->view.shared; i++) {
        if (lead->nodes[i].floor > lead->view.number + 1 &&
            lead_is_here(&lead->nodes[i])) {
            return !MUTANT(129);
        }
    }
    return false;
}

static void win(struct lead *lead, struct lead_actions *ret);

static void claim(struct lead *lead, struct lead_actions *ret, bool is_end)
{
    struct view *v = &lead->claim;
    uint32_t newest = lead->view.number;

    if (lead->claiming) {
        return;
    }
    for (uint32_t i = 0; !lead->view.shared && i < lead->n_nodes; i++) {
        newest = lead->nodes[i].floor > newest ? lead->nodes[i].floor : newest;
    }
    v->number = view_next_number(newest, lead->config.rank,
                                 lead->view.shared);
    v->lead = lead->config.rank;
    v->shared = lead->view.shared;
    v->has_verdict = is_end;
    v->status = is_end ? lead->verdict.status : 0;
    str_copy(v->reason, sizeof(v->reason), is_end ? lead->verdict.reason : "");
    if (set_members(lead, v) < 0) {
        return; /* the next event tries again */
    }
    if (!v->shared) {
        if (!are_enough(lead, lead_n_silent(lead) + lead->n_quiet)) {
            win(lead, ret);
        }
        return;
    }
    lead->claiming = true;
    ret->claim = v;
}

/* Of those that are here some may be cut off as others are: a view that turns out
 * to be too small would be taken from the others for nothing. */
static bool is_sure(struct lead *lead)
{
    return lead->n_quiet == 0 ||
           lead_count_left(lead) >= lead->min_nodes + lead->n_quiet;
}

bool lead_claim_if_needed(struct lead *lead, struct lead_actions *ret)
{
    uint32_t generation = lead->generation;

    if (!is_on(lead) || lead->claiming) {
        return lead->claiming;
    }
    lead->claim_adds = false;
    if (is_outdated(lead)) {
        return lead->phase != PHASE_RUN;
    }
    if (lead->phase == PHASE_RUN) {
        if (has_estranged(lead) || has_outsiders(lead) || has_departed(lead) ||
            (others_may_go_on(lead) && lead_may_go_on(lead) && is_sure(lead) &&
             !MUTANT(101))) {
            claim(lead, ret, false);
        }
        return false;
    }
    if (others_may_go_on(lead) && lead_may_go_on(lead) && !MUTANT(101)) {
        if (!is_sure(lead)) {
            return true;
        }
        claim(lead, ret, false);
    } else if (lead_all_ready(lead)) {
        (void)lead_choose(lead, false);
        if (has_strangers(lead) &&
            (has_estranged(lead) || lead->now_ms >= lead_run_ms(lead))) {
            lead->claim_adds = true;
            claim(lead, ret, false);
        }
    }
    return lead->claiming || lead->generation != generation;
}

/* --- the end --- */

static void publish_end(struct lead *lead, struct lead_actions *ret)
{
    lead_publish_end(lead, ret, lead->end_stop, lead->end_grace_ms);
    if (lead->end_stop != ORDER_STOP_NONE) {
        lead_note(lead, ret, LEAD_NOTE_STOPPING, NO_RANK, "%s",
                  lead->verdict.reason);
    }
}

/* Where a majority decides, as many have to know the verdict before it is one: it
 * goes with a PREPARE, and all that have stopped for that know it. */
static void propose_end(struct lead *lead, struct lead_actions *ret)
{
    lead->proposing = true;
    lead_prepare(lead, ret);
    lead->order.stop = lead->end_stop == ORDER_STOP_FORCE ? ORDER_STOP_FORCE
                                                          : ORDER_STOP_GRACE;
    lead->order.grace_ms = lead->end_grace_ms;
    lead->order.broken = lead->has_cause || lead->has_lost;
}

static bool is_accepted(struct lead *lead)
{
    struct view_rule rule = {.on = true};

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        const struct lead_node *n = &lead->nodes[i];

        lead->whole[i] = n->state == REPORT_STOPPED &&
                         n->generation == lead->generation;
    }
    return view_may_go_on(&rule, &lead->view, lead->whole) || MUTANT(108);
}

bool lead_claim_end(struct lead *lead, struct lead_actions *ret,
                    enum order_stop stop, uint32_t grace_ms)
{
    if (!has_rivals(lead) || !lead->generation ||
        (!lead->view.shared && lead->verdict.status == RUN_RESUMABLE &&
         !are_enough(lead, lead_n_silent(lead) + lead->n_quiet))) {
        return false;
    }
    lead->end_stop = stop;
    lead->end_grace_ms = grace_ms;
    lead->end_claim_ms = lead->now_ms;
    if (are_enough(lead, count_astray(lead) + lead->n_quiet) &&
        (!lead->view.shared || lead_count_left(lead) < lead->min_nodes)) {
        lead->end_claim_ms = lead_later(lead->now_ms, lead->config.lease_ms +
                                                lead->config.lease_slack_ms +
                                                STAND_DOWN_MS);
        lead->standing_down = true;
        lead->harsh = true;
        lead->end_stop = ORDER_STOP_FORCE;
        lead_prepare(lead, ret);
    } else if (!lead->view.shared) {
        propose_end(lead, ret);
    }
    lead->phase = PHASE_CLAIM;
    lead->limit_ms = lead_later(lead->end_claim_ms,
                                lead->config.claim_ms +
                                    (lead->proposing ? grace_ms : 0));
    return true;
}

/* No answer comes any more. Who was stopped has not waited for it yet, and others may
 * have gone on meanwhile: what they have made of the run is not for this one to say. */
static bool is_unanswered(struct lead *lead)
{
    if (lead->now_ms < lead->limit_ms) {
        return false;
    }
    if (lead->adrift && lead->view.shared && !lead->waits_on && !MUTANT(119)) {
        lead->waits_on = true;
        lead->limit_ms = lead_later(lead->now_ms, lead->config.claim_ms);
        return false;
    }
    return true;
}

/* The others have come back before the end was claimed. */
static bool is_whole_again(struct lead *lead)
{
    return lead->standing_down && !lead->claiming &&
           lead_may_go_on(lead) &&
           (lead->view.shared ||
            !are_enough(lead, lead_n_silent(lead) + lead->n_quiet)) &&
           lead_count_left(lead) >= lead->min_nodes;
}

/* It was not for those who were away that the run was to end. */
static bool is_wanted(const struct lead *lead)
{
    return lead->verdict.status != RUN_RESUMABLE || lead->is_stopped;
}

static void go_on_again(struct lead *lead, struct lead_actions *ret)
{
    lead->verdict = (struct lead_verdict){0};
    lead_note(lead, ret, LEAD_NOTE_AGAIN, NO_RANK,
              "going on after all: enough nodes are back");
    lead_prepare(lead, ret);
}

/* Who obeys no more would not hear of a verdict of this view. */
static void end_after_all(struct lead *lead, struct lead_actions *ret)
{
    lead->end_claim_ms = lead->now_ms;
    if (!lead->view.shared) {
        if (has_estranged(lead)) {
            claim(lead, ret, false);
        }
        propose_end(lead, ret);
    }
    lead->phase = PHASE_CLAIM;
    lead->limit_ms = lead_later(lead->now_ms, lead->config.claim_ms +
                                                  lead->end_grace_ms);
}

/* A verdict that too few know of is none: those who do not know it may go on. */
static void unsay(struct lead *lead)
{
    lead->verdict.status = RUN_RESUMABLE;
    str_copy(lead->verdict.reason, sizeof(lead->verdict.reason),
             lead->view.shared ? "the run directory does not answer"
             : "too few nodes know that the run has ended, and the others may "
               "go on: their own run directories tell");
}

void lead_advance_claim(struct lead *lead, struct lead_actions *ret)
{
    if (is_whole_again(lead)) {
        lead->standing_down = false;
        if (is_wanted(lead)) {
            end_after_all(lead, ret);
        } else {
            go_on_again(lead, ret);
        }
    } else if (lead->now_ms < lead->end_claim_ms && !MUTANT(102)) {
        return;
    } else if (lead->standing_down && !lead->view.shared) {
        if (lead->verdict.status != RUN_RESUMABLE) {
            unsay(lead);
        }
        publish_end(lead, ret);
    } else if (MUTANT(103) || (lead->proposing && is_accepted(lead))) {
        publish_end(lead, ret);
    } else if (is_unanswered(lead)) {
        lead->claiming = true; /* nothing more is claimed */
        lead->verdict.is_unsure = lead->adrift && lead->view.shared;
        unsay(lead);
        publish_end(lead, ret);
    } else if (lead->view.shared) {
        claim(lead, ret, true);
    }
}

/* Who was stopped since its END may not be the one who sees to it any more: those that
 * knew of the verdict claim it again when they are free. So does this one, and only
 * the one who wins says that the run has ended. */
bool lead_claims_end_again(struct lead *lead, struct lead_actions *ret)
{
    if (!lead->claims_again) {
        if (!lead->adrift || !lead->view.shared || lead->claiming ||
            !has_rivals(lead) || MUTANT(122)) {
            return false;
        }
        lead->claims_again = true;
        lead->waits_on = false;
        lead->limit_ms = lead_later(lead->now_ms, lead->config.claim_ms);
        claim(lead, ret, true);
    }
    if (lead->claiming && !is_unanswered(lead)) {
        return true;
    }
    lead->verdict.is_unsure = !lead->is_last;
    return false;
}

/* --- the answer --- */

/* All had stopped when it was claimed, only to take more in, and all obey: RUN can
 * follow at once, and say what view it is. Else they are asked again: what they have
 * said was of another view; and so has whoever comes before that RUN. */
static bool can_run(const struct lead *lead)
{
    return lead->claim_adds && lead_all_ready(lead) && !has_estranged(lead) &&
           (lead->now_ms >= lead_run_ms(lead) || MUTANT(140));
}

static void win(struct lead *lead, struct lead_actions *ret)
{
    bool is_end = lead->claim.has_verdict && lead->phase == PHASE_CLAIM;
    bool was_ready = can_run(lead);

    if (view_copy(&lead->view, &lead->claim) < 0) {
        return;
    }
    lead->view.has_verdict = false;
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        lead->nodes[i].estranged = lead->nodes[i].floor > lead->view.number;
    }
    if (is_end) {
        publish_end(lead, ret);
    } else if (lead->phase == PHASE_END) {
        lead->is_last = true;
        lead->limit_ms = lead->now_ms;
    } else if (lead->phase == PHASE_PREPARE && !was_ready) {
        lead_prepare(lead, ret);
    } else if (lead->phase == PHASE_RUN) {
        lead_order_again(lead, ret);
    }
}

void lead_on_claimed(struct lead *lead, enum heir_outcome outcome,
                     struct lead_actions *ret)
{
    if (!lead->claiming) {
        return;
    }
    lead->claiming = false;
    switch (outcome) {
    case HEIR_WON:
        win(lead, ret);
        return;
    case HEIR_LOST:
        lead->retired = true;
        return;
    case HEIR_UNKNOWN:
        /* It may be ours yet: the same again, unless its time is over. */
        if (lead->phase < PHASE_CLAIM || !is_unanswered(lead)) {
            lead->claiming = true;
            ret->claim = &lead->claim;
        }
        return;
    }
}

/* --- nodes that obey no more --- */

bool lead_is_of_view(const struct lead *lead, const struct report *r)
{
    if (!is_on(lead) || r->state == REPORT_JOINED) {
        return true;
    }
    return (r->floor == lead->view.number || MUTANT(107)) &&
           r->generation <= lead->generation;
}

void lead_look_at_floor(struct lead *lead, const struct report *r,
                        struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[r->rank];
    uint64_t heard_ms;

    n->untold = n->untold && r->serial < n->serial;
    n->floor = r->floor > n->floor ? r->floor : n->floor;
    if (!is_on(lead) || lead->phase >= PHASE_END) {
        return;
    }
    if (r->heard_ago_ms != UINT64_MAX) {
        heard_ms = lead->now_ms > r->heard_ago_ms
                       ? lead->now_ms - r->heard_ago_ms : 0;
        lead->heard_ms = heard_ms > lead->heard_ms ? heard_ms : lead->heard_ms;
        lead->has_heard = true;
    }
    if (r->generation > lead->generation && r->generation > lead->foreign) {
        lead->foreign = r->generation; /* another lead prepared it */
        if (lead->phase == PHASE_PREPARE && r->floor <= lead->view.number) {
            lead_prepare(lead, ret);
        }
    }
    if (n->floor > lead->view.number && !n->estranged && !MUTANT(104)) {
        n->estranged = true;
        if (!n->lost && n->serial) {
            lead_lose_workers(lead, r->rank, ret);
        }
    } else if (r->fenced && r->fenced == lead->ran && !n->lost &&
               n->takes_part && lead->phase == PHASE_RUN) {
        lead_lose_workers(lead, r->rank, ret);
    }
}
