/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/build.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/wire.h"
#include "launcher/commands.h"
#include "launcher/status.h"
#include "rendezvous/tree_msg.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    COME_BACK_MS = 5000, /* for a lead that lost us to find us again */
    NEXT_LEAD_MS = 30000, /* for another node to take the lead, beyond leases */
    NEXT_LEAD_LEASES = 4,
    NEWS_MS = 3000,      /* of a lead that is not back, or followed, by then */
    PULSE_MS = 10000,    /* the lead says something at least so often */
    MAX_RUN_BYTES = CHANNEL_MAX_FRAME - 1024, /* goes in one frame */
};

/* --- what it says --- */

static void take_status(struct front *f, const struct channel_frame *frame)
{
    const struct run_status *s = screen_status(f->screen, frame->data,
                                               frame->len);

    for (size_t i = 0; s && i < s->n_nodes; i++) {
        f->lost_node |= s->nodes[i].state == STATUS_NODE_LOST;
    }
    if (s) {
        front_attach_see(f, s);
        front_see_world(f, s);
    }
    if (s && s->verdict.is_set) {
        f->in_order = true;
        front_settle(f, s->verdict.exit_status, s->verdict.reason);
    }
}

static void take_event(struct front *f, const struct channel_frame *frame)
{
    json_t *o = json_loadb((const char *)frame->data, frame->len, 0, NULL);
    const char *event = json_string_value(json_object_get(o, "event"));
    json_int_t epoch = json_integer_value(json_object_get(o, "epoch"));

    if (event && strcmp(event, "mpi_lost") == 0) {
        front_on_mpi_lost(f, (uint64_t)epoch);
    } else if (event && strcmp(event, "mpi_joined") == 0) {
        front_see_joined(f, (uint64_t)epoch);
    } else if (event && strcmp(event, "nodes_wanted") == 0) {
        front_ask_at_once(f);
    }
    if (event) {
        front_see_loss(f, event);
    }
    screen_event(f->screen, o);
    json_decref(o);
}

void front_take_frame(struct front *f, const struct channel_frame *frame)
{
    f->heard_ms = front_now_ms(f);
    switch (frame->type) {
    case TREE_OUTPUT:
        front_take_output(f, frame);
        break;
    case TREE_STATUS:
        take_status(f, frame);
        break;
    case TREE_EVENT:
        take_event(f, frame);
        break;
    default:
        break;
    }
}

static void on_frame(struct link *l, const struct channel_frame *frame,
                     void *ctx)
{
    (void)l;
    front_take_frame(ctx, frame);
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    struct front *f = ctx;

    (void)closed;
    f->lead = NULL;
    f->lead_gone_ms = front_now_ms(f);
    if (f->phase == FRONT_OVER) {
        f->over_ms = front_now_ms(f);
    } else {
        str_copy(f->reason, sizeof(f->reason), why->text);
    }
    link_close(l); /* `why` is the link's */
    front_finish_if_done(f);
}

static const struct link_ops lead_ops = {
    .on_frame = on_frame,
    .on_down = on_down,
};

/* --- it connects --- */

int front_encode_run(struct front *f, struct error *e)
{
    run_config_encode(f->config->run, &f->run_bytes);
    if (f->run_bytes.failed) {
        return error_set(e, ENOMEM, "describe the run");
    }
    if (f->run_bytes.len > MAX_RUN_BYTES) {
        return error_text(e, E2BIG, "the job and this environment are %zu "
                          "bytes together, and all nodes get them: the limit "
                          "is %d", f->run_bytes.len, MAX_RUN_BYTES);
    }
    return 0;
}

static void send_config(struct front *f)
{
    _buf_ struct buf b = {0};

    tree_config_encode(front_now_ms(f) - f->started_ms, f->run_bytes.data, f->run_bytes.len,
                       &b);
    link_send_buf(f->lead, TREE_CONFIG, &b);
}

static void refuse_version(struct front *f, const char *version)
{
    char text[TREE_ID_BYTES + 128];

    snprintf(text, sizeof(text), "the lead's host has muster %s, and this one "
             "%s: install the same one on all hosts", version,
             build_name());
    if (f->config->attach) {
        front_leave(f, EXIT_FAILED, text);
    } else {
        front_settle(f, EXIT_NOT_GATHERED, text);
    }
}

/* Whether it leads, as far as is known here: the lead that is known, or one of a
 * newer view. */
static bool is_lead(const struct front *f, const struct tree_hello *h)
{
    return h->view > f->lead_view ||
           (h->view == f->lead_view && h->rank == f->lead_rank);
}

static const char *host_of(const struct front *f, uint32_t rank)
{
    const struct run_status *s = screen_last(f->screen);

    return s && rank < s->n_nodes ? s->nodes[rank].host : "unknown";
}

static void take_view(struct front *f, const struct tree_hello *h)
{
    if (f->began && h->rank != f->lead_rank) {
        screen_note(f->screen, "node %u (%s) leads the run from here on",
                    h->rank, host_of(f, h->rank));
    } else if (f->told_no_lead) {
        screen_note(f->screen, "node %u (%s) leads the run again", h->rank,
                    host_of(f, h->rank));
    }
    f->told_no_lead = false;
    f->lead_rank = h->rank;
    f->lead_view = h->view;
}

void front_on_peer(struct link *l, const struct channel_frame *first,
                   void *ctx)
{
    struct front *f = ctx;
    struct tree_hello h;
    _buf_ struct buf welcome = {0};
    uint64_t heard_ms = f->heard_ms;

    /* Who leaves the run takes nobody back, while the last words are read. */
    if (f->has_left || first->type != TREE_HELLO ||
        tree_hello_decode(first->data, first->len, &h, NULL) < 0 ||
        strcmp(h.run_id, f->config->dir->id) != 0 ||
        (!is_lead(f, &h) && (f->began || !f->config->attach))) {
        link_close(l);
        return;
    }
    if (strcmp(h.version, build_name()) != 0) {
        link_close(l);
        refuse_version(f, h.version);
        return;
    }
    if (f->lead) {
        link_close(f->lead); /* it has come back before we saw it go */
    }
    take_view(f, &h);
    f->lead = l;
    f->began = true;
    f->n_owed = 0;
    f->heard_ms = front_now_ms(f);
    f->lead_gone_ms = 0;
    link_adopt(l, &lead_ops, f);
    wire_put_u32(&welcome, 0);
    link_send_buf(l, TREE_WELCOME, &welcome);
    if (!f->config->attach) {
        send_config(f);
    }
    if (f->phase == FRONT_STARTING) {
        f->phase = FRONT_RUNNING;
        front_see_joined(f, f->config->attach ? 0 : f->epoch);
        front_attach_done(f);
    } else if (f->phase == FRONT_OVER) {
        /* It was given up for lost, and the user was told so. */
        front_send_request(f, "preempt", true);
    } else {
        front_ask_again(f, heard_ms);
    }
}

/* --- it may be gone --- */

void front_beat(struct front *f)
{
    _buf_ struct buf b = {0};

    wire_put_u64(&b, 0);
    link_send_buf(f->lead, TREE_BEAT, &b);
}

/* A lead whose connection lives, but that says nothing: its process is stopped,
 * or its host. Silence while this process was stopped itself tells nothing. */
static void check_silence(struct front *f, uint64_t lease_ms)
{
    if (front_now_ms(f) - f->ticked_ms > PULSE_MS / 2) {
        f->heard_ms = front_now_ms(f);
    }
    f->ticked_ms = front_now_ms(f);
    if (f->lead && front_now_ms(f) - f->heard_ms > PULSE_MS + lease_ms) {
        link_close(f->lead);
        f->lead = NULL;
        f->lead_gone_ms = front_now_ms(f);
        snprintf(f->reason, sizeof(f->reason), "it has said nothing for "
                 "%llu s; workers that still run there end with it, or by "
                 "muster cancel",
                 (unsigned long long)(PULSE_MS + lease_ms) / 1000);
    }
}

/* Where the job can do with fewer nodes than there are. */
static bool may_be_followed(const struct front *f)
{
    const struct run_status *s = screen_last(f->screen);
    const struct job *job = f->config->run->job;

    return s && s->n_nodes > job->nodes.min && s->n_nodes > 1 &&
           job->restart.policy != JOB_RESTART_NEVER;
}

/* For how long a lead may be away, until it is back or another one is there. */
static uint64_t patience_ms(const struct front *f)
{
    uint64_t lease_ms = f->config->run->job->heartbeat_timeout_ms;

    if (may_be_followed(f)) {
        return NEXT_LEAD_LEASES * lease_ms + NEXT_LEAD_MS;
    }
    return lease_ms > COME_BACK_MS ? lease_ms : COME_BACK_MS;
}

static void tell_no_lead(struct front *f)
{
    unsigned left_s = (unsigned)((patience_ms(f) - NEWS_MS) / 1000);

    f->told_no_lead = true;
    if (may_be_followed(f)) {
        screen_note(f->screen, "the run has no lead since that on %s is lost "
                    "(%s): it stops, to be resumed, if none is found in %u s; "
                    "for another one the directory of the run has to answer",
                    host_of(f, f->lead_rank), f->reason, left_s);
    } else {
        screen_note(f->screen, "the lead on %s is lost (%s): the run stops, to "
                    "be resumed, if it is not back in %u s",
                    host_of(f, f->lead_rank), f->reason, left_s);
    }
}

static void give_up_lead(struct front *f)
{
    char text[1200];

    if (!front_settle_from_record(f)) {
        snprintf(text, sizeof(text), "the lead is lost%s: %s",
                 may_be_followed(f) ? ", and no other node has taken its place"
                                    : "",
                 agent_step_is_over(f->step)
                     ? "Slurm has ended the step of the agents" : f->reason);
        front_settle(f, EXIT_RESUMABLE, text);
    }
}

void front_check_lead(struct front *f)
{
    uint64_t lease_ms = f->config->run->job->heartbeat_timeout_ms;
    uint64_t gone_ms;

    check_silence(f, lease_ms);
    if (f->phase != FRONT_RUNNING || !f->lead_gone_ms) {
        return;
    }
    gone_ms = front_now_ms(f) - f->lead_gone_ms;
    if (agent_step_is_over(f->step) || gone_ms > patience_ms(f)) {
        give_up_lead(f);
    } else if (gone_ms > NEWS_MS && !f->told_no_lead) {
        tell_no_lead(f);
    }
}
