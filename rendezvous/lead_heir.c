/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a lead begins: the first one with the view of all, another one with what
 * its camp knows of the last. Of what it does not know it takes the worst: that
 * all members took part, and have workers until their leases are over.
 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <stdio.h>

static void inherit_node(struct lead *lead, const struct heritage *h,
                         uint32_t rank)
{
    struct lead_node *n = &lead->nodes[rank];
    bool is_known = h->n_procs && rank < h->n_procs_len;

    if (rank >= h->n_nodes) {
        return;
    }
    n->dead = h->dead[rank];
    n->strayed = n->dead && !h->view.shared && !MUTANT(123);
    n->lost = !h->follows[rank];
    n->expected = !n->lost && !MUTANT(117);
    n->takes_part = lead->ran && (is_known ? h->n_procs[rank] > 0 : !h->n_procs);
    n->n_procs = is_known ? h->n_procs[rank] : 0;
    /* Its RUN may not have come here. */
    n->may_run = lead->generation && !n->dead && !(h->idle && h->idle[rank]);
    n->clear_ms = MUTANT(105) ? 0 : h->clear_ms;
}

static void inherit_marks(struct lead *lead, const struct past *p)
{
    for (uint32_t i = 0; i < p->n_marks; i++) {
        const struct past_mark *m = &p->marks[i];

        if (m->rank < lead->n_nodes) {
            lead->nodes[m->rank].n_causes = m->n_causes;
            if (m->excluded && lead->nodes[m->rank].node != LEAD_NO_NODE) {
                lead_set_excluded(lead, lead->nodes[m->rank].node, m->excluded);
            }
        }
    }
}

static int inherit(struct lead *lead, const struct heritage *h)
{
    const struct past *p = &h->past;

    lead->generation = h->generation;
    lead->ran = p->ran;
    lead->ran_at_ms = lead->now_ms;
    lead->n_restarts = p->n_restarts;
    lead->n_losses = p->n_losses;
    lead->want_nodes = p->want_nodes ? p->want_nodes : lead->want_nodes;
    lead->saved_generation = p->saved_generation;
    lead->resume_step = p->resume_step;
    str_copy(lead->resume_path, sizeof(lead->resume_path), p->resume_path);
    lead->avoid = p->avoid;
    lead->has_moved = p->ran && p->saved_generation == p->ran;
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        inherit_node(lead, h, i);
    }
    inherit_marks(lead, p);
    lead->suspended = p->suspended;
    lead->is_new = true;
    if (h->has_verdict) {
        lead->verdict.status = h->status;
        lead->verdict.generation = lead->ran;
        lead->verdict.n_restarts = lead->n_restarts;
        str_copy(lead->verdict.reason, sizeof(lead->verdict.reason), h->reason);
        lead->has_heritage_end = true;
        lead->is_end_proposed = h->is_proposed && !MUTANT(124);
    }
    return view_copy(&lead->view, &h->view);
}

int lead_begin(struct lead *lead, const struct lead_config *config)
{
    lead->config.heritage = NULL;
    if (config->heritage) {
        return inherit(lead, config->heritage);
    }
    if (config->rule.on) {
        lead->view = (struct view){.number = 1, .lead = config->rank,
                                   .n_nodes = config->n_nodes};
    }
    return 0;
}

void lead_found(struct lead *lead)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        lead->whole[i] = lead_is_here(&lead->nodes[i]);
    }
    if (lead->view.number) {
        (void)view_set(&lead->view, lead->whole, lead->n_nodes);
    }
}

/* Those that are not in the camp are lost. */
static void count_losses(struct lead *lead, struct lead_actions *ret)
{
    char name[FAILURE_HOST_BYTES];

    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        const struct lead_node *n = &lead->nodes[i];

        if (!n->lost || !n->takes_part) {
            continue;
        }
        lead->n_losses++;
        lead->has_lost = true;
        lead->harsh = lead->harsh || !n->dead;
        snprintf(lead->loss, sizeof(lead->loss), "lost node %u (%s): %s", i,
                 lead_name_of(lead, i, name, sizeof(name)),
                 n->dead ? "its agent has ended" : "no word from it");
        lead_note(lead, ret, LEAD_NOTE_LOST, i, "%s", lead->loss);
    }
}

/* Who only knows that it was proposed proposes it once more: this lead need not be the
 * one that enough are bound to. */
static void end_again(struct lead *lead, struct lead_actions *ret)
{
    enum order_stop stop = lead->ran ? ORDER_STOP_GRACE : ORDER_STOP_NONE;
    uint32_t grace_ms = lead->config.restart_grace_ms;

    if (!lead->is_end_proposed || !lead_claim_end(lead, ret, stop, grace_ms)) {
        lead_publish_end(lead, ret, stop, grace_ms);
    }
}

void lead_take_over(struct lead *lead, struct lead_actions *ret)
{
    char why[ORDER_TEXT_BYTES / 4];

    lead->is_new = false;
    lead->phase = PHASE_PREPARE;
    lead->hold_ms = lead->now_ms;
    lead_note(lead, ret, LEAD_NOTE_LEADS, lead->config.rank,
              "node %u leads from here on (view %u)", lead->config.rank,
              lead->view.number);
    if (lead->has_heritage_end) {
        end_again(lead, ret);
        return;
    }
    count_losses(lead, ret);
    if (lead_is_at_end(lead, why, sizeof(why))) {
        lead_end_by_loss(lead, why, ret);
    } else {
        lead_prepare(lead, ret);
    }
}
