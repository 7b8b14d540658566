/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which failure is the cause: the first by grade, then by time
 * (rendezvous/failure.h). It is judged when all have stopped: by then every
 * node has told its own first one.
 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "rendezvous/mutant.h"

#include <stdio.h>

/* Two clocks that differ by less than this are taken to show the same time. */
#define CLOCKS_AGREE_MS 1000

/* Whether `f`, which happened at `at_ms` by our clock (late by the time its
 * message took), was before the cause that we have. Clocks of nodes are better
 * than that, where they agree. */
static bool is_earlier(const struct lead *lead, const struct failure *f,
                       uint64_t at_ms)
{
    int64_t ours_ms = (int64_t)(at_ms - lead->cause_ms);
    int64_t theirs_ms = (int64_t)(f->wall_ns - lead->cause.wall_ns) / 1000000;
    int64_t differ_ms = theirs_ms - ours_ms;

    if (differ_ms > -CLOCKS_AGREE_MS && differ_ms < CLOCKS_AGREE_MS) {
        return f->wall_ns < lead->cause.wall_ns;
    }
    return ours_ms < 0;
}

/* Whether `f` was before the cause that we have. A node's newest report has the
 * first of its own, and what it says of that again changes nothing. */
static bool comes_first(const struct lead *lead, const struct failure *f,
                        uint64_t at_ms)
{
    if (!lead->has_cause || f->node == lead->cause.node) {
        return true;
    }
    if (f->grade != lead->cause.grade) {
        return f->grade < lead->cause.grade;
    }
    return !MUTANT(8) && is_earlier(lead, f, at_ms);
}

/* A failure of the generation that runs or is just being stopped. */
void lead_add_cause(struct lead *lead, const struct failure *f)
{
    uint64_t at_ms = lead->now_ms > f->age_ms ? lead->now_ms - f->age_ms : 0;

    if (lead->judged || !comes_first(lead, f, at_ms)) {
        return;
    }
    lead->has_cause = true;
    lead->cause = *f;
    lead->cause_ms = at_ms;
}

/* How long the next generation waits: longer for each that ended soon. */
static void hold_back(struct lead *lead)
{
    const struct restart_policy *policy = &lead->config.restart;
    bool quick = lead->now_ms - lead->ran_at_ms < policy->backoff_max_ms;

    lead->n_quick = quick ? lead->n_quick + 1 : 0;
    lead->hold_ms = lead_later(lead->now_ms,
                               restart_backoff_ms(policy, lead->n_quick));
}

/* The first word of a failure: stop everybody. What it means is decided when
 * all have stopped, see lead_judge(). */
void lead_fail(struct lead *lead, struct lead_actions *ret)
{
    char what[ORDER_TEXT_BYTES];

    failure_describe(&lead->cause, what, sizeof(what));
    lead_note_failure(lead, ret, LEAD_NOTE_FAILED, what);
    hold_back(lead);
    lead_prepare(lead, ret);
}

/* All workers of the generation have ended well. With policy Always the next one
 * starts, as long as there is budget; the run ends well in any case. */
void lead_succeed(struct lead *lead, struct lead_actions *ret)
{
    const struct restart_policy *policy = &lead->config.restart;

    if (policy->kind != RESTART_ALWAYS || lead->n_restarts >= policy->max) {
        lead_end(lead, ret, RUN_SUCCEEDED, "", ORDER_STOP_NONE, 0);
        return;
    }
    hold_back(lead);
    lead->n_restarts++;
    lead->judged = true;
    lead_note(lead, ret, LEAD_NOTE_AGAIN, NO_RANK,
              "restart %u of %u%s: all workers have ended, and "
              "restart.policy is Always", lead->n_restarts, policy->max,
              lead->hold_ms > lead->now_ms ? " after a pause" : "");
    lead_prepare(lead, ret);
}

/* There would be another generation, but a node cannot do its part in it. */
void lead_give_up(struct lead *lead, struct lead_actions *ret)
{
    char what[ORDER_TEXT_BYTES];

    failure_describe(&lead->obstacle, what, sizeof(what));
    lead_end(lead, ret, restart_exit_status(&lead->obstacle), what,
             ORDER_STOP_NONE, 0);
    lead->verdict.has_cause = true;
    lead->verdict.cause = lead->obstacle;
}

/* The node of the cause has had all the restarts that one node may have. */
static bool is_weary(const struct lead *lead)
{
    uint32_t most = lead->config.restart.max_per_node;

    return most && lead->nodes[lead->cause.node].n_causes > most;
}

/* Where others are enough, the next generation does without it. */
static bool is_left_out(struct lead *lead, struct lead_actions *ret)
{
    const struct lead_node *n = &lead->nodes[lead->cause.node];
    char text[ORDER_TEXT_BYTES / 4];

    snprintf(text, sizeof(text), "it was the cause %u time%s, and "
             "restart.maxPerNode is %u", n->n_causes,
             n->n_causes == 1 ? "" : "s",
             lead->config.restart.max_per_node);
    return n->excluded || lead_exclude(lead, lead->cause.node, EXCLUSION_CAUSE, text, ret);
}

/* Whether it is its code, or signal, alone that speaks against a restart. */
static bool is_excluded_code(const struct restart_policy *policy,
                             const struct failure *cause)
{
    struct restart_policy any = *policy;

    any.kind = RESTART_ON_FAILURE;
    return policy->kind == RESTART_EXIT_CODE && policy->max &&
           restart_allowed(&any, cause) && !restart_allowed(policy, cause);
}

/* Why there is no other generation. */
static void word_end(const struct lead *lead, bool allowed, const char *what,
                     char *to, size_t size)
{
    const struct restart_policy *policy = &lead->config.restart;
    uint32_t n_causes = lead->nodes[lead->cause.node].n_causes;
    char name[FAILURE_HOST_BYTES];

    if (allowed && is_weary(lead) && lead->n_restarts < policy->max) {
        snprintf(to, size, "%s; %s was the cause %u time%s, and "
                 "restart.maxPerNode is %u: there are too few nodes to do "
                 "without it", what,
                 lead_name_of(lead, lead->cause.node, name, sizeof(name)),
                 n_causes, n_causes == 1 ? "" : "s", policy->max_per_node);
    } else if (allowed && policy->max == 1) {
        snprintf(to, size, "%s; its one restart is used up", what);
    } else if (allowed && policy->max) {
        snprintf(to, size, "%s; all %u restarts are used up", what,
                 policy->max);
    } else if (is_excluded_code(policy, &lead->cause)) {
        snprintf(to, size, "%s; restart.exitCodes does not name it", what);
    } else if (lead->cause.kind == FAILURE_OOM && policy->max &&
               policy->kind != RESTART_NEVER) {
        snprintf(to, size, "%s; there is no restart, which would end the same "
                 "way", what);
    } else {
        snprintf(to, size, "%s", what);
    }
}

/* All have stopped and told what they saw: the cause is known now. True if
 * another generation may run. */
bool lead_judge(struct lead *lead, struct lead_actions *ret)
{
    const struct restart_policy *policy = &lead->config.restart;
    char what[ORDER_TEXT_BYTES / 2];
    char text[ORDER_TEXT_BYTES];
    bool allowed = restart_allowed(policy, &lead->cause);

    failure_describe(&lead->cause, what, sizeof(what));
    lead->nodes[lead->cause.node].n_causes++;
    if (allowed && lead->n_restarts < policy->max + MUTANT(5) &&
        (!is_weary(lead) || is_left_out(lead, ret))) {
        if (lead->has_obstacle) {
            lead_give_up(lead, ret);
            return false;
        }
        lead->n_restarts++;
        lead->judged = true;
        snprintf(text, sizeof(text), "restart %u of %u%s: %s",
                 lead->n_restarts, policy->max,
                 lead->hold_ms > lead->now_ms ? " after a pause" : "", what);
        lead_note_failure(lead, ret, LEAD_NOTE_RESTARTING, text);
        lead_avoid_died(lead, ret);
        return true;
    }
    word_end(lead, allowed, what, text, sizeof(text));
    lead_end(lead, ret, restart_exit_status(&lead->cause), text,
             ORDER_STOP_NONE, 0);
    return false;
}
