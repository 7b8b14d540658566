/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/member_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <stdlib.h>

const struct order *member_order(const struct member *m)
{
    return m->order.serial ? &m->order : NULL;
}

uint8_t member_status(const struct member *m)
{
    return m->status;
}

const char *member_reason(const struct member *m)
{
    return m->reason;
}

void member_destroy(struct member *m)
{
    if (m) {
        order_release(&m->order);
        free(m);
    }
}

int member_create(const struct member_config *config, uint64_t now_ms,
                  struct member **ret, struct error *e)
{
    struct member *m;

    if (config->rank >= ORDER_MAX_NODES) {
        return error_text(e, EINVAL, "agent rank %u, expected less than %d",
                          config->rank, ORDER_MAX_NODES);
    }
    m = calloc(1, sizeof(*m));
    if (!m) {
        return error_set(e, ENOMEM, "member %u", config->rank);
    }
    m->config = *config;
    m->config.host = NULL;
    str_copy(m->host, sizeof(m->host), config->host ? config->host : "");
    m->now_ms = now_ms;
    m->word_ms = now_ms;
    m->leave_ms = MEMBER_NEVER;
    m->workers.kill_ms = MEMBER_NEVER;
    m->status = RUN_RESUMABLE;
    m->report.rank = config->rank;
    m->report.n_procs = config->n_procs;
    m->changed = true;
    *ret = m;
    return 0;
}

/* Events ----------------------------------------------------------------- */

static int on_order(struct member *m, const struct order *order,
                    struct member_actions *ret)
{
    int rc;

    if (order->step == ORDER_VIEW ||
        (order->serial <= m->order.serial && !MUTANT(9))) {
        return 0;
    }
    if (m->fenced) {
        return 0;
    }
    /* Another view: what was reported before was for another lead. */
    m->changed = m->changed || order->view.number != m->order.view.number;
    rc = order_copy(&m->order, order);
    if (rc < 0) {
        return rc;
    }
    m->had_word = true; /* all are there: the lease counts, from the start of
                           this member if it has not heard the lead since */
    if (order->step == ORDER_END || order->step == ORDER_LEAVE) {
        member_settle(m, order->status, order->reason, ret);
    }
    if (order->step == ORDER_LEAVE) {
        m->leave_ms = member_later(m->now_ms, m->config.margin_ms);
    }
    return 0;
}

static int on_event(struct member *m, const struct member_event *event,
                    struct member_actions *ret)
{
    switch (event->type) {
    case MEMBER_TICK:
    case MEMBER_UPLINK_LOST:
        return 0;
    case MEMBER_ORDER:
        return on_order(m, event->order, ret);
    case MEMBER_WORD:
        member_hear(m, event->age_ms);
        return 0;
    case MEMBER_STARTED:
    case MEMBER_START_FAILED:
    case MEMBER_EXITED:
    case MEMBER_FAILED:
    case MEMBER_GONE:
        return member_on_workers(m, event);
    case MEMBER_STORE_OPEN:
    case MEMBER_STORE_FAILED:
        return member_on_store(m, event);
    case MEMBER_UPLINK_UP:
        m->changed = true;
        return 0;
    case MEMBER_SAVED:
        return member_on_saved(m, event);
    case MEMBER_PROMISE:
        member_promise(m, event->floor, event->heard_ms);
        return 0;
    case MEMBER_LEAVE:
        member_fence(m, event->text ? event->text : "the agent has to leave",
                     ret);
        return 0;
    }
    return -EPROTO;
}

/* What follows ----------------------------------------------------------- */

static void consider_leaving(struct member *m, struct member_actions *ret)
{
    bool may = m->fenced || m->order.step == ORDER_LEAVE;

    if (may && (!m->workers.alive || m->now_ms >= m->leave_ms)) {
        m->left = true;
    }
    ret->leave = m->left;
}

static void send_report(struct member *m, struct member_actions *ret)
{
    struct report *r = &m->report;
    uint64_t age_ms = m->now_ms - m->failed_ms;

    if (!m->changed) {
        return;
    }
    m->changed = false;
    r->serial++;
    r->n_alive = m->workers.alive && m->workers.started
                     ? m->workers.n - m->workers.n_exited
                     : 0;
    r->failure.age_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
    r->heard_ago_ms = !m->has_heard ? UINT64_MAX
                      : m->now_ms > m->heard_ms ? m->now_ms - m->heard_ms : 0;
    ret->send = r;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_wake(const struct member *m)
{
    uint64_t wake_ms = member_lease_end(m);

    if (m->left) {
        return MEMBER_NEVER;
    }
    if (m->workers.alive) {
        wake_ms = min_u64(wake_ms, m->workers.kill_ms);
        wake_ms = min_u64(wake_ms, m->leave_ms);
    }
    return wake_ms;
}

int member_step(struct member *m, const struct member_event *event,
                struct member_actions *ret)
{
    int rc = 0;

    *ret = (struct member_actions){.wake_ms = MEMBER_NEVER, .leave = m->left};
    if (event->now_ms > m->now_ms) {
        m->now_ms = event->now_ms;
    }
    if (m->left) {
        return 0;
    }
    if (!MUTANT(12)) {
        member_check_lease(m, ret);
    }
    rc = on_event(m, event, ret);
    if (MUTANT(12)) {
        member_check_lease(m, ret);
    }
    member_follow(m, ret);
    consider_leaving(m, ret);
    send_report(m, ret);
    ret->wake_ms = next_wake(m);
    return rc;
}
