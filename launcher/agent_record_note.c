/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead's notes mean for the record of the run.
 */
#include <config.h>

#include "launcher/agent_record.h"

#include "base/clock.h"
#include "base/str.h"

#include <string.h>

static void fill_failure(struct run_status *s, const struct failure *f)
{
    struct status_failure *to = &s->failure;

    to->is_set = true;
    to->generation = (int)f->generation;
    to->rank = f->rank;
    to->node = (int)f->node;
    str_copy(to->host, sizeof(to->host), f->host);
    to->pid = f->pid;
    to->exit_code = f->exit_code;
    to->signal = f->signal;
    to->at_ns = f->wall_ns;
    to->error_file[0] = '\0';
    if (f->has_file) {
        agent_error_name(f->generation, (uint32_t)f->rank, to->error_file,
                         sizeof(to->error_file));
    }
    failure_describe(f, to->reason, sizeof(to->reason));
    str_copy(to->advice, sizeof(to->advice),
             failure_advice(f) ? failure_advice(f) : "");
    if (failure_has_lines(f)) {
        run_status_set_lines(s, f->text, strlen(f->text));
    } else {
        run_status_set_lines(s, "", 0);
    }
}

static void set_node_state(struct run_status *s, uint32_t rank,
                           enum status_node_state state)
{
    if (rank < s->n_nodes) {
        s->nodes[rank].state = state;
    }
}

static void set_nodes(struct run_status *s, enum status_node_state state)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        bool has_workers = s->nodes[i].state != STATUS_NODE_SPARE &&
                           s->nodes[i].state != STATUS_NODE_EXCLUDED;

        if (s->nodes[i].state != STATUS_NODE_LOST &&
            (has_workers || state != STATUS_NODE_RUNNING)) {
            s->nodes[i].state = state;
        }
    }
}

/* Why: what is behind "lost node 3 (n3): ". */
static void set_why(struct run_status *s, uint32_t rank, const char *text)
{
    const char *why = strstr(text, "): ");

    if (rank < s->n_nodes) {
        str_copy(s->nodes[rank].why, sizeof(s->nodes[rank].why),
                 why ? why + 3 : text);
    }
}

/* Failures are of agents, and who is excluded is the node. */
static uint32_t causes_of(const struct run_status *s, const struct lead *core,
                          uint32_t node)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct lead_node *n = lead_node(core, i);

        most = n->node == node && n->n_causes > most ? n->n_causes : most;
    }
    return most;
}

static void set_one_excluded(struct run_status *s, const struct lead *core, uint32_t rank,
                             const char *why)
{
    if (s->nodes[rank].state != STATUS_NODE_LOST &&
        s->nodes[rank].state != STATUS_NODE_EXCLUDED) {
        set_why(s, rank, why);
        s->nodes[rank].excluded = lead_node(core, rank)->excluded;
        /* As long as it has workers it is shown as a node that has some. */
        if (!lead_node(core, rank)->takes_part) {
            s->nodes[rank].state = STATUS_NODE_EXCLUDED;
        }
    }
}

/* With all agents of that node. */
static void set_excluded(struct run_status *s, const struct lead *core,
                         const struct lead_note *note)
{
    for (uint32_t i = 0; i < s->n_nodes && note->rank < s->n_nodes; i++) {
        if (lead_node(core, i)->node == lead_node(core, note->rank)->node) {
            set_one_excluded(s, core, i, note->text);
        }
    }
}

/* The lead before has done that, or what was said is gone: of the reason there is what
 * every agent has. */
static void set_excluded_before(struct run_status *s, const struct lead *core)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct lead_node *n = lead_node(core, i);
        char why[sizeof(s->nodes[i].why)];

        if (n->excluded) {
            exclusion_word(n->excluded, causes_of(s, core, n->node), why, sizeof(why));
            set_one_excluded(s, core, i, why);
        }
    }
}

/* A new lead has all places that there have been, and those that nobody of its camp holds
 * are lost: also those that were so before, of which it need not know the host. */
static void set_lost_before(struct run_status *s, const struct lead *core)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (lead_node(core, i)->lost) {
            s->nodes[i].state = STATUS_NODE_LOST;
        }
    }
}

/* They wait as spares do. */
static void set_readmitted(struct run_status *s, const struct lead *core)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct status_node *n = &s->nodes[i];

        if (n->excluded && !lead_node(core, i)->excluded &&
            n->state != STATUS_NODE_LOST && n->state != STATUS_NODE_LEFT) {
            n->why[0] = '\0';
            n->excluded = EXCLUSION_NONE;
            n->state = n->state == STATUS_NODE_EXCLUDED ? STATUS_NODE_SPARE : n->state;
        }
    }
}

static void set_lost(struct run_status *s, const struct lead *core,
                     uint32_t rank)
{
    set_node_state(s, rank, STATUS_NODE_LOST);
    s->node_failures = (int)lead_n_losses(core);
    for (size_t i = 0; i < s->n_workers; i++) {
        if (s->workers[i].node == (int)rank &&
            s->workers[i].state != STATUS_WORKER_EXITED) {
            s->workers[i].state = STATUS_WORKER_LOST;
        }
    }
}

void record_verdict(struct record *r, const struct lead *core)
{
    const struct lead_verdict *v = lead_verdict(core);
    struct run_status *s = record_status(r);

    run_status_end(s, v->status, lead_is_suspended(core), v->reason);
    if (v->has_cause) {
        fill_failure(s, &v->cause);
    }
    set_nodes(s, STATUS_NODE_LEFT);
}

void record_note(struct record *r, const struct lead *core,
                 const struct lead_note *n)
{
    struct run_status *s = record_status(r);

    switch (n->type) {
    case LEAD_NOTE_GATHERED:
        set_nodes(s, STATUS_NODE_READY);
        break;
    case LEAD_NOTE_RUNNING:
        s->state = STATUS_RUNNING;
        set_nodes(s, STATUS_NODE_RUNNING);
        break;
    case LEAD_NOTE_FAILED:
    case LEAD_NOTE_RESTARTING:
    case LEAD_NOTE_AGAIN:
        s->state = STATUS_RESTARTING;
        if (n->failure) {
            fill_failure(s, n->failure);
        }
        break;
    case LEAD_NOTE_LOST:
        set_lost(s, core, n->rank);
        set_why(s, n->rank, n->text);
        break;
    case LEAD_NOTE_BACK:
        set_node_state(s, n->rank, STATUS_NODE_SPARE);
        set_why(s, n->rank, "");
        set_excluded_before(s, core); /* what was said of it meanwhile is that it is lost */
        break;
    case LEAD_NOTE_EXCLUDED:
        set_excluded(s, core, n);
        break;
    case LEAD_NOTE_READMITTED:
        set_readmitted(s, core);
        break;
    case LEAD_NOTE_LEADS:
        set_lost_before(s, core);
        set_excluded_before(s, core);
        break;
    case LEAD_NOTE_CHANGING:
        s->state = STATUS_RESTARTING;
        break;
    case LEAD_NOTE_WANTED:
        record_size(r, core);
        break;
    case LEAD_NOTE_SAVED:
        s->saved_ns = clock_wall_ns();
        str_copy(s->resume_path, sizeof(s->resume_path),
                 lead_resume(core, &s->resume_step));
        break;
    case LEAD_NOTE_STOPPING:
        s->state = STATUS_STOPPING;
        break;
    case LEAD_NOTE_ENDED:
        record_verdict(r, core);
        break;
    default:
        break;
    }
    record_event(r, lead_note_name(n->type), n->generation, n->text,
                 n->failure, 0);
    record_touch(r);
}
