/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/split.h"

#include <stdarg.h>
#include <stdio.h>

enum { WAKE_MS = 30 }; /* until what an agent kills when it goes on is dead */

void split_fail(struct split *s, const char *fmt, ...)
{
    va_list ap;

    if (s->violation[0]) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(s->violation, sizeof(s->violation), fmt, ap);
    va_end(ap);
    split_trace(s, "VIOLATION: %s", s->violation);
}

/* A stopped agent cannot fence itself. */
static bool is_beyond(const struct split *s, const struct split_agent *a)
{
    return a->paused_until_ms && s->now_ms <= a->paused_until_ms + WAKE_MS;
}

/* A lead that does not know that it is one no more may order what it likes: what
 * counts is what comes of it. */
/* Workers see the keys of no other generation, and change none: the store that they are
 * told of was opened for theirs. */
static void check_store(struct split *s, const struct order *o)
{
    uint32_t k = o->master_port - SPLIT_FIRST_PORT;

    if (k >= SPLIT_STORES || k >= s->n_stores || s->store_of[k] != o->generation) {
        split_fail(s, "workers of generation %u use the store of generation %u",
                   o->generation, k < SPLIT_STORES ? s->store_of[k] : 0);
    }
}

void split_check_start(struct split *s, const struct split_agent *a,
                       const struct order *o)
{
    uint32_t n = 0;
    uint32_t *who = &s->run_view[o->view.number % SPLIT_VIEWS];

    for (uint32_t i = 0; i < o->n_nodes; i++) {
        n += o->n_procs[i] > 0;
    }
    if (is_beyond(s, a)) {
        return;
    }
    check_store(s, o);
    if (n < s->min_nodes) {
        split_fail(s, "generation %u on %u nodes of at least %u",
                   o->generation, n, s->min_nodes);
    }
    if (o->generation < s->ran) {
        split_fail(s, "generation %u is started after %u", o->generation,
                   s->ran);
    }
    if (o->generation == s->ran && s->run_lead != o->view.lead) {
        split_fail(s, "generation %u is of node %u and of node %u",
                   o->generation, s->run_lead, o->view.lead);
    }
    if (s->shared && *who && *who != o->view.lead + 1) {
        split_fail(s, "view %u has the leads %u and %u", o->view.number,
                   *who - 1, o->view.lead);
    }
    if (s->has_end && o->generation > s->end_generation) {
        split_fail(s, "generation %u is started after the verdict %u",
                   o->generation, s->end_status);
    }
    *who = o->view.lead + 1;
    for (uint32_t i = 0; i < s->n; i++) {
        s->agents[i].member_of_view = view_has(&o->view, i);
    }
    s->n_runs++;
    s->ran = o->generation;
    s->run_lead = o->view.lead;
}

/* What is written down as the end must not be written over with another one, nor by
 * another one who was stopped; where the directory answers, that is. Who has had no time
 * for its answer, for it was stopped once more, writes nothing down. */
static void check_record(struct split *s, const struct split_agent *a,
                         const struct order *o)
{
    if (!s->shared || s->arbiter_hung || s->arbiter_bad || s->arbiter_lies) {
        return;
    }
    if (lead_verdict(a->lead)->is_unsure) {
        if (a->n_stops < 2) {
            split_fail(s, "node %u is not sure of the end, though the directory "
                       "answers", o->view.lead);
        }
        return;
    }
    if (s->has_record && s->record_status != o->status) {
        split_fail(s, "the end %u of node %u is written over the end %u",
                   o->status, o->view.lead, s->record_status);
    }
    if (o->view.number < s->record_view) {
        split_fail(s, "the end is written by node %u, of view %u, after it was in "
                   "view %u", o->view.lead, o->view.number, s->record_view);
    }
    s->record_view = o->view.number;
    s->has_record = true;
    s->record_status = o->status;
}

void split_check_order(struct split *s, const struct split_agent *a,
                       const struct order *o)
{
    if (o->past.n_restarts > s->restart.max) {
        split_fail(s, "%u restarts of %u", o->past.n_restarts, s->restart.max);
    }
    if (o->step >= ORDER_END && o->status != RUN_RESUMABLE) {
        if (s->has_end && s->end_status != o->status) {
            split_fail(s, "verdict %u after %u", o->status, s->end_status);
        }
        if (!s->has_end && o->generation < s->ran) {
            split_fail(s, "verdict %u of generation %u after RUN(%u)",
                       o->status, o->generation, s->ran);
        }
        s->end_generation = s->has_end ? s->end_generation : o->generation;
        s->has_end = true;
        s->end_status = o->status;
    }
    if (o->step == ORDER_LEAVE) {
        check_record(s, a, o);
    }
}

void split_check_camp(struct split *s, const struct split_agent *a,
                      const struct heritage *h, uint32_t left)
{
    for (uint32_t i = 0; i < s->n && i < h->n_nodes; i++) {
        const struct heir *heir = s->agents[i].heir;

        if (h->follows[i] && s->agents[i].alive && heir != a->heir &&
            !heir_is_free(heir) && heir_view(heir)->number <= left) {
            split_fail(s, "node %u takes the lead after view %u with node %u, "
                       "which is bound to view %u", split_rank(s, a), left, i,
                       heir_view(heir)->number);
        }
    }
}

/* Each wake-up may be some milliseconds late, where clocks are slow. */
enum { TELL_MS = 300 };

void split_check_told(struct split *s, struct split_agent *a)
{
    const struct order *o = lead_order(a->lead);
    int64_t step;

    (void)lead_resume(a->lead, &step);
    if (!o || o->step == ORDER_LEAVE || o->past.resume_step >= step) {
        a->untold_ms = 0;
    } else if (!a->untold_ms || o->past.resume_step >= a->untold_step ||
               is_beyond(s, a)) {
        a->untold_ms = s->now_ms;
        a->untold_step = step;
    } else if (s->now_ms - a->untold_ms > TELL_MS) {
        split_fail(s, "node %u knows of step %lld for %llu ms, and its orders of "
                   "%lld", split_rank(s, a), (long long)step,
                   (unsigned long long)(s->now_ms - a->untold_ms),
                   (long long)o->past.resume_step);
    }
}

/* Nothing of a generation takes effect once a newer one runs, or the end is written. */
void split_check_effect(struct split *s, const struct split_agent *a,
                        uint32_t generation, const char *what)
{
    uint32_t number = heir_view(a->heir)->number;

    if (generation < s->ran) {
        split_fail(s, "the %s of generation %u by node %u takes effect after %u was "
                   "started", what, generation, split_rank(s, a), s->ran);
    }
    for (uint32_t i = 0; s->shared && i < SPLIT_VIEWS; i++) {
        const struct view *v = &s->files[i];

        if (v->number > number && v->lead != split_rank(s, a) && v->has_verdict) {
            split_fail(s, "the %s of generation %u by node %u, of view %u, takes "
                       "effect after node %u has written the end", what, generation,
                       split_rank(s, a), number, v->lead);
        }
    }
}

void split_check_world(struct split *s)
{
    const struct split_agent *first = NULL;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct split_agent *a = &s->agents[i];

        if (!a->worker || is_beyond(s, a)) {
            continue;
        }
        if (first && first->generation != a->generation) {
            split_fail(s, "generation %u is alive on node %u and %u on node %u",
                       first->generation, split_rank(s, first), a->generation,
                       i);
        }
        first = a;
    }
}

/* A lead that was answered in less than its patience goes on, and so does whoever is
 * free, whose patience is longer. */
static bool has_answered_in_time(const struct split *s)
{
    uint64_t asks_ms = (s->arbiter_bad ? 3 : 1) * (SPLIT_ASK_MS + 60);

    return !s->shared ||
           (s->hung_ms + asks_ms < SPLIT_CLAIM_MS && !s->arbiter_lies &&
            s->hung_ms + 2 * s->lease_ms < s->wait_ms &&
            (!s->arbiter_bad || s->is_patient));
}

static bool is_in_newest(const struct split *s, uint32_t rank)
{
    const struct view *newest = &s->files[0];

    for (uint32_t i = 1; i < SPLIT_VIEWS; i++) {
        newest = s->files[i].number > newest->number ? &s->files[i] : newest;
    }
    return !s->shared || !newest->number || view_has(newest, rank);
}

/* Whether enough nodes were never disturbed, so that the run had to go on on some
 * side: members of the view that ran last, and of the one that was won last, for who
 * came too late to be one does not count when another lead is found. Of a cut, the side
 * counts that is larger; where more happened, the other one may have won, and failed
 * then. */
static bool must_have_succeeded(const struct split *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        n += s->agents[i].member_of_view && !s->agents[i].disturbed &&
             is_in_newest(s, i);
    }
    return s->n_runs && (!s->n_cuts || s->n_faults == 1) &&
           n >= s->min_nodes && n * 2 > s->n && has_answered_in_time(s) &&
           !s->stop_sent;
}

void split_check_end(struct split *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct split_agent *a = &s->agents[i];

        if (a->alive) {
            split_fail(s, "node %u has not left (%s)", i,
                       heir_state_name(a->heir));
        }
        if (a->worker) {
            split_fail(s, "a worker is left on node %u", i);
        }
        if (a->told && a->status != RUN_RESUMABLE &&
            !(s->has_end && s->end_status == a->status)) {
            split_fail(s, "node %u says %u, which is no verdict", i,
                       a->status);
        }
    }
    if (must_have_succeeded(s) && !s->has_end) {
        split_fail(s, "the run was given up, though it could go on");
    }
}
