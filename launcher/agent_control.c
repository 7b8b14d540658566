/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands on this host ask of an agent. It knows of a lead once the job has
 * come to it, and passes on what it is asked from then on; before that there is
 * nobody to pass it to, and it must not seem so.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <string.h>

enum { JOB_MS = 3000 }; /* for the job to come, to a run that is cancelled */

/* Whether the run ends by it: nothing is asked for after it that takes it back. */
static bool is_end(const char *op)
{
    return strcmp(op, "cancel") == 0 || strcmp(op, "preempt") == 0 ||
           strcmp(op, "suspend") == 0;
}

/* For a next lead. */
static void keep(struct agent *a, struct buf *request, bool ends)
{
    if (a->passed_ends && !ends) {
        return;
    }
    buf_release(&a->passed);
    a->passed = *request;
    *request = (struct buf){0};
    a->passed_ms = uv_now(&a->loop);
    a->passed_ends = ends;
}

static void pass_on(struct agent *a, const char *op, const json_t *body)
{
    static const char *const passed[] = {"from", "front", "id"};
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "request");

    jsonw_str(&w, "op", op);
    jsonw_bool(&w, "force", json_is_true(json_object_get(body, "force")));
    jsonw_int(&w, "nodes", json_integer_value(json_object_get(body, "nodes")));
    for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
        const char *s = json_string_value(json_object_get(body, passed[i]));

        if (s) {
            jsonw_str(&w, passed[i], s);
        }
    }
    agent_fact_send(a, &w);
    keep(a, &b, is_end(op));
}

static void tell_notice(struct agent *a)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "notice");

    if (a->is_noticed && a->has_config && a->config.by_hand) {
        agent_fact_send(a, &w);
    }
}

void agent_notice(struct agent *a)
{
    a->is_noticed = true;
    tell_notice(a);
}

/* One that was lost may have been silent for a lease before others knew, and longer where
 * they wait for the run directory. To ask again for what it has done, or told the others
 * of, does no harm; nor does it ever where that is the end of the run. */
void agent_control_again(struct agent *a)
{
    uint64_t lease_ms = a->config.job->heartbeat_timeout_ms;

    if (a->passed.len && a->tree &&
        (a->passed_ends || uv_now(&a->loop) - a->passed_ms <= 2 * lease_ms)) {
        tree_event(a->tree, a->passed.data, a->passed.len);
    }
    tell_notice(a);
}

static void on_no_job(uv_timer_t *t)
{
    agent_leave(t->data, RUN_CANCELLED, "cancelled before the run began");
}

/* The job comes from the front end. Where that is gone none ever comes, and the
 * agents would wait for it for minutes, whoever cancels. */
static int ask_early(struct agent *a, const char *op, const json_t *body,
                     struct jsonw *reply, struct error *e)
{
    if (strcmp(op, "cancel") != 0) {
        return error_text(e, EAGAIN, "the run is only being put together");
    }
    if (!a->is_cancelled) {
        uv_timer_start(&a->start_timer, on_no_job, JOB_MS, 0);
    }
    a->is_cancelled = true;
    a->cancels_by_force |= json_is_true(json_object_get(body, "force"));
    jsonw_str(reply, "text", "cancelling before it begins");
    jsonw_bool(reply, "alone", true);
    return 0;
}

void agent_ask_late(struct agent *a)
{
    json_t *body = a->is_cancelled
                       ? json_pack("{s:b}", "force", a->cancels_by_force) : NULL;

    if (body) {
        pass_on(a, "cancel", body);
        json_decref(body);
    }
    tell_notice(a);
}

int agent_on_control(void *arg, const char *op, const json_t *body,
                     struct jsonw *reply, struct error *e)
{
    struct agent *a = arg;
    const char *from = json_string_value(json_object_get(body, "from"));

    if (strcmp(op, "shell") == 0) {
        return crew_shell(a, json_integer_value(json_object_get(body, "rank")),
                          reply, e);
    }
    if (a->lead) {
        return agent_lead_request(a, op, body, from ? from : "a command", e);
    }
    if (!a->has_config) {
        return ask_early(a, op, body, reply, e);
    }
    pass_on(a, op, body);
    jsonw_str(reply, "text", "passed on to the lead");
    return 0;
}
