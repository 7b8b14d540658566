/* SPDX-License-Identifier: Apache-2.0 */
/* Who starts workers or ends the run waits until nothing more comes of the saves that are
 * on their way, as long as they get on. */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/clock.h"

enum {
    /* For saves that the next workers could start from: without getting on, and in all. */
    QUIET_MS = 30000,
    QUIET_MAX_MS = 600 * 1000,
    TELL_FIRST_MS = 5000, /* it is told for what */
    TELL_MS = 30000,
    OFFER_MS = 1000, /* for agents whose workers had ended by then to hear of a failure */
};

/* --- what for --- */

/* It has failed just now, or is about to, and will be there for another try: as workers of
 * the generation that ends have not had theirs (struct lead_save, again). */
static bool is_failing(const struct lead_save *s)
{
    struct lead_snap *l = s->lead;
    uint64_t now_ms = uv_now(&l->agent->loop);

    return s->is_settled ? s->stays && s->again < l->ops->started(l->arg) &&
                               now_ms - s->settled_ms < OFFER_MS
                         : s->tally.n_failed > 0 && s->tally.n_held == s->tally.n_ranks;
}

/* One may still become a checkpoint, with what is known to be there. */
static bool is_any_sure(const struct lead_snap *l)
{
    for (const struct lead_save *s = l->saves; s; s = s->next) {
        const struct snap_now now = lead_save_now(s);

        if (is_failing(s) ||
            (!s->is_settled && !now.is_parked && snap_tally_is_sure(&s->tally, &now))) {
            return true;
        }
    }
    return false;
}

static bool is_removing(const struct lead_snap *l)
{
    for (const struct lead_save *s = l->saves; s; s = s->next) {
        if (s->is_working && s->is_settled) {
            return true;
        }
    }
    return false;
}

static bool is_at_work(const struct lead_snap *l)
{
    return is_removing(l) || (l->asks_saves && is_any_sure(l)) ||
           (l->is_ending && (l->n_works > 0 || lead_check_is_awaited(l)));
}

/* Other runs may have the directories as soon as nothing more is done there. */
static bool is_awaited(struct lead_snap *l)
{
    return is_at_work(l) || (l->is_leaving && lead_lease_drop(l));
}

static bool is_out_of_time(const struct lead_snap *l)
{
    uint64_t now_ms = uv_now(&l->agent->loop);

    return now_ms - l->moved_ms >= QUIET_MS || now_ms - l->asked_ms >= QUIET_MAX_MS;
}

void lead_wait_look(struct lead_snap *l)
{
    if (l->is_asked && (is_out_of_time(l) || !is_awaited(l))) {
        l->is_asked = false;
        l->ops->on_quiet(l->arg);
    }
}

void lead_wait_tell(struct lead_snap *l)
{
    uint64_t now_ms = uv_now(&l->agent->loop);
    const struct lead_save *oldest = NULL;
    char span[32];

    if (!l->is_asked || !l->asks_saves || now_ms < l->tell_ms) {
        return;
    }
    for (const struct lead_save *s = l->saves; s; s = s->next) {
        oldest = s->is_settled || lead_save_is_parked(s) ? oldest : s;
    }
    l->tell_ms = now_ms + TELL_MS;
    clock_format_span(now_ms - l->asked_ms, span, sizeof(span));
    if (oldest) {
        agent_note(l->agent, "waits for the save of step %llu to be on the disk, for %s: %u "
                   "of %u ranks are there", (unsigned long long)oldest->step, span,
                   oldest->tally.n_written, oldest->tally.n_ranks);
    }
}

/* --- who waits --- */

static bool ask(struct lead_snap *l, bool for_saves)
{
    l->asks_saves = for_saves;
    l->is_asked = is_awaited(l);
    l->asked_ms = l->moved_ms = uv_now(&l->agent->loop);
    l->tell_ms = l->asked_ms + TELL_FIRST_MS;
    return l->is_asked;
}

bool lead_snap_ask(struct lead_snap *l)
{
    if (!l) {
        return false;
    }
    lead_levels_promote(l);
    lead_snap_rescue(l);
    return ask(l, true);
}

void lead_snap_end(struct lead_snap *l)
{
    if (l) {
        l->is_ending = true;
        lead_check_end(l);
        lead_snap_look(l);
    }
}

void lead_snap_leave(struct lead_snap *l)
{
    if (l) {
        l->is_leaving = true;
    }
}

bool lead_snap_ask_removed(struct lead_snap *l)
{
    return l && ask(l, false);
}

bool lead_snap_forget(struct lead_snap *l)
{
    bool was_asked = l && l->is_asked;

    if (l) {
        l->is_asked = false;
    }
    return was_asked;
}
