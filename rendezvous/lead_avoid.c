/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints from which no generation gets anywhere (rendezvous/avoid.h). */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void move(struct lead *lead)
{
    lead->has_moved = true;
    lead->is_untold |= avoid_moved(&lead->avoid);
}

/* Steps of reports may count something else than those of checkpoints: then two of
 * them that differ say that it gets on. One that is said at the start says nothing. */
void lead_on_progress(struct lead *lead, int64_t step)
{
    bool is_other = lead->has_step && step != lead->first_step;

    if (lead->phase != PHASE_RUN || lead->has_moved) {
        return;
    }
    if (is_other || !lead->resume_path[0] || step > lead->resume_step) {
        move(lead);
    }
    if (!lead->has_step) {
        lead->has_step = true;
        lead->first_step = step;
    }
}

bool lead_avoid_saved(struct lead *lead, const char *path, int64_t step,
                      uint32_t generation, bool is_found)
{
    if (is_found && avoid_has(&lead->avoid, path)) {
        return false;
    }
    if (generation == lead->ran) {
        move(lead);
    }
    lead->is_untold |= avoid_saved(&lead->avoid, step);
    return true;
}

/* --- words --- */

static const char *step_text(int64_t step, char *to, size_t size)
{
    to[0] = '\0';
    if (step >= 0) {
        snprintf(to, size, " (step %" PRId64 ")", step);
    }
    return to;
}

/* Paths may be as long as a note: the words come first, and what is used last has
 * its place. */
static void tell(struct lead *lead, struct lead_actions *ret,
                 const struct avoid_one *of, uint32_t n_deaths, const char *why,
                 const struct avoid_one *now)
{
    char step[32], now_step[32];
    bool is_it = strcmp(of->path, now->path) == 0;

    step_text(of->step, step, sizeof(step));
    lead_note(lead, ret, LEAD_NOTE_AVOIDED, NO_RANK,
              "%u generation%s in a row started from %.350s%s and died before a save "
              "or a report of progress: %sgeneration %u starts from %.350s%s",
              n_deaths, n_deaths == 1 ? "" : "s", of->path, step, why,
              lead->generation, is_it ? "it" : now->path,
              is_it ? " again" : step_text(now->step, now_step, sizeof(now_step)));
}

/* --- deciding --- */

/* The next one is looked for when all that is saved is on the disk, and so is told
 * then (LEAD_CHOSEN). */
void lead_avoid_died(struct lead *lead, struct lead_actions *ret)
{
    struct avoid_one now, of = {.step = lead->resume_step};

    if (lead->has_moved || avoid_died(&lead->avoid, lead->config.avoid_after,
                                      lead->resume_path, lead->resume_step,
                                      &now) != AVOID_BACK) {
        return;
    }
    str_copy(of.path, sizeof(of.path), lead->resume_path);
    str_copy(lead->resume_path, sizeof(lead->resume_path), now.path);
    lead->resume_step = now.step;
    tell(lead, ret, &of, lead->config.avoid_after,
         "older ones were no better, and ", &now);
}

struct avoid_one lead_avoid_chosen(struct lead *lead, const char *path, int64_t step,
                                   struct lead_actions *ret)
{
    const struct avoid *a = &lead->avoid;
    struct avoid_one now = {.step = step}, of;

    str_copy(now.path, sizeof(now.path), path);
    if (!avoid_has(a, lead->resume_path)) {
        lead->avoid.n_deaths *= strcmp(path, lead->resume_path) == 0;
        return now;
    }
    of = a->list[a->n - 1];
    if (!path[0] || avoid_has(a, path)) {
        now = avoid_go_back(&lead->avoid);
        tell(lead, ret, &of, of.n_deaths, "none that is older can be used, and ",
             &now);
    } else if (step > of.step && of.step >= 0) {
        (void)avoid_saved(&lead->avoid, step); /* and nobody had heard of it */
    } else {
        tell(lead, ret, &of, of.n_deaths, "", &now);
    }
    return now;
}
