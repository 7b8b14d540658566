/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead's side of saves: knows how far each rank is (launcher/snap_tally.h), and finishes
 * one after the other, the oldest first, once nothing more is to be waited for
 * (launcher/agent_snap_lead_commit.c).
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/loop_timer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 2000 };

/* --- saves --- */

void lead_save_free(struct lead_save *s)
{
    snap_tally_release(&s->tally);
    snap_sets_release(&s->sets);
    free(s);
}

bool lead_save_is_beside(const struct lead_save *a, const struct lead_save *b)
{
    return strcmp(a->root, b->root) == 0;
}

struct snap_age lead_save_age(const struct lead_save *s)
{
    return (struct snap_age){s->tally.generation, s->step, s->token};
}

bool lead_save_is_later(const struct lead_save *a, const struct lead_save *b)
{
    return snap_is_later(lead_save_age(a), lead_save_age(b));
}

static bool is_lost(void *arg, uint32_t agent)
{
    const struct lead_snap *l = arg;

    return l->ops->is_lost(l->arg, agent);
}

/* Workers save in order: who has handed over a later one has passed this one. */
static bool is_passed(const struct lead_save *save)
{
    for (const struct lead_save *s = save->lead->saves; s; s = s->next) {
        if (s->step > save->step && lead_save_is_beside(s, save) &&
            s->tally.generation == save->tally.generation &&
            s->tally.n_held == s->tally.n_ranks) {
            return true;
        }
    }
    return false;
}

struct snap_now lead_save_now(const struct lead_save *s)
{
    struct lead_snap *l = s->lead;

    return (struct snap_now){.ms = uv_now(&l->agent->loop),
                             .started = l->ops->started(l->arg),
                             .is_passed = is_passed(s), .is_ending = l->is_ending,
                             .is_parked = lead_save_is_parked(s), .is_lost = is_lost,
                             .arg = l};
}

static bool is_due(const struct lead_save *s)
{
    const struct snap_now now = lead_save_now(s);

    return !s->is_working && !s->is_settled &&
           snap_tally_judge(&s->tally, &now) != SNAP_FATE_WAIT;
}

/* --- what is to be done --- */

void lead_snap_show(struct lead_snap *l)
{
    const struct lead_save *oldest = NULL;

    for (const struct lead_save *s = l->saves; s; s = s->next) {
        oldest = s->is_settled || lead_save_is_parked(s) ? oldest : s;
    }
    lead_levels_show_busy(l);
    lead_check_give_way(l);
    l->ops->on_saving(l->arg, oldest ? oldest->step : 0,
                      oldest ? oldest->tally.n_written : 0,
                      oldest ? oldest->tally.n_ranks : 0);
}

static struct lead_save *find_partial(const struct lead_snap *l)
{
    for (struct lead_save *s = l->saves; s; s = s->next) {
        if (lead_save_is_parked(s) && s->tally.n_held < s->tally.n_ranks &&
            s->tally.n_written == 0 && s->tally.n_failed == 0 && is_due(s)) {
            return s;
        }
    }
    return NULL;
}

/* Of those nothing is on the disk, nor was it promised to anybody: so it is no news. */
static void drop_partial(struct lead_snap *l)
{
    struct lead_save *s;

    while ((s = find_partial(l))) {
        agent_log(l->agent, "step %llu was saved by %u of %u ranks, and is in memory only: "
                  "it is no checkpoint", (unsigned long long)s->step, s->tally.n_held,
                  s->tally.n_ranks);
        lead_snap_drop(s, ECONNABORTED, "not all ranks have saved it");
    }
}

void lead_snap_look(struct lead_snap *l)
{
    struct lead_save *oldest = NULL;

    if (l->is_asked) {
        lead_levels_promote(l); /* the next one, where the one before has failed */
    }
    drop_partial(l);
    for (struct lead_save *s = l->saves; s && l->n_works == 0; s = s->next) {
        oldest = is_due(s) && office_holds(&l->office) ? s : oldest;
    }
    if (oldest) {
        lead_save_finish(oldest);
    } else if (l->is_ending && l->n_works == 0 && !lead_check_is_awaited(l)) {
        lead_save_sweep(l);
    }
    lead_wait_look(l);
}

void lead_snap_worked(struct lead_snap *l)
{
    l->n_works--;
    if (l->is_dying) {
        lead_snap_may_go(l);
        return;
    }
    lead_check_worked(l);
    lead_snap_look(l);
}

static void on_timer(uv_timer_t *t)
{
    lead_snap_rescue(t->data);
    lead_snap_look(t->data);
    lead_check_give_way(t->data);
    lead_wait_tell(t->data);
    lead_snap_show_held(t->data);
    lead_lease_look(t->data);
}

/* --- life --- */

static void free_lead(struct lead_snap *l)
{
    while (l->saves) {
        struct lead_save *s = l->saves;

        l->saves = s->next;
        lead_save_free(s);
    }
    reread_gate_destroy(&l->check.gate);
    index_cache_release(&l->index);
    free(l);
}

void lead_snap_may_go(struct lead_snap *l)
{
    if (l->is_dying && l->n_works == 0 && !l->check.is_running && !lead_lease_end(l)) {
        free_lead(l);
    }
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

int lead_snap_create(struct agent *a, const struct lead_snap_ops *ops, void *arg,
                     struct lead_snap **ret, struct error *e)
{
    struct lead_snap *l = calloc(1, sizeof(*l));

    if (l) {
        l->timer = calloc(1, sizeof(*l->timer));
        l->lease_timer = loop_timer_create(&a->loop, l);
    }
    if (!l || !l->timer || !l->lease_timer) {
        if (l) {
            free(l->timer);
            loop_timer_close(l->lease_timer);
        }
        free(l);
        return error_set(e, ENOMEM, "lead checkpoints");
    }
    l->agent = a;
    l->ops = ops;
    l->arg = arg;
    office_begin(&l->office);
    reread_gate_init(&l->check.gate);
    uv_timer_init(&a->loop, l->timer);
    l->timer->data = l;
    uv_timer_start(l->timer, on_timer, LOOK_MS, LOOK_MS);
    *ret = l;
    return 0;
}

void lead_snap_good(struct lead_snap *l, uint64_t until_ms)
{
    office_set(&l->office, until_ms);
}

void lead_snap_destroy(struct lead_snap *l)
{
    if (!l) {
        return;
    }
    uv_close((uv_handle_t *)l->timer, free_timer);
    l->is_dying = true;
    reread_gate_end(&l->check.gate);
    lead_lease_hurry(l);
    lead_snap_may_go(l);
}
