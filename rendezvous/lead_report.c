/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes report: where their workers stand, what was saved, what failed. */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/hash.h"
#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <string.h>

static void keep_store(struct lead *lead, const struct report *r)
{
    if (lead->phase == PHASE_PREPARE && r->state == REPORT_STOPPED &&
        r->generation == lead->generation && r->rank == lead->store_rank &&
        r->store_port) {
        lead->store_port = r->store_port;
        str_copy(lead->store_addr, sizeof(lead->store_addr), r->store_addr);
    }
}

void lead_set_resume(struct lead *lead, const char *path, int64_t step,
                     uint32_t generation, struct lead_actions *ret)
{
    struct lead_note *n;

    str_copy(lead->resume_path, sizeof(lead->resume_path), path);
    lead->resume_step = step;
    lead->saved_generation = generation;
    lead->was_saved |= generation == lead->ran;
    lead->is_untold = true;
    n = lead_note(lead, ret, LEAD_NOTE_SAVED, NO_RANK, "%s", lead->resume_path);
    if (n) {
        n->generation = generation;
    }
}

/* Steps go down where workers have started from an older checkpoint, so what the newest
 * generation has saved comes after all that others have. A step may be saved again, by
 * another path: which of the two came later is for the caller to know. */
static bool is_newer(const struct lead *lead, uint32_t generation, const char *path,
                     int64_t step, bool is_later)
{
    bool is_first = generation == lead->ran && lead->saved_generation < lead->ran;
    bool is_again = step == lead->resume_step && strcmp(path, lead->resume_path) != 0 &&
                    (is_later || generation > lead->saved_generation);

    return is_first || (generation >= lead->saved_generation &&
                        (!lead->resume_path[0] || step > lead->resume_step || is_again));
}

/* Of what is found nobody knows who has saved it: its step alone counts. */
void lead_on_saved(struct lead *lead, const struct lead_event *event,
                   struct lead_actions *ret)
{
    uint32_t generation = event->generation ? event->generation : lead->ran;
    bool is_ahead = !lead->resume_path[0] || event->step > lead->resume_step;

    if (event->text && (event->generation ? is_newer(lead, generation, event->text,
                                                     event->step, event->is_later)
                                          : is_ahead) &&
        lead_avoid_saved(lead, event->text, event->step, generation, !event->force)) {
        lead_set_resume(lead, event->text, event->step, generation, ret);
    }
}

/* Reports say it again and again: this tells what is said for the first time. Never 0. */
static uint64_t mark_of(const struct report *r)
{
    uint64_t mark = hash_bytes(HASH_NONE, &r->saved_step, sizeof(r->saved_step));

    mark = hash_bytes(mark, &r->saved_generation, sizeof(r->saved_generation));
    return hash_text(mark, r->saved_path) | 1;
}

/* Whether a node says that now, and had not said it before. What those say that a new lead
 * hears for the first time may be older than what it knows. */
static bool is_said_now(struct lead_node *n, const struct report *r, bool was_heard)
{
    const uint64_t mark = r->saved_path[0] ? mark_of(r) : n->saved_mark;
    bool is_new = was_heard && mark != n->saved_mark;

    n->saved_mark = mark;
    return is_new;
}

/* Only what the newest generation wrote: one that was given up must not move
 * its successor's start. */
static void keep_saved(struct lead *lead, const struct report *r, bool is_now,
                       struct lead_actions *ret)
{
    if (!r->saved_path[0] || !lead->ran || r->saved_generation != lead->ran) {
        return;
    }
    if (is_newer(lead, lead->ran, r->saved_path, r->saved_step, is_now)) {
        (void)lead_avoid_saved(lead, r->saved_path, r->saved_step, lead->ran, false);
        lead_set_resume(lead, r->saved_path, r->saved_step, lead->ran, ret);
    }
}

/* No checkpoint was made: nothing that waits for one goes on. */
void lead_choose_resume(struct lead *lead, const struct lead_event *event,
                        struct lead_actions *ret)
{
    struct avoid_one chosen = lead_avoid_chosen(lead,
                                                event->text ? event->text : "",
                                                event->step, ret);

    str_copy(lead->resume_path, sizeof(lead->resume_path), chosen.path);
    lead->resume_step = chosen.step;
    if (lead->order.step == ORDER_RUN) {
        struct order *o = &lead->order;

        str_copy(o->past.resume_path, sizeof(o->past.resume_path),
                 lead->resume_path);
        str_copy(o->resume_path, sizeof(o->resume_path), lead->resume_path);
        o->past.resume_step = o->resume_step = lead->resume_step;
        o->past.avoid = lead->avoid;
        lead->is_untold = false; /* whoever asks has not given it yet */
    }
}

static void on_failure(struct lead *lead, const struct failure *f,
                       struct lead_actions *ret)
{
    if (f->killed_by_us && !MUTANT(6)) {
        return;
    }
    if (lead->phase == PHASE_RUN && f->generation == lead->ran) {
        lead_add_cause(lead, f);
        lead_fail(lead, ret);
    } else if (lead->phase == PHASE_PREPARE && f->generation == lead->ran &&
               lead->has_cause) {
        lead_add_cause(lead, f);
    } else if (lead->phase == PHASE_PREPARE &&
               f->generation == lead->generation && !lead->has_obstacle) {
        lead->has_obstacle = true;
        lead->obstacle = *f;
    }
}

/* Whether nothing that `ran` started can be alive on a node that says this. */
static bool has_stopped(const struct lead *lead, const struct report *r)
{
    return r->state == REPORT_ENDED ||
           (r->state == REPORT_STOPPED && r->generation > lead->ran) ||
           (r->state == REPORT_DONE && r->generation == lead->ran);
}

static void update_node(struct lead *lead, struct lead_node *n,
                        const struct report *r)
{
    lead_uncount(lead, n);
    lead->came_ms = n->serial ? lead->came_ms : lead->now_ms;
    n->serial = r->serial;
    n->expected = false;
    n->n_procs = r->n_procs;
    n->n_alive = r->n_alive;
    if (lead_is_of_view(lead, r)) {
        n->generation = r->generation;
        n->state = r->state;
        n->may_run = n->may_run && !has_stopped(lead, r);
    } else {
        n->generation = 0;
        n->state = REPORT_JOINED;
    }
    lead_count(lead, n);
}

int lead_on_report(struct lead *lead, const struct report *r,
                   struct lead_actions *ret)
{
    struct lead_node *n;
    bool was_started = lead->n_started == lead->n_nodes, is_now;

    if (!r || r->rank >= lead->n_nodes ||
        (r->generation > lead->generation && !lead->config.rule.on)) {
        return -EPROTO;
    }
    n = &lead->nodes[r->rank];
    lead_look_at_floor(lead, r, ret);
    if (!lead_hear_report(lead, r, ret) || r->serial <= n->serial) {
        return 0;
    }
    if (n->serial && r->state == REPORT_JOINED && n->state != REPORT_JOINED) {
        lead_lose(lead, r->rank, &(struct lead_event){
            .dead = true, .text = "its agent was started again"}, ret);
        return 0;
    }
    is_now = is_said_now(n, r, n->serial != 0);
    update_node(lead, n, r);
    if (lead_is_of_view(lead, r)) {
        keep_store(lead, r);
    }
    keep_saved(lead, r, is_now, ret);
    if (r->failed && r->failure.node == r->rank) { /* each speaks for itself */
        on_failure(lead, &r->failure, ret);
    }
    if (!was_started && lead->phase == PHASE_RUN &&
        lead->n_started == lead->n_nodes) {
        lead_note(lead, ret, LEAD_NOTE_RUNNING, NO_RANK,
                  "generation %u: all workers were started", lead->generation);
    }
    return 0;
}
