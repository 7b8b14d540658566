/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/heir_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"
#include "rendezvous/restart.h"

#include <errno.h>

/* The run has come to an end that others have accepted. */
static bool knows_end(const struct follow *f)
{
    return f->has_verdict && f->status != RUN_RESUMABLE;
}

/* Where a majority decides nobody tells a lead of a newer view, nor of one that was won in
 * the same round, and has ended the run. What such a one has done its followers know, and
 * whoever leads them has to: this agent is a candidate like any other then. */
static bool is_outdated(const struct heir *h, const struct follow *f)
{
    return h->state == HEIR_LEAD && !h->view.shared && !h->member_has_end &&
           ((f->view > h->view.number && !MUTANT(129)) || knows_end(f));
}

int heir_take_follow(struct heir *h, const struct follow *f,
                     struct heir_actions *ret)
{
    struct camper *c;

    if (f->rank >= h->n_nodes || f->rank == h->config.rank) {
        return -EPROTO;
    }
    c = &h->camp[f->rank];
    if (f->serial < c->serial) {
        return 0;
    }
    *c = (struct camper){.follows = true, .serial = f->serial, .view = f->view,
                         .has_heard = f->heard_ago_ms != HEIR_NEVER};
    if (c->has_heard) {
        c->heard_ms = h->now_ms > f->heard_ago_ms ? h->now_ms - f->heard_ago_ms
                                                  : 0;
    }
    h->dead[f->rank] = false;
    heir_learn(h, f->order_serial, f->generation, &f->past);
    if (f->has_verdict) {
        heir_learn_end(h, f->status, f->reason);
    }
    if (is_outdated(h, f)) {
        ret->quit = true;
        heir_become_free(h, ret);
    }
    return 0;
}

/* Who followed out of an older view has promised nothing of this one: it may be bound by
 * it, also where this agent knows of it from the arbiter alone. */
static bool is_in_camp(const struct heir *h, uint32_t rank)
{
    const struct camper *c = &h->camp[rank];
    uint32_t ordered = (uint32_t)(h->known.order_serial >> ORDER_SERIAL_BITS);

    return rank == h->config.rank ||
           (c->follows && (c->view >= h->view.number || MUTANT(121) ||
                           (MUTANT(127) && c->view >= ordered)));
}

static void list_camp(struct heir *h)
{
    for (uint32_t i = 0; i < h->n_nodes; i++) {
        h->in[i] = is_in_camp(h, i);
    }
}

/* All members that could still come are there. */
static bool is_complete(const struct heir *h)
{
    for (uint32_t i = 0; i < h->view.n_nodes; i++) {
        if (view_has(&h->view, i) && i != h->view.lead && !h->in[i] &&
            !h->dead[i]) {
            return false;
        }
    }
    return true;
}

/* By then the leases of all who come have ended. A camp that is not the larger part
 * leaves such a one time to be first. Who was stopped until after its lease meets those
 * that are looking for it now. */
uint64_t heir_settled_ms(const struct heir *h)
{
    uint64_t ms = h->config.settle_ms;
    uint64_t from_ms = heir_later(h->word_ms, h->config.lease_ms);
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->n_nodes; i++) {
        n += h->in[i] && view_has(&h->view, i);
    }
    if (n * 2 <= h->view.n_nodes - h->view.n_out) {
        ms *= 2;
    }
    /* A majority that is too small for the job can do no more than end the run. */
    if (!h->view.shared && n < h->config.rule.min_nodes) {
        ms = heir_later(ms, h->config.lease_ms);
    }
    if (h->free_ms > heir_later(from_ms, h->config.slack_ms) && !MUTANT(133)) {
        from_ms = h->free_ms;
    }
    return heir_later(from_ms, ms);
}

/* When anybody of the camp last heard of a lead. */
static uint64_t camp_heard_ms(const struct heir *h)
{
    uint64_t ms = h->has_heard ? h->heard_ms : h->now_ms;

    for (uint32_t i = 0; i < h->n_nodes; i++) {
        const struct camper *c = &h->camp[i];

        if (c->follows && c->has_heard && c->heard_ms > ms) {
            ms = c->heard_ms;
        }
    }
    return ms;
}

static uint32_t next_number(const struct heir *h)
{
    uint32_t newest = h->view.number;

    for (uint32_t i = 0; !h->view.shared && i < h->n_nodes; i++) {
        newest = h->camp[i].view > newest ? h->camp[i].view : newest;
    }
    return view_next_number(newest, h->config.rank, h->view.shared);
}

static int set_claim(struct heir *h)
{
    struct view *v = &h->claim;
    uint32_t n = h->view.shared ? h->n_known : h->view.n_nodes;

    for (uint32_t i = 0; !h->view.shared && i < n; i++) {
        h->in[i] = true;
    }
    if (view_set(v, h->in, n) < 0) {
        return -ENOMEM;
    }
    v->number = next_number(h);
    v->lead = h->config.rank;
    v->shared = h->view.shared;
    v->has_verdict = v->shared && h->known.has_verdict;
    v->status = h->known.status;
    str_copy(v->reason, sizeof(v->reason), h->known.reason);
    return 0;
}

/* An end that is known needs nobody to go on: only somebody who sees to it. */
static bool may_claim(const struct heir *h)
{
    struct view_rule rule = heir_rule(h);

    return (h->view.shared && h->known.has_verdict) ||
           view_may_go_on(&rule, &h->view, h->in);
}

/* Who is dead by now has not gone on from a view that nobody has made. */
static void forget_late_deaths(struct heir *h)
{
    for (uint32_t i = 0; i < h->n_nodes; i++) {
        h->camp[i].died_late = false;
    }
}

/* Nobody leads members that it does not know: they may have workers. */
void heir_consider(struct heir *h, struct heir_actions *ret)
{
    if (!h->is_top || h->claiming || h->view.n_nodes > h->n_known) {
        return;
    }
    list_camp(h);
    if (!may_claim(h) ||
        (!is_complete(h) && h->now_ms < heir_settled_ms(h)) ||
        set_claim(h) < 0) {
        return;
    }
    h->claim_heard_ms = camp_heard_ms(h);
    if (!h->view.shared) {
        heir_win(h, ret);
        return;
    }
    forget_late_deaths(h);
    h->claiming = true;
    ret->claim = &h->claim;
}

/* Who was found dead before the answer came has perhaps gone on from this view, which
 * was there: it is as silent as if it lived. */
static void doubt_late_deaths(struct heir *h)
{
    for (uint32_t i = 0; i < h->n_nodes && !MUTANT(131); i++) {
        h->dead[i] = h->dead[i] && !h->camp[i].died_late;
    }
}

/* Who was in no generation of the view that has ended has had no workers since that one
 * ran, and got none later: a RUN with it takes a view that has it, and there was none. So
 * nobody waits for its lease, as for that of a node that was lost long ago. Only where
 * the directory decides, and where nothing newer than that RUN is known of the view. */
static void list_idle(struct heir *h)
{
    bool is_newest = h->run_serial >> ORDER_SERIAL_BITS == h->view.number &&
                     h->run_serial == h->known.order_serial &&
                     h->n_procs_of == h->known.generation &&
                     h->n_procs_of == h->known.past.ran;
    bool is_sure = h->view.shared && (is_newest || MUTANT(138));

    for (uint32_t i = 0; i < h->n_nodes; i++) {
        h->idle[i] = is_sure && !view_has(&h->view, i) &&
                     (i >= h->n_procs_len || h->n_procs[i] == 0);
    }
}

void heir_win(struct heir *h, struct heir_actions *ret)
{
    struct heritage *to = &h->heritage;
    uint64_t heard_ms = camp_heard_ms(h);

    list_camp(h); /* those who are free of the old view */
    list_idle(h);
    if (h->state != HEIR_FREE || view_copy(&h->view, &h->claim) < 0) {
        return;
    }
    doubt_late_deaths(h);
    h->view.has_verdict = false;
    heard_ms = heard_ms > h->claim_heard_ms ? heard_ms : h->claim_heard_ms;
    *to = (struct heritage){
        .view = h->view,
        .generation = h->known.generation - MUTANT(106),
        .past = h->known.past,
        .n_procs_len = h->n_procs_len,
        .n_procs = h->n_procs_of == h->known.past.ran ? h->n_procs : NULL,
        .follows = h->in,
        .dead = h->dead,
        .idle = h->idle,
        .n_nodes = h->n_known,
        .clear_ms = heir_later(heard_ms, h->config.lease_ms +
                                             h->config.slack_ms),
        .has_verdict = h->known.has_verdict || h->known.past.has_end,
        .is_proposed = !h->known.has_verdict && h->known.past.has_end,
        .status = h->known.has_verdict ? h->known.status
                                       : h->known.past.status,
    };
    str_copy(to->reason, sizeof(to->reason),
             h->known.has_verdict ? h->known.reason : h->known.past.reason);
    h->state = HEIR_LEAD;
    h->has_word = false;
    heir_begin_words(h);
    h->rival_size = 0; /* until its lead has said it */
    h->has_stamp = false;
    h->floor = h->view.number;
    ret->floor = h->floor;
    ret->heard_ms = h->has_heard ? h->heard_ms : HEIR_NEVER;
    ret->lead = to;
}
