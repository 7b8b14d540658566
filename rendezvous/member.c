/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/member.h"

#include "base/str.h"
#include "rendezvous/mutant.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kill can miss what is just being forked: it is repeated until GONE. */
#define KILL_AGAIN_MS 500

/* The workers of this node: at most one generation of them at a time. */
struct workers {
    uint32_t generation; /* the newest started, 0 if none ever was */
    bool alive;          /* from `start` to GONE */
    bool started;        /* STARTED came */
    bool clean;          /* no exit but with code 0, and nothing else wrong */
    uint16_t n;
    uint16_t n_exited;
    enum member_stop stop; /* ordered so far */
    uint64_t kill_ms;      /* when to kill (again); MEMBER_NEVER: no need */
};

struct member {
    struct member_config config;
    char host[FAILURE_HOST_BYTES];
    uint64_t now_ms;
    uint64_t word_ms; /* of the newest word from the lead */
    bool had_word;

    struct order order; /* the newest; serial 0: none yet */
    uint32_t stopped;   /* the newest generation reported as STOPPED */
    struct workers workers;

    uint32_t store_asked; /* the newest generation a store was asked for */
    uint32_t store_stale; /* close those up to this one once workers are gone */
    bool store_open;      /* that of store_asked; or it never will be */

    struct report report; /* what is true now */
    uint64_t failed_ms;   /* when report.failure was seen */
    bool changed;         /* since it was sent last */

    bool lapsed; /* the lease is over, and the member waits */
    bool is_strange; /* no word has come of the view that it obeys */
    bool has_heard; /* a lead of a view before report.floor, at ... */
    uint64_t heard_ms;
    bool fenced;
    bool left;
    uint64_t leave_ms; /* leave then, whatever is still alive */
    bool has_verdict;
    uint8_t status;
    char reason[ORDER_TEXT_BYTES];
};

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

/* a + b, without wrapping. */
static uint64_t later(uint64_t a, uint64_t b)
{
    return a > MEMBER_NEVER - b ? MEMBER_NEVER : a + b;
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

/* The lease -------------------------------------------------------------- */

/* When the lease runs out; MEMBER_NEVER without one. */
static uint64_t lease_end(const struct member *m)
{
    uint64_t lease_ms = m->config.lease_ms;

    if (!lease_ms || m->fenced || m->lapsed || MUTANT(7)) {
        return MEMBER_NEVER;
    }
    if (MUTANT(13)) {
        lease_ms /= 4;
    }
    if (!m->had_word && m->config.join_ms > lease_ms) {
        lease_ms = m->config.join_ms;
    }
    return later(m->word_ms, lease_ms);
}

static void settle_verdict(struct member *m, uint8_t status, const char *reason,
                           struct member_actions *ret)
{
    if (m->has_verdict) {
        return;
    }
    m->has_verdict = true;
    m->status = status;
    str_copy(m->reason, sizeof(m->reason), reason);
    ret->has_verdict = true;
}

/* From here on this member is on its own, and only has to go. */
static void fence(struct member *m, const char *why, struct member_actions *ret)
{
    if (m->fenced) {
        return;
    }
    m->fenced = true;
    settle_verdict(m, RUN_RESUMABLE, why, ret);
    m->leave_ms = later(m->now_ms, m->config.margin_ms);
}

static void check_lease(struct member *m, struct member_actions *ret)
{
    char why[128];

    if (m->now_ms < lease_end(m)) {
        return;
    }
    if (m->config.waits) {
        m->lapsed = true;
        if (m->workers.alive) {
            m->report.fenced = m->workers.generation;
            m->changed = true;
        }
        return;
    }
    snprintf(why, sizeof(why), "no word from the lead for %llu s",
             (unsigned long long)(m->now_ms - m->word_ms) / 1000);
    fence(m, why, ret);
}

static void hear(struct member *m, uint64_t age_ms)
{
    uint64_t at_ms;

    if (MUTANT(14)) {
        age_ms = 0;
    }
    /* A first word that is as old as a lease starts none. */
    if (!m->had_word && age_ms >= m->config.lease_ms && age_ms) {
        return;
    }
    at_ms = m->now_ms > age_ms ? m->now_ms - age_ms : 0;
    m->had_word = true;
    if (at_ms > m->word_ms) {
        m->word_ms = at_ms;
    }
    if (age_ms < m->config.lease_ms) {
        m->lapsed = false;
        m->is_strange = false;
    }
}

/* What the others must not take for a lead's that counts. */
static void promise(struct member *m, uint32_t floor, uint64_t heard_ms)
{
    struct report *r = &m->report;

    m->is_strange = m->is_strange || floor > r->floor;
    m->changed = m->changed || floor > r->floor;
    r->floor = floor > r->floor ? floor : r->floor;
    if (heard_ms != MEMBER_NEVER) {
        m->heard_ms = m->has_heard && m->heard_ms > heard_ms ? m->heard_ms
                                                             : heard_ms;
        m->has_heard = true;
    }
}

/* Events ----------------------------------------------------------------- */

static void record(struct member *m, const struct failure *f)
{
    struct report *r = &m->report;

    r->failed = true;
    r->failure = *f;
    r->failure.node = m->config.rank;
    m->failed_ms = m->now_ms > f->age_ms ? m->now_ms - f->age_ms : 0;
    m->changed = true;
}

/* Whether `f` was before the failure that is kept of this generation. */
static bool comes_first(const struct member *m, const struct failure *f)
{
    const struct failure *kept = &m->report.failure;

    if (!m->report.failed || kept->generation != m->workers.generation) {
        return true;
    }
    if (f->grade != kept->grade) {
        return f->grade < kept->grade;
    }
    return m->now_ms < later(m->failed_ms, f->age_ms);
}

/* A failure that no stop explains: the first of its generation is kept. */
static void on_failure(struct member *m, const struct failure *f)
{
    struct failure failure = *f;

    m->workers.clean = false;
    if ((f->killed_by_us && !MUTANT(6)) || !comes_first(m, f)) {
        return;
    }
    failure.generation = m->workers.generation;
    record(m, &failure);
}

/* The end of a worker, which a stop explains. */
static void on_failed_end(struct member *m, const struct failure *f)
{
    m->workers.clean = false;
    if (m->workers.stop == MEMBER_STOP_NONE || MUTANT(6)) {
        on_failure(m, f);
    }
}

/* The agent's own failure, not one of a worker. */
static void on_own_failure(struct member *m, uint32_t generation,
                           const char *text)
{
    struct failure f = {
        .kind = FAILURE_AGENT,
        .generation = generation,
        .rank = -1,
        .local_rank = -1,
    };

    str_copy(f.host, sizeof(f.host), m->host);
    str_copy(f.text, sizeof(f.text), text ? text : "");
    record(m, &f);
}

static int on_order(struct member *m, const struct order *order,
                    struct member_actions *ret)
{
    int rc;

    if (order->serial <= m->order.serial && !MUTANT(9)) {
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
        settle_verdict(m, order->status, order->reason, ret);
    }
    if (order->step == ORDER_LEAVE) {
        m->leave_ms = later(m->now_ms, m->config.margin_ms);
    }
    return 0;
}

static void on_started(struct member *m)
{
    m->workers.started = true;
    m->report.state = REPORT_RUNNING;
    m->report.generation = m->workers.generation;
    m->changed = true;
}

static void on_start_failed(struct member *m, const struct failure *f)
{
    on_failed_end(m, f);
    on_started(m);
    /* What did start is of no use, and need not be asked. */
    if (m->workers.stop < MEMBER_STOP_KILL) {
        m->workers.kill_ms = m->now_ms;
    }
}

static void on_exited(struct member *m, const struct failure *f)
{
    struct workers *w = &m->workers;

    if (w->n_exited < w->n) {
        w->n_exited++;
    }
    if (f) {
        on_failed_end(m, f);
    }
    if (w->n_exited == w->n && w->stop == MEMBER_STOP_NONE) {
        w->kill_ms = later(m->now_ms, m->config.linger_ms);
    }
    m->changed = true;
}

static void on_gone(struct member *m)
{
    struct workers *w = &m->workers;

    w->alive = false;
    w->kill_ms = MEMBER_NEVER;
    m->changed = true;
    if (w->n_exited < w->n && w->stop == MEMBER_STOP_NONE && w->clean) {
        w->clean = false;
        on_own_failure(m, w->generation, "workers vanished");
    }
    if (w->clean && m->report.state == REPORT_RUNNING) {
        m->report.state = REPORT_DONE;
    }
}

/* Events about workers. */
static int on_workers(struct member *m, const struct member_event *event)
{
    if (!m->workers.alive || event->generation != m->workers.generation) {
        return -EPROTO;
    }
    switch (event->type) {
    case MEMBER_STARTED:
        on_started(m);
        return 0;
    case MEMBER_START_FAILED:
        if (!event->failure) {
            return -EPROTO;
        }
        on_start_failed(m, event->failure);
        return 0;
    case MEMBER_EXITED:
        on_exited(m, event->failure);
        return 0;
    case MEMBER_FAILED:
        if (!event->failure) {
            return -EPROTO;
        }
        on_failure(m, event->failure);
        return 0;
    default:
        on_gone(m);
        return 0;
    }
}

static int on_store(struct member *m, const struct member_event *event)
{
    if (!event->generation || event->generation != m->store_asked) {
        return -EPROTO;
    }
    if (event->type == MEMBER_STORE_FAILED) {
        m->store_open = true;
        on_own_failure(m, event->generation, event->text);
        return 0;
    }
    m->store_open = true;
    m->report.store_port = event->port;
    str_copy(m->report.store_addr, sizeof(m->report.store_addr), event->addr);
    return 0;
}

static int on_saved(struct member *m, const struct member_event *event)
{
    struct report *r = &m->report;
    bool newer = event->generation > r->saved_generation ||
                 (event->generation == r->saved_generation &&
                  event->step > r->saved_step) || !r->saved_path[0];

    if (!event->text || strlen(event->text) >= sizeof(r->saved_path)) {
        return -EPROTO;
    }
    if (newer) {
        r->saved_generation = event->generation;
        r->saved_step = event->step;
        str_copy(r->saved_path, sizeof(r->saved_path), event->text);
        m->changed = true;
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
        hear(m, event->age_ms);
        return 0;
    case MEMBER_STARTED:
    case MEMBER_START_FAILED:
    case MEMBER_EXITED:
    case MEMBER_FAILED:
    case MEMBER_GONE:
        return on_workers(m, event);
    case MEMBER_STORE_OPEN:
    case MEMBER_STORE_FAILED:
        return on_store(m, event);
    case MEMBER_UPLINK_UP:
        m->changed = true;
        return 0;
    case MEMBER_SAVED:
        return on_saved(m, event);
    case MEMBER_PROMISE:
        promise(m, event->floor, event->heard_ms);
        return 0;
    case MEMBER_LEAVE:
        fence(m, event->text ? event->text : "the agent has to leave", ret);
        return 0;
    }
    return -EPROTO;
}

/* What follows ----------------------------------------------------------- */

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
        uint64_t kill_ms = later(m->now_ms, m->order.grace_ms);

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
        w->kill_ms = later(m->now_ms, KILL_AGAIN_MS);
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
    m->store_open = false;
    m->report.store_port = 0;
    m->report.store_addr[0] = '\0';
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

static void report_state(struct member *m, enum report_state state)
{
    if (m->report.state != state ||
        m->report.generation != m->order.generation) {
        m->report.state = state;
        m->report.generation = m->order.generation;
        m->changed = true;
    }
}

/* Does what the newest order asks for, as far as it can be done now. */
static void follow(struct member *m, struct member_actions *ret)
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
            m->stopped = m->order.generation;
            report_state(m, REPORT_STOPPED);
        }
        return;
    case ORDER_RUN:
        if ((!m->workers.alive || MUTANT(10)) && !m->lapsed &&
            !m->is_strange) {
            start_workers(m, ret);
        }
        return;
    case ORDER_END:
    case ORDER_LEAVE:
        if (!m->workers.alive) {
            report_state(m, REPORT_ENDED);
        }
        return;
    }
}

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
    uint64_t wake_ms = lease_end(m);

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
        check_lease(m, ret);
    }
    rc = on_event(m, event, ret);
    if (MUTANT(12)) {
        check_lease(m, ret);
    }
    follow(m, ret);
    consider_leaving(m, ret);
    send_report(m, ret);
    ret->wake_ms = next_wake(m);
    return rc;
}
