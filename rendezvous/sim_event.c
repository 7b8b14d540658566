/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/sim.h"

#include <inttypes.h>
#include <stdlib.h>

/* Of a start that failed: no process has it. */
#define START_FAILURE_PID 1000000
/* Instead of a link epoch. */
#define IN_SOCKET UINT32_MAX

/* Whether it lies in the receiver's socket now, to be read even if the link
 * breaks before that. */
static bool has_arrived(const struct sim *s, const struct sim_event *event)
{
    const struct sim_node *n = &s->nodes[event->node];

    return (event->type == EV_DOWN || event->type == EV_WORD) && n->linked &&
           n->link_epoch == event->tag;
}

/* Whether a message is read: its connection is there, or was when it came. */
static bool is_read(const struct sim *s, const struct sim_event *event)
{
    return event->tag == IN_SOCKET || has_arrived(s, event);
}

static void on_join(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    struct member_config config = {
        .rank = event->node,
        .n_procs = n->want_procs,
        .host = "h",
        .lease_ms = event->node ? s->lease_ms : 0,
        .join_ms = s->lead_config.gang_timeout_ms,
        .linger_ms = 200,
        .margin_ms = s->lead_config.margin_ms,
    };

    if (event->node >= s->n_known) {
        if (!s->lead_alive || s->has_verdict) {
            return;
        }
        sim_trace(s, "node %u: a newcomer", event->node);
        s->n_known = event->node + 1;
        if (lead_add_nodes(s->lead, s->n_known, NULL, s->node_of) < 0) {
            abort();
        }
    }
    if (member_create(&config, sim_clock_ms(s, n), &n->member, NULL) < 0) {
        abort();
    }
    n->alive = true;
    n->sent_ms = s->now_ms;
    n->linked = s->lead_alive;
    sim_member_do(s, n, (struct member_event){.type = MEMBER_UPLINK_UP});
    sim_send_order(s, event->node);
}

static void on_down(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    _order_ struct order order = {0};
    struct error e;

    if (!n->alive || !is_read(s, event)) {
        return;
    }
    if (order_decode(event->bytes.data, event->bytes.len, &order, &e) < 0) {
        sim_fail(s, "%s", e.text);
        return;
    }
    sim_reap(s, n);
    sim_member_do(s, n, (struct member_event){.type = MEMBER_ORDER,
                                              .order = &order});
}

static void on_up(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    struct report report;
    struct error e;

    if (!s->lead_alive || !n->linked || n->link_epoch != event->tag) {
        return;
    }
    if (sim_is_aside(s, n)) {
        struct sim_event later = *event;

        event->bytes = (struct buf){0};
        later.at_ms = n->here_ms + 1;
        sim_push(s, later);
        return;
    }
    if (report_decode(event->bytes.data, event->bytes.len, &report, &e) < 0) {
        sim_fail(s, "%s", e.text);
        return;
    }
    sim_lead_do(s, (struct lead_event){.type = LEAD_REPORT, .report = &report});
}

static void push_word(struct sim *s, uint32_t i, uint64_t at_ms)
{
    s->nodes[i].sent_ms = s->now_ms;
    sim_push(s, (struct sim_event){
        .at_ms = at_ms, .seq = ++s->seq, .type = EV_WORD, .node = i,
        .tag = s->nodes[i].link_epoch, .sent_ms = s->now_ms});
}

/* A word to node `i`. Now and then a link stands still for a while, and what was
 * sent on it comes all at once. */
static void send_word(struct sim *s, uint32_t i)
{
    struct sim_node *n = &s->nodes[i];
    uint64_t at_ms = s->now_ms + sim_pick(s, 0, 40);

    if (s->now_ms < s->faults_end_ms && sim_chance(s, 5)) {
        n->slow_until_ms = s->now_ms + sim_pick(s, 0, 2 * s->lease_ms);
        s->disturbed = true;
        sim_trace(s, "node %u: words come at %" PRIu64, i, n->slow_until_ms);
    }
    push_word(s, i, at_ms > n->slow_until_ms ? at_ms : n->slow_until_ms);
}

static void on_beat(struct sim *s, struct sim_event *event)
{
    if (!s->lead_alive) {
        return;
    }
    for (uint32_t i = 1; i < s->n_nodes; i++) {
        if (s->nodes[i].linked && !sim_is_aside(s, &s->nodes[i])) {
            send_word(s, i);
        }
    }
    sim_post(s, s->now_ms + s->lease_ms / 3, EV_BEAT, event->node, 0);
}

static void on_word(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    if (n->alive && is_read(s, event)) {
        uint64_t age_ms = s->now_ms - event->sent_ms;

        if (n->has_word || age_ms < s->lease_ms) {
            n->has_word = true;
            n->word_ms = event->sent_ms > n->word_ms ? event->sent_ms
                                                     : n->word_ms;
        }
        sim_member_do(s, n, (struct member_event){.type = MEMBER_WORD,
                                                  .age_ms = age_ms});
    }
}

static void on_lead_tick(struct sim *s, struct sim_event *event)
{
    (void)event;
    if (s->lead_alive) {
        s->lead_wake_ms = SIM_NEVER;
        sim_lead_do(s, (struct lead_event){.type = LEAD_TICK});
    }
}

static void on_member_tick(struct sim *s, struct sim_event *event)
{
    s->nodes[event->node].wake_ms = SIM_NEVER;
    sim_member_do(s, &s->nodes[event->node],
                  (struct member_event){.type = MEMBER_TICK});
}

/* Not all workers could be started. */
static void fail_start(struct sim *s, struct sim_node *n, bool stopped)
{
    struct sim_truth *t = &n->truth[n->generation % SIM_MAX_GENERATIONS];
    struct failure f = {
        .kind = FAILURE_EXEC,
        .generation = n->generation,
        .pid = START_FAILURE_PID,
        .exit_code = sim_chance(s, 500) ? 126 : 127,
        .killed_by_us = stopped,
        .wall_ns = (s->now_ms + (uint64_t)n->wall_skew_ms) * 1000000,
    };

    n->starting = false;
    if (!stopped && !t->failed) {
        *t = (struct sim_truth){.failed = true, .pid = f.pid,
                                .at_ms = s->now_ms, .recorded = true};
    }
    sim_member_do(s, n, (struct member_event){.type = MEMBER_START_FAILED,
                                              .generation = n->generation,
                                              .failure = &f});
    sim_reap(s, n);
}

static void on_spawn(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    uint32_t want = n->want_procs;
    bool fails = s->faults_end_ms && sim_chance(s, 5);

    if (!n->alive || n->generation != event->tag) {
        return;
    }
    n->n_died = 0;
    n->n_reaped = 0;
    n->descendant = false;
    n->n_procs = fails ? (uint32_t)sim_pick(s, 0, want - 1) : want;
    n->n_procs = n->stop_asked ? 0 : n->n_procs;
    for (uint32_t k = 0; k < n->n_procs; k++) {
        sim_make_worker(s, n, k);
    }
    if (n->stop_asked || fails) {
        fail_start(s, n, n->stop_asked);
    } else {
        sim_post(s, s->now_ms + sim_pick(s, 0, 5), EV_STARTED, event->node,
                 n->generation);
        if (sim_chance(s, 300)) {
            sim_post(s, s->now_ms + sim_pick(s, 0, 2000), EV_SAVED, event->node,
                     n->generation);
        }
    }
}

static void on_started(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    if (n->alive && n->starting && n->generation == event->tag) {
        n->starting = false;
        sim_member_do(s, n, (struct member_event){.type = MEMBER_STARTED,
                                                  .generation = n->generation});
        sim_reap(s, n);
    }
}

static void on_death(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    struct sim_truth *t = &n->truth[n->generation % SIM_MAX_GENERATIONS];
    uint32_t k = event->tag & 255;
    struct sim_proc *p = &n->procs[k];

    if (n->generation != event->tag >> 8 || !p->alive ||
        p->die_ms > s->now_ms) {
        return;
    }
    sim_trace(s, "node %u: worker %u of %u dies (%s%s)", event->node, k,
              n->generation, p->ok ? "0" : "failure",
              p->signalled ? ", signalled" : "");
    p->alive = false;
    n->died[n->n_died++] = k;
    if (!p->ok && !p->signalled && !t->failed) {
        t->failed = true;
        t->pid = p->failure.pid;
        t->at_ms = s->now_ms;
    }
    if (n->n_died == n->n_procs) {
        t->done = n->n_procs == n->want_procs;
        for (uint32_t i = 0; i < n->n_procs; i++) {
            t->done = t->done && n->procs[i].ok;
        }
        if (n->alive && !n->killed && sim_chance(s, 50)) {
            n->descendant = true;
            sim_post(s, s->now_ms + sim_pick(s, 0, 2000), EV_ORPHAN_DEATH,
                     event->node, n->generation);
        }
    }
    sim_post(s, s->now_ms + sim_pick(s, 0, 2), EV_REAP, event->node, 0);
}

static void on_orphan_death(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    if (n->descendant && n->generation == event->tag) {
        n->descendant = false;
        sim_post(s, s->now_ms, EV_REAP, event->node, 0);
    }
}

static void on_reap(struct sim *s, struct sim_event *event)
{
    sim_reap(s, &s->nodes[event->node]);
}

static void on_gone(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    if (n->alive && n->live && n->generation == event->tag) {
        n->live = false;
        sim_trace(s, "node %u: generation %u is gone", event->node, event->tag);
        sim_member_do(s, n, (struct member_event){.type = MEMBER_GONE,
                                                  .generation = event->tag});
    }
}

static void on_store(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    struct member_event m = {.type = MEMBER_STORE_OPEN,
                             .generation = event->tag,
                             .addr = "10.0.0.1",
                             .port = (uint16_t)(20000 + event->tag)};

    if (s->faults_end_ms && sim_chance(s, 3)) {
        m.type = MEMBER_STORE_FAILED;
        m.text = "no port is free";
    }
    if (n->alive) {
        s->store_node = event->node;
    }
    sim_member_do(s, n, m);
}

static void on_saved(struct sim *s, struct sim_event *event)
{
    if (s->nodes[event->node].generation == event->tag &&
        s->nodes[event->node].live && sim_chance(s, 600)) {
        sim_post(s, s->now_ms + sim_pick(s, 1, 2000), EV_SAVED, event->node,
                 event->tag);
    }
    sim_member_do(s, &s->nodes[event->node],
                  (struct member_event){.type = MEMBER_SAVED,
                                        .generation = event->tag,
                                        .step = (int64_t)s->now_ms,
                                        .text = "ckpt/1"});
}

/* The socket of a link is closed, or nothing comes through any more. Mostly the
 * lead waits for a lease, but it need not. */
static void on_link_down(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    uint64_t patience_ms = sim_chance(s, 600) ? s->lease_ms
                                              : sim_pick(s, 0, s->lease_ms);

    if (!n->alive || !n->linked || event->node == 0) {
        return;
    }
    sim_trace(s, "node %u: link down", event->node);
    s->disturbed = true;
    sim_cut_link(s, event->node);
    sim_member_do(s, n, (struct member_event){.type = MEMBER_UPLINK_LOST});
    sim_post(s, s->now_ms + patience_ms, EV_SUSPECT, event->node,
             n->link_epoch);
    sim_post(s, s->now_ms + sim_pick(s, 1, s->lease_ms * 3 / 2), EV_LINK_UP,
             event->node, 0);
}

/* A lost node finds a parent that knows the newest order, had a word of the lead
 * just now, and is cut off then. */
static void come_aside(struct sim *s, struct sim_node *n, uint32_t rank)
{
    push_word(s, rank, s->now_ms + sim_pick(s, 0, 40));
    n->here_ms = s->now_ms + sim_pick(s, 0, s->lease_ms);
    n->aside_with = n->generation;
}

/* Or one that the newest order has not reached; and it is gone again. */
static void come_behind(struct sim *s, uint32_t rank)
{
    push_word(s, rank, s->now_ms + sim_pick(s, 0, 40));
    sim_post(s, s->now_ms + 41, EV_LINK_DOWN, rank, 0);
}

static void on_link_up(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    bool is_gone;

    if (!n->alive || n->linked || !s->lead_alive) {
        return;
    }
    sim_trace(s, "node %u: link up", event->node);
    n->linked = true;
    n->link_epoch++;
    is_gone = n->lost && lead_order(s->lead) &&
              order_is_gone(lead_order(s->lead), event->node);
    if (is_gone && sim_chance(s, 300)) {
        come_behind(s, event->node);
        sim_lead_do(s, (struct lead_event){.type = LEAD_HERE,
                                           .rank = event->node});
        n->lost = lead_node(s->lead, event->node)->lost;
        return;
    }
    sim_send_order(s, event->node);
    if (is_gone && sim_chance(s, 500)) {
        come_aside(s, n, event->node);
    }
    sim_post(s, sim_is_aside(s, n) ? n->here_ms : s->now_ms, EV_HERE,
             event->node, n->link_epoch);
    sim_member_do(s, n, (struct member_event){.type = MEMBER_UPLINK_UP});
}

static void on_here(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    if (!s->lead_alive || !n->linked || n->link_epoch != event->tag) {
        return;
    }
    sim_trace(s, "node %u is heard of again", event->node);
    n->here_ms = 0;
    sim_lead_do(s, (struct lead_event){.type = LEAD_HERE,
                                       .rank = event->node});
    n->lost = lead_node(s->lead, event->node)->lost || n->told;
    sim_send_order(s, event->node);
}

static void count_loss(struct sim *s, const struct sim_node *n)
{
    if (n->took_part && s->ran) {
        s->n_losses++;
        s->n_needed += !n->truth[s->ran % SIM_MAX_GENERATIONS].done;
    }
}

static void on_suspect(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    if (!s->lead_alive || n->link_epoch != event->tag ||
        (n->linked && n->paused_until_ms <= s->now_ms)) {
        return;
    }
    if (n->linked) {
        sim_cut_link(s, event->node);
        sim_post(s, n->paused_until_ms + sim_pick(s, 0, 100), EV_LINK_UP,
                 event->node, 0);
    }
    sim_trace(s, "node %u is lost to the lead%s", event->node,
              n->ended ? ", dead" : "");
    if (!lead_node(s->lead, event->node)->lost) {
        count_loss(s, n);
    }
    n->lost = true;
    sim_lead_do(s, (struct lead_event){
        .type = LEAD_LOST, .rank = event->node, .text = "silent",
        .dead = n->ended, .quiet_ms = s->now_ms - n->sent_ms});
}

/* The lead's agent is gone, and the lead with it. */
static void lead_ends(struct sim *s)
{
    s->lead_alive = false;
    if (s->nodes[0].alive) {
        sim_agent_ends(s, &s->nodes[0]);
    }
    for (uint32_t i = 1; i < s->n_nodes; i++) {
        sim_cut_link(s, i);
    }
}

static void on_kill(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    if (!n->alive) {
        return;
    }
    sim_trace(s, "node %u: the agent is killed", event->node);
    s->disturbed = true;
    if (event->node == 0) {
        lead_ends(s);
    } else {
        sim_agent_ends(s, n);
    }
}

static void on_sweep(struct sim *s, struct sim_event *event)
{
    sim_stop_workers(s, &s->nodes[event->node], true);
}

static void on_pause(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];
    uint64_t length_ms = sim_pick(s, 1, s->lease_ms * 3);

    if (!n->alive || n->paused_until_ms > s->now_ms) {
        return;
    }
    s->disturbed = true;
    sim_trace(s, "node %u: stopped for %" PRIu64 " ms", event->node, length_ms);
    n->must_be_fenced = event->node && n->has_word && length_ms >= s->lease_ms;
    n->paused_until_ms = s->now_ms + length_ms;
    sim_post(s, n->paused_until_ms + 2, EV_RESUME, event->node, 0);
    if (event->node == 0) {
        s->skewed = true; /* it reads late what came in meanwhile ... */
        s->stuck = true;  /* ... and all may look late */
    } else {
        sim_post(s, s->now_ms + s->lease_ms, EV_SUSPECT, event->node,
                 n->link_epoch);
    }
}

static void on_resume(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[event->node];

    sim_trace(s, "node %u: goes on", event->node);
    if (n->alive && n->must_be_fenced && !n->told) {
        sim_fail(s, "node %u outlived its lease while it was stopped",
                 event->node);
    }
}

static void on_clock(struct sim *s, struct sim_event *event)
{
    s->skewed = true;
    s->nodes[event->node].wall_skew_ms =
        (int64_t)sim_pick(s, 0, 20000000) - 10000000;
}

static void on_stop(struct sim *s, struct sim_event *event)
{
    if (s->lead_alive) {
        s->stop_sent[event->tag & 15] = true;
        sim_trace(s, "stop %u%s", event->tag & 15,
                  event->tag & 16 ? ", force" : "");
        sim_lead_do(s, (struct lead_event){
            .type = LEAD_STOP, .stop = (enum lead_stop)(event->tag & 15),
            .force = event->tag & 16});
    }
}

static void on_lead_gone(struct sim *s, struct sim_event *event)
{
    struct sim_node *n = &s->nodes[0];

    (void)event;
    if (!s->lead_alive) {
        return;
    }
    sim_trace(s, "the lead's agent exits");
    if (n->alive && member_order(n->member)->step != ORDER_LEAVE) {
        sim_fail(s, "the lead's own member was not told to leave");
    }
    lead_ends(s);
}

static const struct {
    void (*handle)(struct sim *s, struct sim_event *event);
    enum { WORLD, AGENT, LEAD } who; /* can be stopped (SIGSTOP) */
} handlers[] = {
    [EV_JOIN] = {on_join, WORLD},
    [EV_DOWN] = {on_down, AGENT},
    [EV_UP] = {on_up, LEAD},
    [EV_BEAT] = {on_beat, LEAD},
    [EV_WORD] = {on_word, AGENT},
    [EV_LEAD_TICK] = {on_lead_tick, LEAD},
    [EV_MEMBER_TICK] = {on_member_tick, AGENT},
    [EV_SPAWN] = {on_spawn, AGENT},
    [EV_STARTED] = {on_started, AGENT},
    [EV_DEATH] = {on_death, WORLD},
    [EV_ORPHAN_DEATH] = {on_orphan_death, WORLD},
    [EV_REAP] = {on_reap, AGENT},
    [EV_GONE] = {on_gone, AGENT},
    [EV_STORE] = {on_store, AGENT},
    [EV_SAVED] = {on_saved, AGENT},
    [EV_LINK_DOWN] = {on_link_down, AGENT},
    [EV_LINK_UP] = {on_link_up, AGENT},
    [EV_SUSPECT] = {on_suspect, LEAD},
    [EV_HERE] = {on_here, LEAD},
    [EV_KILL] = {on_kill, WORLD},
    [EV_SWEEP] = {on_sweep, WORLD},
    [EV_PAUSE] = {on_pause, WORLD},
    [EV_RESUME] = {on_resume, AGENT},
    [EV_CLOCK] = {on_clock, WORLD},
    [EV_STOP] = {on_stop, LEAD},
    [EV_LEAD_GONE] = {on_lead_gone, LEAD},
    [EV_SCALE] = {sim_on_scale, LEAD},
    [EV_EXCLUDE] = {sim_on_exclude, LEAD},
};

void sim_dispatch(struct sim *s, struct sim_event *event)
{
    uint32_t agent = handlers[event->type].who == LEAD ? 0 : event->node;

    if (handlers[event->type].who != WORLD &&
        s->nodes[agent].paused_until_ms > s->now_ms) {
        if (has_arrived(s, event)) {
            event->tag = IN_SOCKET;
        }
        event->at_ms = s->nodes[agent].paused_until_ms;
        if (event->type == EV_MEMBER_TICK) {
            /* Before what it reads, or after. */
            event->at_ms += sim_pick(s, 0, 1);
        }
        sim_push(s, *event);
        return;
    }
    handlers[event->type].handle(s, event);
    buf_release(&event->bytes);
    sim_check_workers(s);
    sim_check_leases(s);
}
