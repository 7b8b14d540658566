/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/sim.h"

#include <inttypes.h>
#include <string.h>

/* Links ------------------------------------------------------------------ */

/* Sends bytes, which are taken over. Mostly in order, sometimes twice. */
static void transmit(struct sim *s, uint32_t node, enum sim_event_type type,
                     struct buf *bytes)
{
    struct sim_node *n = &s->nodes[node];
    uint64_t *newest_ms = &n->arrives_ms[type == EV_UP];
    uint64_t at_ms = s->now_ms + (node ? sim_pick(s, 0, 40) : 0);
    struct sim_event event = {.type = (uint8_t)type, .node = node,
                              .tag = n->link_epoch};

    if (at_ms < *newest_ms && !sim_chance(s, 100)) {
        at_ms = *newest_ms;
    }
    *newest_ms = at_ms > *newest_ms ? at_ms : *newest_ms;
    if (sim_chance(s, 50)) {
        event.at_ms = at_ms + sim_pick(s, 0, 200);
        event.seq = ++s->seq;
        buf_append(&event.bytes, bytes->data, bytes->len);
        sim_push(s, event);
    }
    event.at_ms = at_ms;
    event.seq = ++s->seq;
    event.bytes = *bytes;
    *bytes = (struct buf){0};
    sim_push(s, event);
}

void sim_send_order(struct sim *s, uint32_t node)
{
    _buf_ struct buf b = {0};

    if (s->lead_alive && s->nodes[node].linked && lead_order(s->lead) &&
        !sim_is_aside(s, &s->nodes[node])) {
        order_encode(lead_order(s->lead), &b);
        transmit(s, node, EV_DOWN, &b);
    }
}

bool sim_is_aside(const struct sim *s, const struct sim_node *n)
{
    return n->here_ms > s->now_ms;
}

uint64_t sim_clock_ms(const struct sim *s, const struct sim_node *n)
{
    return s->now_ms +
           (uint64_t)((int64_t)s->now_ms * n->drift_ppm / 1000000);
}

uint64_t sim_when_ms(const struct sim_node *n, uint64_t clock_ms)
{
    int64_t rate = 1000000 + n->drift_ppm;

    return (uint64_t)(((int64_t)clock_ms * 1000000 + rate - 1) / rate);
}

/* The lead --------------------------------------------------------------- */

static void look_at_notes(struct sim *s, const struct lead_actions *a)
{
    for (size_t i = 0; i < a->n_notes; i++) {
        const struct lead_note *n = &a->notes[i];

        sim_trace(s, "lead: %s (generation %u): %s", lead_note_name(n->type),
                  n->generation, n->text);
        s->n_restarts += !strncmp(n->text, "restart ", 8);
        sim_see_grow(s, n);
        if (n->type == LEAD_NOTE_FAILED || n->type == LEAD_NOTE_RESTARTING) {
            sim_check_cause(s, n->failure, n->type == LEAD_NOTE_RESTARTING);
        }
        if (n->type == LEAD_NOTE_RESTARTING &&
            !restart_allowed(&s->lead_config.restart, n->failure)) {
            sim_fail(s, "restart after a failure that forbids it");
        }
    }
}

/* What the workers of a new generation will do. */
static void plan_generation(struct sim *s)
{
    static const uint32_t odds[] = {0, 0, 0, 100, 300, 1000};

    s->p_fail = odds[sim_rnd(s) % 6];
    s->duration_ms = sim_pick(s, 0, 8000);
}

void sim_lead_do(struct sim *s, struct lead_event event)
{
    struct lead_actions *a = &s->lead_actions;
    const struct lead_verdict *v;

    event.now_ms = s->now_ms;
    if (lead_step(s->lead, &event, a) < 0 && event.type != LEAD_EXCLUDE) {
        sim_fail(s, "the lead refused an event of type %d", event.type);
    }
    look_at_notes(s, a);
    if (a->order) {
        bool is_again = sim_is_again(s, a->order);

        sim_trace(s, "lead: order %" PRIu64 ": %s %u", a->order->serial,
                  order_step_name(a->order->step), a->order->generation);
        sim_check_order(s, a->order);
        if (a->order->step == ORDER_RUN && !is_again) {
            for (uint32_t i = 0; i < a->order->n_nodes; i++) {
                s->nodes[i].took_part = a->order->n_procs[i] > 0;
            }
            plan_generation(s);
        }
        for (uint32_t i = 0; i < s->n_nodes; i++) {
            sim_send_order(s, i);
        }
    }
    sim_check_verdict(s);
    if (a->finished && !s->finished) {
        s->finished = true;
        v = lead_verdict(s->lead);
        sim_trace(s, "lead: finished, status %u: %s", v->status, v->reason);
        if (v->has_cause) {
            sim_check_cause(s, &v->cause,
                            v->status == restart_exit_status(&v->cause));
        }
        sim_post(s, s->now_ms + 1000, EV_LEAD_GONE, 0, 0);
    }
    if (a->wake_ms != LEAD_NEVER && a->wake_ms != s->lead_wake_ms) {
        s->lead_wake_ms = a->wake_ms;
        sim_post(s, a->wake_ms > s->now_ms ? a->wake_ms : s->now_ms + 1,
                 EV_LEAD_TICK, 0, 0);
    }
}

/* Workers ---------------------------------------------------------------- */

static void plan_death(struct sim *s, struct sim_node *n, uint32_t k,
                       uint64_t at_ms)
{
    if (n->procs[k].alive && at_ms < n->procs[k].die_ms) {
        n->procs[k].die_ms = at_ms;
        sim_post(s, at_ms, EV_DEATH, (uint32_t)(n - s->nodes),
                 n->generation << 8 | k);
    }
}

void sim_stop_workers(struct sim *s, struct sim_node *n, bool kill)
{
    n->killed = n->killed || kill;
    for (uint32_t k = 0; k < n->n_procs; k++) {
        struct sim_proc *p = &n->procs[k];
        uint64_t after_ms = kill ? sim_pick(s, 0, 5) : sim_pick(s, 0, 400);

        if (!p->alive || (!kill && p->ignores_term)) {
            continue;
        }
        if (kill && sim_chance(s, 2)) {
            s->disturbed = true;
            s->stuck = true;
            p->slow = true;
            p->stuck = sim_chance(s, 500);
            p->die_ms = SIM_NEVER;
            after_ms = sim_pick(s, 0, 30000);
        }
        p->signalled = true;
        p->ok = !kill && sim_chance(s, 300);
        if (!p->stuck) {
            plan_death(s, n, k, s->now_ms + after_ms);
        }
    }
    if (kill && n->descendant) {
        sim_post(s, s->now_ms + sim_pick(s, 0, 5), EV_ORPHAN_DEATH,
                 (uint32_t)(n - s->nodes), n->generation);
    }
}

static struct failure random_failure(struct sim *s, struct sim_node *n,
                                     uint32_t k)
{
    static const uint8_t codes[] = {1, 2, 3, 69, 75, 124, 126, 127, 130, 255};
    static const uint8_t signals[] = {2, 6, 7, 9, 11, 15};
    struct failure f = {
        .kind = FAILURE_EXIT,
        .generation = n->generation,
        .local_rank = (int32_t)k,
        .rank = (int32_t)(n - s->nodes) * SIM_MAX_PROCS + (int32_t)k,
        .pid = (int32_t)(s->seq % 100000) * 8 + (int32_t)k + 1,
        .exit_code = codes[sim_rnd(s) % sizeof(codes)],
    };

    if (sim_chance(s, 400)) {
        f.kind = sim_chance(s, 100) ? FAILURE_OOM : FAILURE_SIGNAL;
        f.exit_code = 0;
        f.signal = signals[sim_rnd(s) % sizeof(signals)];
    }
    return f;
}

void sim_make_worker(struct sim *s, struct sim_node *n, uint32_t k)
{
    struct sim_proc *p = &n->procs[k];
    uint64_t life_ms = s->duration_ms;

    *p = (struct sim_proc){
        .alive = true,
        .die_ms = SIM_NEVER,
        .ok = !sim_chance(s, s->p_fail),
        .ignores_term = sim_chance(s, 200),
        .failure = random_failure(s, n, k),
    };
    if (!p->ok || sim_chance(s, 200)) {
        life_ms = sim_pick(s, 0, s->duration_ms);
    }
    plan_death(s, n, k, s->now_ms + life_ms);
}

/* The members ------------------------------------------------------------ */

void sim_cut_link(struct sim *s, uint32_t node)
{
    s->nodes[node].here_ms = 0;
    s->nodes[node].linked = false;
    s->nodes[node].link_epoch++;
}

void sim_agent_ends(struct sim *s, struct sim_node *n)
{
    uint32_t rank = (uint32_t)(n - s->nodes);
    /* By then muster-watch has swept up: asking whether its port still answers
     * takes longer. */
    uint64_t noticed_ms = sim_pick(s, 30, 130);

    n->ended = n->linked;
    member_destroy(n->member);
    n->member = NULL;
    n->alive = false;
    n->starting = false;
    n->live = false;
    sim_post(s, s->now_ms + sim_pick(s, 0, 20), EV_SWEEP, rank, 0);
    if (n->linked) { /* else the lead's patience has begun to end before */
        sim_cut_link(s, rank);
        sim_post(s, s->now_ms + noticed_ms, EV_SUSPECT, rank, n->link_epoch);
    }
}

static void act(struct sim *s, struct sim_node *n,
                const struct member_actions *a)
{
    uint32_t rank = (uint32_t)(n - s->nodes);
    _buf_ struct buf b = {0};

    sim_check_member(s, n, a);
    if (a->stop != MEMBER_STOP_NONE) {
        sim_trace(s, "node %u: stop (%s)", rank,
                  a->stop == MEMBER_STOP_KILL ? "kill" : "ask");
        n->stop_asked = true;
        sim_stop_workers(s, n, a->stop == MEMBER_STOP_KILL);
    }
    if (a->open_store) {
        sim_post(s, s->now_ms + sim_pick(s, 0, 20), EV_STORE, rank,
                 a->open_store);
    }
    if (a->start) {
        sim_trace(s, "node %u: start %u workers of %u", rank,
                  a->start->n_procs[rank], a->start->generation);
        n->generation = a->start->generation;
        n->n_procs = 0;
        n->starting = true;
        n->live = true;
        n->stop_asked = false;
        n->killed = false;
        sim_post(s, s->now_ms + sim_pick(s, 0, 20), EV_SPAWN, rank,
                 n->generation);
    }
    if (a->send) {
        if (a->send->state == REPORT_STOPPED) {
            n->stopped = a->send->generation;
        }
        sim_trace(s, "node %u: report %" PRIu64 ": %s %u%s", rank,
                  a->send->serial, report_state_name(a->send->state),
                  a->send->generation, a->send->failed ? ", failed" : "");
        report_encode(a->send, &b);
        if (n->linked) {
            transmit(s, rank, EV_UP, &b);
        }
    }
    if (a->wake_ms != MEMBER_NEVER && a->wake_ms != n->wake_ms) {
        uint64_t wake_ms = sim_when_ms(n, a->wake_ms);

        n->wake_ms = a->wake_ms;
        sim_post(s, wake_ms > s->now_ms ? wake_ms : s->now_ms + 1,
                 EV_MEMBER_TICK, rank, 0);
    }
    if (a->leave) {
        sim_trace(s, "node %u: leaves, status %u: %s", rank,
                  member_status(n->member), member_reason(n->member));
        if (rank != 0) {
            sim_agent_ends(s, n);
        }
    }
}

void sim_member_do(struct sim *s, struct sim_node *n,
                      struct member_event event)
{
    struct member_actions a;

    if (!n->alive) {
        return;
    }
    event.now_ms = sim_clock_ms(s, n);
    if (member_step(n->member, &event, &a) < 0 &&
        event.type != MEMBER_STORE_OPEN) {
        sim_fail(s, "node %u refused an event of type %d",
                 (uint32_t)(n - s->nodes), event.type);
    }
    act(s, n, &a);
}

/* Tells what has died. In the order of deaths, as a reaper with one child at a
 * time sees it. */
void sim_reap(struct sim *s, struct sim_node *n)
{
    while (n->alive && n->n_reaped < n->n_died) {
        struct sim_proc *p = &n->procs[n->died[n->n_reaped++]];
        struct sim_truth *t = &n->truth[n->generation % SIM_MAX_GENERATIONS];
        struct failure f = p->failure;

        f.wall_ns = (s->now_ms + (uint64_t)n->wall_skew_ms) * 1000000;
        f.killed_by_us = p->signalled;
        if (!p->ok && !p->signalled && t->pid == f.pid) {
            t->recorded = !n->stop_asked;
            t->at_ms = s->now_ms;
        }
        sim_member_do(s, n, (struct member_event){
            .type = MEMBER_EXITED, .generation = n->generation,
            .failure = p->ok ? NULL : &f});
    }
    if (n->alive && n->live && !n->starting && n->n_died == n->n_procs &&
        !n->descendant) {
        sim_post(s, s->now_ms + sim_pick(s, 0, 3), EV_GONE,
                 (uint32_t)(n - s->nodes), n->generation);
    }
}
