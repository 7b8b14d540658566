/* SPDX-License-Identifier: Apache-2.0 */
/* Who is below an agent of the simulated tree, and what came from there. */
#include <config.h>

#include "rendezvous/split_priv.h"

enum { LOOK_MS = 100 };

void split_tell_lost(struct split *s, struct split_agent *a, uint32_t rank)
{
    struct split_below *b = &a->below[rank];

    b->due_ms = 0;
    b->lost = true;
    b->via = SPLIT_NONE;
    b->has_follow = false;
    if (b->dead) {
        split_heir(s, a, (struct heir_event){.type = HEIR_DEAD, .rank = rank});
    }
    split_heir(s, a, (struct heir_event){.type = HEIR_UNFOLLOW, .rank = rank});
    if (a->alive && a->lead && rank < a->n_known) {
        split_lead(s, a, (struct lead_event){
            .type = LEAD_LOST, .rank = rank, .dead = b->dead, .text = "silent",
            .quiet_ms = split_clock(s, a) - b->quiet_at_ms});
    } else if (a->alive && !a->lead) {
        split_send_lost_up(s, a, rank);
    }
}

void split_expect_back(struct split *s, struct split_agent *a, uint32_t rank,
                       uint64_t ms, uint64_t word_ms)
{
    struct split_below *b = &a->below[rank];
    uint64_t due_ms = split_clock(s, a) + ms;

    if (b->lost || (b->due_ms && b->due_ms <= due_ms)) {
        return;
    }
    b->due_ms = due_ms;
    b->dead = false;
    b->quiet_at_ms = word_ms > b->word_ms ? word_ms : b->word_ms;
    split_post(s, s->now_ms + ms + 1, SP_LOST, split_rank(s, a), rank);
}

void split_on_lost(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    struct split_below *b = &a->below[e->tag];

    if (!a->alive || !b->due_ms) {
        return;
    }
    if (b->due_ms <= split_clock(s, a)) {
        split_tell_lost(s, a, e->tag);
    } else {
        split_post(s, s->now_ms + 1, SP_LOST, e->to, e->tag);
    }
}

/* The host of a child whose link broke refuses its port once its agent has ended. */
void split_on_look(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    struct split_below *b = &a->below[e->tag];

    if (!a->alive || !b->due_ms) {
        return;
    }
    if (split_is_gone(s, e->to, e->tag)) {
        b->dead = true;
        split_tell_lost(s, a, e->tag);
    } else {
        split_post(s, s->now_ms + LOOK_MS, SP_LOOK, e->to, e->tag);
    }
}

void split_heard_of(struct split *s, struct split_agent *a, uint32_t rank,
                    uint32_t via)
{
    struct split_below *b = &a->below[rank];

    if (via != rank && a->child[rank].linked) {
        a->child[via].n_new += b->other != via;
        b->other = via;
        b->other_ms = split_clock(s, a);
        return;
    }
    if (b->via != via || b->due_ms) {
        bool is_linked = b->via != SPLIT_NONE && a->child[b->via].linked;
        uint64_t word_ms = is_linked ? a->child[b->via].word_ms
                                     : b->quiet_at_ms;

        b->word_ms = word_ms > b->word_ms ? word_ms : b->word_ms;
    }
    a->child[via].n_new += via != rank && (b->via != via || b->due_ms || b->lost);
    b->other = SPLIT_NONE;
    b->via = via;
    b->lost = false;
    b->due_ms = 0;
}

static bool goes_on_elsewhere(struct split_agent *a, uint32_t child)
{
    struct split_below *b = &a->below[child];
    const struct split_child *c = &a->child[child];

    if (b->via != child || b->other == SPLIT_NONE ||
        b->other_ms <= c->heard_ms || !a->child[b->other].linked) {
        return false;
    }
    b->word_ms = c->word_ms > b->word_ms ? c->word_ms : b->word_ms;
    b->via = b->other;
    b->other = SPLIT_NONE;
    return true;
}

void split_child_lost(struct split *s, struct split_agent *a, uint32_t child,
                      uint64_t return_ms)
{
    uint64_t word_ms = a->child[child].word_ms;

    a->child[child].linked = false;
    goes_on_elsewhere(a, child);
    split_post(s, s->now_ms + 1, SP_LOOK, split_rank(s, a), child);
    for (uint32_t i = 0; i < s->n; i++) {
        if (a->below[i].other == child) {
            a->below[i].other = SPLIT_NONE;
        }
        if (a->below[i].via == child) {
            split_expect_back(s, a, i, i == child ? return_ms : s->lease_ms,
                              word_ms);
        }
    }
}

void split_take_here(struct split *s, struct split_agent *a, uint32_t rank)
{
    if (a->lead && rank >= a->n_known) {
        return; /* it meets it later */
    }
    if (a->lead) {
        split_lead(s, a, (struct lead_event){.type = LEAD_HERE, .rank = rank});
    } else {
        split_send_up(s, a, FR_HERE, rank, NULL);
    }
}

void split_take_report(struct split *s, struct split_agent *a, uint32_t rank,
                       const struct buf *bytes)
{
    struct report r;

    split_keep(&a->below[rank].report, bytes);
    if (!a->lead) {
        split_send_up(s, a, FR_REPORT, rank, bytes);
    } else if (rank < a->n_known &&
               report_decode(bytes->data, bytes->len, &r, NULL) == 0) {
        split_lead(s, a, (struct lead_event){.type = LEAD_REPORT,
                                             .report = &r});
    }
}

void split_take_follow(struct split *s, struct split_agent *a, uint32_t rank,
                       const struct buf *bytes)
{
    struct follow f;

    split_keep(&a->below[rank].follow, bytes);
    a->below[rank].has_follow = true;
    if (follow_decode(bytes->data, bytes->len, &f, NULL) < 0) {
        split_fail(s, "a follow does not parse");
        return;
    }
    /* Here too: this agent may be the top before it is told again. */
    split_heir(s, a, (struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
    split_send_up(s, a, FR_FOLLOW, rank, bytes);
}

void split_become_root(struct split *s, struct split_agent *a)
{
    split_drop_up(s, a);
    for (uint32_t i = 0; i < s->n && a->lead; i++) {
        struct split_below *b = &a->below[i];
        _buf_ struct buf report = split_copy_of(&b->report);

        if (i != split_rank(s, a) && b->via != SPLIT_NONE && !b->due_ms) {
            split_take_here(s, a, i);
        }
        if (a->lead && report.len &&
            (i == split_rank(s, a) || b->via != SPLIT_NONE)) {
            split_take_report(s, a, i, &report);
        }
    }
}

void split_repeat_all(struct split *s, struct split_agent *a)
{
    uint32_t self = split_rank(s, a);

    for (uint32_t i = 0; i < s->n; i++) {
        struct split_below *b = &a->below[i];

        if (i != self && b->lost) {
            split_send_lost_up(s, a, i);
            continue;
        }
        if (i != self && (b->via == SPLIT_NONE || b->due_ms)) {
            continue;
        }
        if (i != self) {
            split_send_up(s, a, FR_HERE, i, NULL);
        }
        if (b->has_follow && i != self) {
            split_send_up(s, a, FR_FOLLOW, i, &b->follow);
        }
        if (b->report.len) {
            split_send_up(s, a, FR_REPORT, i, &b->report);
        }
    }
}
