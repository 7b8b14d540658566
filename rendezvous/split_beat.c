/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beats of the simulated tree: what each subtree has heard of the lead goes up, its
 * word comes down, and who is silent is dropped.
 */
#include <config.h>

#include "rendezvous/mutant.h"
#include "rendezvous/split_priv.h"

static uint64_t suspect_ms(const struct split *s)
{
    return s->lease_ms / 3;
}

static bool is_silent(const struct split *s, const struct split_agent *a,
                      const struct split_child *c)
{
    return split_clock(s, a) - c->heard_ms > suspect_ms(s);
}

static struct heir_seen sum_seen(struct split *s, struct split_agent *a)
{
    struct heir_seen sum = heir_seen_own(a->heir);
    uint32_t view = heir_view(a->heir)->number;

    for (uint32_t i = 0; i < s->n; i++) {
        struct split_child *c = &a->child[i];
        struct heir_seen seen = c->beat.seen;

        if (!c->linked) {
            continue;
        }
        if (is_silent(s, a, c) || c->beat.view != view) {
            bool is_quiet = is_silent(s, a, c);

            seen = (struct heir_seen){
                .all_ms = c->beat.view == view ? seen.all_ms : 0,
                .live_ms = HEIR_NEVER};
            for (uint32_t k = 0; k < s->n; k++) {
                const struct split_below *b = &a->below[k];

                seen.n_suspect += b->via == i && (k == i || (!b->lost && !b->due_ms));
            }
            seen.n_quiet = is_quiet ? seen.n_suspect : 0;
        }
        heir_seen_add(&sum, &seen);
        if (c->n_new && !MUTANT(136)) { /* its last beat was without them */
            heir_seen_add(&sum, &(struct heir_seen){.live_ms = HEIR_NEVER,
                                                    .n_suspect = c->n_new});
        }
    }
    for (uint32_t k = 0; k < s->n; k++) {
        const struct split_below *b = &a->below[k];

        /* Neither there nor lost. Who spoke for it may have given it up before us. */
        if (b->due_ms && !b->dead) {
            heir_seen_add(&sum, &(struct heir_seen){
                .live_ms = HEIR_NEVER, .n_suspect = 1, .n_quiet = 1});
        }
    }
    return sum;
}

static void drop_silent(struct split *s, struct split_agent *a)
{
    uint64_t now = split_clock(s, a);

    for (uint32_t i = 0; i < s->n; i++) {
        struct split_child *c = &a->child[i];

        if (c->linked && now - c->heard_ms > s->timeout_ms) {
            split_send_down(s, a, i, (struct split_event){.frame = FR_CLOSE});
            split_child_lost(s, a, i, SPLIT_RETURN_MS);
        }
    }
    if (a->up != SPLIT_NONE && now - a->up_heard_ms > suspect_ms(s)) {
        split_lose_up(s, a);
    }
}

void split_on_beat(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    struct split_beat beat = {.echo_ms = split_clock(s, a)};

    if (!a->alive) {
        return;
    }
    split_post(s, s->now_ms + s->lease_ms / 15, SP_BEAT, e->to, 0);
    drop_silent(s, a);
    if (a->lead) {
        struct heir_seen seen = sum_seen(s, a);

        split_heir(s, a, (struct heir_event){
            .type = HEIR_SEEN, .seen = seen,
            .rivals = lead_rivals(a->lead)});
        if (seen.n_quiet != a->n_quiet) {
            a->n_quiet = seen.n_quiet;
            split_lead(s, a, (struct lead_event){.type = LEAD_QUIET,
                                                 .n_quiet = seen.n_quiet});
        }
        split_heir(s, a, (struct heir_event){
            .type = HEIR_WORD, .view = heir_view(a->heir)->number,
            .stamp_ms = split_clock(s, a),
            .age_ms = heir_word_age_ms(a->heir, split_clock(s, a))});
    } else if (a->up_ready) {
        beat.view = heir_view(a->heir)->number;
        beat.seen = sum_seen(s, a);
        split_transmit(s, a, a->up, (struct split_event){
            .frame = FR_BEAT, .tag = a->epoch, .up = true, .beat = beat});
    }
}

void split_answer_beat(struct split *s, struct split_agent *a,
                       struct split_event *e)
{
    struct split_beat beat = {.echo_ms = e->beat.echo_ms, .has_word = true};
    uint64_t now = split_clock(s, a);

    a->child[e->from].beat = e->beat;
    a->child[e->from].n_new = 0;
    a->child[e->from].word_ms = now;
    if (a->lead) {
        beat.view = heir_view(a->heir)->number;
        beat.stamp_ms = now;
        beat.age_ms = heir_word_age_ms(a->heir, now);
    } else if (a->has_word) {
        beat.view = a->word_view;
        beat.stamp_ms = a->stamp_ms;
        beat.age_ms = a->word_at_ms ? now - a->word_at_ms : HEIR_NEVER;
    } else {
        beat.has_word = false;
    }
    split_send_down(s, a, e->from, (struct split_event){.frame = FR_ANSWER,
                                                  .beat = beat});
}

/* As old as the stamp of ours that the parent had seen by then. */
void split_take_word(struct split *s, struct split_agent *a,
                     const struct split_beat *b)
{
    uint64_t now = split_clock(s, a);
    uint64_t at_ms = b->age_ms == HEIR_NEVER || b->age_ms > b->echo_ms
                         ? 0 : b->echo_ms - b->age_ms;

    if (!b->has_word || b->view < a->word_view) {
        return;
    }
    if (b->view > a->word_view) {
        a->word_view = b->view;
        a->word_at_ms = a->stamp_ms = 0;
    }
    a->has_word = true;
    a->word_at_ms = at_ms > a->word_at_ms ? at_ms : a->word_at_ms;
    a->stamp_ms = b->stamp_ms > a->stamp_ms ? b->stamp_ms : a->stamp_ms;
    split_heir(s, a, (struct heir_event){
        .type = HEIR_WORD, .view = a->word_view, .stamp_ms = a->stamp_ms,
        .age_ms = a->word_at_ms ? now - a->word_at_ms : HEIR_NEVER});
}
