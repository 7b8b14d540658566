/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who leads, as far as this agent has a part in it: between the heir
 * (rendezvous/heir.h) and the tree, the arbiter, the member and the lead. Where the
 * job needs all of the nodes that it can ever have there is no heir: nobody goes on
 * without the lead, and its word is always good.
 */
#include <config.h>

#include "launcher/agent_heir_priv.h"

#include "base/cleanup.h"
#include "base/loop_timer.h"
#include "launcher/agent_steps.h"
#include "launcher/arbiter.h"
#include "launcher/jsonw.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <stdlib.h>

enum {
    ASK_MS = 5000,       /* for the run directory to answer */
    AGAIN_MS = 250,      /* before a claim that failed is made once more */
    SETTLE_MS = 300,
    MIN_WAIT_MS = 30000, /* without a lead */
    WAIT_LEASES = 3,
    LEASE_SHARE = 20,    /* of heartbeat.timeout, which members have on top ... */
    MAX_EXTRA_MS = 500,  /* ... so that a lead gives them up before they do */
    SLACK_MS = 200,      /* for an agent to kill its workers in */
    DRIFT_SHARE = 100,   /* of a lease: what two clocks may differ by in it */
};

/* --- how long ---------------------------------------------------------- */

uint64_t agent_lease_ms(const struct agent *a)
{
    uint64_t ms = a->config.job->heartbeat_timeout_ms;
    uint64_t extra = ms / LEASE_SHARE;

    return !a->heir ? ms : ms + (extra < MAX_EXTRA_MS ? extra : MAX_EXTRA_MS);
}

uint64_t agent_lease_slack_ms(const struct agent *a)
{
    return agent_lease_ms(a) / DRIFT_SHARE + SLACK_MS;
}

struct view_rule agent_view_rule(const struct agent *a)
{
    const struct job *job = a->config.job;

    return (struct view_rule){.on = a->heir != NULL,
                              .min_nodes = job->nodes.min};
}

uint64_t agent_claim_ms(void)
{
    return 3 * ASK_MS;
}

/* --- what the core wants ------------------------------------------------- */

static void on_timer(uv_timer_t *t);

static void promise(struct agent_heir *h, const struct heir_actions *do_)
{
    struct member_event event = {.type = MEMBER_PROMISE, .floor = do_->floor,
                                 .heard_ms = do_->heard_ms};

    agent_member_step(h->agent, &event);
}

static void follow(struct agent_heir *h, const struct follow *f)
{
    _buf_ struct buf b = {0};

    follow_encode(f, &b);
    if (!b.failed) {
        tree_follow(h->agent->tree, &b);
    }
}

static void take_order(struct agent_heir *h, const struct order *order)
{
    struct agent *a = h->agent;
    _buf_ struct buf b = {0};

    order_encode(order, &b);
    if (!b.failed && order->serial > a->order_serial) {
        a->order_serial = order->serial;
        tree_publish_order(a->tree, &b);
    }
    agent_member_order(a, order);
}

/* No answer comes from nothing: it is asked again, after a while. */
static void claim_failed(struct agent_heir *h, const char *why)
{
    agent_log(h->agent, "a claim of a view: %s", why);
    uv_timer_start(h->again, on_timer, AGAIN_MS, 0);
}

static void claim(struct agent_heir *h, const struct view *v, bool is_lead)
{
    struct error e = {0};

    h->claim_is_lead = is_lead;
    agent_log(h->agent, "claims view %u%s", v->number,
              v->has_verdict ? ", the last one" : "");
    if (arbiter_claim(h->arbiter, v, &e) < 0) {
        claim_failed(h, e.text);
    }
}

void agent_heir_claim(struct agent *a, const struct view *v)
{
    claim(a->heir, v, true);
}

/* Another one leads, or will. */
static void quit(struct agent_heir *h)
{
    struct agent *a = h->agent;

    agent_log(a, "leads no more");
    agent_lead_quit(a);
    a->lead_rank = TREE_NO_RANK;
    tree_set_view(a->tree, heir_view(h->core)->number, TREE_NO_RANK);
}

static void take_lead(struct agent_heir *h, const struct heritage *heritage)
{
    struct agent *a = h->agent;
    struct error e = {0};

    agent_log(a, "leads from here on, view %u", heritage->view.number);
    if (agent_lead_start(a, heritage, &e) < 0) {
        agent_leave(a, RUN_RESUMABLE, e.text);
        return;
    }
    a->lead_rank = a->rank;
    tree_set_view(a->tree, heritage->view.number, a->rank);
    agent_lead_begin(a);
    if (a->tree) {
        tree_tell_events(a->tree);
        agent_control_again(a);
    }
}

/* What an order says of the view is known to the tree at once. */
static void set_view(struct agent_heir *h)
{
    struct agent *a = h->agent;
    const struct view *v = heir_view(h->core);
    bool is_new = v->lead != a->lead_rank;

    if (heir_is_free(h->core) || !v->number || (v->number == a->view && !is_new)) {
        return;
    }
    a->view = v->number;
    if (heir_is_lead(h->core)) {
        h->good_ms = uv_now(&a->loop); /* it was won just now */
    }
    if (is_new) {
        a->lead_rank = v->lead;
        agent_log(a, "follows node %u (view %u)", v->lead, v->number);
        agent_tell_pid(a);
        agent_front_tell_lead(a);
    }
    tree_set_view(a->tree, v->number, v->lead);
    if (is_new) {
        agent_control_again(a);
    }
}

/* Whether what the event brings is for the member. */
bool agent_heir_step(struct agent_heir *h, struct heir_event *event)
{
    struct agent *a = h->agent;
    struct heir_actions do_;
    bool is_bound_anew = false;
    uint64_t now;
    int rc;

    if (a->leaving) {
        return false;
    }
    uv_update_time(&a->loop);
    now = event->now_ms = uv_now(&a->loop);
    rc = heir_step(h->core, event, &do_);
    agent_steps_heir(a, h->core, event, rc, &do_);
    if (rc == -ENOMEM) {
        agent_log(a, "out of memory: an event of the lead's is lost");
    }
    if (do_.wake_ms != HEIR_NEVER) {
        uv_timer_start(h->timer, on_timer,
                       do_.wake_ms > now ? do_.wake_ms - now : 0, 0);
    } else {
        uv_timer_stop(h->timer);
    }
    if (do_.floor) {
        promise(h, &do_);
        is_bound_anew = do_.obey;
    }
    if (do_.quit) {
        quit(h);
    }
    set_view(h);
    if (is_bound_anew) {
        tree_beat_now(a->tree);
    }
    if (do_.follow) {
        follow(h, do_.follow);
    }
    if (do_.seek != HEIR_NO_RANK) {
        tree_seek_rank(a->tree, do_.seek);
    }
    if (do_.order) {
        take_order(h, do_.order);
    }
    if (do_.claim) {
        claim(h, do_.claim, false);
    }
    if (do_.lead) {
        take_lead(h, do_.lead);
    }
    if (do_.leave) {
        struct member_event leave = {.type = MEMBER_LEAVE, .text = do_.leave};

        agent_member_step(a, &leave);
    }
    return do_.obey;
}

static void on_timer(uv_timer_t *t)
{
    struct agent_heir *h = t->data;
    struct heir_event event = {.type = t == h->timer ? HEIR_TICK
                                                     : HEIR_CLAIMED,
                               .outcome = HEIR_UNKNOWN};

    if (event.type == HEIR_CLAIMED && h->claim_is_lead) {
        agent_lead_claimed(h->agent, HEIR_UNKNOWN);
    } else {
        agent_heir_step(h, &event);
    }
}

/* --- what the run directory says ------------------------------------------ */

static void begin(struct agent_heir *h, bool shared)
{
    struct agent *a = h->agent;
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "shares");

    if (h->is_checked) {
        return;
    }
    h->is_checked = true;
    jsonw_bool(&w, "same", shared);
    agent_fact_send(a, &w);
    agent_member_report(a);
}

static void on_answer(void *arg, enum arbiter_answer answer, uint32_t number,
                      const struct view *view, const char *text)
{
    struct agent_heir *h = arg;
    struct heir_event event = {.type = HEIR_CLAIMED, .found = view,
                               .outcome = answer == ARBITER_WON ? HEIR_WON
                                                                : HEIR_LOST};

    if (h->agent->leaving) {
        return;
    }
    if (number == 0) {
        begin(h, answer == ARBITER_SHARED);
    } else if (answer == ARBITER_UNKNOWN) {
        claim_failed(h, text);
    } else if (answer == ARBITER_WON && h->claim_is_lead) {
        agent_lead_claimed(h->agent, HEIR_WON);
    } else {
        agent_log(h->agent, "view %u is led by node %u", number, view->lead);
        event.type = h->claim_is_lead ? HEIR_DEPOSED : HEIR_CLAIMED;
        agent_heir_step(h, &event);
    }
}

/* --- life -------------------------------------------------------------------- */

void agent_heir_grow(struct agent *a)
{
    _free_ uint32_t *node_of = calloc(a->roster.n + 1, sizeof(*node_of));
    struct heir_event tick = {.type = HEIR_TICK};

    if (!a->heir || !node_of) {
        return;
    }
    agent_fit_nodes(a, node_of);
    agent_steps_heir_grows(a, a->roster.n, node_of);
    if (heir_grow(a->heir->core, a->roster.n, node_of) < 0) {
        agent_log(a, "out of memory: a newcomer cannot take the lead");
    }
    agent_heir_step(a->heir, &tick); /* it may not have known all members */
}

/* A job that needs all of the nodes it can have ends with the first that it loses. All
 * agents have to find the same, also those that come when there are more. */
static bool may_go_on(const struct agent *a, const uint32_t *node_of)
{
    const struct job *job = a->config.job;
    uint32_t n_nodes = a->config.n_nodes;

    for (uint32_t i = 0; !a->config.n_nodes && i < a->roster.n; i++) {
        n_nodes += node_of[i] == i;
    }
    return job->restart.policy != JOB_RESTART_NEVER &&
           job->limits.node_failures > 0 && n_nodes > 1 &&
           job->nodes.min < n_nodes;
}

static int create_core(struct agent_heir *h, const uint32_t *node_of,
                       struct error *e)
{
    struct agent *a = h->agent;
    uint64_t lease_ms = agent_lease_ms(a);
    struct heir_config config = {
        .rank = a->rank,
        .n_nodes = a->roster.n,
        .rule = agent_view_rule(a),
        .lease_ms = lease_ms,
        .join_ms = a->config.job->gang_timeout_ms,
        .slack_ms = agent_lease_slack_ms(a),
        .settle_ms = SETTLE_MS,
        .wait_ms = WAIT_LEASES * lease_ms > MIN_WAIT_MS
                       ? WAIT_LEASES * lease_ms : MIN_WAIT_MS,
    };

    config.rule.node_of = node_of;
    agent_steps_heir_begins(a, &config, uv_now(&a->loop));
    return heir_create(&config, uv_now(&a->loop), &h->core, e);
}

int agent_heir_start(struct agent *a, struct error *e)
{
    struct view_place at = {a->run.dir, a->run.id, a->config.n_starts + 1,
                            a->config.nonce};
    _free_ uint32_t *node_of = calloc(a->roster.n + 1, sizeof(*node_of));
    struct agent_heir *h;
    int rc;

    if (!node_of) {
        return error_set(e, ENOMEM, "follow a lead");
    }
    agent_fit_nodes(a, node_of);
    if (!may_go_on(a, node_of)) {
        return 0;
    }
    h = calloc(1, sizeof(*h));
    if (!h) {
        return error_set(e, ENOMEM, "follow a lead");
    }
    h->agent = a;
    a->heir = h;
    h->timer = loop_timer_create(&a->loop, h);
    h->again = loop_timer_create(&a->loop, h);
    if (!h->timer || !h->again) {
        return error_set(e, ENOMEM, "follow a lead");
    }
    rc = create_core(h, node_of, e);
    return rc < 0 ? rc : arbiter_create(&a->loop, &at, ASK_MS, on_answer, h,
                                        &h->arbiter, e);
}

bool agent_heir_may_report(const struct agent *a)
{
    return !a->heir || a->heir->is_checked;
}

void agent_heir_begin(struct agent *a)
{
    if (!a->heir) {
        agent_member_report(a);
    } else if (arbiter_check(a->heir->arbiter, NULL) < 0) {
        begin(a->heir, false);
    }
}

void agent_heir_stop(struct agent *a)
{
    struct agent_heir *h = a->heir;

    if (!h) {
        return;
    }
    a->heir = NULL;
    arbiter_destroy(h->arbiter);
    loop_timer_close(h->timer);
    loop_timer_close(h->again);
    heir_destroy(h->core);
    free(h);
}
