/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/split.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Beyond what drift and a kill take, the slack of a lease leaves so much for a step of the
 * clock. */
enum { JUMP_MS = 40 };

/* Random numbers, the log, events in order of time -------------------------- */

uint64_t split_rnd(struct split *s)
{
    uint64_t z = s->rng += 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

uint64_t split_pick(struct split *s, uint64_t low, uint64_t high)
{
    return low + split_rnd(s) % (high - low + 1);
}

bool split_chance(struct split *s, uint32_t per_mille)
{
    return split_rnd(s) % 1000 < per_mille;
}

void split_trace(struct split *s, const char *fmt, ...)
{
    va_list ap;

    if (!s->trace) {
        return;
    }
    buf_printf(&s->log, "%8" PRIu64 " ", s->now_ms);
    va_start(ap, fmt);
    buf_vprintf(&s->log, fmt, ap);
    va_end(ap);
    buf_putc(&s->log, '\n');
}

static bool is_before(const struct split_event *a, const struct split_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->seq < b->seq;
}

void split_push(struct split *s, struct split_event event)
{
    size_t i = s->n_events;

    if (i == s->cap_events) {
        s->cap_events = s->cap_events ? s->cap_events * 2 : 256;
        s->heap = realloc(s->heap, s->cap_events * sizeof(*s->heap));
        if (!s->heap) {
            abort();
        }
    }
    s->n_events++;
    for (; i > 0 && is_before(&event, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
    }
    s->heap[i] = event;
}

static struct split_event pop(struct split *s)
{
    struct split_event top = s->heap[0];
    struct split_event last = s->heap[--s->n_events];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= s->n_events) {
            break;
        }
        if (child + 1 < s->n_events &&
            is_before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!is_before(&s->heap[child], &last)) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

void split_post(struct split *s, uint64_t at_ms, enum split_type type,
                uint32_t to, uint32_t tag)
{
    split_push(s, (struct split_event){.at_ms = at_ms, .seq = ++s->seq,
                                       .type = (uint8_t)type, .to = to,
                                       .tag = tag});
}

/* Clocks of agents show different times, and run at different rates. */
uint64_t split_clock(const struct split *s, const struct split_agent *a)
{
    return (uint64_t)((int64_t)s->now_ms + a->offset_ms +
                      (int64_t)s->now_ms * a->drift_ppm / 1000000);
}

uint64_t split_when(const struct split *s, const struct split_agent *a,
                    uint64_t clock_ms)
{
    int64_t rate = 1000000 + a->drift_ppm;

    (void)s;
    return (uint64_t)((((int64_t)clock_ms - a->offset_ms) * 1000000 + rate - 1) /
                      rate);
}

/* Faults ------------------------------------------------------------------- */

static void cut(struct split *s, uint32_t mask, bool one_way)
{
    for (uint32_t i = 0; i < s->n; i++) {
        for (uint32_t k = 0; k < s->n; k++) {
            bool apart = (mask >> i & 1) != (mask >> k & 1);

            if (apart && (!one_way || (mask >> i & 1))) {
                s->reach[i][k] = false;
            }
        }
    }
    split_trace(s, "cut: %#x%s", mask, one_way ? ", one way" : "");
}

static void disturb_side(struct split *s, uint32_t mask)
{
    uint32_t n = (uint32_t)__builtin_popcount(mask);

    for (uint32_t i = 0; i < s->n; i++) {
        bool in = mask >> i & 1;

        s->agents[i].disturbed = s->agents[i].disturbed ||
                                 in == (2 * n <= s->n);
    }
}

static void heal(struct split *s)
{
    memset(s->reach, 1, sizeof(s->reach));
    split_trace(s, "healed");
}

static void on_wake(struct split *s, struct split_agent *a, uint32_t which)
{
    a->wake_ms[which] = 0;
    if (which == 0) {
        split_heir(s, a, (struct heir_event){.type = HEIR_TICK});
    } else if (which == 1) {
        split_member(s, a, (struct member_event){.type = MEMBER_TICK});
    } else {
        split_lead(s, a, (struct lead_event){.type = LEAD_TICK});
    }
}

/* A lead that is stopped itself hears of it when it goes on. */
static void on_stop(struct split *s, uint32_t kind)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->agents[i].lead && s->agents[i].alive) {
            s->stop_sent = true;
            if (s->agents[i].paused_until_ms > s->now_ms) {
                split_post(s, s->agents[i].paused_until_ms, SP_STOP, 0, kind);
                return;
            }
            split_trace(s, "stop %u", kind);
            split_lead(s, &s->agents[i], (struct lead_event){
                .type = LEAD_STOP, .stop = (enum lead_stop)kind});
            return;
        }
    }
}

/* Its machine is moved to another host: agent and worker stop, and when they go on their
 * clock shows so much more, and a little that no time has passed for. What timers wait
 * for is due then. That little is within the slack of leases: with more of it who waits
 * for the lease of another waits too short (tests/README.md says why that cannot be
 * told from a stop). */
static void jump(struct split *s, struct split_agent *a, uint32_t ms)
{
    uint32_t rank = split_rank(s, a);

    if (!a->alive || a->paused_until_ms >= s->now_ms) {
        return;
    }
    split_trace(s, "node %u: its clock jumps by %u ms", rank, ms);
    a->disturbed = true;
    a->n_stops++;
    a->paused_until_ms = s->now_ms + ms;
    a->offset_ms += (int64_t)split_pick(s, 0, JUMP_MS);
    if (a->worker) {
        a->die_ms += ms;
        split_post(s, a->die_ms, SP_DIE, rank, a->generation);
    }
    for (uint32_t i = 0; i < 3; i++) {
        split_post(s, a->paused_until_ms, SP_WAKE, rank, i);
    }
}

static void on_fault(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];

    s->n_faults += e->type != SP_HEAL && !(e->type == SP_KILL && e->tag);
    switch (e->type) {
    case SP_KILL:
        if (e->tag && a->alive) {
            bool was = a->disturbed;

            split_kill(s, a); /* it exits */
            a->disturbed = was;
        } else if (!e->tag) {
            split_kill(s, a);
        }
        return;
    case SP_PAUSE:
        if (a->alive && a->paused_until_ms < s->now_ms) {
            split_trace(s, "node %u: stopped for %u ms", e->to, e->tag);
            a->disturbed = true;
            a->n_stops++;
            a->paused_until_ms = s->now_ms + e->tag;
        }
        return;
    case SP_JUMP:
        jump(s, a, e->tag);
        return;
    case SP_CUT:
    case SP_ONE_WAY:
        cut(s, e->tag, e->type == SP_ONE_WAY);
        disturb_side(s, e->tag);
        s->n_cuts++;
        return;
    case SP_HEAL:
        heal(s);
        return;
    case SP_HANG:
        s->hung_until_ms = s->now_ms + e->tag;
        s->arbiter_hung = true;
        s->hung_ms += e->tag;
        return;
    default:
        on_stop(s, e->tag);
        return;
    }
}

static bool is_for_agent(const struct split_event *e)
{
    return e->type == SP_DIAL || e->type == SP_BEAT || e->type == SP_FRAME ||
           e->type == SP_WAKE || e->type == SP_LOST || e->type == SP_LOOK ||
           e->type == SP_SPAWNED || e->type == SP_GONE || e->type == SP_SAVE ||
           e->type == SP_ANSWER || e->type == SP_STORE || e->type == SP_COMMIT ||
           e->type == SP_UPLOAD || e->type == SP_GROW;
}

/* No two have the same port, so that each of them is told from all others by it. */
static uint16_t open_store(struct split *s, uint32_t generation)
{
    uint32_t k = s->n_stores++ % SPLIT_STORES;

    s->store_of[k] = generation;
    return (uint16_t)(SPLIT_FIRST_PORT + k);
}

static void dispatch(struct split *s, struct split_event *e)
{
    struct split_agent *a = &s->agents[e->to];
    struct member_event store = {.type = MEMBER_STORE_OPEN, .addr = "10.0.0.1",
                                 .generation = e->tag};

    if (is_for_agent(e) && a->paused_until_ms > s->now_ms) {
        e->at_ms = a->paused_until_ms;
        split_push(s, *e);
        return;
    }
    if (e->type == SP_FRAME && a->alive && !s->reach[e->from][e->to]) {
        e->at_ms = s->now_ms + 20; /* sent again, as long as the link lives */
        if (a->arrives_ms[e->from] < e->at_ms) {
            a->arrives_ms[e->from] = e->at_ms;
        }
        split_push(s, *e);
        return;
    }
    switch (e->type) {
    case SP_JOIN: split_on_join(s, a); break;
    case SP_DIAL: split_on_dial(s, e); break;
    case SP_BEAT: split_on_beat(s, e); break;
    case SP_FRAME: split_on_frame(s, e); break;
    case SP_WAKE: on_wake(s, a, e->tag); break;
    case SP_LOST: split_on_lost(s, e); break;
    case SP_LOOK: split_on_look(s, e); break;
    case SP_SPAWNED: case SP_DIE: case SP_GONE:
    case SP_SAVE: split_on_work(s, e); break;
    case SP_ASK: split_on_ask(s, e); break;
    case SP_ANSWER: split_on_answer(s, e); break;
    case SP_STORE:
        store.port = open_store(s, e->tag);
        split_member(s, a, store);
        break;
    case SP_COMMIT: case SP_UPLOAD: split_on_effect(s, e); break;
    case SP_GROW: split_on_grow(s, a); break;
    case SP_ARRIVE: split_on_arrive(s, e); break;
    default: on_fault(s, e); break;
    }
    buf_release(&e->bytes);
    for (uint32_t i = 0; i < s->n; i++) {
        lead_destroy(s->agents[i].old_lead);
        s->agents[i].old_lead = NULL;
    }
    split_check_world(s);
}

static bool is_over(const struct split *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->agents[i].alive || s->agents[i].worker ||
            !s->agents[i].started) {
            return false;
        }
    }
    return true;
}

static void release(struct split *s)
{
    while (s->n_events) {
        buf_release(&s->heap[--s->n_events].bytes);
    }
    free(s->heap);
    for (uint32_t i = 0; i < s->n; i++) {
        struct split_agent *a = &s->agents[i];

        heir_destroy(a->heir);
        member_destroy(a->member);
        lead_destroy(a->lead);
        buf_release(&a->order);
        view_release(&a->ask);
        for (uint32_t k = 0; k < SPLIT_MAX; k++) {
            buf_release(&a->below[k].report);
            buf_release(&a->below[k].follow);
        }
    }
    for (uint32_t i = 0; i < SPLIT_VIEWS; i++) {
        view_release(&s->files[i]);
    }
}

bool split_run(uint64_t seed, enum split_case which, char *ret_violation,
               size_t size, struct buf *log)
{
    struct split *s = calloc(1, sizeof(*s));
    bool passed;

    if (!s) {
        abort();
    }
    s->rng = seed;
    s->which = which;
    s->trace = log != NULL;
    memset(s->reach, 1, sizeof(s->reach));
    split_plan_job(s);
    split_trace(s, "%u nodes, at least %u, %s, lease %" PRIu64, s->n,
                s->min_nodes, s->shared ? "shared" : "majority", s->lease_ms);
    split_create_agents(s);
    split_plan_case(s);
    while (s->n_events && !s->violation[0] && !is_over(s)) {
        struct split_event event = pop(s);

        s->now_ms = event.at_ms;
        if (s->now_ms > s->give_up_ms) {
            split_check_end(s);
            split_fail(s, "still going on at the end of time");
        }
        dispatch(s, &event);
    }
    split_check_end(s);
    if (log) {
        buf_append(log, s->log.data, s->log.len);
        buf_release(&s->log);
    }
    passed = !s->violation[0];
    str_copy(ret_violation, size, s->violation);
    release(s);
    free(s);
    return passed;
}
