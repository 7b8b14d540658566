/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "launcher/commands.h"
#include "launcher/jsonw.h"
#include "rendezvous/tree_msg.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>

void front_send_request(struct front *f, const char *op, bool force)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "request");
    jsonw_str(&w, "op", op);
    jsonw_bool(&w, "force", force);
    jsonw_end_object(&w);
    if (f->lead) {
        link_send_buf(f->lead, TREE_REQUEST, &b);
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

/* The first signal asks, the second forces, the third lets go. */
void front_on_signal(uv_signal_t *s, int sig)
{
    struct front *f = s->data;
    bool cancel = sig == SIGINT || sig == SIGQUIT;
    bool is_notice = sig == SIGUSR1 || sig == SIGUSR2;

    /* Batch systems send these ahead of time, and may do so again and again. */
    if (is_notice && (f->phase == FRONT_OVER || f->n_signals)) {
        return;
    }
    f->n_signals++;
    if (f->phase == FRONT_OVER) {
        f->lets_go = true;
        return;
    }
    if (f->phase == FRONT_STARTING || f->n_signals > 2) {
        let_go(f, cancel ? EXIT_CANCELLED : EXIT_RESUMABLE);
        return;
    }
    screen_note(f->screen, is_notice
                ? "%s: asking the workers to stop"
                : f->n_signals == 1
                ? "%s: asking the workers to stop (once more: kill them)"
                : "%s again: killing the workers", child_signal_name(sig));
    front_send_request(f, cancel ? "cancel" : "preempt", f->n_signals > 1);
}

int front_on_control(void *arg, const char *op, const json_t *body,
                     struct jsonw *reply, struct error *e)
{
    struct front *f = arg;

    if (f->phase == FRONT_OVER) {
        jsonw_str(reply, "text", "the run has ended");
        return 0;
    }
    if (!f->lead) {
        return error_text(e, EAGAIN, f->phase == FRONT_STARTING
                          ? "the run is only being put together"
                          : "the lead is not to be reached just now");
    }
    front_send_request(f, op, json_is_true(json_object_get(body, "force")));
    jsonw_str(reply, "text", "passed on to the lead");
    return 0;
}
