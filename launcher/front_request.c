/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/jsonw.h"
#include "rendezvous/tree_msg.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tell_lead(const struct front *f)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "request");
    jsonw_str(&w, "op", f->asked.op);
    jsonw_bool(&w, "force", f->asked.force);
    jsonw_int(&w, "nodes", f->asked.n_nodes);
    jsonw_opt_str(&w, "id", f->asked.id);
    jsonw_end_object(&w);
    if (f->lead) {
        link_send_buf(f->lead, TREE_REQUEST, &b);
    }
}

static void send_request(struct front *f, const char *op, bool force,
                         int64_t n_nodes, const char *id)
{
    str_copy(f->asked.op, sizeof(f->asked.op), op);
    f->asked.force = force;
    f->asked.n_nodes = n_nodes;
    str_copy(f->asked.id, sizeof(f->asked.id), id ? id : "");
    f->asked.ms = front_now_ms(f);
    tell_lead(f);
}

void front_send_request(struct front *f, const char *op, bool force)
{
    send_request(f, op, force, 0, NULL);
}

/* Whether the run ends by it: nothing is asked for after it that takes it back. */
static bool is_end(const char *op)
{
    return strcmp(op, "cancel") == 0 || strcmp(op, "preempt") == 0 ||
           strcmp(op, "suspend") == 0;
}

/* To ask twice does no harm, but for what somebody else may have changed since. */
void front_ask_again(struct front *f, uint64_t heard_ms)
{
    if (f->asked.op[0] && (is_end(f->asked.op) || f->asked.ms >= heard_ms)) {
        tell_lead(f);
    }
}

static void let_go(struct front *f, int status)
{
    front_settle(f, status, f->phase == FRONT_STARTING
                 ? "stopped before the run began"
                 : "left alone by a third signal");
    link_close(f->lead);
    f->lead = NULL;
    f->over_ms = front_now_ms(f) - FRONT_MPIRUN_END_MS; /* do not wait */
}

/* The terminal is gone, or the connection to it, and with it whoever looked on:
 * no reason to end a run that can do without. */
static void detach(struct front *f)
{
    uint64_t ms = f->config->run->detach_ms;
    const char *id = f->config->dir->id;
    char text[512], span[32], what[128];

    clock_format_span(ms, span, sizeof(span));
    snprintf(what, sizeof(what), f->was_noticed ? "it is stopping%s"
             : ms >= JOB_NEVER ? "it goes on%s to its end"
                                : "it goes on for %s (detach.timeout)",
             f->was_noticed || ms >= JOB_NEVER ? "" : span);
    snprintf(text, sizeof(text), "SIGHUP: left run %s to itself; %s; muster "
             "attach %s takes it over", id, what, id);
    front_leave(f, 128 + SIGHUP, text);
}

/* Before there is a link to the lead. */
static void leave_early(struct front *f, int status)
{
    char text[256];

    if (!f->config->attach) {
        let_go(f, status);
        return;
    }
    snprintf(text, sizeof(text), "left run %s to itself, before its lead had "
             "come", f->config->dir->id);
    front_leave(f, status, text);
}

/* Batch systems send SIGUSR1 and SIGUSR2 ahead of time, and may do so again and
 * again; Slurm sends SIGTERM, to the agents as well, which may have ended the run
 * before this process has heard, and once more when the time for that is over: what
 * they have given the workers, and a last checkpoint, is theirs until SIGKILL. */
static bool is_repeated(const struct front *f, int sig)
{
    if (sig == SIGUSR1 || sig == SIGUSR2) {
        return f->phase == FRONT_OVER || f->was_noticed;
    }
    return sig == SIGTERM && getenv("SLURM_JOB_ID") &&
           (f->phase == FRONT_OVER ||
            (f->phase == FRONT_RUNNING && f->n_signals));
}

/* The run is over but for its last checkpoint, on the way to the disk or further. */
static void end_storing(struct front *f, int sig)
{
    bool is_storing = front_is_storing(f);

    if (sig == SIGHUP || f->skips_store || !(is_storing || front_is_saving(f))) {
        front_hurry(f);
        return;
    }
    f->skips_store = true;
    screen_note(f->screen, "%s: not waiting for the %s", child_signal_name(sig),
                is_storing ? "last checkpoint" : "disk");
    front_send_request(f, "preempt", true);
}

/* The first signal asks, the second forces, the third lets go. */
void front_on_signal(uv_signal_t *s, int sig)
{
    struct front *f = s->data;
    bool cancel = sig == SIGINT || sig == SIGQUIT;
    bool is_notice = sig == SIGUSR1 || sig == SIGUSR2;

    if (sig == SIGHUP && f->phase == FRONT_RUNNING) {
        detach(f);
        return;
    }
    if (is_repeated(f, sig)) {
        return;
    }
    f->was_noticed = true;
    f->n_signals += !is_notice;
    if (f->phase == FRONT_OVER) {
        end_storing(f, sig);
        return;
    }
    if (f->phase == FRONT_STARTING) {
        leave_early(f, cancel ? EXIT_CANCELLED : EXIT_RESUMABLE);
        return;
    }
    if (f->n_signals > 2) {
        let_go(f, cancel ? EXIT_CANCELLED : EXIT_RESUMABLE);
        return;
    }
    screen_note(f->screen, !f->lead
                ? "%s: asking the workers to stop, once there is a lead"
                : is_notice
                ? "%s: asking the workers to stop"
                : f->n_signals <= 1
                ? "%s: asking the workers to stop (once more: kill them)"
                : "%s again: killing the workers", child_signal_name(sig));
    front_send_request(f, cancel ? "cancel" : "preempt", f->n_signals > 1);
}

static int on_control(void *arg, const char *op, const json_t *body,
                      struct jsonw *reply, struct error *e)
{
    struct front *f = arg;

    if (strcmp(op, "cancel") != 0 && strcmp(op, "preempt") != 0 &&
        strcmp(op, "suspend") != 0 && strcmp(op, "scale") != 0 &&
        strcmp(op, "checkpoint") != 0) {
        return error_text(e, ERR_USAGE, "a front end knows no request '%.60s'",
                          op);
    }
    if (f->phase == FRONT_OVER) {
        jsonw_str(reply, "text", "the run has ended");
        return 0;
    }
    if (f->phase == FRONT_STARTING && !f->config->attach &&
        strcmp(op, "cancel") == 0) {
        leave_early(f, EXIT_CANCELLED);
        jsonw_str(reply, "text", "cancelling before it begins");
        return 0;
    }
    if (!f->lead) {
        return error_text(e, EAGAIN, f->phase == FRONT_STARTING
                          ? "the run is only being put together"
                          : "the lead is not to be reached just now");
    }
    send_request(f, op, json_is_true(json_object_get(body, "force")),
                 json_integer_value(json_object_get(body, "nodes")),
                 json_string_value(json_object_get(body, "id")));
    jsonw_str(reply, "text", "passed on to the lead");
    return 0;
}

void front_take_commands(struct front *f)
{
    struct error e = {0};

    if (control_server_create(&f->loop, f->config->dir->id, "front", on_control,
                              f, &f->control, &e) < 0) {
        screen_note(f->screen, "commands cannot reach this front end: %s",
                    e.text);
    }
}
