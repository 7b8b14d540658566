/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other nodes for a run that is well: more, when newcomers wait or a command wants
 * more; fewer, when it wants fewer; one in the place of another that was excluded.
 *
 * Whoever waits is taken in by the next restart anyway (lead_choose()). A
 * generation that is well is stopped for it only where that costs little: all are
 * asked to save, and stopped after the next checkpoint, which must be one of that
 * generation, at most once every grow_interval_ms. A run without checkpoints is
 * left in peace. Whoever gives a command knows what it costs: that waits for
 * nothing but other newcomers, as long as those are expected. Nor does who is
 * excluded by force, because all others wait for it.
 *
 * The stop is a gentle one: nothing is broken, so that workers may save together,
 * and they have the grace time of the job.
 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdio.h>

/* Newcomers of one MPI world come together, or nearly. */
#define SETTLE_MS 2000

/* --- what is wanted --- */

int lead_scale(struct lead *lead, uint32_t n, struct lead_actions *ret)
{
    if (n < lead->min_nodes || n > lead->max_nodes) {
        return -ERANGE;
    }
    if (lead->phase >= PHASE_END) {
        return 0;
    }
    lead->want_nodes = n;
    lead->is_asked = true;
    lead->asked_ms = lead->now_ms;
    lead_note(lead, ret, LEAD_NOTE_WANTED, NO_RANK, "%u node%s wanted", n,
              n == 1 ? " is" : "s are");
    return 0;
}

void lead_set_excluded(struct lead *lead, uint32_t node, enum exclusion why)
{
    for (uint32_t i = 0; i < lead->n_nodes; i++) {
        if (lead->nodes[i].node == node) {
            lead->nodes[i].excluded = why;
        }
    }
}

static void tell_excluded(struct lead *lead, uint32_t rank, const char *text,
                          struct lead_actions *ret)
{
    char name[FAILURE_HOST_BYTES];

    lead_note(lead, ret, LEAD_NOTE_EXCLUDED, rank, "excluded node %u (%s): %s",
              rank, lead_name_of(lead, rank, name, sizeof(name)),
              text ? text : "it is of no use");
}

bool lead_exclude(struct lead *lead, uint32_t rank, enum exclusion why,
                  const char *text, struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[rank];

    if (n->excluded || n->node == LEAD_NO_NODE || lead->phase >= PHASE_END) {
        return n->excluded;
    }
    lead_set_excluded(lead, n->node, why ? why : EXCLUSION_OTHER);
    if (lead_count_left(lead) < lead->min_nodes && !MUTANT(20)) {
        lead_set_excluded(lead, n->node, EXCLUSION_NONE);
        return false;
    }
    tell_excluded(lead, rank, text, ret);
    return true;
}

/* Workers that wait for a node that is of no use save nothing any more. */
void lead_ask_change(struct lead *lead, uint32_t rank)
{
    if (lead->nodes[rank].takes_part && lead->phase < PHASE_END) {
        lead->is_asked = true;
        lead->asked_ms = lead->now_ms;
    }
}

/* While all gather nobody can tell which of them is wrong. Later the others agree, and
 * workers on a node that does not fit would be no help where it is needed: the run goes
 * on without it as if it were not there. Its agent hears of that by an order, and sees
 * to it that another comes when it fits. */
void lead_on_misfit(struct lead *lead, const struct lead_event *event,
                    struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[event->rank];

    if (lead->phase == PHASE_GATHER) {
        lead_end(lead, ret, RUN_FAILED, event->text ? event->text : "misfit",
                 ORDER_STOP_NONE, 0);
    } else if (!n->excluded && n->node != LEAD_NO_NODE && lead->phase < PHASE_END) {
        lead_set_excluded(lead, n->node, EXCLUSION_MISFIT);
        tell_excluded(lead, event->rank, event->text, ret);
        lead_ask_change(lead, event->rank);
        if (lead->order.serial) {
            lead_order_again(lead, ret);
        }
    }
}

/* What it was excluded for is over; what its workers failed of counts on. */
void lead_readmit(struct lead *lead, uint32_t rank, struct lead_actions *ret)
{
    struct lead_node *n = &lead->nodes[rank];
    char name[FAILURE_HOST_BYTES];

    if (n->excluded && lead->phase < PHASE_END) {
        lead_set_excluded(lead, n->node, EXCLUSION_NONE);
        lead_note(lead, ret, LEAD_NOTE_READMITTED, rank, "node %u (%s) may be used "
                  "again", rank, lead_name_of(lead, rank, name, sizeof(name)));
    }
}

/* --- whether there is anything to change --- */

/* Not while a generation starts, nor when it is about to end well. */
static bool is_well(const struct lead *lead)
{
    return lead->config.restart.kind != RESTART_NEVER &&
           lead->n_started == lead->n_nodes &&
           lead->n_ready + lead->n_part == lead->n_nodes;
}

struct difference {
    uint32_t n_nodes; /* that would take part */
    uint32_t n_in, n_out;
    uint32_t first_in, first_out;
};

/* What the next generation would have that this one has not. */
static struct difference compare(struct lead *lead)
{
    struct difference d = {.n_nodes = lead_choose(lead, false)};

    for (uint32_t i = lead->n_nodes; i-- > 0;) {
        const struct lead_node *n = &lead->nodes[i];
        bool comes = n->chosen && n->n_procs > 0;

        if (comes && !n->takes_part) {
            d.n_in++;
            d.first_in = i;
        } else if (!comes && n->takes_part) {
            d.n_out++;
            d.first_out = i;
        }
    }
    if (d.n_nodes < lead->min_nodes) {
        d.n_in = d.n_out = 0;
    }
    return d;
}

/* --- when --- */

/* By command, and those that come for it may still come. */
static bool is_asked(const struct lead *lead)
{
    return lead->is_asked &&
           lead->now_ms <= lead_later(lead->asked_ms,
                                      lead->config.gang_timeout_ms);
}

/* Until then others may come. */
static uint64_t settled_ms(const struct lead *lead, const struct difference *d)
{
    uint64_t since_ms = lead->came_ms > lead->asked_ms ? lead->came_ms
                                                       : lead->asked_ms;

    return d->n_nodes == lead->want_nodes ? lead->asked_ms
                                          : lead_later(since_ms, SETTLE_MS);
}

static uint64_t interval_over_ms(const struct lead *lead)
{
    return lead->has_changed && !MUTANT(26)
               ? lead_later(lead->changed_ms, lead->config.grow_interval_ms)
               : 0;
}

/* --- the change --- */

static void describe(const struct lead *lead, const struct difference *d,
                     char *to, size_t size)
{
    char name[FAILURE_HOST_BYTES];
    int n = 0;

    if (d->n_in) {
        n = snprintf(to, size, d->n_in > 1 ? "%s and %u more come in" :
                     "%s comes in", lead_name_of(lead, d->first_in, name,
                                                 sizeof(name)), d->n_in - 1);
    }
    if (d->n_out && n >= 0 && (size_t)n < size) {
        snprintf(to + n, size - (size_t)n, d->n_out > 1
                 ? "%s%s and %u more go out" : "%s%s goes out", n ? ", " : "",
                 lead_name_of(lead, d->first_out, name, sizeof(name)),
                 d->n_out - 1);
    }
}

static void wait_for_checkpoint(struct lead *lead, const struct difference *d,
                                struct lead_actions *ret)
{
    char what[ORDER_TEXT_BYTES / 4];

    lead->is_due = true;
    lead->was_saved = false;
    ret->ask_checkpoint = true;
    describe(lead, d, what, sizeof(what));
    lead_note(lead, ret, LEAD_NOTE_CHANGE, NO_RANK, "after the next checkpoint, "
              "or restart, %s", what);
}

static void go(struct lead *lead, const struct difference *d,
               struct lead_actions *ret)
{
    char what[ORDER_TEXT_BYTES / 4 - 64];

    describe(lead, d, what, sizeof(what));
    snprintf(lead->change, sizeof(lead->change), "%u node%s: %s", d->n_nodes,
             d->n_nodes == 1 ? "" : "s", what);
    lead_note(lead, ret, LEAD_NOTE_CHANGING, NO_RANK, "%s", lead->change);
    lead->is_asked = false;
    lead->has_changed = true;
    lead->changed_ms = lead->now_ms;
    lead->hold_ms = lead->now_ms;
    lead->n_quick = 0;
    lead->is_gentle = true;
    lead_prepare(lead, ret);
}

void lead_change(struct lead *lead, struct lead_actions *ret)
{
    struct difference d;

    if (!is_well(lead)) {
        return;
    }
    d = compare(lead);
    if (!d.n_in && !d.n_out) {
        lead->is_due = false;
    } else if (is_asked(lead)) {
        if (lead->now_ms >= settled_ms(lead, &d)) {
            go(lead, &d, ret);
        }
    } else if (lead->now_ms < interval_over_ms(lead)) {
        return;
    } else if (!lead->is_due && !MUTANT(25)) {
        wait_for_checkpoint(lead, &d, ret);
    } else if (lead->was_saved || MUTANT(25)) {
        go(lead, &d, ret);
    }
}

uint64_t lead_change_ms(struct lead *lead)
{
    struct difference d;
    uint64_t ms;

    if (!is_well(lead)) {
        return LEAD_NEVER;
    }
    d = compare(lead);
    if (!d.n_in && !d.n_out) {
        return LEAD_NEVER;
    }
    ms = is_asked(lead) ? settled_ms(lead, &d) : interval_over_ms(lead);
    return ms > lead->now_ms ? ms : LEAD_NEVER;
}
