/* SPDX-License-Identifier: Apache-2.0 */
/* Does what the newest order asks for. */
#include <config.h>

#include "rendezvous/member_priv.h"

#include "rendezvous/mutant.h"

/* A kill can miss what is just being forked: it is repeated until GONE. */
#define KILL_AGAIN_MS 500

/* How the newest order (or its absence) wants the workers stopped. */
static enum member_stop wanted_stop(const struct member *m)
{
    const struct order *o = &m->order;
    bool grace = o->stop == ORDER_STOP_GRACE;

    if (m->fenced || m->lapsed || o->step == ORDER_LEAVE) {
        return MEMBER_STOP_KILL;
    }
    if (order_is_gone(o, m->config.rank) && !MUTANT(18)) {
        return MEMBER_STOP_KILL;
    }
    if (o->step == ORDER_END || o->generation != m->workers.generation) {
        return grace ? MEMBER_STOP_ASK : MEMBER_STOP_KILL;
    }
    return MEMBER_STOP_NONE;
}

static void stop_workers(struct member *m, struct member_actions *ret)
{
    struct workers *w = &m->workers;
    enum member_stop want = wanted_stop(m);

    if (want == MEMBER_STOP_ASK && w->stop <= MEMBER_STOP_ASK) {
        uint64_t kill_ms = member_later(m->now_ms, m->order.grace_ms);

        if (w->stop == MEMBER_STOP_NONE) {
            ret->stop = MEMBER_STOP_ASK;
            ret->stop_grace_ms = m->order.grace_ms;
        }
        w->stop = MEMBER_STOP_ASK;
        /* A kill that is due sooner stays: of what lingers, or was asked before.
         * A later order may have less patience. */
        w->kill_ms = kill_ms < w->kill_ms ? kill_ms : w->kill_ms;
    }
    if ((want == MEMBER_STOP_KILL && w->stop < MEMBER_STOP_KILL) ||
        m->now_ms >= w->kill_ms) {
        w->stop = MEMBER_STOP_KILL;
        ret->stop = MEMBER_STOP_KILL;
        w->kill_ms = member_later(m->now_ms, KILL_AGAIN_MS);
    }
}

/* PREPARE: opens the store if it is ours to open. It does not wait for older
 * workers, whose own store stays open until they are gone. */
static void open_store(struct member *m, struct member_actions *ret)
{
    uint32_t generation = m->order.generation;

    if (m->order.step != ORDER_PREPARE || m->store_asked >= generation ||
        m->order.store_rank != m->config.rank || m->fenced) {
        return;
    }
    m->store_stale = m->store_asked;
    m->store_asked = generation;
    if (!MUTANT(137)) {
        m->store_open = false;
        m->report.store_port = 0;
        m->report.store_addr[0] = '\0';
    }
    ret->open_store = generation;
}

static bool is_prepared(const struct member *m)
{
    if (m->workers.alive && !MUTANT(10)) {
        return false;
    }
    return m->order.store_rank != m->config.rank ||
           (m->store_open && m->store_asked == m->order.generation);
}

static void start_workers(struct member *m, struct member_actions *ret)
{
    uint32_t rank = m->config.rank;
    const struct order *o = &m->order;
    uint16_t n = rank < o->n_nodes ? o->n_procs[rank] : 0;

    if (m->stopped != o->generation || m->workers.generation >= o->generation) {
        return;
    }
    m->workers = (struct workers){
        .generation = o->generation,
        .alive = n > 0,
        .clean = true,
        .n = n,
        .kill_ms = MEMBER_NEVER,
    };
    if (n > 0) {
        ret->start = o;
        return;
    }
    m->report.state = REPORT_DONE;
    m->report.generation = o->generation;
    m->changed = true;
}

static void report_state(struct member *m, enum report_state state,
                         uint32_t generation)
{
    if (m->report.state != state || m->report.generation != generation) {
        m->report.state = state;
        m->report.generation = generation;
        m->changed = true;
    }
}

/* A lead that knows less than another one, whose member this was, prepares a number
 * that was in use: what is said is the newest, by which it hears of that. An earlier
 * report that said so need not have come. */
static void report_stopped(struct member *m)
{
    if (m->stopped < m->order.generation) {
        m->stopped = m->order.generation;
    }
    report_state(m, REPORT_STOPPED, m->stopped);
}

/* Does what the newest order asks for, as far as it can be done now. */
void member_follow(struct member *m, struct member_actions *ret)
{
    open_store(m, ret);
    if (m->workers.alive) {
        stop_workers(m, ret);
    } else if (m->store_stale) {
        ret->close_store = m->store_stale;
        m->store_stale = 0;
    }
    if (m->fenced || !m->order.serial) {
        return;
    }
    switch (m->order.step) {
    case ORDER_PREPARE:
        if (is_prepared(m)) {
            report_stopped(m);
        }
        return;
    case ORDER_RUN:
        /* A word of a newer view makes no order of an older one good again. */
        if ((!m->workers.alive || MUTANT(10)) && !m->lapsed &&
            !m->is_strange && m->order.view.number >= m->report.floor) {
            start_workers(m, ret);
        }
        return;
    case ORDER_END:
    case ORDER_LEAVE:
        if (!m->workers.alive) {
            report_state(m, REPORT_ENDED, m->order.generation);
        }
        return;
    case ORDER_VIEW:
        return; /* none that a member takes */
    }
}
