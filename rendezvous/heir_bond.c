/* SPDX-License-Identifier: Apache-2.0 */
/* What this agent has heard of its lead, and whether it is bound to it. */
#include <config.h>

#include "rendezvous/heir_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void heir_learn(struct heir *h, uint64_t serial, uint32_t generation,
                const struct past *past)
{
    struct follow *k = &h->known;

    if (generation > k->generation) {
        k->generation = generation;
    }
    if (serial > k->order_serial) {
        k->order_serial = serial;
        k->past = *past;
        h->tells = true;
    }
}

void heir_learn_end(struct heir *h, uint8_t status, const char *reason)
{
    struct follow *k = &h->known;

    if (!k->has_verdict) {
        k->has_verdict = true;
        k->status = status;
        str_copy(k->reason, sizeof(k->reason), reason);
        h->tells = true;
    }
}

static int learn_order(struct heir *h, const struct order *o)
{
    uint16_t *n_procs = NULL;

    if (o->step == ORDER_RUN && o->generation > h->n_procs_of) {
        n_procs = calloc(o->n_nodes, sizeof(*n_procs));
        if (!n_procs) {
            return -ENOMEM;
        }
        memcpy(n_procs, o->n_procs, o->n_nodes * sizeof(*n_procs));
        free(h->n_procs);
        h->n_procs = n_procs;
        h->n_procs_len = o->n_nodes;
        h->n_procs_of = o->generation;
    }
    if (o->step == ORDER_RUN && o->serial > h->run_serial) {
        h->run_serial = o->serial;
    }
    heir_learn(h, o->serial, o->generation, &o->past);
    if (o->step >= ORDER_END) {
        h->member_has_end = true;
        heir_learn_end(h, o->status, o->reason);
    }
    return 0;
}

void heir_promise(struct heir *h, uint32_t floor, struct heir_actions *ret)
{
    h->floor = floor;
    ret->floor = floor;
    ret->heard_ms = h->has_heard ? h->heard_ms : HEIR_NEVER;
}

void heir_leave(struct heir *h, struct heir_actions *ret)
{
    h->state = HEIR_OUT;
    h->claiming = false;
    ret->leave = h->why;
}

uint64_t heir_lease_end_ms(const struct heir *h)
{
    return heir_later(h->word_ms, h->view.number ? h->config.lease_ms
                                  : h->config.join_ms > h->config.lease_ms
                                      ? h->config.join_ms
                                      : h->config.lease_ms);
}

static void word_lease(struct heir *h)
{
    snprintf(h->why, sizeof(h->why), "no word from the lead for %llu s",
             (unsigned long long)(h->now_ms - h->word_ms) / 1000);
}

void heir_become_free(struct heir *h, struct heir_actions *ret)
{
    h->state = HEIR_FREE;
    h->free_ms = h->now_ms;
    h->tells = true;
    heir_promise(h, h->view.number + 1, ret);
}

/* The lease ends; or the lead has, and somebody can follow it. */
void heir_check_bond(struct heir *h, struct heir_actions *ret)
{
    bool is_over = h->now_ms >= heir_lease_end_ms(h);

    if (h->state != HEIR_BOUND ||
        (!is_over && !(h->view.number && h->dead[h->view.lead]))) {
        return;
    }
    if (h->view.number && !heir_is_rigid(h)) {
        heir_become_free(h, ret);
    } else if (is_over) {
        word_lease(h);
        heir_leave(h, ret);
    }
}

/* A newer view is there, and this agent obeys it. */
static void bind(struct heir *h, struct heir_actions *ret)
{
    if (h->state != HEIR_LEAD) {
        h->rival_size = heir_rival_size(h);
    }
    h->state = h->view.lead == h->config.rank ? HEIR_LEAD : HEIR_BOUND;
    h->has_stamp = false;
    h->has_word = false;
    h->word_ms = h->now_ms; /* this agent's patience; its member's lease waits
                               for a word */
    h->claiming = false;
    heir_begin_words(h);
    heir_promise(h, h->view.number, ret);
}

int heir_bind_unheard(struct heir *h, const struct view *v,
                      struct heir_actions *ret)
{
    if (view_copy(&h->view, v) < 0) {
        return -ENOMEM;
    }
    h->is_unheard = true;
    h->state = HEIR_BOUND; /* also to itself, should it have been the one */
    h->has_stamp = false;
    h->word_ms = h->now_ms;
    h->claiming = false;
    heir_promise(h, v->number, ret);
    return 0;
}

/* Somebody has read that the view was won. Who has won it learns that from its claim. */
static int on_told(struct heir *h, const struct view *v, struct heir_actions *ret)
{
    if (h->state == HEIR_OUT || v->number <= h->view.number ||
        v->lead == h->config.rank) {
        return 0;
    }
    if (heir_make_room_for(h, v) < 0) {
        return -ENOMEM;
    }
    ret->quit = h->state == HEIR_LEAD;
    return heir_bind_unheard(h, v, ret);
}

/* What was read of it may have been wrong: who leads it says so itself. */
static bool is_corrected(const struct heir *h, const struct view *v)
{
    return h->is_unheard && h->state == HEIR_BOUND && v->number == h->view.number &&
           v->lead != h->view.lead && v->lead != h->config.rank;
}

/* Who says that this agent leads has read it where nobody wrote it; but for the first
 * view, which nobody has to win. */
static bool is_never_won(const struct heir *h, const struct view *v)
{
    bool is_first = MUTANT(134) ? !h->view.number : v->number == 1;

    return !is_first && v->number > h->view.number && v->lead == h->config.rank &&
           h->state != HEIR_LEAD;
}

/* With an end that is known all who are astray are enough for it: the word was good
 * without them so far. */
static void doubt_word(struct heir *h)
{
    if (h->state == HEIR_LEAD && h->n_astray >= heir_rival_size(h) && !MUTANT(130)) {
        h->has_word = false;
    }
}

int heir_on_order(struct heir *h, const struct order *o,
                  struct heir_actions *ret)
{
    const struct view *v = &o->view;
    bool is_newer = v->number > h->view.number;
    bool had_end = h->member_has_end;

    if (o->step == ORDER_VIEW) {
        return on_told(h, v, ret);
    }
    if (h->state == HEIR_OUT || v->number < h->floor ||
        v->number < h->view.number ||
        (!is_newer && v->lead != h->view.lead && v->number && !is_corrected(h, v)) ||
        (h->state == HEIR_LEAD && v->lead != h->config.rank && !is_newer) ||
        is_never_won(h, v)) {
        return 0;
    }
    if (heir_make_room_for(h, v) < 0 || learn_order(h, o) < 0) {
        return -ENOMEM;
    }
    if (is_corrected(h, v) && view_copy(&h->view, v) < 0) {
        return -ENOMEM;
    }
    h->is_unheard = false;
    if (is_newer) {
        ret->quit = h->state == HEIR_LEAD && v->lead != h->config.rank;
        if (view_copy(&h->view, v) < 0) {
            return -ENOMEM;
        }
        bind(h, ret);
    } else if (v->shared != h->view.shared) {
        h->view.shared = v->shared;
    }
    if (h->member_has_end && !had_end) {
        doubt_word(h);
    }
    ret->obey = true;
    return 0;
}

void heir_on_word(struct heir *h, const struct heir_event *event,
                  struct heir_actions *ret)
{
    uint64_t at_ms = h->now_ms > event->age_ms ? h->now_ms - event->age_ms : 0;

    if (event->view != h->view.number || heir_is_free(h) ||
        (h->state == HEIR_BOUND && event->view < h->floor)) {
        return;
    }
    if (!h->has_stamp || event->stamp_ms > h->stamp_ms) {
        h->has_stamp = true;
        h->stamp_ms = event->stamp_ms;
        h->has_heard = true;
        h->heard_ms = h->now_ms;
    }
    if (event->age_ms == HEIR_NEVER) {
        return;
    }
    if (h->view.number && at_ms > h->word_ms) {
        h->word_ms = at_ms;
    }
    ret->obey = true;
}

/* --- what the lead has told --- */

/* Since when its word was which. */
static void note_word(struct heir *h, uint64_t acked_ms)
{
    h->words[h->n_words++ % HEIR_WORDS] = (struct heir_word){h->now_ms, acked_ms};
}

void heir_begin_words(struct heir *h)
{
    h->n_words = 0;
    h->bound_ms = h->now_ms;
    note_word(h, h->now_ms);
}

/* What the word was then; 0: that is too long ago. */
static uint64_t word_at(const struct heir *h, uint64_t ms)
{
    uint32_t n = h->n_words < HEIR_WORDS ? h->n_words : HEIR_WORDS;

    for (uint32_t i = 1; i <= n; i++) {
        const struct heir_word *w = &h->words[(h->n_words - i) % HEIR_WORDS];

        if (w->from_ms <= ms) {
            return w->acked_ms;
        }
    }
    return 0;
}

/* They have all acknowledged that stamp, and what came with it. */
static void take_word(struct heir *h, uint64_t acked_ms)
{
    uint64_t told_ms = word_at(h, acked_ms);

    h->bound_ms = told_ms > h->bound_ms ? told_ms : h->bound_ms;
    h->has_word = true;
    h->acked_ms = acked_ms;
    note_word(h, acked_ms);
}

void heir_on_seen(struct heir *h, const struct heir_event *event)
{
    uint64_t n_astray = (uint64_t)event->seen.n_suspect + event->rivals.n_silent;
    uint64_t acked_ms;

    if (h->state != HEIR_LEAD) {
        return;
    }
    h->rival_size = event->rivals.size;
    h->n_astray = n_astray;
    if (n_astray < heir_rival_size(h)) {
        acked_ms = event->seen.live_ms;
    } else if (!event->rivals.n_silent) {
        acked_ms = event->seen.all_ms;
    } else {
        return;
    }
    if (acked_ms && acked_ms != HEIR_NEVER &&
        (!h->has_word || acked_ms > h->acked_ms)) {
        take_word(h, acked_ms);
    }
}
