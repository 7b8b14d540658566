/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/lead_priv.h"

#include "base/buf.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>

/* How many nodes a message names before it only counts them. */
#define NAMED_NODES 8

static const char *const note_names[] = {
    [LEAD_NOTE_GATHERED] = "nodes_gathered",
    [LEAD_NOTE_PREPARING] = "generation_preparing",
    [LEAD_NOTE_STARTED] = "generation_started",
    [LEAD_NOTE_RUNNING] = "generation_running",
    [LEAD_NOTE_FAILED] = "worker_failed",
    [LEAD_NOTE_RESTARTING] = "restarting",
    [LEAD_NOTE_LOST] = "node_lost",
    [LEAD_NOTE_STOPPING] = "stopping",
    [LEAD_NOTE_STRAGGLER] = "node_late",
    [LEAD_NOTE_ENDED] = "ended",
    [LEAD_NOTE_SAVED] = "checkpoint_saved",
    [LEAD_NOTE_AGAIN] = "restarting",
    [LEAD_NOTE_BACK] = "node_back",
    [LEAD_NOTE_WANTED] = "nodes_wanted",
    [LEAD_NOTE_CHANGE] = "nodes_change_due",
    [LEAD_NOTE_CHANGING] = "nodes_changing",
    [LEAD_NOTE_EXCLUDED] = "node_excluded",
    [LEAD_NOTE_LEADS] = "lead_taken",
    [LEAD_NOTE_AVOIDED] = "checkpoint_avoided",
    [LEAD_NOTE_READMITTED] = "node_readmitted",
};

const char *lead_note_name(enum lead_note_type type)
{
    return note_names[type];
}

struct lead_note *lead_note(struct lead *lead, struct lead_actions *ret,
                            enum lead_note_type type, uint32_t rank, const char *fmt, ...)
{
    struct lead_note *n;
    va_list ap;

    if (ret->n_notes == LEAD_MAX_NOTES) {
        return NULL;
    }
    n = &ret->notes[ret->n_notes++];
    n->type = type;
    n->generation = lead->generation;
    n->rank = rank;
    n->failure = NULL;
    va_start(ap, fmt);
    vsnprintf(n->text, sizeof(n->text), fmt, ap);
    va_end(ap);
    return n;
}

void lead_note_failure(struct lead *lead, struct lead_actions *ret,
                       enum lead_note_type type, const char *text)
{
    struct lead_note *n = lead_note(lead, ret, type, lead->cause.node, "%s", text);

    if (n) {
        n->failure = &lead->cause;
        n->generation = lead->cause.generation;
    }
}

const char *lead_name_of(const struct lead *lead, uint32_t rank, char *to,
                         size_t size)
{
    const char *const *names = lead->config.names;

    if (names && names[rank] && names[rank][0]) {
        snprintf(to, size, "%s", names[rank]);
    } else {
        snprintf(to, size, "node %u", rank);
    }
    return to;
}

void lead_name_late(const struct lead *lead, char *to, size_t size)
{
    uint32_t n_late = lead->n_nodes - lead->n_ready;
    uint32_t n_named = 0;
    _buf_ struct buf b = {0};
    char name[FAILURE_HOST_BYTES];

    for (uint32_t i = 0; i < lead->n_nodes && n_named < NAMED_NODES;
         i++) {
        if (!lead_is_ready(lead, &lead->nodes[i])) {
            buf_printf(&b, "%s%s", n_named ? ", " : "",
                       lead_name_of(lead, i, name, sizeof(name)));
            n_named++;
        }
    }
    if (n_late > n_named) {
        buf_printf(&b, " and %u more", n_late - n_named);
    }
    str_copy(to, size, buf_str(&b));
}
