/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the run is asked to do, by commands, by files in control/, and by what agents
 * tell of their nodes.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/agent_hang.h"
#include "launcher/agent_record.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whether all with whom the run begins have said so. Until the time to gather is over
 * those who have not joined are waited for. */
static bool all_share(const struct agent_lead *l, uint32_t gone, bool is_late)
{
    for (uint32_t i = 0; i < l->n_first; i++) {
        const struct lead_node *n = lead_node(l->core, i);
        bool is_out = !l->agent->roster.entries[i].port || n->lost || i == gone ||
                      (is_late && !n->serial);

        if (!is_out && !l->said_shared[i]) {
            return false;
        }
    }
    return true;
}

/* With the first order members learn who decides, and may go on by that: it is too late
 * then. Who is left out, and sees another directory by that name, claims nothing there: it
 * has not the nonce of the run. */
void agent_lead_shares(struct agent_lead *l, uint32_t gone)
{
    struct lead_event event = {.type = LEAD_SHARED};
    bool is_late = lead_gathers_late(l->core, uv_now(&l->agent->loop));

    if (!l->is_heir && !lead_order(l->core) && all_share(l, gone, is_late)) {
        agent_lead_step(l, &event);
    }
}

/* Where all see the same run directory it can decide who leads. */
static void take_shares(struct agent_lead *l, uint32_t rank, const json_t *fact)
{
    if (rank < l->n_first && !l->said_shared[rank] &&
        json_is_true(json_object_get(fact, "same"))) {
        l->said_shared[rank] = true;
        agent_lead_shares(l, ROSTER_NO_RANK);
    }
}

/* A front end wants to take the run over. It holds the lock of the run, so that
 * one that seems to be connected still is not: the lead goes to the new one,
 * which has to show that it knows the key. */
static int take_front(struct agent_lead *l, const json_t *body, const char *who,
                      struct error *e)
{
    const char *front = json_string_value(json_object_get(body, "front"));
    _strlist_ struct strlist addrs = {0};
    uint16_t port = 0;
    int rc = addr_ways_parse(front ? front : "", &addrs, &port, e);

    if (rc < 0) {
        return error_wrap(e, "attach");
    }
    str_copy(l->front_name, sizeof(l->front_name), who);
    if (!agent_front_learn(l->agent, front, agent_front_next(l->agent))) {
        return error_set(e, ENOMEM, "attach");
    }
    agent_front_tell_all(l->agent);
    return 0;
}

/* Nobody but the asker's own lead answers: the others read it in the journal. */
static int scale(struct agent_lead *l, const json_t *body, const char *who,
                 struct error *e)
{
    struct lead_event event = {.type = LEAD_SCALE};
    int rc = record_scale(l->record, l->agent, l->core, body, who,
                          &event.n_nodes, e);

    if (rc == 0) {
        agent_lead_step(l, &event);
    }
    return rc;
}

int agent_lead_request(struct agent *a, const char *op, const json_t *body,
                       const char *who, struct error *e)
{
    bool force = json_is_true(json_object_get(body, "force"));
    char text[256];

    if (!a->lead) {
        return error_text(e, EAGAIN, "the run is only being put together");
    }
    if (strcmp(op, "attach") == 0) {
        return take_front(a->lead, body, who, e);
    }
    snprintf(text, sizeof(text), "%s by %s", force ? "forced" : "asked for",
             who);
    if (strcmp(op, "cancel") == 0) {
        agent_lead_halt(a->lead, LEAD_STOP_CANCEL, force, text);
    } else if (strcmp(op, "preempt") == 0) {
        agent_lead_halt(a->lead, LEAD_STOP_PREEMPT, force, text);
    } else if (strcmp(op, "suspend") == 0) {
        snprintf(text, sizeof(text), "suspended by %s", who);
        agent_lead_halt(a->lead, LEAD_STOP_SUSPEND, force, text);
    } else if (strcmp(op, "checkpoint") == 0) {
        return record_ask_checkpoint(a->lead->record, a, a->lead->core, who,
                                     json_string_value(json_object_get(body, "id")), e);
    } else if (strcmp(op, "scale") == 0) {
        return scale(a->lead, body, who, e);
    } else {
        return error_text(e, ERR_USAGE, "unknown request '%.60s'", op);
    }
    return 0;
}

/* A rank whose agent is gone takes so long, at most, to leave MPI (comm/mpi/main.c); then
 * mpirun ends the others. */
enum { WORLD_END_MS = 10000 };

/* Where mpirun was started by hand, a SIGTERM to its ranks can mean that the run
 * is to stop, or that mpirun is losing nodes. If none is lost about then, it was
 * meant for the run; what the run has outlived before says nothing. */
static void on_term_timer(uv_timer_t *t)
{
    struct agent_lead *l = t->data;
    uint64_t heartbeat_ms = l->agent->config.job->heartbeat_timeout_ms;

    if (l->lost_ms &&
        uv_now(&l->agent->loop) - l->lost_ms < 2 * heartbeat_ms + WORLD_END_MS) {
        return;
    }
    agent_lead_halt(l, LEAD_STOP_PREEMPT, false, "mpirun was told to end");
}

static void take_term(struct agent_lead *l)
{
    if (l->agent->config.by_hand && !uv_is_active((uv_handle_t *)l->term)) {
        uv_timer_start(l->term, on_term_timer,
                       l->agent->config.job->heartbeat_timeout_ms, 0);
    }
}

/* Of one who knows more than this lead, which was not there when it was told. */
static void take_front_fact(struct agent_lead *l, const json_t *fact)
{
    const char *front = json_string_value(json_object_get(fact, "front"));

    if (front && agent_front_learn(l->agent, front, json_integer_value(
                                       json_object_get(fact, "serial")))) {
        agent_front_tell_all(l->agent);
    }
}

static void take_stranded(struct agent_lead *l, const json_t *fact)
{
    json_int_t g = json_integer_value(json_object_get(fact, "generation"));

    if (l->agent->config.by_hand && g == lead_generation(l->core)) {
        agent_lead_halt(l, LEAD_STOP_PREEMPT, false,
                        "workers wait in a collective for an MPI world, which is "
                        "lost with an mpirun that was started by hand");
    }
}

void agent_lead_fact(struct agent *a, uint32_t rank, const void *json,
                     size_t len)
{
    json_t *fact = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    const char *kind = json_string_value(json_object_get(fact, "fact"));
    const char *op = json_string_value(json_object_get(fact, "op"));
    const char *from = json_string_value(json_object_get(fact, "from"));

    if (!a->lead || !kind) {
        agent_log(a, "a fact of node %u does not parse", rank);
    } else if (strcmp(kind, "misfit") == 0) {
        agent_lead_misfit(a->lead, rank, fact);
    } else if (strcmp(kind, "term") == 0) {
        take_term(a->lead);
    } else if (strcmp(kind, "shares") == 0) {
        take_shares(a->lead, rank, fact);
    } else if (strcmp(kind, "notice") == 0) {
        agent_lead_halt(a->lead, LEAD_STOP_PREEMPT, false,
                        "a signal to mpirun says that the end is near");
    } else if (strcmp(kind, "front") == 0) {
        take_front_fact(a->lead, fact);
    } else if (strcmp(kind, "stranded") == 0) {
        take_stranded(a->lead, fact);
    } else if (strcmp(kind, "mpi_hung") == 0) {
        agent_lead_hung(a->lead, fact);
    } else if (strcmp(kind, "mpi_well") == 0) {
        agent_lead_well(a->lead, fact);
    } else if (strcmp(kind, "snap") == 0) {
        lead_snap_fact(a->lead->snaps, rank, fact);
    } else if (strcmp(kind, "snap_parity") == 0) {
        lead_snap_parity(a->lead->snaps, rank, fact);
    } else if (strcmp(kind, "snap_want") == 0) {
        lead_snap_want(a->lead->snaps, fact);
    } else if (strcmp(kind, "look") == 0) {
        lead_look_fact(a->lead->look, rank, fact);
    } else if (strcmp(kind, "request") == 0 && op) {
        agent_lead_request(a, op, fact,
                           from ? from : a->roster.entries[rank].host, NULL);
    } else if (!lead_hang_fact(a->lead->hang, rank, kind, fact)) {
        if (strcmp(kind, "report") == 0) {
            agent_lead_progress(a->lead, fact);
        }
        record_fact(a->lead->record, rank, kind, fact);
    }
    json_decref(fact);
}

int agent_lead_file_request(void *arg, const char *op, const json_t *body,
                            struct jsonw *reply, struct error *e)
{
    const char *from = json_string_value(json_object_get(body, "from"));

    (void)reply;
    return agent_lead_request(arg, op, body, from ? from : "a file in control/",
                              e);
}
