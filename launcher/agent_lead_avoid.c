/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints from which no generation gets anywhere (rendezvous/avoid.h): what the
 * lead's agent makes of those that its core leaves alone.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include <string.h>

void agent_lead_avoid(struct agent_lead *l)
{
    const struct avoid *now = lead_avoid(l->core);
    struct run_status *s = record_status(l->record);
    char lines[AVOID_LINES_BYTES];

    avoid_lines(now, lines);
    if (s->avoid.n_deaths == now->n_deaths && s->avoid.is_spent == now->is_spent &&
        strcmp(lines, l->avoided) == 0) {
        return;
    }
    s->avoid = *now;
    record_touch(l->record);
    if (strcmp(lines, l->avoided) != 0) {
        memcpy(l->avoided, lines, sizeof(lines));
        lead_watch_avoid(l->ckpts, l->avoided);
    }
}

/* One report is enough to tell that a generation gets on: of all others the core needs
 * not hear. */
void agent_lead_progress(struct agent_lead *l, const json_t *fact)
{
    const json_t *step = json_object_get(fact, "step");
    struct lead_event event = {.type = LEAD_PROGRESS,
                               .step = json_integer_value(step)};

    if (!lead_has_moved(l->core) && json_is_integer(step) &&
        json_integer_value(json_object_get(fact, "generation")) ==
            (json_int_t)l->started) {
        agent_lead_step(l, &event);
    }
}
