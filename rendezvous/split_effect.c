/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a generation leaves behind: the commit of what its workers have saved, by a
 * thread of the agent that leads, and then the upload of it to a store. Both take
 * their time, and the agent may be stopped meanwhile: when it goes on the thread may
 * be faster than the loop that learns that another one leads.
 *
 * The rule: just before it takes effect the lead has to be in office
 * (heir_is_in_office()), and to have ordered nothing newer than that generation. What
 * was begun in another view is void: others may have led in between.
 */
#include <config.h>

#include "rendezvous/mutant.h"
#include "rendezvous/split.h"

static bool is_in_office(const struct split *s, const struct split_agent *a)
{
    return heir_is_lead(a->heir) &&
           heir_is_in_office(a->heir, split_clock(s, a));
}

static void begin(struct split *s, struct split_agent *lead, enum split_type type,
                  uint32_t generation)
{
    split_push(s, (struct split_event){
        .at_ms = s->now_ms + split_pick(s, 1, s->lease_ms * 2), .seq = ++s->seq,
        .type = (uint8_t)type, .to = split_rank(s, lead), .tag = generation,
        .from = heir_view(lead->heir)->number, .rank = is_in_office(s, lead)});
}

/* A worker has saved: the lead that its agent follows hears of it, if it can. */
void split_on_saved(struct split *s, struct split_agent *a)
{
    uint32_t to = heir_view(a->heir)->lead;
    struct split_agent *lead = &s->agents[to < s->n ? to : 0];

    if (heir_view(a->heir)->number && lead->alive && lead->lead &&
        s->reach[split_rank(s, a)][to]) {
        begin(s, lead, SP_COMMIT, a->generation);
    }
}

void split_on_effect(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    const char *what = e->type == SP_COMMIT ? "commit" : "upload";
    bool may = MUTANT(126) ? e->rank : is_in_office(s, a);

    if (!a->alive || !a->lead || !may ||
        e->from != heir_view(a->heir)->number ||
        e->tag < a->ordered_run) {
        s->n_void++;
        return;
    }
    split_trace(s, "node %u: the %s of generation %u", e->to, what, e->tag);
    split_check_effect(s, a, e->tag, what);
    if (e->type == SP_UPLOAD) {
        s->n_uploads++;
        return;
    }
    s->n_commits++;
    begin(s, a, SP_UPLOAD, e->tag);
    split_lead(s, a, (struct lead_event){.type = LEAD_SAVED, .text = "committed",
                                         .step = (int64_t)s->now_ms});
}
